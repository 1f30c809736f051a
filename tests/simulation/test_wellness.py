"""Brokers that are not well give their bundles to others, if others are well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from simulation.cluster import Cluster, Process
from simulation.logs_seen import LogObserver
from simulation.operators import Operators
from simulation.simulate import _prepare
from simulation.stored import STORED, TOPICS, Kept, StoredClient
from simulation.world import World, logs_into

from loadmanager.broker.storage.memory_disk import SharedFiles
from loadmanager.engine.history.records import AuditedChange
from loadmanager.kit.history.port import HistoryRecord
from loadmanager.member.wellness import WELL_S

GIVE_UP = {**STORED, "loadManagerUnwellBrokersGiveUp": "true"}
SESSION_S = 4.0


class OwnRecords:
    """What a broker recorded that it did by itself."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def append(self, *records: HistoryRecord) -> None:
        self.told += [each.what for each in records if isinstance(each, AuditedChange)]


class Run:
    """Three brokers with stored topics, of which each has a producer and a consumer."""

    def __init__(
        self, world: World, *, extensible: bool = False, session_s: float = SESSION_S
    ) -> None:
        self.world = world
        self.cluster = Cluster(
            world,
            brokers=3,
            session_timeout_s=session_s,
            settings=GIVE_UP,
            extensible_from_s=0.0 if extensible else float("inf"),
        )
        self.cluster.files = SharedFiles()
        observer = LogObserver(self.cluster, Operators(self.cluster))
        self.last_s: dict[str, float] = {}
        """Topic → when its last receipt came."""
        _prepare(self.cluster)
        for broker in self.cluster.brokers:
            broker.start()
        self.until(lambda: all(process.ready for process in self.cluster.processes()), 10.0)
        clients = world.machine("clients")
        for topic in TOPICS:
            client = StoredClient(self.cluster, clients, topic, 0.3, self._receipt)
            client.kept, client.away = Kept(), False
            clients.go(client.consume(), f"consume-{topic}")
            clients.go(client.produce(), f"produce-{topic}")
        assert observer.receipts == 0
        self.until(lambda: len(self.last_s) == len(TOPICS) and len(self.owners()) > 1, 30.0)

    def _receipt(self, topic: str, _broker: str) -> None:
        self.last_s[topic] = self.world.now_s

    def until(self, true: Callable[[], bool], within_s: float) -> None:
        """Run until something is true."""
        assert self.world.run_until(self.world.now_s + within_s, true), "\n".join(
            list(self.world.log)[-40:]
        )

    def pass_s(self, seconds: float) -> None:
        """Run for a while."""
        self.world.run_until(self.world.now_s + seconds)

    def owners(self) -> list[Process]:
        """The brokers that have stored topics."""
        return [
            process
            for process in self.cluster.processes()
            if any(name in TOPICS for name in process.parts.hosting.serving.open_topics)  # type: ignore[union-attr]
        ]

    def cordoned(self) -> set[str]:
        """The brokers that are cordoned, as the store has it."""
        process = next(p for p in self.cluster.processes() if not p.machine.paused)
        return set(process.parts.member.cluster.wishes.cordons)  # type: ignore[union-attr]

    def served_since(self, since_s: float) -> bool:
        """True if every topic had a receipt since then."""
        return all(self.last_s[topic] > since_s for topic in TOPICS)


@contextmanager
def a_run(seed: int, *, extensible: bool = False, session_s: float = SESSION_S) -> Iterator[Run]:
    """A run that ends with the block."""
    world = World(seed)
    with logs_into(lambda: world):
        try:
            yield Run(world, extensible=extensible, session_s=session_s)
        finally:
            world.close()


@pytest.mark.parametrize("extensible", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_a_broken_disk_moves_the_bundles(seed: int, extensible: bool) -> None:
    """To brokers whose disks are well; the broker takes none until its own is well for a while."""
    with a_run(seed, extensible=extensible) as run:
        victim, changes = run.owners()[0], OwnRecords()
        name = victim.broker.address.broker_id
        wellness = victim.parts.member.wellness  # type: ignore[union-attr]
        wellness.history = changes
        victim.broken_disk = True
        run.until(lambda: run.cordoned() == {name}, 60.0)
        run.until(lambda: wellness.given_up, 10.0)
        (what,) = changes.told
        assert what.startswith("cordons itself: it is not well: ")
        assert what.endswith(f"until it has been well for {WELL_S:g} s")
        run.until(lambda: victim not in run.owners(), 30.0)
        broken_s = run.world.now_s
        run.until(lambda: run.served_since(broken_s), 30.0)
        run.pass_s(2 * WELL_S)
        assert victim not in run.owners()
        victim.broken_disk = False
        mended_s = run.world.now_s
        run.until(lambda: not run.cordoned(), 3 * WELL_S)
        assert run.world.now_s - mended_s >= WELL_S - 10.0
        run.until(lambda: not wellness.given_up, 10.0)
        assert changes.told[1:] == ["ends its cordon: it is well again"]


@pytest.mark.parametrize("broken", [2, 3])
def test_what_most_brokers_suffer_moves_nothing(broken: int) -> None:
    """A directory that is away is away for all: nobody is cordoned, and all goes on afterwards."""
    for seed in range(2):
        with a_run(seed) as run:
            victims = run.cluster.processes()[:broken]
            for victim in victims:
                victim.broken_disk = True
            for _ in range(30):
                run.pass_s(2.0)
                assert not run.cordoned()
            for victim in victims:
                victim.broken_disk = False
            mended_s = run.world.now_s
            run.until(lambda mended_s=mended_s: run.served_since(mended_s), 60.0)  # type: ignore[misc]


@pytest.mark.parametrize("seed", range(1))
def test_a_broker_that_stutters_takes_no_bundles_for_a_while(seed: int) -> None:
    """After its second pause it is cordoned, for longer each time."""
    with a_run(seed) as run:
        victim = run.owners()[0]
        name = victim.broker.address.broker_id
        holds = []
        for _ in range(3):
            for _ in range(2):
                victim.machine.paused = True
                run.pass_s(1.5 * SESSION_S)
                victim.machine.paused = False
                run.pass_s(2 * SESSION_S)
            run.until(lambda: run.cordoned() == {name}, 20.0)
            began_s = run.world.now_s
            run.until(lambda: not run.cordoned(), 10 * WELL_S)
            holds.append(run.world.now_s - began_s)
        assert holds[0] < holds[1] < holds[2]


def test_a_broker_that_stands_still_takes_no_bundles_for_a_while() -> None:
    """Even while its session lives, as it does if the heartbeat's thread still runs."""
    with a_run(0, session_s=40.0) as run:
        victim = run.owners()[0]
        name = victim.broker.address.broker_id
        for _ in range(2):
            run.pass_s(10.0)
            assert not run.cordoned()
            victim.machine.paused = True
            run.pass_s(10.0)
            victim.machine.paused = False
        run.until(lambda: run.cordoned() == {name}, 20.0)
        assert victim.ready
        run.until(lambda: not run.cordoned(), 3 * WELL_S)


def cut_off(run: Run, victim: Process) -> None:
    """The store answers the others, and not this broker, for two session timeouts."""
    victim.store.reachable = False
    victim.store.cut()
    run.pass_s(2 * SESSION_S)
    victim.store.reachable = True
    run.pass_s(4 * SESSION_S)


@pytest.mark.parametrize("seed", range(2))
def test_a_store_that_is_away_for_all_is_no_brokers_fault(seed: int) -> None:
    """A broker that lost it alone once before, while the others never did, is not cordoned for it;
    nor is anybody when it is away again and again.
    """
    with a_run(seed) as run:
        cut_off(run, run.owners()[0])
        for outage_s in (4.5, 3.0, 8.0):
            run.cluster.server.stop()
            run.pass_s(outage_s)
            run.cluster.server.start()
            for _ in range(25):
                run.pass_s(2.0)
                assert not run.cordoned()
        mended_s = run.world.now_s
        run.until(lambda: run.served_since(mended_s), 60.0)


def test_a_broker_that_alone_loses_the_store_takes_no_bundles_for_a_while() -> None:
    """The link of one broker is cut twice, while the store answers the others."""
    with a_run(1) as run:
        victim = run.owners()[0]
        name = victim.broker.address.broker_id
        for _ in range(2):
            assert not run.cordoned()
            cut_off(run, victim)
        run.until(lambda: run.cordoned() == {name}, 30.0)
