"""The rates that apply, and the request bodies that are refused."""

from __future__ import annotations

import pytest

from loadmanager.kit.errors import BadInputError
from loadmanager.limits.policies import (
    DispatchRate,
    PublishRate,
    ResourceGroup,
    SubscribeRate,
    decode,
    plain,
    publish_rate,
    subscribe_rate,
    subscription_dispatch_rate,
    topic_dispatch_rate,
)
from loadmanager.limits.settings import ThrottlingSettings

SETTINGS = ThrottlingSettings(
    topic_publish_messages_per_s=7,
    topic_dispatch_messages_per_s=100,
    subscription_dispatch_messages_per_s=50,
    subscribes_per_consumer=3,
)


def test_topic_before_namespace_before_broker_for_publish_rates() -> None:
    """The topic's own policy wins, then the namespace's for this cluster, then broker.conf; an
    explicit 0 lifts the limit.
    """
    topic = {"publishRate": {"publishThrottlingRateInMsg": 1}}
    namespace = {
        "publishMaxMessageRate": {
            "c": {"publishThrottlingRateInMsg": 2},
            "other": {"publishThrottlingRateInMsg": 9},
        }
    }
    rates = [
        publish_rate(t, n, "c", SETTINGS).messages_per_s
        for t, n in ((topic, namespace), ({}, namespace), ({}, {}))
    ]
    assert rates == [1, 2, 7]
    assert (
        publish_rate(
            {}, {"publishMaxMessageRate": {"c": {"publishThrottlingRateInMsg": 0}}}, "c", SETTINGS
        ).messages_per_s
        == 0
    )
    assert publish_rate({}, namespace, "third", SETTINGS).messages_per_s == 7


def test_a_namespace_dispatch_rate_of_zero_counts_as_not_set() -> None:
    """Cluster 100 → namespace 500 → namespace 0 → 100 again, as Pulsar's test asserts; the older
    field is used where the newer one has no rate.
    """

    def effective(namespace: dict[str, object]) -> int:
        return topic_dispatch_rate({}, namespace, "c", SETTINGS).messages

    fast, slow, none = ({"c": {"dispatchThrottlingRateInMsg": rate}} for rate in (500, 20, 0))
    assert effective({}) == 100
    assert effective({"topicDispatchRate": fast}) == 500
    assert effective({"topicDispatchRate": none}) == 100
    assert effective({"clusterDispatchRate": slow}) == 20
    assert effective({"clusterDispatchRate": slow, "topicDispatchRate": fast}) == 500


def test_a_policy_of_one_subscription_precedes_those_of_all() -> None:
    """Named subscription, then the topic's for all subscriptions, then namespace,
    then broker.conf.
    """
    topic = {
        "subscriptionDispatchRate": plain(DispatchRate(messages=5)),
        "subscriptionPolicies": {"s": {"dispatchRate": plain(DispatchRate(messages=6))}},
    }
    namespace = {"subscriptionDispatchRate": {"c": plain(DispatchRate(messages=7))}}
    rates = [
        subscription_dispatch_rate(t, n, "c", name, SETTINGS).messages
        for t, n, name in (
            (topic, namespace, "s"),
            (topic, namespace, "t"),
            ({}, namespace, "s"),
            ({}, {}, "s"),
        )
    ]
    assert rates == [6, 5, 7, 50]


def test_subscribe_rates_fall_back_to_the_broker() -> None:
    """Topic, namespace, broker.conf."""
    assert (
        subscribe_rate(
            {"subscribeRate": {"subscribeThrottlingRatePerConsumer": 9}}, {}, "c", SETTINGS
        ).subscribes
        == 9
    )
    assert (
        subscribe_rate(
            {},
            {"clusterSubscribeRate": {"c": {"subscribeThrottlingRatePerConsumer": 8}}},
            "c",
            SETTINGS,
        ).subscribes
        == 8
    )
    assert subscribe_rate({}, {}, "c", SETTINGS) == SubscribeRate(subscribes=3, period_s=30)


def test_stored_nonsense_counts_as_not_set() -> None:
    """Metadata that cannot be read does not break the broker."""
    assert (
        publish_rate(
            {"publishRate": "fast"}, {"publishMaxMessageRate": 3}, "c", SETTINGS
        ).messages_per_s
        == 7
    )
    assert (
        topic_dispatch_rate(
            {"dispatchRate": {"dispatchThrottlingRateInMsg": "many"}}, {}, "c", SETTINGS
        ).messages
        == 100
    )


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ({"publishThrottlingRateInMsg": "x"}, PublishRate, "publishThrottlingRateInMsg"),
        ({"publishThrottlingRateInMsg": 2**31}, PublishRate, "-1 to 2147483647 is"),
        ({"dispatchThrottlingRateInByte": -2}, DispatchRate, "-1 to 9223372036854775807 is"),
        ({"ratePeriodInSecond": 0}, DispatchRate, "ratePeriodInSecond = 0: 1 to 2147483647 is"),
        ({"publishThrottlingRateInByte": 2**63}, PublishRate, "publishThrottlingRateInByte"),
        (
            {"subscribeThrottlingRatePerConsumer": 1.5},
            SubscribeRate,
            "subscribeThrottlingRatePerConsumer",
        ),
        ({"publishRateInMsgs": 9999999999}, ResourceGroup, "publishRateInMsgs"),
    ],
)
def test_a_bad_body_is_refused_with_what_is_allowed(
    body: dict[str, object], kind: type[PublishRate], text: str
) -> None:
    """The error names the field and the range."""
    with pytest.raises(BadInputError, match=text):
        decode(body, kind)


def test_bodies_are_pulsars() -> None:
    """Field names in and out are Pulsar's; numbers may be strings, null is not given, and fields
    that nobody knows are ignored.
    """
    body = {
        "dispatchThrottlingRateInMsg": "5",
        "dispatchThrottlingRateInByte": None,
        "relativeToPublishRate": True,
        "ratePeriodInSecond": 2,
        "x": 1,
    }
    rate = decode(body, DispatchRate)
    assert rate == DispatchRate(messages=5, relative=True, period_s=2)
    assert plain(rate) == {
        "dispatchThrottlingRateInMsg": 5,
        "dispatchThrottlingRateInByte": -1,
        "relativeToPublishRate": True,
        "ratePeriodInSecond": 2,
    }
