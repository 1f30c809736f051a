"""Faults of real processes in a `Fleet`, while an `Observer` watches.

Each fault is a generator: it harms the cluster, yields when the harm is over, and repairs what the
next fault needs. `run` measures it. If other brokers and ZooKeeper go on working during a fault,
the measure is the longest pause of any topic. If no broker can serve, it is the time from the
fault's end until every topic is served again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from clusters.processes import NAMESPACE, READY_TIMEOUT_S, Fleet
from clusters.standalone import wait_for
from system.observer import Observer

from loadmanager.engine.bundles.ranges import NamespaceBundles, equal_boundaries
from loadmanager.kit.metadata import paths
from loadmanager.kit.names import NamespaceName

TOPICS = 20
SERVED_TIMEOUT_S = 60.0
"""Generous, so that a slow minute fails no test. The outcome has the real time."""
WATCHED_AFTER_S = 1.0
"""The observer goes on for so long after every topic is served again."""
LINK_HARMED_S_MIN = 6.0
FILES_MAX = 200
TOLD_TIMEOUT_S = 60.0
"""Who is not told never hears of it: the observer gives no request up."""
TWIN_ADDRESS = "127.0.0.2"


@dataclass(slots=True)
class Outcome:
    """The figures of one fault."""

    fault: str
    lasted_s: float
    pause_s: float
    """Longest time without a receipt of one topic."""
    served_again_s: float
    """From the fault's end until every topic had a receipt."""
    aim_s: float
    from_end: bool
    """Whether the aim counts from the fault's end, because no broker could serve before."""
    twice_owned: list[str]
    undelivered: int
    """Messages with a receipt after the fault that no consumer got."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def measured_s(self) -> float:
        """The figure that the aim is for."""
        return self.served_again_s if self.from_end else self.pause_s


class Scene:
    """The fleet and the observer of a fault, and the problems and notes that it records."""

    def __init__(self, fleet: Fleet, observer: Observer) -> None:
        self.fleet = fleet
        self.observer = observer
        self.problems: list[str] = []
        self.notes: list[str] = []

    @property
    def twice_session_s(self) -> float:
        """The duration of a fault that must cost a session."""
        return 2 * self.fleet.session_s

    def require(self, condition: bool, problem: str) -> None:
        """Record a problem unless the condition holds."""
        if not condition:
            self.problems.append(problem)


Fault = Callable[[Scene], Iterator[None]]


def topics() -> dict[str, str]:
    """Twenty topics and their bundles, at least one in each of the bundles of `NAMESPACE`."""
    cut = NamespaceBundles(NamespaceName.parse(NAMESPACE), equal_boundaries(16))
    names = [f"persistent://{NAMESPACE}/topic-{index}" for index in range(1_000)]
    first: dict[str, str] = {}
    for name in names:
        first.setdefault(cut.bundle_of_topic(name), name)
    rest = [name for name in names if name not in first.values()]
    chosen = [*first.values(), *rest[: TOPICS - len(first)]]
    return {name: cut.bundle_of_topic(name) for name in chosen}


@contextlib.contextmanager
def observed(fleet: Fleet) -> Iterator[Observer]:
    """An observer of all brokers of a fleet."""
    with Observer(topics(), fleet.addresses()) as observer:
        yield observer


def run(name: str, fleet: Fleet, observer: Observer) -> Outcome:
    """Do one fault to a working cluster, and wait until it works again.

    Raises `AssertionError` when a topic is not served within `SERVED_TIMEOUT_S` of the fault's end.
    """
    fault, from_end = FAULTS[name]
    spread(fleet, observer)
    scene = Scene(fleet, observer)
    before = fleet.tracebacks()
    began_s = time.monotonic()
    steps = fault(scene)
    next(steps)
    ended_s = time.monotonic()
    wait_served(observer, ended_s)
    time.sleep(WATCHED_AFTER_S)
    until_s = time.monotonic()
    for _ in steps:
        raise AssertionError(f"{name} yields twice")
    outcome = Outcome(
        fault=name,
        lasted_s=ended_s - began_s,
        pause_s=observer.longest_pause_s(began_s, until_s),
        served_again_s=observer.served_again_s(ended_s),
        aim_s=fleet.session_s + 1.0,
        from_end=from_end,
        twice_owned=observer.twice_owned(began_s),
        undelivered=_undelivered(observer, until_s - WATCHED_AFTER_S / 2, until_s),
        problems=scene.problems + observer.faults,
        notes=scene.notes,
    )
    new = fleet.tracebacks() - before
    outcome.notes += [f"{count} × traceback: {what}" for what, count in new.most_common(3)]
    outcome.problems += _claims(fleet)
    return outcome


def wait_served(observer: Observer, since_s: float) -> None:
    """Wait until each topic has a receipt for a message that was sent from now on."""
    try:
        wait_for(lambda: not observer.unserved(since_s), "every topic is served", SERVED_TIMEOUT_S)
    except AssertionError as error:
        raise AssertionError(f"{error}; hung: {observer.unserved(since_s)}") from None


def spread(fleet: Fleet, observer: Observer) -> None:
    """Give each broker a share of the bundles, so that every fault affects some."""
    wait_served(observer, time.monotonic())
    bundles = sorted(set(observer.topics.values()))

    def moved() -> bool:
        for index, bundle in enumerate(bundles):
            to = index % fleet.count
            if bundle not in fleet.owned(to) and not fleet.move(bundle, to):
                return False
        return True

    wait_for(moved, "the bundles are spread", SERVED_TIMEOUT_S)
    wait_served(observer, time.monotonic())


def _undelivered(observer: Observer, since_s: float, until_s: float) -> int:
    """The number of messages of that span that a consumer does not get within the timeout."""
    with contextlib.suppress(AssertionError):
        wait_for(lambda: not observer.undelivered(since_s, until_s), "delivery")
    return len(observer.undelivered(since_s, until_s))


def _claims(fleet: Fleet) -> list[str]:
    """Bundles that no broker or several brokers list in `ownedNamespaces`, when nothing moves."""
    found: list[str] = []

    def one_each() -> bool:
        claims = [bundle for index in range(fleet.count) for bundle in fleet.owned(index)]
        load = [bundle for bundle in claims if bundle.startswith(f"{NAMESPACE}/")]
        found[:] = sorted(bundle for bundle in load if load.count(bundle) > 1)
        if len(set(load)) < fleet.bundles:
            found.append(f"only {len(set(load))} of {fleet.bundles} bundles are claimed")
        return not found

    with contextlib.suppress(AssertionError):
        wait_for(one_each, "each bundle has one owner")
    return [f"ownedNamespaces: {claim}" for claim in found]


# Processes


def kill_owner(scene: Scene) -> Iterator[None]:
    """kill -9 of a broker that does not lead."""
    yield from _kill(scene, [scene.fleet.follower()])


def kill_leader(scene: Scene) -> Iterator[None]:
    """kill -9 of the leader."""
    yield from _kill(scene, [scene.fleet.leader()])


def kill_both(scene: Scene) -> Iterator[None]:
    """kill -9 of the leader and of another broker at once."""
    yield from _kill(scene, [scene.fleet.leader(), scene.fleet.follower()])


def _kill(scene: Scene, victims: list[int]) -> Iterator[None]:
    for victim in victims:
        scene.fleet.kill(victim)
    yield
    for victim in victims:
        scene.fleet.start(victim)


def pause_owner(scene: Scene) -> Iterator[None]:
    """SIGSTOP of a broker that does not lead, for twice the session timeout."""
    yield from _pause(scene, scene.fleet.follower())


def pause_leader(scene: Scene) -> Iterator[None]:
    """SIGSTOP of the leader, for twice the session timeout."""
    yield from _pause(scene, scene.fleet.leader())


def _pause(scene: Scene, victim: int) -> Iterator[None]:
    scene.fleet.signal(victim, signal.SIGSTOP)
    time.sleep(scene.twice_session_s)
    scene.fleet.signal(victim, signal.SIGCONT)
    yield
    _require_alive(scene, victim)


def rolling_restart(scene: Scene) -> Iterator[None]:
    """SIGTERM and a new start of each broker, one after the other."""
    for index in range(scene.fleet.count):
        scene.fleet.terminate(index)
        scene.fleet.start(index)
    yield


def quick_restart(scene: Scene) -> Iterator[None]:
    """kill -9 and a new start within the session timeout: the old session still holds the locks."""
    victim = scene.fleet.follower()
    scene.fleet.kill(victim)
    began_s = time.monotonic()
    scene.fleet.start(victim, wait=False)
    yield
    scene.fleet.wait_until_ready(victim)
    scene.notes.append(f"ready {time.monotonic() - began_s:.1f} s after its start, at the latest")


def same_name(scene: Scene) -> Iterator[None]:
    """A second process with a broker's name: it must not serve while the first one lives."""
    fleet, victim = scene.fleet, scene.fleet.follower()
    name = fleet.start_twin(victim, TWIN_ADDRESS)
    label = f"{name} of {fleet.broker_id(victim)}"
    scene.observer.watch(label, TWIN_ADDRESS, fleet.pulsar_port + victim)
    time.sleep(max(8.0, scene.twice_session_s))
    lives = list(scene.observer.lives.values())
    scene.require(not any(life.broker == label for life in lives), "the second one served")
    scene.require(fleet.alive(f"broker-{victim}"), "the first one ended")
    fleet.end(name) if fleet.alive(name) else scene.notes.append("the second one ended by itself")
    yield
    _require_alive(scene, victim)


# ZooKeeper


def zookeeper_killed(scene: Scene) -> Iterator[None]:
    """kill -9 of ZooKeeper, and a new start over its data."""
    scene.fleet.kill_zookeeper()
    scene.fleet.start_zookeeper()
    yield
    _require_all_alive(scene)


def zookeeper_away(scene: Scene) -> Iterator[None]:
    """kill -9 of ZooKeeper, and a new start after twice the session timeout."""
    scene.fleet.kill_zookeeper()
    time.sleep(scene.twice_session_s)
    scene.fleet.start_zookeeper()
    yield
    _require_all_alive(scene)


def zookeeper_paused(scene: Scene) -> Iterator[None]:
    """SIGSTOP of ZooKeeper for twice the session timeout."""
    server = scene.fleet.zookeeper_pid()
    os.kill(server, signal.SIGSTOP)
    time.sleep(scene.twice_session_s)
    os.kill(server, signal.SIGCONT)
    yield
    _require_all_alive(scene)


def link_cut(scene: Scene) -> Iterator[None]:
    """The proxy between one broker and ZooKeeper refuses connections; its clients stay."""
    yield from _harm_link(scene, scene.fleet.proxy.cut)


def link_held(scene: Scene) -> Iterator[None]:
    """The proxy between one broker and ZooKeeper swallows all bytes; its clients stay."""
    connections = scene.fleet.proxy.connections
    harming = _harm_link(scene, scene.fleet.proxy.hold)
    next(harming)
    made = scene.fleet.proxy.connections - connections
    scene.require(made > 0, "the broker stayed on a dead connection, and tried no other")
    yield
    yield from harming


def link_flaps(scene: Scene) -> Iterator[None]:
    """One broker's connections to ZooKeeper live 2 to 8 ms, then 5 to 50 ms; its clients stay."""

    def flap() -> None:
        scene.fleet.proxy.flap(0.002, 0.008)
        time.sleep(scene.fleet.session_s)
        scene.fleet.proxy.flap(0.005, 0.05)

    yield from _harm_link(scene, flap)


def link_flaps_expired(scene: Scene) -> Iterator[None]:
    """Make links flap after the session expired: the broker must register between the losses."""

    def harm() -> None:
        scene.fleet.proxy.cut()
        time.sleep(scene.twice_session_s)
        scene.fleet.proxy.flap(0.005, 0.05)

    yield from _harm_link(scene, harm)


def _harm_link(scene: Scene, harm: Callable[[], None]) -> Iterator[None]:
    fleet = scene.fleet
    connections = fleet.proxy.connections
    harm()
    time.sleep(max(LINK_HARMED_S_MIN, scene.twice_session_s))
    made = fleet.proxy.connections - connections
    fleet.proxy.restore()
    scene.notes.append(f"the broker connected {made} times meanwhile")
    yield
    _require_alive(scene, fleet.proxied)


def leader_node_deleted(scene: Scene) -> Iterator[None]:
    """The leader's node is deleted by hand, three times within a second."""
    for _ in range(3):
        with contextlib.suppress(Exception):  # there is no leader now, which is fine, too
            scene.fleet.delete_node(paths.LEADER)
        time.sleep(0.3)
    yield
    _require_all_alive(scene)
    scene.fleet.leader()


def locks_deleted(scene: Scene) -> Iterator[None]:
    """All locks of one broker are deleted by hand: its clients are told, and served again."""
    fleet, observer = scene.fleet, scene.observer
    victim = fleet.follower()
    bundles = {bundle for bundle in fleet.owned(victim) if bundle.startswith(f"{NAMESPACE}/")}
    topics_there = {topic for topic, bundle in observer.topics.items() if bundle in bundles}
    began_s = time.monotonic()
    for bundle in bundles:
        fleet.delete_node(paths.lock(bundle))
    yield

    def untold() -> set[str]:
        notices = [notice for notice in list(observer.notices) if notice.at_s >= began_s]
        owner = fleet.broker_id(victim)
        return topics_there - {notice.topic for notice in notices if notice.broker == owner}

    with contextlib.suppress(AssertionError):
        wait_for(lambda: not untold(), "every producer is told", TOLD_TIMEOUT_S)
    scene.require(not untold(), f"producers were not told to leave: {sorted(untold())}")
    _require_all_alive(scene)


# Resources


def history_disk_full(scene: Scene) -> Iterator[None]:
    """The disk of a broker's history is full, and later has room again."""
    fleet, victim = scene.fleet, scene.fleet.follower()
    fleet.terminate(victim)
    with _small_disk(fleet, victim):
        fleet.start(victim)
        spread(fleet, scene.observer)
        filler = fleet.history(victim) / "filler"
        _fill(filler)
        time.sleep(3.0)
        yield
        _require_alive(scene, victim)
        filler.unlink()
        before = _history_bytes(fleet, victim)
        grown = f"the history goes on ({before} bytes before)"
        with contextlib.suppress(AssertionError):
            wait_for(lambda: _history_bytes(fleet, victim) > before, grown)
        scene.require(_history_bytes(fleet, victim) > before, "the history does not go on")
        fleet.terminate(victim)
    fleet.start(victim)


def _fill(file: os.PathLike[str]) -> None:
    with open(file, "wb", buffering=0) as output, contextlib.suppress(OSError):  # noqa: PTH123
        while True:
            output.write(b"x" * 4096)


def _history_bytes(fleet: Fleet, index: int) -> int:
    return sum(path.stat().st_size for path in fleet.history(index).rglob("*") if path.is_file())


@contextlib.contextmanager
def _small_disk(fleet: Fleet, index: int) -> Iterator[None]:
    """A disk of 1 MB for a broker's history. Raises `Unable` where mounting is not permitted."""
    folder = fleet.history(index)
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    done = subprocess.run(mount, check=False, capture_output=True, text=True)
    if done.returncode:
        fleet.start(index)
        raise Unable(f"no tmpfs could be mounted: {done.stderr.strip()}")
    try:
        yield
    finally:
        if fleet.alive(f"broker-{index}"):
            fleet.kill(index)
        subprocess.run(["umount", str(folder)], check=True)


class Unable(Exception):  # noqa: N818 — it is no error of the cluster
    """This machine does not permit the fault; the text explains why."""


def files_exhausted(scene: Scene) -> Iterator[None]:
    """A broker with a small limit of file descriptors meets more idle connections than that."""
    fleet, victim = scene.fleet, scene.fleet.follower()
    fleet.terminate(victim)
    fleet.start(victim, files_max=FILES_MAX)
    spread(fleet, scene.observer)
    address = ("127.0.0.1", fleet.pulsar_port + victim)
    with contextlib.ExitStack() as idle:
        for _ in range(FILES_MAX + 100):
            with contextlib.suppress(OSError):
                idle.enter_context(socket.create_connection(address, timeout=2))
        time.sleep(max(5.0, scene.twice_session_s))
        _require_alive(scene, victim)
    yield
    if fleet.alive(f"broker-{victim}"):
        fleet.terminate(victim)
    fleet.start(victim)


def _require_alive(scene: Scene, index: int) -> None:
    """Record a broker that ended as a problem, and start it again for the next fault."""
    process = scene.fleet.process_of(index)
    if process.poll() is not None:
        scene.problems.append(f"broker {index} ended with status {process.returncode}")
        scene.fleet.start(index)
    wait_for(lambda: scene.fleet.owned(index) is not None, "it answers", READY_TIMEOUT_S)


def _require_all_alive(scene: Scene) -> None:
    for index in range(scene.fleet.count):
        _require_alive(scene, index)


FAULTS: dict[str, tuple[Fault, bool]] = {
    "kill-owner": (kill_owner, False),
    "kill-leader": (kill_leader, False),
    "kill-both": (kill_both, False),
    "pause-owner": (pause_owner, False),
    "pause-leader": (pause_leader, False),
    "rolling-restart": (rolling_restart, False),
    "quick-restart": (quick_restart, False),
    "same-name": (same_name, False),
    "zookeeper-killed": (zookeeper_killed, True),
    "zookeeper-away": (zookeeper_away, True),
    "zookeeper-paused": (zookeeper_paused, True),
    "link-cut": (link_cut, False),
    "link-held": (link_held, False),
    "link-flaps": (link_flaps, False),
    "link-flaps-expired": (link_flaps_expired, False),
    "leader-node-deleted": (leader_node_deleted, False),
    "locks-deleted": (locks_deleted, False),
    "history-disk-full": (history_disk_full, False),
    "files-exhausted": (files_exhausted, False),
}
"""Name → the fault, and whether it is measured from its end."""
