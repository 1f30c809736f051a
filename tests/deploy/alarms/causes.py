"""What makes each alert fire, done to a live cluster, and undone."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
from clusters.processes import NAMESPACE
from clusters.standalone import wait_for
from deploy.alarms.quicker import scrape
from deploy.alarms.scene import (
    GO,
    SESSION_S,
    STOP,
    STRAY,
    Harmed,
    Scene,
    again,
    environment,
    flood,
    knock,
    topic,
)
from kit.security.certificates import Authority
from ports import free_ports
from steer.fake_pulsar import failed

from loadmanager.kit.metadata.paths import DYNAMIC_CONFIGURATION

Do = Callable[[Scene], AbstractContextManager[None]]
CLOCK = "libfaketime.so.1"
LOOK_S, BUSY_PERCENT = 5.0, 60.0
"""On a machine that is busier with other things, no event loop has a core."""
FLOODS = 8
"""Connections."""
FAILED_MIN = 5
"""More moves than this must fail."""


class Unable(Exception):  # noqa: N818 — it is no error of the cluster
    """This machine does not permit the cause; the text explains why."""


@dataclass(frozen=True)
class Cause:
    """What is done, by a name, and the alerts that it must make fire."""

    name: str
    alerts: tuple[str, ...]
    do: Do


def _follower(fleet: Harmed) -> int:
    """A broker that does not lead, and is not the one that operators ask."""
    leader = fleet.leader()
    return next(index for index in (2, 1) if index != leader)


@contextmanager
def killed_broker(scene: Scene) -> Iterator[None]:
    fleet, victim = scene.fleet, _follower(scene.fleet)
    fleet.kill(victim)
    yield
    fleet.start(victim)


@contextmanager
def zookeeper_away(scene: Scene) -> Iterator[None]:
    """For all. One waits for answers for a second only, so that its steps fail often; the others
    for 30 s, while their reports grow old.
    """
    fleet, impatient = scene.fleet, _follower(scene.fleet)
    fleet.restarted(impatient, metadataStoreOperationTimeoutSeconds="1")
    fleet.kill_zookeeper()
    yield
    fleet.start_zookeeper()
    for index in range(fleet.count):
        fleet.wait_until_ready(index)
    fleet.restarted(impatient)


@contextmanager
def same_name_elsewhere(scene: Scene) -> Iterator[None]:
    """A broker with another chroot, so another cluster, has this cluster's name."""
    fleet = scene.fleet
    url = f"zk:127.0.0.1:{fleet.zookeeper.port}/elsewhere"
    storage = {"loadManagerStorageDirectory": "", "loadManagerExpectedBrokers": "0"}
    fleet.own[STRAY] = {"metadataStoreUrl": url, **storage}
    fleet.start(STRAY)
    bundles = {"bundles": {"numBundles": fleet.bundles}}
    fleet.request(STRAY, "PUT", "/admin/v2/tenants/acme", {"allowedClusters": ["standalone"]})
    fleet.request(STRAY, "PUT", f"/admin/v2/namespaces/{NAMESPACE}", bundles)
    with fleet.sending(topic("shared"), 10, 0.2), fleet.sending(topic("shared"), 10, 0.2, STRAY):
        members = [fleet.broker_id(index) for index in range(fleet.count)]
        scrape(scene.folder / "quick", "loadmanager", [*members, fleet.broker_id(STRAY)])
        yield
        scrape(scene.folder / "quick", "loadmanager", members)
    fleet.kill(STRAY)


@contextmanager
def disk_full(scene: Scene) -> Iterator[None]:
    if not os.path.ismount(scene.fleet.disk):
        raise Unable("a small disk needs the right to mount one")
    filler = scene.fleet.disk / "filler"
    with scene.fleet.sending(topic("stored"), 2_000, 0.02), again(partial(_fill, filler), 0.5):
        yield
    filler.unlink()


def _fill(filler: Path) -> None:
    """Take what is free; what a broker gives back, too."""
    for size in (65_536, 512):
        with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * size)


@contextmanager
def paused_broker(scene: Scene) -> Iterator[None]:
    """A broker cannot prove its session, and shortly afterwards again."""
    fleet, victim = scene.fleet, _follower(scene.fleet)
    for _ in range(2):
        fleet.signal(victim, STOP)
        time.sleep(1.5 * SESSION_S)
        fleet.signal(victim, GO)
        fleet.wait_until_ready(victim)
        time.sleep(1.5 * SESSION_S)
    yield


@contextmanager
def damaged_segment(scene: Scene) -> Iterator[None]:
    """A byte of a stored topic has changed when a consumer reads it. The brokers have started anew
    since it was written, so that no journal has the message once more, and no memory.
    """
    fleet, name = scene.fleet, topic("damaged")
    before = set(fleet.disk.rglob("*.log"))
    with fleet.sending(name, 500, 0.005):
        wait_for(lambda: _grown(fleet.disk, before), "the topic is stored")
    (path,) = _grown(fleet.disk, before)[:1]
    writers = fleet.writers()
    for index in range(fleet.count):
        fleet.terminate(index)
    for index in range(fleet.count):
        fleet.start(index, wait=False)
    for index in range(fleet.count):
        fleet.wait_until_ready(index)
    wait_for(lambda: not fleet.writers() & writers, "their journals were read", 60)
    # An increase is known from the first scrape on.
    shown = f"count(loadmanager_storage_damaged_total) == {fleet.count}"
    wait_for(lambda: scene.alerts.has_value(shown), "they are scraped", 60)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)
    with fleet.reading(name):
        yield


def _grown(folder: Path, before: set[Path]) -> list[Path]:
    return [
        path
        for path in sorted(folder.rglob("*.log"))
        if path not in before and path.stat().st_size > 20_000
    ]


@contextmanager
def many_connections(scene: Scene) -> Iterator[None]:
    """More clients than a broker may have, who are most of what it may open."""
    fleet, victim = scene.fleet, _follower(scene.fleet)
    fleet.restarted(victim, brokerMaxConnections="60")
    process = psutil.Process(fleet.process_of(victim).pid)
    files = process.rlimit(psutil.RLIMIT_NOFILE)
    address = ("127.0.0.1", fleet.pulsar_port + victim)
    with ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(socket.create_connection(address, timeout=10))
        wait_for(lambda: process.num_fds() > 80, "they are open")
        process.rlimit(psutil.RLIMIT_NOFILE, (int(process.num_fds() / 0.85), files[1]))
        stack.callback(process.rlimit, psutil.RLIMIT_NOFILE, files)
        with again(partial(knock, address), 0.5):
            yield
    fleet.restarted(victim)


@contextmanager
def planted_bug(scene: Scene) -> Iterator[None]:
    """No bug is known that a client could reach: one is planted, in a process of the test."""
    with scene.fleet.sending(topic("buggy"), 100, 0.1), again(scene.fleet.plant_bug, 1.0):
        yield


@contextmanager
def no_files(scene: Scene) -> Iterator[None]:
    """A broker cannot open /proc, by which it measures its load."""
    process = psutil.Process(scene.fleet.process_of(_follower(scene.fleet)).pid)
    files = process.rlimit(psutil.RLIMIT_NOFILE)
    # More than the sockets that kazoo waits for: poll(2) refuses to wait for more than the limit.
    process.rlimit(psutil.RLIMIT_NOFILE, (8, files[1]))
    try:
        yield
    finally:
        process.rlimit(psutil.RLIMIT_NOFILE, files)


@contextmanager
def busy_loop(scene: Scene) -> Iterator[None]:
    """A broker is asked all the time, and comes before all others on this machine."""
    victim = _follower(scene.fleet)
    pid = scene.fleet.process_of(victim).pid
    try:
        _prefer(pid, os.SCHED_RR)
    except PermissionError:
        if (busy := psutil.cpu_percent(LOOK_S)) > BUSY_PERCENT:
            text = f"an event loop needs a core to be busy; this machine is {busy:g} % busy"
            raise Unable(text) from None
    address = ("127.0.0.1", scene.fleet.http_port + victim)
    with again(partial(flood, address), 0.0, threads=FLOODS):
        yield
    with contextlib.suppress(PermissionError):
        _prefer(pid, os.SCHED_OTHER)


def _prefer(pid: int, policy: int) -> None:
    """All threads: one that waits for a core may have the interpreter's lock."""
    first = os.sched_param(os.sched_get_priority_min(policy))
    for thread in psutil.Process(pid).threads():
        os.sched_setscheduler(thread.id, policy, first)


@contextmanager
def paused_source(scene: Scene) -> Iterator[None]:
    """A broker that bundles are to leave stands still."""
    fleet, source = scene.fleet, _follower(scene.fleet)
    bundles = fleet.spread_out()
    with _paused(scene, source):
        for bundle in bundles[source]:
            fleet.order_move(bundle, _other(fleet, source))
        yield


@contextmanager
def paused_destination(scene: Scene) -> Iterator[None]:
    """A broker that bundles are to go to stands still."""
    fleet, to = scene.fleet, _follower(scene.fleet)
    source = _other(fleet, to)
    bundles = fleet.spread_out()[source]
    assert len(bundles) > FAILED_MIN, bundles
    with _paused(scene, to):
        for bundle in bundles:
            fleet.order_move(bundle, to, by=source)
        yield


def _other(fleet: Harmed, index: int) -> int:
    return next(other for other in range(fleet.count) if other != index)


@contextmanager
def _paused(scene: Scene, index: int) -> Iterator[None]:
    scene.fleet.signal(index, STOP)
    try:
        yield
    finally:
        scene.fleet.signal(index, GO)
    scene.fleet.wait_until_ready(index)


@contextmanager
def paused_queue(scene: Scene) -> Iterator[None]:
    scene.fleet.admin("moves", "pause", "3h")
    yield
    scene.fleet.admin("moves", "resume")


@contextmanager
def uneven_load(scene: Scene) -> Iterator[None]:
    """One broker has all the traffic, and nothing is shed."""
    with scene.fleet.sending(topic("heavy"), 20_000, 0.025):
        yield


@contextmanager
def held_limit(scene: Scene) -> Iterator[None]:
    name = topic("held")
    with scene.fleet.sending(name, 100, 0.002):
        scene.fleet.admin("limits", "set", name, "publishRate", "--messages", "20")
        yield
        scene.fleet.admin("limits", "remove", name, "publishRate")


@contextmanager
def corrupt_policies(scene: Scene) -> Iterator[None]:
    """The policies of a namespace are no JSON, and somebody asks for them."""
    path = "/admin/policies/acme/broken"
    scene.fleet.write(path, b"{{{")
    with again(partial(scene.fleet.ask, "/admin/v2/namespaces/acme/broken"), 0.2):
        yield
    scene.fleet.write(path, None)


@contextmanager
def corrupt_settings(scene: Scene) -> Iterator[None]:
    scene.fleet.write(DYNAMIC_CONFIGURATION, b"{{{")
    yield
    scene.fleet.write(DYNAMIC_CONFIGURATION, b"{}")


@contextmanager
def bad_setting(scene: Scene) -> Iterator[None]:
    values = {"loadBalancerHostUsageCheckIntervalMinutes": "often"}
    scene.fleet.write(DYNAMIC_CONFIGURATION, json.dumps(values).encode())
    yield
    scene.fleet.write(DYNAMIC_CONFIGURATION, b"{}")


@contextmanager
def other_clock(scene: Scene) -> Iterator[None]:
    """The clock of one broker is half a minute late."""
    library = next(iter(sorted(Path("/usr/lib").rglob(CLOCK))), None)
    if library is None:
        raise Unable("a wrong clock needs libfaketime (Debian's package faketime)")
    fleet, victim = scene.fleet, _follower(scene.fleet)
    fleet.terminate(victim)
    wrong = {"LD_PRELOAD": str(library), "FAKETIME": "-30s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    with environment(wrong):
        fleet.start(victim)
    yield
    fleet.restarted(victim)


@contextmanager
def certificate(scene: Scene) -> Iterator[None]:
    """A certificate ends in two days, and what replaces it is no certificate."""
    fleet, victim = scene.fleet, _follower(scene.fleet)
    authority = Authority(scene.folder / "authority")
    pair, port = authority.issue("broker"), free_ports(1)
    files = {"tlsCertificateFilePath": str(pair.certificate), "tlsKeyFilePath": str(pair.key)}
    fleet.restarted(
        victim, brokerServicePortTls=str(port), tlsCertRefreshCheckDurationSec="1", **files
    )
    whole = pair.certificate.read_bytes()
    wait_for(lambda: scene.alerts.has_value("loadmanager_tls_refused_changes_total"), "it shows it")
    pair.certificate.write_bytes(whole[:-40])
    yield
    authority.issue("broker", lives=dt.timedelta(days=90))
    wait_for(
        lambda: scene.alerts.has_value(
            "loadmanager_tls_certificate_ends_seconds - time() > 80 * 86400"
        ),
        "the new certificate is taken",
        120,
    )


@contextmanager
def changing_leaders(scene: Scene) -> Iterator[None]:
    """Each leader is killed, three times."""
    fleet = scene.fleet
    for _ in range(3):
        victim = fleet.leader()
        fleet.kill(victim)
        wait_for(lambda victim=victim: fleet.leads_not(victim), "another one leads", 120)
        fleet.start(victim)
    yield
    # What is remembered of leaders ends with a cluster that is new.
    for index in range(fleet.count):
        fleet.terminate(index)
    for index in range(fleet.count):
        fleet.start(index, wait=False)
    for index in range(fleet.count):
        fleet.wait_until_ready(index)


@contextmanager
def dead_daemon(scene: Scene) -> Iterator[None]:
    scene.daemon.kill()
    yield
    scene.daemon.start()


@contextmanager
def two_that_balance(scene: Scene) -> Iterator[None]:
    """Somebody switches Pulsar's own balancing on beside the daemon."""
    key = "loadBalancerSheddingEnabled"
    scene.daemon.do(lambda pulsar: pulsar.settings.update({key: "true"}))
    yield
    scene.daemon.do(lambda pulsar: pulsar.switch_off())


@contextmanager
def unread_reports(scene: Scene) -> Iterator[None]:
    """Pulsar's brokers answer 500 to who asks for their load."""
    end = "/load-report"
    scene.daemon.do(lambda pulsar: pulsar.nonsense.update({end: failed}))
    yield
    scene.daemon.do(lambda pulsar: pulsar.nonsense.pop(end))


@contextmanager
def failed_unload(scene: Scene) -> Iterator[None]:
    """An operator orders a move, and Pulsar's broker answers 500."""
    end = "/unload"
    scene.daemon.do(lambda pulsar: pulsar.nonsense.update({end: failed}))
    pulsar = scene.daemon.pulsar
    bundle, owner = next((bundle, owner) for bundle, owner in pulsar.owners.items() if owner)
    to = next(broker for broker in pulsar.brokers if broker != owner)
    scene.daemon.admin("bundles", "move", bundle, "--to", to)
    yield
    scene.daemon.do(lambda pulsar: pulsar.nonsense.pop(end))
    scene.daemon.admin("moves", "resume")


CAUSES = (
    Cause(
        "a broker is killed",
        ("LoadmanagerBrokerDown", "LoadmanagerBrokerLost", "LoadmanagerBrokersMissing"),
        killed_broker,
    ),
    Cause(
        "ZooKeeper is away",
        (
            "LoadmanagerSessionLost",
            "LoadmanagerFenced",
            "LoadmanagerNoLeader",
            "LoadmanagerStepFails",
            "LoadmanagerStaleReport",
        ),
        zookeeper_away,
    ),
    Cause(
        "another cluster has its name",
        ("LoadmanagerTwoOwners", "LoadmanagerTwoLeaders"),
        same_name_elsewhere,
    ),
    Cause(
        "the disk is full",
        ("LoadmanagerDiskNearlyFull", "LoadmanagerHistoryDropped"),
        disk_full,
    ),
    Cause("a broker stands still twice", ("LoadmanagerBrokerUnwell",), paused_broker),
    Cause("a segment is damaged", ("LoadmanagerStorageDamaged",), damaged_segment),
    Cause(
        "too many connections",
        ("LoadmanagerConnectionsRefused", "LoadmanagerFileDescriptors"),
        many_connections,
    ),
    Cause(
        "no file can be opened",
        ("LoadmanagerSensorBlind", "LoadmanagerSensorMistrusted"),
        no_files,
    ),
    Cause("a bug is planted", ("LoadmanagerProtocolFailures",), planted_bug),
    Cause("a flood of requests", ("LoadmanagerEventLoopBusy",), busy_loop),
    Cause("a source stands still", ("LoadmanagerMovesStuck",), paused_source),
    Cause("a destination stands still", ("LoadmanagerMovesFail",), paused_destination),
    Cause("the queue is paused", ("LoadmanagerMovesPaused",), paused_queue),
    Cause("one broker has all load", ("LoadmanagerImbalanceStays",), uneven_load),
    Cause("a limit holds", ("LoadmanagerThrottledForLong",), held_limit),
    Cause("policies are no JSON", ("LoadmanagerAdminErrors",), corrupt_policies),
    Cause("the settings are no JSON", ("LoadmanagerCorruptData",), corrupt_settings),
    Cause("a setting is no number", ("LoadmanagerRejectedSettings",), bad_setting),
    Cause("a clock is late", ("LoadmanagerClocksDiffer",), other_clock),
    Cause(
        "a certificate ends",
        ("LoadmanagerCertificateEnds", "LoadmanagerCertificateRefused"),
        certificate,
    ),
    Cause("leaders change", ("LoadmanagerFinding",), changing_leaders),
    Cause("the daemon is killed", ("LoadmanagerFleetDown",), dead_daemon),
    Cause("Pulsar balances, too", ("LoadmanagerFleetMovesNothing",), two_that_balance),
    Cause("Pulsar tells no load", ("LoadmanagerFleetReportsOld",), unread_reports),
    Cause("Pulsar cannot unload", ("LoadmanagerFleetBreakerOpened",), failed_unload),
)
