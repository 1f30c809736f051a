"""Rates as Pulsar's policies spell them, and which of them applies: topic policy, else namespace
policy, else broker.conf.

Policies come from operators and from metadata, which other clusters may have written. `decode`
reads an operator's request and refuses invalid values. `stored` reads metadata; an unreadable value
counts as not set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from loadmanager.kit.errors import BadInputError
from loadmanager.limits.settings import INT_MAX, LONG_MAX, ThrottlingSettings


class PublishRate(msgspec.Struct, frozen=True, kw_only=True):
    """Publish limit of a topic; −1 or 0 is unlimited."""

    messages_per_s: int = msgspec.field(default=-1, name="publishThrottlingRateInMsg")
    bytes_per_s: int = msgspec.field(default=-1, name="publishThrottlingRateInByte")


class DispatchRate(msgspec.Struct, frozen=True, kw_only=True):
    """Dispatch limit of a topic or subscription per period; −1 or 0 is unlimited."""

    messages: int = msgspec.field(default=-1, name="dispatchThrottlingRateInMsg")
    bytes: int = msgspec.field(default=-1, name="dispatchThrottlingRateInByte")
    relative: bool = msgspec.field(default=False, name="relativeToPublishRate")
    period_s: int = msgspec.field(default=1, name="ratePeriodInSecond")


class SubscribeRate(msgspec.Struct, frozen=True, kw_only=True):
    """SUBSCRIBE requests of one consumer per period; −1 or 0 is unlimited."""

    subscribes: int = msgspec.field(default=-1, name="subscribeThrottlingRatePerConsumer")
    period_s: int = msgspec.field(default=30, name="ratePeriodInSecond")


class ResourceGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Limits shared by all topics of the namespaces that name the group; null, −1 or 0 is
    unlimited.
    """

    publish_messages: int | None = msgspec.field(default=None, name="publishRateInMsgs")
    publish_bytes: int | None = msgspec.field(default=None, name="publishRateInBytes")
    dispatch_messages: int | None = msgspec.field(default=None, name="dispatchRateInMsgs")
    dispatch_bytes: int | None = msgspec.field(default=None, name="dispatchRateInBytes")

    def publish(self) -> PublishRate:
        """The group's publish limit."""
        return PublishRate(
            messages_per_s=self.publish_messages or -1, bytes_per_s=self.publish_bytes or -1
        )

    def dispatch(self) -> DispatchRate:
        """The group's dispatch limit."""
        return DispatchRate(messages=self.dispatch_messages or -1, bytes=self.dispatch_bytes or -1)


Rate = TypeVar("Rate", PublishRate, DispatchRate, SubscribeRate, ResourceGroup)

_PERIOD = "ratePeriodInSecond"
_MAXIMA = {
    "publishThrottlingRateInMsg": INT_MAX,
    "dispatchThrottlingRateInMsg": INT_MAX,
    "subscribeThrottlingRatePerConsumer": INT_MAX,
    _PERIOD: INT_MAX,
    "publishRateInMsgs": INT_MAX,
    "dispatchRateInMsgs": INT_MAX,
}
"""The greatest values of Pulsar's fields; all other fields are longs."""


def decode(document: Mapping[str, Any], kind: type[Rate]) -> Rate:
    """A rate from the JSON object of a request. Numbers may be strings, as Jackson reads them; a
    field that is null or missing has its default; unknown fields are ignored.

    Raises `BadInputError` for what is not a number, and outside the range of Pulsar's field: from
    −1, a period from 1, to the greatest int or long.
    """
    given = {name: value for name, value in document.items() if value is not None}
    try:
        rate = msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadInputError(
            "the body must be a JSON object with "
            f"{', '.join(kind.__struct_encode_fields__)}: {error}"
        ) from None
    for name, value in msgspec.to_builtins(rate).items():
        minimum, maximum = 1 if name == _PERIOD else -1, _MAXIMA.get(name, LONG_MAX)
        if value is not None and not minimum <= value <= maximum:
            raise BadInputError(f"{name} = {value}: {minimum} to {maximum} is allowed")
    return rate


def stored(value: object, kind: type[Rate]) -> Rate | None:
    """A rate from stored metadata; None when it is missing or unreadable."""
    if not isinstance(value, Mapping):
        return None
    try:
        return msgspec.convert(dict(value), kind, strict=False)
    except msgspec.ValidationError:
        return None


def plain(rate: PublishRate | DispatchRate | SubscribeRate | ResourceGroup) -> dict[str, Any]:
    """A rate as the JSON object that Pulsar shows."""
    shown: dict[str, Any] = msgspec.to_builtins(rate)
    return shown


def of_cluster(
    policies: Mapping[str, Any], field: str, cluster: str, kind: type[Rate]
) -> Rate | None:
    """One cluster's rate out of a namespace's policies, where each field is a map from cluster to
    rate.
    """
    by_cluster = policies.get(field)
    return stored(by_cluster.get(cluster), kind) if isinstance(by_cluster, Mapping) else None


def _policy(
    topic_values: tuple[object, ...],
    namespace: Mapping[str, Any],
    fields: tuple[str, ...],
    cluster: str,
    kind: type[Rate],
) -> Rate | None:
    """The first readable rate of the topic's policies, else of these fields of the namespace's.

    A dispatch rate of a namespace that limits nothing counts as not set.
    """
    for value in topic_values:
        own = stored(value, kind)
        if own is not None:
            return own
    for field in fields:
        shared = of_cluster(namespace, field, cluster, kind)
        if shared is not None and (not isinstance(shared, DispatchRate) or is_set(shared)):
            return shared
    return None


def publish_rate(
    topic: Mapping[str, Any],
    namespace: Mapping[str, Any],
    cluster: str,
    settings: ThrottlingSettings,
) -> PublishRate:
    """The publish limit of each topic (each partition)."""
    own, fields = (topic.get("publishRate"),), ("publishMaxMessageRate",)
    return _policy(own, namespace, fields, cluster, PublishRate) or PublishRate(
        messages_per_s=settings.topic_publish_messages_per_s,
        bytes_per_s=settings.topic_publish_bytes_per_s,
    )


def topic_dispatch_rate(
    topic: Mapping[str, Any],
    namespace: Mapping[str, Any],
    cluster: str,
    settings: ThrottlingSettings,
) -> DispatchRate:
    """The dispatch limit of each topic; `clusterDispatchRate` is an older name of a field."""
    own, fields = (topic.get("dispatchRate"),), ("topicDispatchRate", "clusterDispatchRate")
    return _policy(own, namespace, fields, cluster, DispatchRate) or DispatchRate(
        messages=settings.topic_dispatch_messages_per_s,
        bytes=settings.topic_dispatch_bytes_per_s,
        relative=settings.dispatch_relative_to_publish,
    )


def subscription_dispatch_rate(
    topic: Mapping[str, Any],
    namespace: Mapping[str, Any],
    cluster: str,
    subscription: str,
    settings: ThrottlingSettings,
) -> DispatchRate:
    """The dispatch limit of one subscription: the topic's policy for this subscription, then for
    all of its subscriptions, then as for topics.
    """
    by_name = topic.get("subscriptionPolicies")
    named = by_name.get(subscription) if isinstance(by_name, Mapping) else None
    own = (
        named.get("dispatchRate") if isinstance(named, Mapping) else None,
        topic.get("subscriptionDispatchRate"),
    )
    fields = ("subscriptionDispatchRate",)
    return _policy(own, namespace, fields, cluster, DispatchRate) or DispatchRate(
        messages=settings.subscription_dispatch_messages_per_s,
        bytes=settings.subscription_dispatch_bytes_per_s,
        relative=settings.dispatch_relative_to_publish,
    )


def subscribe_rate(
    topic: Mapping[str, Any],
    namespace: Mapping[str, Any],
    cluster: str,
    settings: ThrottlingSettings,
) -> SubscribeRate:
    """The limit on SUBSCRIBE of each consumer."""
    own, fields = (topic.get("subscribeRate"),), ("clusterSubscribeRate",)
    return _policy(own, namespace, fields, cluster, SubscribeRate) or SubscribeRate(
        subscribes=settings.subscribes_per_consumer, period_s=settings.subscribe_period_s
    )


def applied(
    topic: Mapping[str, Any],
    namespace: Mapping[str, Any],
    cluster: str,
    path: tuple[str, ...],
    settings: ThrottlingSettings,
) -> PublishRate | DispatchRate | SubscribeRate:
    """The rate in force, by the field of a topic's policies that would set it
    (`("subscriptionPolicies", name, "dispatchRate")` for one subscription).
    """
    if path[0] == "publishRate":
        return publish_rate(topic, namespace, cluster, settings)
    if path[0] == "dispatchRate":
        return topic_dispatch_rate(topic, namespace, cluster, settings)
    if path[0] == "subscribeRate":
        return subscribe_rate(topic, namespace, cluster, settings)
    return subscription_dispatch_rate(
        topic, namespace, cluster, path[1] if len(path) > 1 else "", settings
    )


def is_set(rate: PublishRate | DispatchRate | SubscribeRate) -> bool:
    """True if a rate limits anything."""
    if isinstance(rate, SubscribeRate):
        return rate.subscribes > 0
    if isinstance(rate, PublishRate):
        return rate.messages_per_s > 0 or rate.bytes_per_s > 0
    return rate.messages > 0 or rate.bytes > 0
