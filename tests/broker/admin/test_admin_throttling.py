"""Limits over HTTP: Pulsar's paths and bodies; every change acts on every broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from broker.admin.serving import CLUSTER, ORDERS, Served, serving
from cli.test_admin_command import Shell
from clusters.running import Running, until

from loadmanager.broker import settings
from loadmanager.kit.metadata import paths
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.limits.tracker import Holder

TOPIC = TopicName.parse("persistent://acme/orders/new")
NAMESPACE_PATH = "/admin/v2/namespaces/acme/orders"
TOPIC_PATH = "/admin/v2/persistent/acme/orders/new"
CONFIGURATION = "/admin/v2/brokers/configuration"
KEY = "brokerPublisherThrottlingMaxMessageRate"


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """Two brokers that know the limits of a topic; requests go to the first."""
    async with serving(2, values={"loadBalancerReportUpdateMinIntervalMillis": "5000"}) as served:
        for broker in served.brokers:
            await broker.parts.limits.opening(ORDERS)
            broker.throttling.topic(TOPIC, broker.clock.monotonic_ns())
        assert (await served.ask("PUT", TOPIC_PATH)).status == 204
        yield served


class Client:
    """A connection or subscription that only waits."""

    peer = "127.0.0.1:50000"

    def go_on(self) -> None: ...

    def stop_reading(self) -> None: ...

    def waits(self, _holder: Holder | None = None) -> bool:
        return True

    def topics(self) -> set[str]:
        return set()

    def subscriptions(self, topic: str) -> set[str]:
        return set()


async def on_all(served: Served, condition: Callable[[Running], bool]) -> None:
    """The condition comes true on all brokers."""
    await until(lambda: all(condition(broker) for broker in served.brokers))


def publish_rate(one: Running) -> float:
    """Messages/s that the topic may publish on this broker; −1 without a limit."""
    return one.throttling.topics[str(TOPIC)].own_limits()[0].message_rate()


BODIES = {
    "publishRate": {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1},
    "dispatchRate": {
        "dispatchThrottlingRateInMsg": 5,
        "dispatchThrottlingRateInByte": 1000,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": 2,
    },
    "subscriptionDispatchRate": {
        "dispatchThrottlingRateInMsg": 5,
        "dispatchThrottlingRateInByte": -1,
        "relativeToPublishRate": True,
        "ratePeriodInSecond": 1,
    },
    "subscribeRate": {"subscribeThrottlingRatePerConsumer": 3, "ratePeriodInSecond": 10},
}


@pytest.mark.parametrize("where", [NAMESPACE_PATH, TOPIC_PATH])
@pytest.mark.parametrize("name", BODIES)
async def test_a_rate_is_set_shown_and_removed(served: Served, where: str, name: str) -> None:
    """Not set: 204 without a body; set: 204, and shown as it was given; removed: not set again."""
    assert await served.call("GET", f"{where}/{name}") == (204, None)
    assert await served.call("POST", f"{where}/{name}", BODIES[name]) == (204, None)
    assert await served.call("GET", f"{where}/{name}") == (200, BODIES[name])
    assert await served.call("DELETE", f"{where}/{name}") == (204, None)
    assert await served.call("GET", f"{where}/{name}") == (204, None)


async def test_a_namespace_rate_is_stored_as_pulsar_stores_it(served: Served) -> None:
    """The namespace's policies hold a map from cluster to rate; other policies stay."""
    await served.call("POST", f"{NAMESPACE_PATH}/publishRate", BODIES["publishRate"])
    policies = await served.brokers[1].use.namespaces.policies(ORDERS)
    assert policies["publishMaxMessageRate"] == {CLUSTER: BODIES["publishRate"]}
    assert policies["replication_clusters"]


async def test_changes_act_on_open_topics_of_every_broker(served: Served) -> None:
    """Namespace policy, topic policy above it, and back, on both brokers."""
    await served.call("POST", f"{NAMESPACE_PATH}/publishRate", {"publishThrottlingRateInMsg": 100})
    await on_all(served, lambda one: publish_rate(one) == 100)
    await served.call("POST", f"{TOPIC_PATH}/publishRate", {"publishThrottlingRateInMsg": 7})
    await on_all(served, lambda one: publish_rate(one) == 7)
    await served.call("DELETE", f"{TOPIC_PATH}/publishRate")
    await on_all(served, lambda one: publish_rate(one) == 100)
    await served.call("DELETE", f"{NAMESPACE_PATH}/publishRate")
    await on_all(served, lambda one: publish_rate(one) == -1)


async def test_a_policy_of_one_subscription(served: Served) -> None:
    """…/{topic}/{subscription}/dispatchRate limits that subscription alone."""
    for one in served.brokers:
        for name in ("fast", "slow"):
            one.throttling.topics[str(TOPIC)].gate(name, Client(), one.clock.monotonic_ns())
    assert (
        await served.call(
            "POST", f"{TOPIC_PATH}/slow/dispatchRate", {"dispatchThrottlingRateInMsg": 3}
        )
    )[0] == 204
    await on_all(
        served,
        lambda one: (
            [len(gate.limits) for gate in one.throttling.topics[str(TOPIC)].gates.values()]
            == [0, 1]
        ),
    )
    assert (await served.call("GET", f"{TOPIC_PATH}/slow/dispatchRate"))[1][
        "dispatchThrottlingRateInMsg"
    ] == 3
    assert (await served.call("DELETE", f"{TOPIC_PATH}/slow/dispatchRate"))[0] == 204
    await on_all(served, lambda one: not one.throttling.topics[str(TOPIC)].gates["slow"].limits)


async def test_resource_groups(served: Served) -> None:
    """A resource group is created, attached, acts, is changed in part, cannot be deleted while in
    use, is detached and deleted.
    """
    assert await served.call(
        "PUT", "/admin/v2/resourcegroups/gold", {"publishRateInMsgs": 50, "dispatchRateInMsgs": 60}
    ) == (204, None)
    assert await served.call("GET", "/admin/v2/resourcegroups") == (200, ["gold"])
    assert (await served.call("POST", f"{NAMESPACE_PATH}/resourcegroup/silver"))[0] == 412
    assert await served.call("POST", f"{NAMESPACE_PATH}/resourcegroup/gold") == (204, None)
    assert await served.call("GET", f"{NAMESPACE_PATH}/resourcegroup") == (200, "gold")
    await on_all(
        served,
        lambda one: (
            [limit.message_rate() for limit in one.throttling.topics[str(TOPIC)].publish] == [50]
        ),
    )
    assert await served.call("PUT", "/admin/v2/resourcegroups/gold", {"publishRateInMsgs": 70}) == (
        204,
        None,
    )
    await on_all(
        served,
        lambda one: (
            [limit.message_rate() for limit in one.throttling.topics[str(TOPIC)].publish] == [70]
        ),
    )
    assert (await served.call("GET", "/admin/v2/resourcegroups/gold"))[1][
        "dispatchRateInMsgs"
    ] == 60
    assert (await served.call("GET", "/admin/v2/resourcegroups/gold"))[1][
        "publishRateInBytes"
    ] == -1
    assert (await served.call("DELETE", "/admin/v2/resourcegroups/gold"))[0] == 412
    assert await served.call("DELETE", f"{NAMESPACE_PATH}/resourcegroup") == (204, None)
    assert await served.call("DELETE", "/admin/v2/resourcegroups/gold") == (204, None)
    assert (await served.call("GET", "/admin/v2/resourcegroups/gold"))[0] == 404
    await on_all(
        served,
        lambda one: one.throttling.topics[str(TOPIC)].publish == () and not one.throttling.groups,
    )


async def test_dynamic_keys_of_broker_conf(served: Served) -> None:
    """Listed, changed on every broker, and back to the file's."""
    assert await served.call("GET", CONFIGURATION) == (200, settings.KEYS.dynamic_names())
    assert await served.call("POST", f"{CONFIGURATION}/{KEY}/40") == (204, None)
    await on_all(served, lambda one: one.throttling.own.publish.message_rate() == 40)
    assert await served.call("GET", f"{CONFIGURATION}/values") == (200, {KEY: "40"})
    assert await served.call("DELETE", f"{CONFIGURATION}/{KEY}") == (204, None)
    await on_all(served, lambda one: one.throttling.own.publish.message_rate() == -1)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (KEY, "many", "a whole number from -1 to 2147483647 is allowed"),
        ("loadBalancerLoadSheddingStrategy", "ThresholdSheder", "ThresholdShedder"),
        (
            "loadBalancerAvgShedderLowThreshold",
            "50",
            "is above loadBalancerAvgShedderHighThreshold = 40",
        ),
        ("loadBalancerReportUpdateMaxIntervalMinutes", "0.01", "is longer than"),
        ("clusterName", "x", "it is read when the broker starts"),
        ("dispatcherMaxReadBatchSize", "10", "without effect: entries are handed out one by one"),
        ("brokerPublisherThrottlingMaxMessageRat", "1", f"did you mean {KEY}?"),
        ("nonsense", "1", "nonsense is not a key of broker.conf"),
    ],
)
async def test_a_dynamic_value_that_cannot_act_is_refused(
    served: Served, key: str, value: str, reason: str
) -> None:
    """412 with the reason, and nothing is stored."""
    status, answer = await served.call("POST", f"{CONFIGURATION}/{key}/{value}")
    assert status == 412
    assert reason in answer["reason"]
    assert answer["reason"].count(f"{key} =") <= 1, "it says everything once"
    assert await served.call("GET", f"{CONFIGURATION}/values") == (200, {})


@pytest.mark.parametrize(
    ("path", "body", "refused"),
    [
        (f"{NAMESPACE_PATH}/publishRate", {"publishThrottlingRateInMsg": 2**31}, 412),
        (f"{TOPIC_PATH}/dispatchRate", {"dispatchThrottlingRateInMsg": "fast"}, 412),
        (f"{NAMESPACE_PATH}/publishRate", {"publishThrottlingRateInMsg": -7}, 412),
        (f"{TOPIC_PATH}/subscribeRate", {"ratePeriodInSecond": 0}, 412),
        (f"{NAMESPACE_PATH}/subscribeRate", [], 400),
        (f"{NAMESPACE_PATH}/subscribeRate", None, 400),
        (f"{NAMESPACE_PATH}/publishRate", {"publishThrottlingRateInMsgg": 5}, 400),
        (f"{TOPIC_PATH}/subscribeRate", {"publishThrottlingRateInMsg": 5}, 400),
    ],
)
async def test_bad_bodies_change_nothing(
    served: Served, path: str, body: Any, refused: int
) -> None:
    """412 for values that are not allowed, 400 for a body that is not a JSON object or has unknown
    fields; the policy stays as it was.
    """
    status, answer = await served.call("POST", path, body)
    assert status == refused
    assert answer["reason"]
    assert await served.call("GET", path) == (204, None)


async def test_unknown_fields_are_named(served: Served) -> None:
    """400 names each unknown field and those allowed; an unknown field that is null, as a newer
    client may send it, counts as absent.
    """
    path, group = "/admin/v2/resourcegroups/gold", {"publishRateInMsgs": 5}
    status, answer = await served.call("PUT", path, {**group, "publishRateInMsg": 5, "b": 1})
    assert status == 400
    assert answer["reason"] == (
        "unknown fields: publishRateInMsg, b; allowed are publishRateInMsgs, publishRateInBytes, "
        "dispatchRateInMsgs, dispatchRateInBytes"
    )
    assert (await served.call("GET", path))[0] == 404
    assert (await served.call("PUT", path, {**group, "newer": None}))[0] == 204
    assert (await served.call("GET", path))[1]["publishRateInMsgs"] == 5


async def test_nesting_without_end_is_400(served: Served) -> None:
    """A body that nests too deeply is refused with 400."""
    async with served.session.post(
        f"{served.url()}{TOPIC_PATH}/publishRate",
        data='{"x":' + "[" * 200_000,
        headers={"Content-Type": "application/json"},
    ) as answer:
        assert answer.status == 400


async def test_what_applies_to_a_topic_without_a_policy(served: Served) -> None:
    """`applied=true` shows the namespace's limit, or that there is none."""
    assert await served.call("GET", f"{TOPIC_PATH}/dispatchRate?applied=true") == (204, None)
    await served.call("POST", f"{NAMESPACE_PATH}/dispatchRate", {"dispatchThrottlingRateInMsg": 11})
    assert (await served.call("GET", f"{TOPIC_PATH}/dispatchRate?applied=true"))[1][
        "dispatchThrottlingRateInMsg"
    ] == 11
    assert await served.call("GET", f"{TOPIC_PATH}/dispatchRate") == (204, None)


async def test_partitions_have_the_policies_of_their_topic(served: Served) -> None:
    """Set on a partition, a policy is that of the whole topic, and removing one
    leaves the others.
    """
    partition = TOPIC.partition_name(0)
    for one in served.brokers:
        one.throttling.topic(partition, one.clock.monotonic_ns())
    await served.call("POST", f"{TOPIC_PATH}/publishRate", {"publishThrottlingRateInMsg": 5})
    await served.call(
        "POST", f"{TOPIC_PATH}-partition-0/dispatchRate", {"dispatchThrottlingRateInMsg": 7}
    )
    await served.call("DELETE", f"{TOPIC_PATH}-partition-0/dispatchRate")
    assert (await served.call("GET", f"{TOPIC_PATH}-partition-0/publishRate"))[1][
        "publishThrottlingRateInMsg"
    ] == 5
    await on_all(
        served,
        lambda one: (
            [limit.message_rate() for limit in one.throttling.topics[str(partition)].publish] == [5]
        ),
    )
    await served.call("POST", f"{TOPIC_PATH}/publishRate", {"publishThrottlingRateInMsg": 6})
    await on_all(
        served,
        lambda one: (
            [limit.message_rate() for limit in one.throttling.topics[str(partition)].publish] == [6]
        ),
    )


async def test_what_does_not_exist_is_404(served: Served) -> None:
    """Policies are refused for an unknown namespace or topic, in Pulsar's words; those of a
    non-persistent topic while nobody uses it.
    """
    for path, rate in (
        ("publishRate", {"publishThrottlingRateInMsg": 5}),
        ("s/dispatchRate", {"dispatchThrottlingRateInMsg": 5}),
    ):
        for method, body in (("GET", None), ("POST", rate), ("DELETE", None)):
            answer = await served.ask(method, f"/admin/v2/persistent/acme/orders/typo/{path}", body)
            assert (answer.status, answer.reason) == (
                404,
                "Topic persistent://acme/orders/typo not found",
            )
    volatile = "/admin/v2/non-persistent/acme/orders/n/publishRate"
    assert (await served.call("GET", f"{volatile}?authoritative=true"))[0] == 404
    await served.brokers[0].serve(TopicName("non-persistent", ORDERS, "n"))
    assert (await served.call("GET", volatile))[0] == 204
    assert (await served.call("GET", "/admin/v2/namespaces/acme/none/publishRate"))[0] == 404
    assert (await served.call("POST", "/admin/v2/persistent/acme/none/t/publishRate", {}))[0] == 404


async def test_unreadable_metadata_counts_as_not_set(served: Served) -> None:
    """A stored value that cannot be read limits nothing; the next good value acts."""
    await served.call("POST", f"{TOPIC_PATH}/publishRate", {"publishThrottlingRateInMsg": 7})
    await on_all(served, lambda one: publish_rate(one) == 7)
    await served.brokers[0].store.put(paths.topic_policies(TOPIC), b"\xff{")
    await on_all(served, lambda one: publish_rate(one) == -1)
    await served.brokers[0].store.put(
        paths.topic_policies(TOPIC), b'{"publishRate": {"publishThrottlingRateInMsg": 8}}'
    )
    await on_all(served, lambda one: publish_rate(one) == 8)


async def test_why_is_this_producer_slow(served: Served) -> None:
    """The answer names the limit, its rate and the place in its queue; and the broker's page sums
    up what pauses connections.
    """
    await served.call("POST", f"{TOPIC_PATH}/publishRate", {"publishThrottlingRateInMsg": 7})
    await on_all(served, lambda one: publish_rate(one) == 7)
    throttling = served.brokers[0].throttling
    topic = throttling.topics[str(TOPIC)]
    free, slow = (topic.sender(name, throttling.connection(Client())) for name in ("free", "slow"))
    slow.charge(topic.publish, 100, 1000, served.brokers[0].clock.monotonic_ns())
    status, answer = await served.call("GET", f"{TOPIC_PATH}/throttling")
    assert status == 200
    assert sorted((one["producer"], one["paused"]) for one in answer["producers"]) == [
        ("free", False),
        ("slow", True),
    ]
    reasons = {one["producer"]: one["why"] for one in answer["producers"]}
    assert reasons["free"] == "no limit of this broker slows it down"
    assert reasons["slow"].startswith(f"held by {TOPIC} publish limit of 7 msg/s")
    _, page = await served.call("GET", "/admin/v2/broker-stats/throttling")
    assert page["pausedConnections"] == 1
    assert page["causes"]["topic publish rate"]["connections"] == 1
    assert [limit["configuredMessagesPerS"] for limit in page["limits"]] == [7]
    topic.leave(free, served.brokers[0].clock.monotonic_ns())


async def test_a_namespace_that_is_made_again_has_no_limits_from_before(served: Served) -> None:
    """Limits of a deleted namespace or topic are forgotten; a new one of that name has its own."""
    again = NamespaceName.parse("acme/again")
    first = served.brokers[0]
    for rate in (7, 9):
        await first.parts.member.cluster.namespaces.create_namespace(again, {})
        await first.parts.limits.opening(again)
        await first.parts.limits.set_namespace_limit(
            again, "publishMaxMessageRate", {"publishThrottlingRateInMsg": rate}
        )
        await on_all(
            served,
            lambda one, rate=rate: (
                one is not first or str(rate) in str(one.throttling.namespace_policies(str(again)))
            ),
        )
        await first.parts.member.cluster.namespaces.mark_deleted(again)
        await first.parts.member.cluster.namespaces.delete_namespace(again)
        await on_all(
            served,
            lambda one: one is not first or one.throttling.namespace_policies(str(again)) == {},
        )


async def test_why_a_topic_is_slow_whose_bundle_nobody_serves(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The brokers agree on who would serve it, and that one says that it is not open."""
    async with serving(3) as served:
        for number in range(8):
            topic = f"acme/orders/why-{number}"
            assert (await served.ask("PUT", f"/admin/v2/persistent/{topic}")).status == 204
            status, _, err = await Shell(served, capsys).run("limits", "why", topic)
            assert status == 1
            assert f"Topic persistent://{topic} is not open" in err
