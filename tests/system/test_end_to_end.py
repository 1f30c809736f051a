"""Three broker processes, the real ZooKeeper, the stock client."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import psutil
import pytest
from clusters.standalone import Cluster, wait_for
from system.raw import Raw, a_send
from system.workload import TopicWork, client

from loadmanager.engine.bundles.ranges import NamespaceBundles, equal_boundaries
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.system.ending import SAME_S

pytestmark = [pytest.mark.system, pytest.mark.client]

TOPICS, BUNDLES = 20, 16
SESSION_MS = 5_000
AT_ONCE_S = 10.0
"""Long before ZooKeeper counts as lost, which ends a stop, too."""


def test_kill_one_broker_in_the_middle(tmp_path: Path) -> None:
    """No acknowledged message is lost when a broker is killed.

    There are 20 topics over 16 bundles, and every client looks up through another broker than the
    owner.
    """
    with Cluster(tmp_path, session_ms=SESSION_MS) as cluster:
        assert (
            cluster.request(
                0, "PUT", "/admin/v2/tenants/acme", {"allowedClusters": ["standalone"]}
            )[0]
            == 204
        )
        assert (
            cluster.request(
                0, "PUT", "/admin/v2/namespaces/acme/orders", {"bundles": {"numBundles": BUNDLES}}
            )[0]
            == 204
        )
        work = [
            TopicWork(topic)
            for topic in _spread(
                NamespaceBundles(NamespaceName("acme", "orders"), equal_boundaries(BUNDLES))
            )
        ]
        owners = {
            item.topic: cluster.owner_of(item.topic, asked=index % 3)
            for index, item in enumerate(work)
        }
        assert set(owners.values()) == {0, 1, 2}
        strangers = {
            index: client(cluster.service_url((index + 1) % 3, (index + 2) % 3))
            for index in range(3)
        }
        stop, stop_consuming = threading.Event(), threading.Event()
        threads = []
        for item in work:
            stranger = strangers[owners[item.topic]]
            consumer = stranger.subscribe(item.topic, "all")
            producer = stranger.create_producer(item.topic, send_timeout_millis=30_000)
            threads.append(threading.Thread(target=item.produce, args=(producer, stop, 0.01)))
            threads.append(threading.Thread(target=item.consume, args=(consumer, stop_consuming)))
        for thread in threads:
            thread.start()
        try:
            wait_for(
                lambda: all(len(item.got) > 20 for item in work), "traffic flows on every topic"
            )
            victim = (cluster.leader() + 1) % 3
            killed_s = cluster.kill(victim)

            def moved_on() -> bool:
                return all(
                    any(sent.began_s > killed_s + 0.5 for sent in item.sent) for item in work
                )

            wait_for(moved_on, "every producer sends again after the kill")
            counts = {item.topic: len(item.sent) for item in work}
            wait_for(
                lambda: all(len(item.sent) > counts[item.topic] + 20 for item in work),
                "and goes on",
            )
            stop.set()
            wait_for(lambda: all(item.ended.is_set() for item in work), "producers end")
            wait_for(
                lambda: not any(item.missing() for item in work),
                "all that was acknowledged arrives",
            )
        finally:
            stop.set()
            stop_consuming.set()
            for thread in threads:
                thread.join()
            for stranger in strangers.values():
                stranger.close()
        for item in work:
            assert item.missing() == []
            assert item.got == sorted(item.got), f"{item.topic} out of order"
        assert cluster.check_single_ownership() >= BUNDLES
        assert {span.broker for spans in cluster.ownership().values() for span in spans} == {
            cluster.broker_id(index) for index in range(3)
        }


def test_new_leader_soon_after_the_old_one_dies(tmp_path: Path) -> None:
    """Another broker leads once the session has timed out, with a greater epoch."""
    with Cluster(tmp_path, session_ms=SESSION_MS) as cluster:
        first = cluster.leader()
        asked = (first + 1) % 3
        cluster.kill(first)
        wait_for(lambda: cluster.leader(asked) != first, "another leader")
        epochs = [event["epoch"] for event in cluster.events() if event["event"] == "leading"]
        assert epochs == sorted(set(epochs))
        assert len(epochs) >= 2  # more if a slow minute ended a session


def test_a_paused_broker_wakes_up_fenced(tmp_path: Path) -> None:
    """A broker that was paused beyond its session timeout serves nothing of a topic in memory when
    it resumes. (Of a stored one it may, until the next owner opens it: what is acknowledged is in
    the log.)
    """
    topic = "non-persistent://public/default/paused"
    with Cluster(tmp_path, session_ms=SESSION_MS) as cluster:
        owner = cluster.owner_of(topic)
        other = (owner + 1) % 3
        with Raw("127.0.0.1", cluster.pulsar_port + owner) as raw:
            raw.greet()
            raw.produce(topic)
            raw.send(a_send(0))
            assert raw.take().command.type == 7
            process = psutil.Process(cluster.pid(owner))
            process.suspend()
            raw.send(a_send(1))  # waits in the broker's socket until it goes on

            def taken_over() -> bool:
                status, found = cluster.request(
                    other, "GET", "/lookup/v2/topic/non-persistent/public/default/paused"
                )
                return status == 200 and not found["httpUrl"].endswith(
                    str(cluster.http_port + owner)
                )

            wait_for(taken_over, "another broker owns the bundle")
            process.resume()
            ended = raw.take().command
            assert ended.HasField("close_producer"), "acknowledged without proof of the session"
        wait_for(
            lambda: len(cluster.get(other, "/admin/v2/brokers")) == 3,
            "it registers again in a new session",
        )
        assert [event for event in cluster.events() if event["event"] == "stopped serving"]
        cluster.check_single_ownership()


def test_a_graceful_stop_loses_no_time(tmp_path: Path) -> None:
    """After SIGTERM clients go on elsewhere at once, and the process exits with 0."""
    with Cluster(tmp_path, session_ms=120_000) as cluster:
        item = TopicWork("persistent://public/default/graceful")
        owner = cluster.owner_of(item.topic)
        user = client(cluster.service_url((owner + 1) % 3, (owner + 2) % 3))
        stop = threading.Event()
        consumer, producer = user.subscribe(item.topic, "all"), user.create_producer(item.topic)
        threads = [
            threading.Thread(target=item.produce, args=(producer, stop, 0.005)),
            threading.Thread(target=item.consume, args=(consumer, stop)),
        ]
        for thread in threads:
            thread.start()
        try:
            wait_for(lambda: len(item.got) > 20, "traffic flows")
            process = psutil.Process(cluster.pid(owner))
            process.terminate()
            assert process.wait(60) in (0, None)
            count = len(item.sent)
            wait_for(lambda: len(item.sent) > count + 50, "the producer carries on")
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            user.close()
        gaps = [
            after.ended_s - before.ended_s
            for before, after in zip(item.sent, item.sent[1:], strict=False)
        ]
        assert max(gaps) < 60, "clients waited for the session timeout, 120 s"
        assert not item.errors
        assert f"broker {owner} ended with status 0" in cluster.log.read_text()
        cluster.check_single_ownership()


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    """A second SIGTERM ends the broker without waiting."""
    slow = {"metadataStoreOperationTimeoutSeconds": "300", "brokerShutdownTimeoutMs": "300000"}
    with Cluster(tmp_path, brokers=1, settings=slow) as cluster:
        store = psutil.Process(cluster.process.pid)
        broker = psutil.Process(cluster.pid(0))
        store.suspend()  # so that a graceful stop would wait
        try:
            broker.terminate()
            wait_for(lambda: '"stopping"' in cluster.log.read_text(), "it began to stop")
            time.sleep(1.5 * SAME_S)  # what comes earlier is no second one
            broker.terminate()
            # The process that would learn its status is suspended.
            wait_for(lambda: broker.status() == psutil.STATUS_ZOMBIE, "it has ended", AT_ONCE_S)
        finally:
            store.resume()


def test_skewed_load_moves_and_clients_carry_on(tmp_path: Path) -> None:
    """Shedding moves a bundle off the busiest broker; its clients lose nothing and keep order."""
    settings = {
        "loadBalancerSheddingIntervalMinutes": "0.05",
        "loadBalancerBundleUnloadMinThroughputThreshold": "0",
        "loadBalancerHostUsageCheckIntervalMinutes": "0.02",
        "loadBalancerReportUpdateMinIntervalMillis": "500",
        "loadBalancerHistoryResourcePercentage": "0.2",
        "loadBalancerBrokerThresholdShedderPercentage": "5",
        "statsUpdateFrequencyInSecs": "1",
    }
    with Cluster(tmp_path, settings=settings) as cluster:
        topics = [f"persistent://public/default/skew-{index}" for index in range(24)]
        owners = {topic: cluster.owner_of(topic) for topic in topics}
        hot = max(
            range(3),
            key=lambda index: len({_bundle(cluster, t) for t in topics if owners[t] == index}),
        )
        chosen: dict[str, str] = {}
        for topic in topics:
            if owners[topic] == hot:
                chosen.setdefault(_bundle(cluster, topic), topic)
        work = [TopicWork(topic) for topic in chosen.values()]
        assert len(work) >= 2
        user = client(cluster.service_url())
        stop, stop_consuming = threading.Event(), threading.Event()
        threads = []
        for item in work:
            consumer, producer = user.subscribe(item.topic, "all"), user.create_producer(item.topic)
            threads += [
                threading.Thread(target=item.produce, args=(producer, stop, 0.0)),
                threading.Thread(target=item.consume, args=(consumer, stop_consuming)),
            ]
        for thread in threads:
            thread.start()
        try:
            wait_for(
                lambda: _moves(cluster, hot),
                "the shedding loop moves a bundle away from the hot broker",
                180,
            )
            counts = [len(item.sent) for item in work]
            wait_for(
                lambda: all(
                    len(item.sent) > count + 200 for item, count in zip(work, counts, strict=True)
                ),
                "clients carry on",
            )
            stop.set()
            wait_for(lambda: all(item.ended.is_set() for item in work), "producers end")
            wait_for(
                lambda: not any(_unread(item) for item in work),
                "what was sent after the move arrives",
            )
        finally:
            stop.set()
            stop_consuming.set()
            for thread in threads:
                thread.join()
            user.close()
        assert all(event["why_usage"] > event["why_average"] for event in _moves(cluster, hot))
        assert all(not item.errors for item in work)
        assert all(item.got == sorted(item.got) for item in work)
        cluster.check_single_ownership()
        decisions = cluster.get(0, "/loadmanager/v1/decisions?limit=1000")["decisions"]
        assert any(item["kind"] == "shed" and item["unloads"] for item in decisions)


def _bundle(cluster: Cluster, topic: str) -> str:
    return str(
        cluster.request(0, "GET", "/lookup/v2/topic/" + topic.replace("://", "/") + "/bundle")[1]
    )


def _moves(cluster: Cluster, source: int) -> list[dict[str, float]]:
    return [
        event
        for event in cluster.events()
        if event["event"] == "bundle moves" and event["source"] == cluster.broker_id(source)
    ]


def _unread(item: TopicWork) -> bool:
    return bool(item.sent) and (not item.got or item.got[-1] < item.sent[-1].number)


def _spread(cut: NamespaceBundles) -> list[str]:
    """Names of 20 topics, at least one in each bundle of a namespace."""
    names = [f"persistent://{cut.namespace}/topic-{index}" for index in range(1_000)]
    first: dict[str, str] = {}
    for name in names:
        first.setdefault(cut.bundle_of_topic(name), name)
    assert len(first) == BUNDLES
    rest = [name for name in names if name not in first.values()]
    return [*first.values(), *rest[: TOPICS - BUNDLES]]
