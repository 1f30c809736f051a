"""Metrics of limits: Pulsar's names where Pulsar has them."""

from __future__ import annotations

from collections.abc import Iterator

from loadmanager.core.throttling.broker import BrokerThrottling, TopicThrottling
from loadmanager.core.throttling.limit import Limit
from loadmanager.core.throttling.tracker import Cause
from loadmanager.ports.telemetry import Sample


def samples(throttling: BrokerThrottling) -> Iterator[Sample]:
    """All samples of a broker's limits now. Topics without limits have none."""
    yield from _connections(throttling)
    for limit in throttling.limits():
        yield from _limit(limit)
    for topic in throttling.topics.values():
        yield from _topic(topic)


def _connections(throttling: BrokerThrottling) -> Iterator[Sample]:
    pauses = throttling.pauses
    yield Sample(
        "pulsar_broker_throttled_connections",
        "Connections paused because of their pending publish requests",
        pauses.by_cause[Cause.PENDING_PUBLISH_REQUESTS].connections,
    )
    yield Sample(
        "pulsar_broker_throttled_connections_global_limit",
        "Connections paused because of the publish buffer's limit",
        pauses.by_cause[Cause.PUBLISH_BUFFER].connections,
    )
    yield Sample(
        "loadmanager_paused_connections",
        "Connections that are not read from now",
        pauses.paused_connections,
    )
    for operation, times in (("paused", pauses.pauses), ("resumed", pauses.resumes)):
        yield Sample(
            "pulsar_broker_connection_rate_limit",
            "Times connections were paused and resumed",
            times,
            (("operation", operation),),
            "counter",
        )
    for cause, totals in pauses.by_cause.items():
        label = (("cause", cause.value),)
        yield Sample(
            "loadmanager_throttled_connections",
            "Connections held by this cause now",
            totals.connections,
            label,
        )
        yield Sample(
            "loadmanager_throttled",
            "Times this cause held a connection",
            totals.times,
            label,
            "counter",
        )
        yield Sample(
            "loadmanager_throttled_seconds",
            "Time that this cause held connections",
            totals.held_ns / 1e9,
            label,
            "counter",
        )
    yield Sample(
        "loadmanager_limit_timer_wakeups",
        "Limits woken by the one timer",
        throttling.wakeups.count,
        (),
        "counter",
    )


def _limit(limit: Limit) -> Iterator[Sample]:
    figures = limit.snapshot()
    label = (("limit", figures.name), ("level", figures.level))
    for unit, configured, delivered in (
        ("messages", figures.configured_messages_per_s, figures.delivered_messages_per_s),
        ("bytes", figures.configured_bytes_per_s, figures.delivered_bytes_per_s),
    ):
        if configured >= 0:
            yield Sample(
                f"loadmanager_limit_configured_{unit}_per_second",
                f"Configured rate in {unit}",
                configured,
                label,
            )
            yield Sample(
                f"loadmanager_limit_delivered_{unit}_per_second",
                f"Delivered rate in {unit}",
                delivered,
                label,
            )
    if figures.error is not None:
        yield Sample(
            "loadmanager_limit_error_ratio",
            "Delivered over configured - 1, while somebody is held",
            figures.error,
            label,
        )
    yield Sample(
        "loadmanager_limit_queue_length",
        "Producers or subscriptions that wait",
        figures.queue_length,
        label,
    )
    yield Sample(
        "loadmanager_limit_held", "Times somebody had to wait", figures.held, label, "counter"
    )
    yield Sample(
        "loadmanager_limit_waited_seconds",
        "Time that somebody waited",
        figures.waited_ms / 1000,
        label,
        "counter",
    )
    yield Sample(
        "loadmanager_limit_forgiven_tokens",
        "Messages or bytes beyond the largest debt",
        figures.forgiven_tokens,
        label,
        "counter",
    )
    yield Sample(
        "loadmanager_limit_wakeups",
        "Times the limit was looked at by the timer",
        figures.wakeups,
        label,
        "counter",
    )


def _topic(topic: TopicThrottling) -> Iterator[Sample]:
    name = (("topic", str(topic.name)),)
    if topic.held_times:
        yield Sample(
            "pulsar_publish_rate_limit_times",
            "Times that producers of the topic were held",
            topic.held_times,
            name,
        )
    for subscription, gate in topic.gates.items():
        for (level, what), times in gate.throttled_by.items():
            unit = "msg" if what == "messages" else "bytes"
            yield Sample(
                f"pulsar_subscription_dispatch_throttled_{unit}_events",
                f"Times that dispatching waited for a limit in {what}",
                times,
                (*name, ("subscription", subscription), ("reason", level.value)),
                "counter",
            )
