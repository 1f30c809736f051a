"""The findings of `loadmanager doctor` about hosts, ensembles, clusters and settings,
and its cost.
"""

from __future__ import annotations

import json
import resource
import socket
import socketserver
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import theirs
from leader.documents import a_broker_shown, a_cluster_shown, resources

from loadmanager import cli
from loadmanager.broker import settings
from loadmanager.cli.doctor import asking, cluster, configuration, here, host, zookeeper
from loadmanager.cli.doctor.asking import BrokerFacts, ClusterFacts
from loadmanager.cli.doctor.findings import Diagnosis, Severity
from loadmanager.cli.doctor.host import GIB, Host
from loadmanager.engine.findings.finding import FindingShown
from loadmanager.engine.history.lapses import Unproven
from loadmanager.engine.strategies.never_sheds import NeverSheds
from loadmanager.kit.security.settings import PROVIDER
from loadmanager.kit.zookeeper import ensemble
from loadmanager.kit.zookeeper.ensemble import ServerShown
from loadmanager.leader.documents.cluster import ClusterShown, DiskShown
from loadmanager.leader.documents.members import AbsentBroker
from loadmanager.leader.documents.moves import PauseShown

HOST = Host(
    cores=8,
    cores_here=4.0,
    memory=32 * GIB,
    memory_here=8 * GIB,
    cgroup="v2",
    open_files=(1024, 1 << 20),
    nic_fault="",
    nic_gbps=10.0,
)
RUNNING = settings.KEYS.load(
    None, {"loadManagerStorageDirectory": "/topics", "defaultNumberOfNamespaceBundles": "16"}
).runtime()


def _said(findings: Iterator[Diagnosis]) -> dict[str, Severity]:
    """Subject → level of what is not fine; each has an advice."""
    said = {}
    for finding in findings:
        assert bool(finding.advice) == (finding.level is not Severity.FINE)
        if finding.level is not Severity.FINE:
            said[finding.subject] = finding.level
    return said


PROBLEM, WARNING = Severity.PROBLEM, Severity.WARNING


# Host


def test_a_good_host_has_no_finding() -> None:
    """Everything that is looked at is told, and fine."""
    assert not _said(host.check(HOST))
    assert len(list(host.check(HOST))) == 3
    assert [each.text for each in host.check_nic(HOST)] == ["10 Gbit/s"]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"cores_here": 0.5}, {"CPU": WARNING}),
        ({"memory_here": GIB // 4}, {"memory": WARNING}),
        ({"open_files": (1024, 4096)}, {"open files": WARNING}),
        ({"open_files": (1024, resource.RLIM_INFINITY)}, {}),
        ({"disks": {"topics": (Path("/t"), GIB // 2, 100 * GIB)}}, {"topics: /t": PROBLEM}),
        ({"disks": {"topics": (Path("/t"), 5 * GIB, 100 * GIB)}}, {"topics: /t": WARNING}),
        ({"disks": {"topics": (Path("/t"), 50 * GIB, 100 * GIB)}}, {}),
        ({"unwritable": {"history": Path("/h")}}, {"history: /h": PROBLEM}),
    ],
)
def test_hosts(changed: dict[str, Any], expected: dict[str, Severity]) -> None:
    """What is short, unknown or not writable."""
    assert _said(host.check(replace(HOST, **changed))) == expected


def test_this_machine_can_be_read(tmp_path: Path) -> None:
    """Its disks are those of the folders in the settings, also before these exist."""
    read = host.read(
        settings.KEYS.load(None, {"loadManagerHistoryDirectory": str(tmp_path / "not" / "there")})
    )
    assert read.cores >= read.cores_here > 0
    assert read.memory >= read.memory_here > 0
    folder, free, size = read.disks["history"]
    assert folder == tmp_path / "not" / "there"
    assert 0 < free <= size
    assert not host.read(None).disks


def _reported(cores: float, gib: float, broker: str = "10.0.0.1:8080") -> ClusterShown:
    return a_cluster_shown([a_broker_shown(broker, resources=resources(cores, gib))])


def test_brokers_here_report_what_is_here() -> None:
    """One that counts on the whole machine although it has a quota looks idle."""
    own = {"10.0.0.1"}
    assert not _said(here.check(HOST, _reported(4, 8), own))
    assert _said(here.check(HOST, _reported(8, 8), own)) == {"10.0.0.1:8080": PROBLEM}
    assert _said(here.check(HOST, _reported(4, 32), own)) == {"10.0.0.1:8080": PROBLEM}
    assert not _said(here.check(HOST, _reported(64, 512, "10.0.0.2:8080"), own))
    assert not _said(here.check(HOST, None, own))


NO_SPEED = replace(HOST, nic_fault="eth0 reports a speed of -1; set it", nic_gbps=0.0)
NO_SENSOR = {"loadmanager_sensor_trusted": {"nicSpeed": 0.0}}
SPEED = "loadBalancerOverrideBrokerNicSpeedGbps"


@pytest.mark.parametrize(
    ("broker", "said"),
    [
        ({"settings": {SPEED: "10"}}, False),  # as `standalone` sets it
        ({"metrics": {}, "no_metrics": "403", "settings": {SPEED: "10"}}, False),
        ({}, False),
        ({"metrics": NO_SENSOR}, True),
        ({"name": "elsewhere:8080", "settings": {SPEED: "10"}}, True),
    ],
)
def test_a_speed_that_the_brokers_here_know_is_no_finding(
    broker: dict[str, Any], said: bool
) -> None:
    """The system knows none, in a laptop or a virtual machine."""
    facts = _broker(**{"name": "10.0.0.1:8080", **broker})
    findings = list(here.check_speed(NO_SPEED, [facts], {"10.0.0.1"}))
    assert _said(iter(findings)) == ({"NIC": WARNING} if said else {})
    assert len(findings) == said
    assert not _said(here.check_speed(HOST, [facts], {"10.0.0.1"}))
    assert _said(host.check_nic(NO_SPEED)) == {"NIC": WARNING}


# ZooKeeper


def _server(number: int, mode: str, **changed: Any) -> ServerShown:
    server = ServerShown(
        address=f"zk{number}:2181", mode=mode, answer_ms=1.0, latency_ms=(0, 0.5, 20)
    )
    return msgspec.structs.replace(server, **changed)


THREE = [_server(1, "leader"), _server(2, "follower"), _server(3, "follower")]


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        (THREE, {}),
        ([*THREE[:2], ServerShown(address="zk3:2181", failure="refused")], {"zk3:2181": WARNING}),
        (
            [
                THREE[0],
                ServerShown(address="zk2:2181", failure="no"),
                ServerShown(address="zk3:2181", failure="no"),
            ],
            {"zk2:2181": PROBLEM, "zk3:2181": PROBLEM},
        ),
        ([_server(1, "follower"), *THREE[1:]], {"leader": PROBLEM}),
        ([_server(1, "standalone"), *THREE[1:]], {"zk1:2181": PROBLEM}),
        ([_server(1, "leader", answer_ms=4_000), *THREE[1:]], {"zk1:2181": PROBLEM}),
        ([_server(1, "leader", latency_ms=(0, 1, 20_000)), *THREE[1:]], {"zk1:2181": WARNING}),
        ([_server(1, "leader", tick_ms=3_000), *THREE[1:]], {}),
        ([_server(1, "leader", tick_ms=3_001), *THREE[1:]], {"zk1:2181": WARNING}),
        ([_server(1, "leader", tick_ms=7_501), *THREE[1:]], {"zk1:2181": PROBLEM}),
        ([_server(1, "", refuses=True), *THREE[1:]], {"zk1:2181": WARNING}),
        ([_server(1, "standalone")], {"ensemble": WARNING}),
        ([*THREE, _server(4, "follower")], {"ensemble": WARNING}),
    ],
)
def test_ensembles(servers: list[ServerShown], expected: dict[str, Severity]) -> None:
    """Quorum, leader, latency against the session timeout, number of servers."""
    assert _said(zookeeper.check(servers, 30_000)) == expected


@contextmanager
def _answering(answer: bytes, *, hang: bool = False) -> Iterator[str]:
    """A server that answers a four-letter word so; `hang` never ends its answer."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4)
            self.request.sendall(answer)
            if hang:
                self.request.recv(1)  # until the other side gives up

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


SRVR = b"""Zookeeper version: 3.9.3, built on 2024
Latency min/avg/max: 0/0.5/24
Received: 5
Sent: 4
Connections: 1
Outstanding: 2
Zxid: 0x5
tickTime=2000
Mode: follower
Node count: 5
"""


def test_servers_are_asked_in_bounded_time() -> None:
    """One that is well, one that does not allow the word, one that is no ZooKeeper, one that never
    ends its answer, one that is dead.
    """
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = f"127.0.0.1:{closed.getsockname()[1]}"
    began_s = time.monotonic()
    with (
        _answering(SRVR) as well,
        _answering(b"srvr is not executed because it is not in the whitelist.\n") as quiet,
        _answering(b"HTTP/1.1 400 Bad Request\r\n") as other,
        _answering(b"Zookeeper", hang=True) as hangs,
    ):
        servers = ensemble.read(f"{well},{quiet},{other},{hangs},{dead}", timeout_s=5.0)
    assert time.monotonic() - began_s < 60
    assert [bool(server.failure) for server in servers] == [False, False, True, True, True]
    assert servers[0].mode == "follower"
    assert servers[0].latency_ms == (0, 0.5, 24)
    assert (servers[0].outstanding, servers[0].tick_ms) == (2, 2000)
    assert servers[1].refuses


# Cluster

METRICS = {
    "loadmanager_session_lease_seconds": {"": 20.0},
    "loadmanager_leader": {"": 0.0},
    "loadmanager_sensor_trusted": {"cpu": 1.0, "nicSpeed": 1.0},
    "process_open_fds": {"": 100.0},
    "process_max_fds": {"": 1000.0},
    "loadmanager_event_loop_busy_ratio": {"": 0.2},
    "loadmanager_disk_free_bytes": {"topics": 50.0 * GIB},
    "loadmanager_disk_size_bytes": {"topics": 100.0 * GIB},
    "pulsar_lb_step_failures_total": {"report": 0.0},
}


def _broker(name: str, **changed: Any) -> BrokerFacts:
    metrics = {**METRICS, **changed.pop("metrics", {})}
    if name == "b1:8080":
        metrics = {**metrics, "loadmanager_leader": {"": 1.0}}
    broker = BrokerFacts(
        broker=name,
        leader="b1:8080",
        settings={**RUNNING, **changed.pop("settings", {})},
        metrics=metrics,
        clock_s=(-0.01, 0.01),
    )
    return replace(broker, **changed)


def _seen(*, last: Mapping[str, Any] = {}, **changed: Any) -> ClusterShown:
    """The leader's view, with the last broker changed."""
    first, second = (a_broker_shown(name, report_age_ms=5_000) for name in ("b1:8080", "b2:8080"))
    third = a_broker_shown("b3:8080", **{"report_age_ms": 5_000, **last})
    return a_cluster_shown([first, second, third], **changed)


def _cluster(seen: ClusterShown | None = None, **changed: Any) -> ClusterFacts:
    """Three brokers, of which the last is changed."""
    brokers = [_broker("b1:8080"), _broker("b2:8080"), _broker("b3:8080", **changed)]
    return ClusterFacts(
        url="http://b1:8080",
        brokers={each.broker: each for each in brokers},
        leaders_view=seen or _seen(),
    )


def test_a_good_cluster_has_no_finding() -> None:
    """What was looked at is told."""
    assert not _said(cluster.check(_cluster()))
    told = {finding.subject for finding in cluster.check(_cluster())}
    assert told == {"brokers", "leader", "clocks", "settings"}


def test_archives_that_lack_something() -> None:
    """What they say is passed on."""
    lacks = replace(_cluster(), archives=["b1:8080 has recorded nothing since 12:00:00Z"])
    (finding,) = (it for it in cluster.check(lacks) if it.subject == "archive")
    assert (finding.level, finding.text) == (WARNING, *lacks.archives)


B3 = "b3:8080"


def _certificate(days: float) -> dict[str, dict[str, float]]:
    return {
        "loadmanager_time_seconds": {"": 1e9},
        "loadmanager_tls_certificate_ends_seconds": {"for clients": 1e9 + days * 86_400},
    }


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"failure": "no answer"}, {B3: PROBLEM}),
        ({"leader": "b3:8080"}, {"leader": PROBLEM}),
        ({"metrics": {"loadmanager_leader": {"": 1.0}}}, {"leader": PROBLEM}),
        ({"clock_s": (1.5, 1.6)}, {"clocks": WARNING}),
        ({"clock_s": (-1.6, -1.5)}, {"clocks": WARNING}),
        ({"clock_s": (60.0, 60.1)}, {"clocks": PROBLEM}),
        ({"clock_s": (-2.0, 2.0)}, {}),
        ({"clock_s": None}, {}),
        ({"settings": {"logLevel": "debug", "webServicePort": "1"}}, {}),
        (
            {"settings": {"loadBalancerSheddingEnabled": "false"}},
            {"loadBalancerSheddingEnabled": WARNING},
        ),
        ({"settings": {"clusterName": "other"}}, {"clusterName": PROBLEM}),
        (
            {"settings": {"loadManagerClassName": "ExtensibleLoadManagerImpl"}, "leader": "b3"},
            {"loadManagerClassName": WARNING},
        ),
        ({"metrics": {"loadmanager_session_lease_seconds": {"": 0.0}}}, {B3: PROBLEM}),
        ({"metrics": {"process_open_fds": {"": 900.0}}}, {B3: PROBLEM}),
        ({"metrics": {"loadmanager_event_loop_busy_ratio": {"": 0.95}}}, {B3: WARNING}),
        ({"metrics": {"loadmanager_sensor_trusted": {"cpu": 0.0}}}, {B3: WARNING}),
        ({"metrics": {"pulsar_lb_step_failures_total": {"report": 3.0}}}, {B3: WARNING}),
        ({"metrics": {"loadmanager_fenced_total": {"": 1.0}}}, {B3: WARNING}),
        (
            {"metrics": {"loadmanager_disk_free_bytes": {"topics": 0.5 * GIB}}},
            {f"{B3}, topics": PROBLEM},
        ),
        ({"no_metrics": "401", "metrics": {}}, {B3: WARNING}),
        ({"metrics": _certificate(days=15)}, {}),
        ({"metrics": _certificate(days=13)}, {B3: WARNING}),
        ({"metrics": _certificate(days=0.9)}, {B3: PROBLEM}),
        ({"metrics": _certificate(days=-3)}, {B3: PROBLEM}),
        ({"metrics": {"loadmanager_tls_refused_changes_total": {"x": 1.0}}}, {B3: WARNING}),
    ],
)
def test_clusters(changed: dict[str, Any], expected: dict[str, Severity]) -> None:
    """One thing is wrong with the last of three brokers, and just that is said."""
    assert _said(cluster.check(_cluster(**changed))) == expected


LAPSES = (Unproven("b3:8080", 1_795_863_500_000, 42_000),)


def test_what_goes_on_without_zookeeper() -> None:
    """Stored topics that are open do: nobody is told that everything stops."""
    changed = {"metrics": {"loadmanager_session_lease_seconds": {"": 0.0}}}
    (unproven,) = [found for found in cluster.check(_cluster(**changed)) if found.subject == B3]
    (alone,) = [
        found
        for found in zookeeper.check([_server(1, "standalone")], 30_000)
        if found.subject == "ensemble"
    ]
    for found in (unproven, alone):
        assert "only stored topics that are open" in found.text
    fenced = replace(_cluster(metrics={"loadmanager_fenced_total": {"": 1.0}}), unproven=LAPSES)
    (said,) = [found.text for found in cluster.check(fenced) if found.subject == B3]
    assert said.endswith(" open stored topics went on: 1, last until 2026-11-28 10:58:20Z")
    froze = [Unproven(B3, 1_795_863_500_000, 5_100, 5_000), Unproven(B3, 1_795_863_400_000, 2_000)]
    (still,) = [it for it in cluster.check(replace(_cluster(), unproven=froze)) if it.subject == B3]
    assert still.text == (
        "it stood still 1 time in the last day, for 5.0 s at most, last until 2026-11-28 10:58:20Z"
    )
    dead, _ = zookeeper.check([ServerShown(address="zk1:2181", failure="refused")], 30_000)
    assert (dead.level, dead.text) == (PROBLEM, "refused; it is the only one")


def test_outages_of_the_store_are_told_and_no_broker_is_accused_of_them() -> None:
    """As brokers recorded them: the store's own figures have no time in which it stood still. One
    that goes on has no end.
    """
    end = 1_795_863_500_000
    silent = [
        Unproven(name, end + late, 47_000, unanswered_ms=5_000)
        for name, late in (("b1:8080", 0), ("b2:8080", 300), (B3, 400))
    ]
    lost = AbsentBroker(
        broker=B3, left_at=end, how="lost", back_at=end + 500, same_process=True,
        store_silent=True,
    )  # fmt: skip
    seen = msgspec.structs.replace(_seen(), at=end + 60_000, absent=[lost])
    said = [*cluster.check(replace(_cluster(seen), unproven=silent))]
    (store,) = [it for it in said if it.subject == "metadata store"]
    assert store.level == WARNING
    assert store.text.startswith("from 2026-11-28 10:57:28Z to 2026-11-28 10:58:20Z (52 s) at most")
    (was,) = [it for it in said if it.subject == B3]
    assert "the metadata store did not answer 3 brokers" in was.text
    assert "without a word" not in was.text
    assert was.advice == store.advice
    still = Unproven(B3, end, 0, unanswered_ms=9_000, is_open=True)
    facts = _cluster(metrics={"loadmanager_fenced_total": {"": 1.0}})
    said = [*cluster.check(replace(facts, unproven=[still]))]
    (fenced,) = [it.text for it in said if it.subject == B3]
    assert fenced.endswith("the last one until 2026-11-28 10:58:20Z at least")
    (store,) = [it for it in said if it.subject == "metadata store"]
    assert "until 2026-11-28 10:58:20Z at least" in store.text


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({"last": {"version": "0.1.0"}}, {"versions": WARNING}),
        ({"last": {"report_age_ms": 1_000_000}}, {B3: PROBLEM}),
        ({"last": {"report_age_ms": 900_000}}, {}),
        ({"last": {"report_age_ms": None}}, {}),
        ({"last": {"state": "unreadable"}}, {B3: PROBLEM}),
        ({"last": {"state": "drained"}}, {B3: WARNING}),
        ({"paused": PauseShown(until=1, note="")}, {"moves": WARNING}),
    ],
)
def test_what_the_leader_sees(seen: dict[str, Any], expected: dict[str, Severity]) -> None:
    """Reports, versions, cordons, bundles."""
    assert _said(cluster.check(_cluster(_seen(**seen)))) == expected


def test_how_full_the_disks_are() -> None:
    """The fullest one, and what the leader finds: only that knows how fast they fill."""
    disk = DiskShown(stored="history, topics", used_bytes=60 * GIB, size_bytes=100 * GIB)
    leaders_view = _seen(last={"disks": [disk]})
    said = [it for it in cluster.check(_cluster(leaders_view)) if it.subject == "disks"]
    assert [(it.level, it.text) for it in said] == [
        (
            Severity.FINE,
            "the fullest disk is that of b3:8080 with its history, topics: 60% full, 40.0 GiB free",
        )
    ]
    fills = FindingShown(
        kind="disk",
        about="b3:8080 history",
        since=1,
        title="The disk of b3:8080 with its history is 60% full, and full in 9 h",
        text="40.0 of 100.0 GiB are free.",
        advice="Free some of it.",
    )
    soon = replace(_cluster(leaders_view), disks=[fills])
    (told,) = [it for it in cluster.check(soon) if it.subject == "disks"]
    assert (told.level, told.advice) == (WARNING, "Free some of it.")
    assert told.text.endswith("full in 9 h. 40.0 of 100.0 GiB are free.")


@pytest.mark.parametrize(
    ("bundles", "expected"), [(None, {}), (11, {"bundles": WARNING}), (12, {})]
)
def test_few_bundles(bundles: int | None, expected: dict[str, Severity]) -> None:
    """Those of the namespaces with load count, four for each broker."""
    assert _said(cluster.check(replace(_cluster(), few_bundles=bundles))) == expected


def test_secrets_of_running_brokers_are_not_missed() -> None:
    """Brokers do not tell their keys. Other problems of the same settings are found."""
    loaded = settings.KEYS.load(
        None,
        {
            "authenticationEnabled": "true",
            "authenticationProviders": PROVIDER,
            "authorizationEnabled": "true",
            "authorizationProvider": "other",
        },
    )
    assert "tokenSecretKey, tokenPublicKey" in _said(configuration.check(loaded))
    found = _said(configuration.check(loaded, 3, {"tokenSecretKey"}))
    assert "authorizationProvider" in found
    assert not any("tokenSecretKey" in subject for subject in found)


def test_a_cluster_without_a_leader_or_brokers() -> None:
    """Each is said, and nothing that follows from it."""
    brokers = {
        name: replace(_broker(name), leader=None, metrics=METRICS) for name in ("b1:8080", "b2")
    }
    none = ClusterFacts(url="u", brokers=brokers, leaders_view=None, why_no_view="503")
    assert _said(cluster.check(none)) == {"leader": PROBLEM}
    led = replace(none, brokers={name: _broker(name) for name in ("b1:8080", "b2")})
    assert _said(cluster.check(led)) == {"leader": WARNING}
    assert _said(cluster.check(ClusterFacts(url="u", failure="no answer"))) == {"u": PROBLEM}
    assert _said(cluster.check(ClusterFacts(url="u"))) == {"u": PROBLEM}


def test_a_metrics_page_is_read() -> None:
    """Those series that the doctor needs; others may be anything."""
    page = (
        'loadmanager_time_seconds{cluster="c"} 5.5\n'
        'pulsar_lb_step_failures_total{cluster="c",step="report"} 2.0\n'
        'pulsar_rate_in{cluster="c",topic="odd{ \\" name"} nonsense\n'
        "process_open_fds 12\n"
    )
    assert asking.parse(page) == {
        "loadmanager_time_seconds": {"": 5.5},
        "pulsar_lb_step_failures_total": {"report": 2.0},
        "process_open_fds": {"": 12.0},
    }


# Configuration

STORED = {"loadManagerStorageDirectory": "/topics"}
SHEDDER, PLACEMENT = "loadBalancerLoadSheddingStrategy", "loadBalancerLoadPlacementStrategy"
MANAGER = {"loadManagerClassName": "ExtensibleLoadManagerImpl"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {}),
        ({SHEDDER: "AvgShedder"}, {PLACEMENT: WARNING}),
        ({SHEDDER: "AvgShedder", PLACEMENT: "AvgShedder"}, {}),
        ({PLACEMENT: "AvgShedder"}, {f"{SHEDDER}, {PLACEMENT}": PROBLEM}),
        ({SHEDDER: "BalancedShedder"}, {PLACEMENT: WARNING}),
        ({SHEDDER: "ThresholdShedder", **MANAGER}, {SHEDDER: WARNING}),
        ({SHEDDER: "TransferShedder", **MANAGER}, {}),
        (
            {SHEDDER: "TransferShedder", "loadBalancerBrokerLoadTargetStd": "0.5"},
            {"loadBalancerBrokerLoadTargetStd": PROBLEM},
        ),
        (
            {SHEDDER: "OverloadShedder", "loadBalancerBrokerOverloadedThresholdPercentage": "100"},
            {"loadBalancerBrokerOverloadedThresholdPercentage": PROBLEM},
        ),
        (
            {"loadBalancerBrokerThresholdShedderPercentage": "120"},
            {"loadBalancerBrokerThresholdShedderPercentage": PROBLEM},
        ),
        (
            {
                "loadBalancerCPUResourceWeight": "0",
                "loadBalancerBandwidthInResourceWeight": "0",
                "loadBalancerBandwidthOutResourceWeight": "0",
            },
            {"loadBalancerCPUResourceWeight": PROBLEM},
        ),
        (
            {"loadBalancerSheddingIntervalMinutes": "0.2"},
            {"loadBalancerSheddingIntervalMinutes": WARNING},
        ),
        (
            {
                "loadBalancerSheddingIntervalMinutes": "0.2",
                "loadBalancerHostUsageCheckIntervalMinutes": "0.05",
            },
            {},
        ),
        (
            {"loadBalancerSheddingGracePeriodMinutes": "1"},
            {"loadBalancerSheddingGracePeriodMinutes": WARNING},
        ),
        (
            {"loadBalancerSheddingGracePeriodMinutes": "1800000"},
            {"loadBalancerSheddingGracePeriodMinutes": WARNING},
        ),
        (
            {"loadBalancerBrokerLoadDataTTLInSeconds": "600"},
            {"loadBalancerBrokerLoadDataTTLInSeconds": PROBLEM},
        ),
        (
            {"metadataStoreSessionTimeoutMillis": "1000"},
            {"metadataStoreSessionTimeoutMillis": WARNING},
        ),
        ({"loadBalancerSheddingEnabled": "false"}, {"loadBalancerSheddingEnabled": WARNING}),
        ({"loadManagerMovesPerCycleMax": "0"}, {"loadManagerMovesPerCycleMax": WARNING}),
        (
            {"loadBalancerNamespaceMaximumBundles": "4"},
            {"loadBalancerNamespaceMaximumBundles": WARNING},
        ),
        ({"loadManagerMigrationEnabled": "true"}, {"loadManagerMigrationEnabled": WARNING}),
        ({"loadManagerStorageDirectory": ""}, {"loadManagerStorageDirectory": WARNING}),
        (
            {"loadManagerAllowUnauthenticatedAccess": "true"},
            {"loadManagerAllowUnauthenticatedAccess": WARNING},
        ),
    ],
)
def test_settings(values: dict[str, str], expected: dict[str, Severity]) -> None:
    """Values that are allowed each, and do together what nobody wants."""
    assert _said(configuration.check(settings.KEYS.load(None, STORED | values))) == expected


def test_a_strategy_of_third_parties_names_its_placement_rule() -> None:
    """The doctor warns of another one."""
    chosen = {"loadBalancerLoadSheddingStrategy": theirs.NAME}
    with theirs.registered(goes_with="BalancedPlacement"):
        found = _said(configuration.check(settings.KEYS.load(None, STORED | chosen)))
    assert found == {"loadBalancerLoadPlacementStrategy": WARNING}


def test_a_strategy_of_third_parties_says_when_it_never_sheds() -> None:
    """The doctor calls it a problem, as that of our own strategies."""
    never = NeverSheds("loadBalancerCPUResourceWeight", "it goes by CPU alone", "raise it")
    chosen = {"loadBalancerLoadSheddingStrategy": theirs.NAME}
    with theirs.registered(never_sheds=lambda _settings: [never]):
        found = _said(configuration.check(settings.KEYS.load(None, STORED | chosen)))
    assert found == {never.key: PROBLEM}
    with theirs.registered(never_sheds=lambda _settings: [never.unknown]):
        found = _said(configuration.check(settings.KEYS.load(None, STORED | chosen)))
    assert found == {"loadBalancerLoadSheddingStrategy": PROBLEM}


def test_bundles_of_a_new_namespace_are_compared_with_the_brokers() -> None:
    """A namespace with fewer bundles than brokers leaves some of them idle."""
    loaded = settings.KEYS.load(None, STORED)
    assert not _said(configuration.check(loaded, 4))
    assert _said(configuration.check(loaded, 5)) == {"defaultNumberOfNamespaceBundles": WARNING}


def test_a_misspelt_key_is_a_warning(tmp_path: Path) -> None:
    """Keys that only Pulsar has are not."""
    file = tmp_path / "broker.conf"
    file.write_text("clusterNam=x\nbookkeeperClientTimeoutInSeconds=30\n")
    assert "clusterNam" in _said(configuration.check(settings.KEYS.load(file)))
    assert "bookkeeperClientTimeoutInSeconds" not in _said(
        configuration.check(settings.KEYS.load(file))
    )


# The command


def test_a_file_alone_asks_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is looked at with this host; the worst finding decides the exit status."""
    file = tmp_path / "broker.conf"
    file.write_text(
        f"loadManagerStorageDirectory={tmp_path}\nloadManagerHistoryDirectory={tmp_path}\n"
        "loadBalancerOverrideBrokerNicSpeedGbps=1\nmetadataStoreUrl=zk:192.0.2.1:2181\n"
        "loadBalancerBrokerThresholdShedderPercentage=100\n"
    )
    assert cli.main(["doctor", "--config", str(file), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["worst"] == "problem"
    first = told["findings"][0]
    assert first["subject"] == "loadBalancerBrokerThresholdShedderPercentage"
    assert first["advice"]
    assert {finding["part"] for finding in told["findings"]} == {"host", "configuration"}


def test_a_broken_file_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And the host is looked at all the same."""
    file = tmp_path / "broker.conf"
    file.write_text("brokerServicePort=many\n")
    assert cli.main(["doctor", "--config", str(file)]) == 1
    said = capsys.readouterr().out
    assert "brokerServicePort" in said
    assert "open files" in said


def test_a_dead_cluster_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody listens there."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    assert cli.main(["doctor", "--url", url, "--timeout", "2"]) == 1
    said = capsys.readouterr().out
    assert "start a broker" in said
    assert "1 problem" in said
