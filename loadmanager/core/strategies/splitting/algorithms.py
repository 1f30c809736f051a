"""Where to cut a bundle, in Pulsar's integer arithmetic
(`org.apache.pulsar.common.naming.*BundleSplitAlgorithm`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadmanager.core.bundles.ranges import BundleRange
from loadmanager.core.errors import BadInputError

RANGE = "range_equally_divide"
TOPIC_COUNT = "topic_count_equally_divide"
POSITIONS = "specified_positions_divide"
FLOW_OR_QPS = "flow_or_qps_equally_divide"
ALGORITHMS = (RANGE, TOPIC_COUNT, POSITIONS, FLOW_OR_QPS)


@dataclass(frozen=True, slots=True)
class TopicLoad:
    """One topic of the bundle: hash, messages/s and bytes/s in and out."""

    hash: int
    rate: float = 0.0
    throughput: float = 0.0


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """What a bundle may carry at most (`flow_or_qps_equally_divide`); `difference` is the tolerated
    excess, a fraction.
    """

    rate: float
    throughput: float
    difference: float


def boundaries(
    algorithm: str,
    span: BundleRange,
    topics: Mapping[str, TopicLoad],
    *,
    positions: Sequence[int] = (),
    limits: FlowLimits | None = None,
) -> tuple[int, ...]:
    """The cuts that an algorithm makes in a bundle; empty when it would not help.

    Raises `BadInputError` for an unknown algorithm or missing input.
    """
    if algorithm == RANGE:
        return (span.lower + (span.upper - span.lower) // 2,)
    if algorithm == TOPIC_COUNT:
        return _by_topic_count(sorted(topic.hash for topic in topics.values()))
    if algorithm == POSITIONS:
        if not positions:
            raise BadInputError(f"{POSITIONS} needs positions")
        inside = tuple(
            sorted(position for position in set(positions) if span.lower < position < span.upper)
        )
        return inside if len(topics) > 1 else ()
    if algorithm == FLOW_OR_QPS:
        if limits is None:
            raise BadInputError(f"{FLOW_OR_QPS} needs limits")
        return _by_flow(list(topics.values()), limits)
    raise BadInputError(
        f"Unsupported namespace bundle split algorithm {algorithm!r}: {', '.join(ALGORITHMS)} "
        "are supported"
    )


def _by_topic_count(hashes: list[int]) -> tuple[int, ...]:
    """Between the two topics in the middle."""
    count = len(hashes)
    if count <= 1:
        return ()
    start, end = hashes[max(count // 2 - 1, 0)], hashes[count // 2]
    return (start + (end - start) // 2,)


def _by_flow(topics: list[TopicLoad], limits: FlowLimits) -> tuple[int, ...]:
    """A cut before each topic that would carry a piece over the limits.

    Topics of one hash count as one with the sum of their loads; Pulsar counts the last one's load
    for each of them, and may cut twice at one place.
    """
    if len(topics) <= 1:
        return ()
    by_hash: dict[int, TopicLoad] = {}
    for topic in topics:
        if topic.rate > 0 or topic.throughput > 0:
            other = by_hash.get(topic.hash, TopicLoad(topic.hash))
            by_hash[topic.hash] = TopicLoad(
                topic.hash, other.rate + topic.rate, other.throughput + topic.throughput
            )
    loaded = [by_hash[value] for value in sorted(by_hash)]
    rate, throughput = (
        sum(topic.rate for topic in loaded),
        sum(topic.throughput for topic in loaded),
    )
    excess = 1 + limits.difference
    if len(loaded) < 2 or (rate < limits.rate * excess and throughput < limits.throughput * excess):
        return ()
    cuts: list[int] = []
    rate, throughput = loaded[0].rate, loaded[0].throughput
    for before, topic in zip(loaded, loaded[1:], strict=False):
        if rate + topic.rate > limits.rate or throughput + topic.throughput > limits.throughput:
            cuts.append(before.hash + (topic.hash - before.hash) // 2 + 1)
            rate, throughput = topic.rate, topic.throughput
        else:
            rate, throughput = rate + topic.rate, throughput + topic.throughput
    return tuple(cuts)
