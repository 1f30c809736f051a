"""The metrics of a member: those that concern a service, in its words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from loadmanager.kit.telemetry import Sample

METRICS = {
    "loadmanager_shards": ("loadmanager_bundles", "Shards that this member serves"),
    "loadmanager_usage": (
        "pulsar_lb_resource_usage",
        "Share that is used of what is used most: now (max), and averaged (max_ema)",
    ),
    "loadmanager_cpu_usage": (
        "pulsar_lb_cpu_usage",
        "Usage of the processor, in percent of its limit",
    ),
    "loadmanager_memory_usage": (
        "pulsar_lb_memory_usage",
        "Usage of the machine's memory, in percent of its limit",
    ),
    "loadmanager_budget_usage": (
        "pulsar_lb_directMemory_usage",
        "Usage of the budget that is used most, in percent",
    ),
    "loadmanager_hook_failures": (
        "loadmanager_hook_failures",
        "Calls of a hook of the service that failed or took too long",
    ),
    "loadmanager_move_pause_seconds": (
        "loadmanager_move_pause_seconds",
        "How long shards that were moved away had no owner",
    ),
    "loadmanager_shards_split": ("pulsar_lb_bundles_split", "Shards that this member split"),
    "loadmanager_lookup_answers": (
        "pulsar_broker_lookup_answers",
        "Questions for the owner of a shard that had an answer",
    ),
    "loadmanager_lookup_failures": (
        "pulsar_broker_lookup_failures",
        "Questions for the owner of a shard that had none in time",
    ),
    "loadmanager_session_lease_seconds": (
        "loadmanager_session_lease_seconds",
        "Seconds until the lease of the session runs out",
    ),
    "loadmanager_fenced": (
        "loadmanager_fenced",
        "Times that the member stopped serving because its session was not proven",
    ),
    "loadmanager_member_unwell": (
        "loadmanager_broker_unwell",
        "1 if this member is not well, 2 if it gave up its shards",
    ),
    "loadmanager_leader": ("loadmanager_leader", "1 if this member leads"),
    "loadmanager_decisions": (
        "loadmanager_decisions",
        "As leader, or of its own shards: Decided, or why Nothing",
    ),
    "loadmanager_moves": (
        "loadmanager_moves",
        "As leader: moves that have ended, by who wanted them and by how they ended",
    ),
    "loadmanager_moves_waiting": (
        "loadmanager_moves_waiting",
        "As leader: moves that have not begun",
    ),
    "loadmanager_moves_running": ("loadmanager_moves_running", "As leader: moves under way"),
    "loadmanager_event_loop_busy_ratio": (
        "loadmanager_event_loop_busy_ratio",
        "Share of the time that the event loop works",
    ),
    "loadmanager_event_loop_lag_seconds": (
        "loadmanager_event_loop_lag_seconds",
        "How late the event loop's last timer was",
    ),
    "loadmanager_sensor_trusted": (
        "loadmanager_sensor_trusted",
        "1 if the sensor can be trusted, 0 if it drives no decision",
    ),
    "loadmanager_step_failures": (
        "pulsar_lb_step_failures",
        "Failures of periodic steps, which go on",
    ),
    "loadmanager_watch_failures": (
        "loadmanager_watch_failures",
        "Changes in the store that could not be processed",
    ),
    "loadmanager_corrupt_data": (
        "loadmanager_corrupt_data",
        "Damaged data in the store that was left out",
    ),
    "loadmanager_info": ("loadmanager_info", "The version that runs"),
}
"""Name → that of the member's parts, and the help text. Others are of brokers only."""
HOOKS = {"open_bundle": "open", "settle_bundle": "close"}
LEFT_OUT = {
    *(("hook", hook) for hook in ("close_bundle", "split_bundle", "merge_bundles")),
    *(("hook", hook) for hook in ("bundle_stats", "topics", "clients", "usage")),
    *(("kind", kind) for kind in ("dynamic", "lock", "policy", "schema", "topic", "wish")),
}
"""Hooks that the library answers itself, and kinds of data that a service has not."""


def of_service(samples: Iterable[Sample]) -> Iterator[Sample]:
    """The samples of a member in the words of a service."""
    by_source = {source: (name, doc) for name, (source, doc) in METRICS.items()}
    for sample in samples:
        if sample.name not in by_source:
            continue
        name, doc = by_source[sample.name]
        labels = tuple(
            (label, HOOKS.get(value, value) if label == "hook" else value)
            for label, value in sample.labels
            if label != "metric"
        )
        if LEFT_OUT.isdisjoint(labels):
            yield replace(sample, name=name, doc=doc, labels=labels)
