"""The metrics of topics and connections, under Pulsar's names, with Pulsar's labels: per broker,
per namespace or, with `exposeTopicLevelMetricsInPrometheus`, per topic and subscription.

As in Pulsar, the series of a namespace give way to those of its topics, so that their sum is right.
Topics that are not shown one by one stay in the series of their namespace, and namespaces that are
not shown in series without `namespace`: sums over series are always complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from loadmanager.broker.messaging.subscription import Subscription
from loadmanager.broker.protocol.hosted import HostedTopic
from loadmanager.broker.protocol.totals import (
    COUNTS,
    NO_RATES,
    RATES,
    WRITES,
    Figures,
    NamespaceTotals,
    Totals,
)
from loadmanager.kit.telemetry import Detail, Metric, Sample, counter, gauge

_plain_gauge = partial(gauge, broker=False)
_plain_counter = partial(counter, broker=False)

_FIGURES = {
    "topics": ("topics_count", "Open topics"),
    "subscriptions": ("subscriptions_count", "Subscriptions"),
    "producers": ("producers_count", "Connected producers"),
    "consumers": ("consumers_count", "Connected consumers"),
    "rate_in": ("rate_in", "Messages/s published"),
    "rate_out": ("rate_out", "Messages/s delivered"),
    "throughput_in": ("throughput_in", "Bytes/s published"),
    "throughput_out": ("throughput_out", "Bytes/s delivered"),
    "storage_bytes": ("storage_size", "Bytes that topics hold in memory"),
    "logical_bytes": ("storage_logical_size", "The same: there are no replicas"),
    "write_rate": ("storage_write_rate", "Entries/s stored"),
    "read_rate": ("storage_read_rate", "Entries/s delivered"),
    "backlog": ("msg_backlog", "Entries that subscriptions have not acknowledged"),
}
"""Figure → Pulsar's name for it, behind `pulsar_` or `pulsar_broker_`, and help text."""
_STORAGE = {
    "offloaded": ("storage_offloaded_size", "Always 0: bytes offloaded"),
    "entry_size_count": ("entry_size_count", "Entries stored in the last stats period"),
    "storage_write_latency_count": ("storage_write_latency_count", "The same as entry_size_count"),
    **{
        figure: (
            figure,
            "Entries of up to this size (bytes) stored in the last stats period"
            if figure.startswith("entry_size_le")
            else "Entries stored in up to this time (ms) in the last stats period",
        )
        for figure in WRITES
    },
    "entry_size_sum": ("entry_size_sum", "Bytes stored in the last stats period"),
    "storage_write_latency_sum": (
        "storage_write_latency_sum",
        "Always 0: storing in memory takes microseconds",
    ),
}
_INCOMING = {
    "messages_in": ("in_messages", "Messages published"),
    "bytes_in": ("in_bytes", "Bytes published"),
}
_OUTGOING = {
    "messages_out": ("out_messages", "Messages delivered"),
    "bytes_out": ("out_bytes", "Bytes delivered"),
}


def _named(figures: Mapping[str, tuple[str, str]], *labels: str, of: str) -> dict[str, Metric]:
    return {
        figure: _plain_gauge(f"pulsar_{name}", f"{doc} {of}", *labels)
        for figure, (name, doc) in figures.items()
    }


def _counted(figures: Mapping[str, tuple[str, str]], *labels: str, of: str) -> dict[str, Metric]:
    return {
        figure: _plain_counter(f"pulsar_{name}", f"{doc} {of}", *labels)
        for figure, (name, doc) in figures.items()
    }


BROKER = {
    figure: _plain_gauge(f"pulsar_broker_{name}", f"{doc}, of this broker")
    for figure, (name, doc) in _FIGURES.items()
}
BROKER_IN = _plain_counter("pulsar_broker_in_bytes", "Bytes published", "system_topic")
BROKER_OUT = _plain_counter("pulsar_broker_out_bytes", "Bytes delivered", "system_subscription")

NAMESPACE = {
    **_named(_FIGURES | _STORAGE, "namespace", of="in the namespace"),
    **_counted(_INCOMING, "namespace", of="in the namespace"),
    **_counted(_OUTGOING, "namespace", of="in the namespace"),
    "backlog": _plain_gauge(
        "pulsar_msg_backlog",
        "Entries that subscriptions have not acknowledged",
        "namespace",
        "remote_cluster",
    ),
}
_TOPIC = ("namespace", "topic")
TOPIC = {
    **_named(_FIGURES | _STORAGE, *_TOPIC, of="of the topic"),
    **_counted(_INCOMING, *_TOPIC, of="to the topic"),
}
del TOPIC["topics"]
AVERAGE_SIZE = _plain_gauge(
    "pulsar_average_msg_size", "Bytes of a message, over the last stats period", *_TOPIC
)
HOLDS = _plain_gauge(
    "pulsar_publish_rate_limit_times", "Times that producers of the topic were held", *_TOPIC
)

_SUBSCRIPTION = (*_TOPIC, "subscription")
SUBSCRIPTION = {
    name: _plain_gauge(f"pulsar_subscription_{name}", doc, *_SUBSCRIPTION)
    for name, doc in (
        ("back_log", "Entries that are not acknowledged"),
        ("back_log_no_delayed", "The same without those that wait for their time"),
        ("delayed", "Entries that wait for their time"),
        ("in_replay", "Entries that wait to be delivered again"),
        ("msg_rate_redeliver", "Messages/s delivered again"),
        ("unacked_messages", "Messages delivered and not acknowledged"),
        ("blocked_on_unacked_messages", "Always 0: only consumers are blocked, one by one"),
        ("msg_rate_out", "Messages/s delivered"),
        ("msg_throughput_out", "Bytes/s delivered"),
        ("consumers_count", "Connected consumers"),
    )
}
SUBSCRIPTION_OUT = _counted(_OUTGOING, *_SUBSCRIPTION, of="to the subscription's consumers")
DISPATCH_WAITS = {
    what: _plain_gauge(
        f"pulsar_subscription_dispatch_throttled_{unit}_events",
        f"Times that delivery waited for a limit in {what}; the reason is the limit's level",
        *_SUBSCRIPTION,
        "reason",
    )
    for what, unit in (("messages", "msg"), ("bytes", "bytes"))
}

_CONSUMER = (*_SUBSCRIPTION, "consumer_name", "consumer_id")
CONSUMER = {
    name: _plain_gauge(f"pulsar_consumer_{name}", f"{doc}, of the consumer", *_CONSUMER)
    for name, doc in (
        ("msg_rate_out", "Messages/s delivered"),
        ("msg_throughput_out", "Bytes/s delivered"),
        ("unacked_messages", "Messages delivered and not acknowledged"),
        ("available_permits", "Messages that its client still takes"),
        ("blocked_on_unacked_messages", "1 while it has as many as one may have, 0 otherwise"),
    )
}

CONNECTIONS = {
    field: gauge(f"pulsar_{name}", doc, "metric")
    for field, name, doc in (
        ("active", "active_connections", "Client connections"),
        ("created", "connection_created_total_count", "Connections accepted since start"),
        ("succeeded", "connection_create_success_count", "Clients that introduced themselves"),
        ("failed", "connection_create_fail_count", "Connections that ended before that"),
        ("closed", "connection_closed_total_count", "Connections that ended"),
    )
}
LOADING = _plain_gauge("pulsar_broker_topic_load_pending_requests", "Topics that are being opened")
LEFT_OUT = gauge(
    "loadmanager_metrics_left_out",
    "Things beyond loadManagerMetricsMaxTopics, which the page only sums",
    "what",
)


@dataclass(slots=True)
class ConnectionCounts:
    """Connections since start; `active` and `opening` (topics) are of now."""

    created: int = 0
    succeeded: int = 0
    failed: int = 0
    closed: int = 0
    active: int = 0
    opening: int = 0


def samples(
    totals: NamespaceTotals,
    shown: Sequence[HostedTopic],
    connections: ConnectionCounts,
    detail: Detail,
    unacked_max: int,
) -> Iterator[Sample]:
    """All samples. `shown` are the topics to show, at most as many as `detail` admits;
    `unacked_max` as `maxUnackedMessagesPerConsumer`.
    """
    for field, metric in CONNECTIONS.items():
        yield metric.sample(getattr(connections, field), "broker_connection")
    yield LOADING.sample(connections.opening)
    values = _values(totals.broker)
    for figure, metric in BROKER.items():
        yield metric.sample(values[figure])
    for metric, figure in ((BROKER_IN, "bytes_in"), (BROKER_OUT, "bytes_out")):
        yield metric.sample(values[figure], "false")
        yield metric.sample(0, "true")
    yield from _namespaces(totals, shown, detail)
    if detail.topics:
        yield LEFT_OUT.sample(totals.broker.counts[0] - len(shown), "topics")
        yield from _topics(shown, detail.topics)
    if detail.consumers:
        yield from _consumers(shown, detail.consumers, unacked_max)


def _values(totals: Totals | Figures) -> dict[str, float]:
    """By name, in the orders of `COUNTS` and `RATES`."""
    values: dict[str, float] = dict(zip(COUNTS, totals.counts, strict=True))
    values.update(zip(RATES, totals.rates, strict=True))
    values["logical_bytes"] = values["storage_bytes"]
    values["offloaded"] = 0
    entries = sum(values[figure] for figure in WRITES if "size_le" in figure)
    values["entry_size_count"] = values["storage_write_latency_count"] = entries
    return values


def _namespaces(
    totals: NamespaceTotals, shown: Sequence[HostedTopic], detail: Detail
) -> Iterator[Sample]:
    """The series of namespaces: of the topics that are not in `shown`."""
    one_by_one: dict[str, Totals] = {}
    for hosted in shown:
        name = hosted.figures.namespace
        one_by_one[name] = one_by_one.get(name, Totals()) + hosted.figures
    present = list(totals.namespaces.items())
    for name, namespace in present[: detail.namespaces]:
        topics = one_by_one.get(name)
        yield NAMESPACE["topics"].sample(namespace.counts[0], name)
        rest = namespace if topics is None else namespace - topics
        if topics is None or rest.counts[0]:
            yield from _namespace(rest, name)
    hidden = present[detail.namespaces :]
    yield LEFT_OUT.sample(len(hidden), "namespaces")
    if hidden:
        rest = Totals()
        for name, namespace in hidden:
            topics = one_by_one.get(name)
            rest += namespace if topics is None else namespace - topics
        yield NAMESPACE["topics"].sample(sum(namespace.counts[0] for _, namespace in hidden), "")
        yield from _namespace(rest, "")


def _namespace(totals: Totals, name: str) -> Iterator[Sample]:
    values = _values(totals)
    for figure, metric in NAMESPACE.items():
        if figure == "backlog":
            yield metric.sample(values[figure], name, "local")
        elif figure != "topics":
            yield metric.sample(values[figure], name)


def _topics(shown: Iterable[HostedTopic], subscriptions_max: int) -> Iterator[Sample]:
    subscriptions_shown = left_out = 0
    for hosted in shown:
        figures = hosted.figures
        labels, values = (figures.namespace, hosted.core.name), _values(figures)
        for figure, metric in TOPIC.items():
            yield metric.sample(values[figure], *labels)
        rate = values["rate_in"]
        yield AVERAGE_SIZE.sample(values["throughput_in"] / rate if rate else 0, *labels)
        yield HOLDS.sample(hosted.limits.held_times, *labels)
        subscriptions = hosted.core.subscriptions
        room = subscriptions_max - subscriptions_shown
        for subscription in list(islice(subscriptions.values(), room)):
            yield from _subscription(hosted, subscription)
        subscriptions_shown += min(room, len(subscriptions))
        left_out += max(0, len(subscriptions) - room)
    yield LEFT_OUT.sample(left_out, "subscriptions")


def _subscription(hosted: HostedTopic, subscription: Subscription) -> Iterator[Sample]:
    name = subscription.name
    labels = (hosted.figures.namespace, hosted.core.name, name)
    rates = hosted.figures.subscription_rates.get(name, NO_RATES)
    backlog, delayed = subscription.backlog_entries, subscription.delayed_entries
    for figure, value in (
        ("back_log", backlog),
        ("back_log_no_delayed", backlog - delayed),
        ("delayed", delayed),
        ("in_replay", subscription.waiting_to_be_redelivered),
        ("msg_rate_redeliver", rates[2]),
        ("unacked_messages", sum(each.unacked_messages for each in subscription.consumers)),
        ("blocked_on_unacked_messages", 0),
        ("msg_rate_out", rates[0]),
        ("msg_throughput_out", rates[1]),
        ("consumers_count", len(subscription.consumers)),
    ):
        yield SUBSCRIPTION[figure].sample(value, *labels)
    yield SUBSCRIPTION_OUT["messages_out"].sample(subscription.messages_out, *labels)
    yield SUBSCRIPTION_OUT["bytes_out"].sample(subscription.bytes_out, *labels)
    gate = hosted.limits.gates.get(name)
    if gate is not None:
        for (level, what), times in list(gate.throttled_by.items()):
            yield DISPATCH_WAITS[what].sample(times, *labels, level.value)


def _consumers(
    shown: Iterable[HostedTopic], consumers_max: int, unacked_max: int
) -> Iterator[Sample]:
    attached = [consumer for hosted in shown for consumer in hosted.attached.values()]
    for consumer in attached[:consumers_max]:
        hosted, core = consumer.hosted, consumer.core
        labels = (hosted.figures.namespace, hosted.core.name, consumer.subscription.name)
        for figure, value in (
            ("msg_rate_out", consumer.rates.messages_per_s),
            ("msg_throughput_out", consumer.rates.bytes_per_s),
            ("unacked_messages", core.unacked_messages),
            ("available_permits", core.permits),
            ("blocked_on_unacked_messages", consumer.blocked(unacked_max)),
        ):
            yield CONSUMER[figure].sample(value, *labels, core.name, str(consumer.consumer_id))
    yield LEFT_OUT.sample(max(0, len(attached) - consumers_max), "consumers")
