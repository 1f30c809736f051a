"""Rate limiting: PIP-322's token bucket and every limit of Pulsar. Pure: no I/O, no clock, no
timer, no callbacks.

bucket → limit (two buckets and a fair queue) → publish, dispatch → broker (all limits of one
broker, and how a protocol server uses them). tracker counts why a connection is paused. schedule
holds what limits answer: who may go on, and when to ask again.
"""
