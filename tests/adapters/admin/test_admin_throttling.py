"""Limits over HTTP: Pulsar's paths and bodies, and every change reaches what enforces it, on every broker."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from core.throttling.driven import DrivenClock

from loadmanager import settings
from loadmanager.adapters.admin.server import AdminServer
from loadmanager.adapters.memory.admin_control import CLUSTER, MemoryCluster
from loadmanager.adapters.memory.store import MemoryTree
from loadmanager.core.bundles.names import NamespaceName, TopicName
from loadmanager.core.conf import Live
from loadmanager.core.throttling.broker import BrokerThrottling
from loadmanager.core.throttling.settings import ThrottlingSettings
from loadmanager.ports.hosting import BrokerAddress
from loadmanager.runtime.broker.limits import Limits
from loadmanager.runtime.broker.namespaces import Namespaces
from loadmanager.runtime.shared import paths
from loadmanager.runtime.shared.settings import BrokerSettings
from loadmanager.runtime.shared.watching import Watcher
from loadmanager.settings import LiveSettings

ORDERS = NamespaceName.parse("acme/orders")
TOPIC = TopicName.parse("persistent://acme/orders/new")
NAMESPACE_PATH = "/admin/v2/namespaces/acme/orders"
TOPIC_PATH = "/admin/v2/persistent/acme/orders/new"
CONFIGURATION = "/admin/v2/brokers/configuration"
KEY = "brokerPublisherThrottlingMaxMessageRate"


class One:
    """One broker's limits over the shared store, with the API in front."""

    def __init__(self, tree: MemoryTree) -> None:
        store = tree.session()
        self.store = store
        self.namespaces = Namespaces(store, Live(BrokerSettings()))
        self.settings = LiveSettings(settings.load())
        self.throttling = BrokerThrottling(self.settings.live(ThrottlingSettings), cluster=CLUSTER, clock=DrivenClock())
        self.limits = Limits(store, self.namespaces, self.throttling, self.settings)
        self.watcher = Watcher(store, paths.ADMIN, self.namespaces.on_change, self.limits.on_change)


@dataclass
class Api:
    """Two brokers; requests go to the first."""

    brokers: list[One]
    session: aiohttp.ClientSession
    url: str

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and body."""
        async with self.session.request(method, self.url + path, json=body) as answer:
            return answer.status, await answer.json(content_type=None) if answer.status != 204 else None

    async def soon(self, condition: Callable[[One], bool]) -> None:
        """The condition comes true on both brokers."""
        async with asyncio.timeout(5):
            while not all(condition(one) for one in self.brokers):
                await asyncio.sleep(0.01)


@asynccontextmanager
async def the_api() -> AsyncIterator[Api]:
    """The API over an empty namespace acme/orders."""
    tree, cluster = MemoryTree(), MemoryCluster()
    brokers = [One(tree), One(tree)]
    async with AsyncExitStack() as stack:
        for one in brokers:
            await stack.enter_async_context(one.store)
        yield await _begin(stack, cluster, brokers)


async def _begin(stack: AsyncExitStack, cluster: MemoryCluster, brokers: list[One]) -> Api:
    await brokers[0].store.put(f"{paths.CLUSTERS}/{CLUSTER}", b"{}")
    await brokers[0].namespaces.create_tenant("acme", {})
    await brokers[0].namespaces.create_namespace(ORDERS, {})
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    control = cluster.join(BrokerAddress(f"127.0.0.1:{port}", "pulsar://127.0.0.1:1", f"http://127.0.0.1:{port}"))
    server = AdminServer(control, cluster=CLUSTER, version="1", metrics=lambda: (b"", "text/plain"), limits=brokers[0].limits)
    for one in brokers:
        task = asyncio.ensure_future(one.watcher.run())
        stack.push_async_callback(asyncio.wait, [task])
        stack.callback(task.cancel)
        await one.watcher.synced.wait()
        await one.limits.opening(ORDERS)
        one.throttling.topic(TOPIC)
    await server.start(sock)
    stack.push_async_callback(server.stop)
    session = await stack.enter_async_context(aiohttp.ClientSession())
    return Api(brokers, session, f"http://127.0.0.1:{port}")


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """See `the_api`."""
    async with the_api() as found:
        yield found


def publish_rate(one: One) -> float:
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
async def test_a_rate_is_set_shown_and_removed(api: Api, where: str, name: str) -> None:
    """Not set: 204 without a body; set: 204, and shown as it was given; removed: not set again."""
    assert await api.ask("GET", f"{where}/{name}") == (204, None)
    assert await api.ask("POST", f"{where}/{name}", BODIES[name]) == (204, None)
    assert await api.ask("GET", f"{where}/{name}") == (200, BODIES[name])
    assert await api.ask("DELETE", f"{where}/{name}") == (204, None)
    assert await api.ask("GET", f"{where}/{name}") == (204, None)


async def test_a_namespace_rate_is_stored_as_pulsar_stores_it(api: Api) -> None:
    """The namespace's policies hold a map from cluster to rate; other policies stay."""
    await api.ask("POST", f"{NAMESPACE_PATH}/publishRate", BODIES["publishRate"])
    policies = await api.brokers[1].namespaces.policies(ORDERS)
    assert policies["publishMaxMessageRate"] == {CLUSTER: BODIES["publishRate"]}
    assert policies["replication_clusters"]


async def test_changes_act_on_open_topics_of_every_broker(api: Api) -> None:
    """Namespace policy, topic policy above it, and back, on both brokers."""
    await api.ask("POST", f"{NAMESPACE_PATH}/publishRate", {"publishThrottlingRateInMsg": 100})
    await api.soon(lambda one: publish_rate(one) == 100)
    await api.ask("POST", f"{TOPIC_PATH}/publishRate", {"publishThrottlingRateInMsg": 7})
    await api.soon(lambda one: publish_rate(one) == 7)
    await api.ask("DELETE", f"{TOPIC_PATH}/publishRate")
    await api.soon(lambda one: publish_rate(one) == 100)
    await api.ask("DELETE", f"{NAMESPACE_PATH}/publishRate")
    await api.soon(lambda one: publish_rate(one) == -1)


async def test_a_policy_of_one_subscription(api: Api) -> None:
    """…/{topic}/{subscription}/dispatchRate limits that subscription alone."""
    for one in api.brokers:
        for name in ("fast", "slow"):
            one.throttling.topics[str(TOPIC)].gate(name, lambda: None)
    assert (await api.ask("POST", f"{TOPIC_PATH}/slow/dispatchRate", {"dispatchThrottlingRateInMsg": 3}))[0] == 204
    await api.soon(lambda one: [len(gate.limits) for gate in one.throttling.topics[str(TOPIC)].gates.values()] == [0, 1])
    assert (await api.ask("GET", f"{TOPIC_PATH}/slow/dispatchRate"))[1]["dispatchThrottlingRateInMsg"] == 3
    assert (await api.ask("DELETE", f"{TOPIC_PATH}/slow/dispatchRate"))[0] == 204
    await api.soon(lambda one: not one.throttling.topics[str(TOPIC)].gates["slow"].limits)


async def test_resource_groups(api: Api) -> None:
    """Created, attached, in force, changed in part, in use, detached, deleted."""
    assert await api.ask("PUT", "/admin/v2/resourcegroups/gold", {"publishRateInMsgs": 50, "dispatchRateInMsgs": 60}) == (204, None)
    assert await api.ask("GET", "/admin/v2/resourcegroups") == (200, ["gold"])
    assert (await api.ask("POST", f"{NAMESPACE_PATH}/resourcegroup/silver"))[0] == 412
    assert await api.ask("POST", f"{NAMESPACE_PATH}/resourcegroup/gold") == (204, None)
    assert await api.ask("GET", f"{NAMESPACE_PATH}/resourcegroup") == (200, "gold")
    await api.soon(lambda one: [limit.message_rate() for limit in one.throttling.topics[str(TOPIC)].publish] == [50])
    assert await api.ask("PUT", "/admin/v2/resourcegroups/gold", {"publishRateInMsgs": 70}) == (204, None)
    await api.soon(lambda one: [limit.message_rate() for limit in one.throttling.topics[str(TOPIC)].publish] == [70])
    assert (await api.ask("GET", "/admin/v2/resourcegroups/gold"))[1]["dispatchRateInMsgs"] == 60
    assert (await api.ask("GET", "/admin/v2/resourcegroups/gold"))[1]["publishRateInBytes"] == -1
    assert (await api.ask("DELETE", "/admin/v2/resourcegroups/gold"))[0] == 412
    assert await api.ask("DELETE", f"{NAMESPACE_PATH}/resourcegroup") == (204, None)
    assert await api.ask("DELETE", "/admin/v2/resourcegroups/gold") == (204, None)
    assert (await api.ask("GET", "/admin/v2/resourcegroups/gold"))[0] == 404
    await api.soon(lambda one: one.throttling.topics[str(TOPIC)].publish == () and not one.throttling.groups)


async def test_dynamic_keys_of_broker_conf(api: Api) -> None:
    """Listed, changed on every broker, and back to the file's."""
    assert await api.ask("GET", CONFIGURATION) == (200, settings.dynamic_names())
    assert await api.ask("POST", f"{CONFIGURATION}/{KEY}/40") == (204, None)
    await api.soon(lambda one: one.throttling.publish.message_rate() == 40)
    assert await api.ask("GET", f"{CONFIGURATION}/values") == (200, {KEY: "40"})
    assert await api.ask("DELETE", f"{CONFIGURATION}/{KEY}") == (204, None)
    await api.soon(lambda one: one.throttling.publish.message_rate() == -1)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (KEY, "many", "a whole number from -1 to 2147483647 is allowed"),
        ("loadBalancerLoadSheddingStrategy", "ThresholdSheder", "ThresholdShedder"),
        ("loadBalancerAvgShedderLowThreshold", "50", "is above loadBalancerAvgShedderHighThreshold = 40"),
        ("loadBalancerReportUpdateMaxIntervalMinutes", "0.01", "is longer than"),
        ("clusterName", "x", "it is read when the broker starts"),
        ("dispatcherMaxReadBatchSize", "10", "without effect: entries are handed out one by one"),
        ("brokerPublisherThrottlingMaxMessageRat", "1", f"did you mean {KEY}?"),
        ("nonsense", "1", "nonsense is not a key of broker.conf"),
    ],
)
async def test_a_dynamic_value_that_cannot_act_is_refused(api: Api, key: str, value: str, reason: str) -> None:
    """412 with the reason, and nothing is stored."""
    status, answer = await api.ask("POST", f"{CONFIGURATION}/{key}/{value}")
    assert status == 412
    assert reason in answer["reason"]
    assert await api.ask("GET", f"{CONFIGURATION}/values") == (200, {})


@pytest.mark.parametrize(
    ("path", "body", "refused"),
    [
        (f"{NAMESPACE_PATH}/publishRate", {"publishThrottlingRateInMsg": 2**31}, 412),
        (f"{TOPIC_PATH}/dispatchRate", {"dispatchThrottlingRateInMsg": "fast"}, 412),
        (f"{NAMESPACE_PATH}/subscribeRate", [], 400),
        (f"{NAMESPACE_PATH}/subscribeRate", None, 400),
    ],
)
async def test_bad_bodies_change_nothing(api: Api, path: str, body: Any, refused: int) -> None:
    """412 with what is allowed, 400 for what is no JSON object, and the policy stays as it was."""
    status, answer = await api.ask("POST", path, body)
    assert status == refused
    assert answer["reason"]
    assert await api.ask("GET", path) == (204, None)


async def test_nesting_without_end_is_400(api: Api) -> None:
    """A body that no parser can hold is the client's mistake."""
    async with api.session.post(f"{api.url}{TOPIC_PATH}/publishRate", data='{"x":' + "[" * 200_000) as answer:
        assert answer.status == 400


async def test_what_applies_to_a_topic_without_a_policy(api: Api) -> None:
    """`applied=true` shows the namespace's limit, or that there is none."""
    assert await api.ask("GET", f"{TOPIC_PATH}/dispatchRate?applied=true") == (204, None)
    await api.ask("POST", f"{NAMESPACE_PATH}/dispatchRate", {"dispatchThrottlingRateInMsg": 11})
    assert (await api.ask("GET", f"{TOPIC_PATH}/dispatchRate?applied=true"))[1]["dispatchThrottlingRateInMsg"] == 11
    assert await api.ask("GET", f"{TOPIC_PATH}/dispatchRate") == (204, None)


async def test_partitions_have_the_policies_of_their_topic(api: Api) -> None:
    """Set on a partition, a policy is that of the whole topic, and removing one leaves the others."""
    partition = TOPIC.partition_name(0)
    for one in api.brokers:
        one.throttling.topic(partition)
    await api.ask("POST", f"{TOPIC_PATH}/publishRate", {"publishThrottlingRateInMsg": 5})
    await api.ask("POST", f"{TOPIC_PATH}-partition-0/dispatchRate", {"dispatchThrottlingRateInMsg": 7})
    await api.ask("DELETE", f"{TOPIC_PATH}-partition-0/dispatchRate")
    assert (await api.ask("GET", f"{TOPIC_PATH}-partition-0/publishRate"))[1]["publishThrottlingRateInMsg"] == 5
    await api.soon(lambda one: [limit.message_rate() for limit in one.throttling.topics[str(partition)].publish] == [5])
    await api.ask("POST", f"{TOPIC_PATH}/publishRate", {"publishThrottlingRateInMsg": 6})
    await api.soon(lambda one: [limit.message_rate() for limit in one.throttling.topics[str(partition)].publish] == [6])


async def test_unknown_namespaces_are_404(api: Api) -> None:
    """For a namespace's policies as for its topics'."""
    assert (await api.ask("GET", "/admin/v2/namespaces/acme/none/publishRate"))[0] == 404
    assert (await api.ask("POST", "/admin/v2/persistent/acme/none/t/publishRate", {}))[0] == 404


async def test_unreadable_metadata_counts_as_not_set(api: Api) -> None:
    """Nonsense in the store limits nothing and stops nothing: the next good value acts."""
    await api.ask("POST", f"{TOPIC_PATH}/publishRate", {"publishThrottlingRateInMsg": 7})
    await api.soon(lambda one: publish_rate(one) == 7)
    await api.brokers[0].store.put(paths.topic_policies(TOPIC), b"\xff{")
    await api.soon(lambda one: publish_rate(one) == -1)
    await api.brokers[0].store.put(paths.topic_policies(TOPIC), b'{"publishRate": {"publishThrottlingRateInMsg": 8}}')
    await api.soon(lambda one: publish_rate(one) == 8)


async def test_why_is_this_producer_slow(api: Api) -> None:
    """The answer names the limit, its rate and the place in its queue; and the broker's page sums up what pauses connections."""
    await api.ask("POST", f"{TOPIC_PATH}/publishRate", {"publishThrottlingRateInMsg": 7})
    await api.soon(lambda one: publish_rate(one) == 7)
    throttling = api.brokers[0].throttling
    topic = throttling.topics[str(TOPIC)]
    free, slow = (topic.sender(name, throttling.connection(lambda: None, lambda: None)) for name in ("free", "slow"))
    slow.charge(topic.publish, 10, 100)
    status, answer = await api.ask("GET", f"{TOPIC_PATH}/throttling")
    assert status == 200
    assert [(one["producer"], one["paused"]) for one in answer["producers"]] == [("free", False), ("slow", True)]
    reasons = {one["producer"]: one["why"] for one in answer["producers"]}
    assert reasons["free"] == "no limit of this broker slows it down"
    assert reasons["slow"].startswith(f"held by {TOPIC} publish limit of 7 msg/s")
    _, page = await api.ask("GET", "/admin/v2/broker-stats/throttling")
    assert page["pausedConnections"] == 1
    assert page["causes"]["topic publish rate"]["connections"] == 1
    assert [limit["configuredMessagesPerS"] for limit in page["limits"]] == [7]
    free.close()


async def test_a_namespace_that_is_made_again_has_no_limits_from_before(api: Api) -> None:
    """What is deleted is forgotten, and what comes under its name later is read anew."""
    again = NamespaceName.parse("acme/again")
    first = api.brokers[0]
    for rate in (7, 9):
        await first.namespaces.create_namespace(again, {})
        await first.limits.opening(again)
        await first.limits.set_namespace_limit(again, "publishMaxMessageRate", {"publishThrottlingRateInMsg": rate})
        await api.soon(lambda one, rate=rate: one is not first or str(rate) in str(one.throttling.namespace_policies(str(again))))
        await first.namespaces.mark_deleted(again)
        await first.namespaces.delete_namespace(again)
        await api.soon(lambda one: one is not first or one.throttling.namespace_policies(str(again)) == {})
