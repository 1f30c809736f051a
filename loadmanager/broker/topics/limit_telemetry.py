"""Metrics of rate limits, under Pulsar's names where Pulsar has them."""

from __future__ import annotations

from collections.abc import Iterator

from loadmanager.kit.telemetry import Sample, counter, gauge
from loadmanager.limits.broker import BrokerThrottling
from loadmanager.limits.stats import LimitSnapshot
from loadmanager.limits.tracker import HoldCause

PENDING_PUBLISHES = gauge(
    "pulsar_broker_throttled_connections",
    "Connections paused because of their pending publish requests",
    broker=False,
)
PAUSED = gauge("loadmanager_paused_connections", "Connections that something holds now")
PAUSES = counter(
    "loadmanager_connection_pauses",
    "Times that connections were paused and resumed",
    "operation",
)
HELD_CONNECTIONS = gauge(
    "loadmanager_throttled_connections", "Connections that this cause holds now", "cause"
)
HELD_TIMES = counter("loadmanager_throttled", "Times that this cause held a connection", "cause")
HELD_SECONDS = counter(
    "loadmanager_throttled_seconds",
    "Time that this cause held connections whose clients had sent something",
    "cause",
)
TIMER = counter("loadmanager_limit_timer_wakeups", "Limits that the one timer woke")

_LIMIT = ("limit", "level")
RATES = {
    unit: (
        gauge(
            f"loadmanager_limit_configured_{unit}_per_second",
            f"Configured rate of the limit in {unit}/s",
            *_LIMIT,
        ),
        gauge(
            f"loadmanager_limit_delivered_{unit}_per_second",
            f"Delivered rate under the limit in {unit}/s",
            *_LIMIT,
        ),
    )
    for unit in ("messages", "bytes")
}
"""Unit → configured, delivered."""
ERROR = gauge(
    "loadmanager_limit_error_ratio",
    "Delivered over configured, minus 1, while the limit holds a producer or subscription",
    *_LIMIT,
)
QUEUE = gauge(
    "loadmanager_limit_queue_length", "Producers or subscriptions that wait for the limit", *_LIMIT
)
WAITS = counter(
    "loadmanager_limit_held", "Times that a producer or subscription had to wait", *_LIMIT
)
WAITED = counter(
    "loadmanager_limit_waited_seconds", "Time that producers or subscriptions waited", *_LIMIT
)
FORGIVEN = counter(
    "loadmanager_limit_forgiven_tokens",
    "Messages or bytes beyond the largest debt, which the limit forgave",
    *_LIMIT,
)
WAKEUPS = counter("loadmanager_limit_wakeups", "Times that the timer woke the limit", *_LIMIT)

GROUP_USED = {
    what: counter(
        f"pulsar_resource_group_{what}_used",
        f"{what.capitalize()} that namespaces of the resource group sent through this broker",
        "ResourceGroup",
        "MonitoringClass",
        broker=False,
    )
    for what in ("messages", "bytes")
}


def samples(throttling: BrokerThrottling, now_ns: int, topics_max: int) -> Iterator[Sample]:
    """All samples of a broker's limits now, of at most `topics_max` topics those of their own
    limits. Topics without limits have none.
    """
    yield from _connections(throttling)
    for limit in throttling.limits(topics_max):
        yield from _limit(limit.snapshot(now_ns))
    for name, pair in list(throttling.groups.items()):
        for kind, limit in (("Publish", pair.publish), ("Dispatch", pair.dispatch)):
            figures = limit.snapshot(now_ns)
            yield GROUP_USED["messages"].sample(figures.messages, name, kind)
            yield GROUP_USED["bytes"].sample(figures.size_bytes, name, kind)


def _connections(throttling: BrokerThrottling) -> Iterator[Sample]:
    pauses = throttling.pauses
    by_cause = pauses.by_cause
    yield PENDING_PUBLISHES.sample(by_cause[HoldCause.PENDING_PUBLISH_REQUESTS].connections)
    yield PAUSED.sample(pauses.paused_connections)
    yield PAUSES.sample(pauses.pauses, "paused")
    yield PAUSES.sample(pauses.resumes, "resumed")
    for cause, totals in by_cause.items():
        yield HELD_CONNECTIONS.sample(totals.connections, cause.value)
        yield HELD_TIMES.sample(totals.times, cause.value)
        yield HELD_SECONDS.sample(totals.held_ns / 1e9, cause.value)
    yield TIMER.sample(throttling.wakeups)


def _limit(figures: LimitSnapshot) -> Iterator[Sample]:
    labels = (figures.name, figures.level)
    for unit, configured_per_s, delivered_per_s in (
        ("messages", figures.configured_messages_per_s, figures.delivered_messages_per_s),
        ("bytes", figures.configured_bytes_per_s, figures.delivered_bytes_per_s),
    ):
        if configured_per_s >= 0:
            configured, delivered = RATES[unit]
            yield configured.sample(configured_per_s, *labels)
            yield delivered.sample(delivered_per_s, *labels)
    if figures.error is not None:
        yield ERROR.sample(figures.error, *labels)
    yield QUEUE.sample(figures.queue_length, *labels)
    yield WAITS.sample(figures.held, *labels)
    yield WAITED.sample(figures.waited_ms / 1000, *labels)
    yield FORGIVEN.sample(figures.forgiven_tokens, *labels)
    yield WAKEUPS.sample(figures.wakeups, *labels)
