"""The daemon's parts over a fake Pulsar, without its timers: tests make every step."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from steer.fake_pulsar import FakePulsar, a_pulsar

from loadmanager.engine.history.records import Record
from loadmanager.kit.metadata.leader import Leader
from loadmanager.kit.tasks import Scope, Steps
from loadmanager.steer import settings_file as conf
from loadmanager.steer.canary import CanaryOutside
from loadmanager.steer.daemon_note import Unwritten
from loadmanager.steer.files.note import FileNote
from loadmanager.steer.files.wishes_file import WishesFile
from loadmanager.steer.fleet_work import build_fleet_work
from loadmanager.steer.outside import FleetOutside
from loadmanager.steer.ports.producing import Producing
from loadmanager.steer.pulsar.client import PulsarClient
from loadmanager.steer.pulsar.marks import AdminMarks
from loadmanager.steer.pulsar.orders import AdminOrders
from loadmanager.steer.pulsar.reader import AdminReader
from loadmanager.steer.pulsar.way import AdminWay
from loadmanager.steer.rivals import id_in, id_of_lock
from loadmanager.steer.work import FleetWork

ACT = {"mode": "act", "loadManagerMovesPerMinuteMax": "-1"}
LOOKS_S = (0.0, 0.0, 0.01, 0.01)
AGAIN_S = (0.0,) * 6


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.at_ms = 1_795_000_000_000

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self.at_ms

    def monotonic_s(self) -> float:
        """Seconds."""
        return self.at_ms / 1000

    def monotonic_ns(self) -> int:
        """Nanoseconds."""
        return self.at_ms * 1_000_000

    def pass_s(self, seconds: float) -> None:
        """Time passes."""
        self.at_ms += round(seconds * 1000)


class Kept:
    """A history in memory."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def append(self, *records: Record) -> None:
        """Keep records."""
        self.records += records


MANY_MOVES = {
    "loadBalancerLoadSheddingStrategy": "ThresholdShedder",
    "loadBalancerLoadPlacementStrategy": "LeastLongTermMessageRate",
}
"""In one cycle."""


@dataclass
class Watching:
    """A daemon beside a fake cluster."""

    pulsar: FakePulsar
    work: FleetWork
    clock: Clock
    history: Kept
    client: PulsarClient

    async def cycle(self) -> None:
        """Read, decide, and wait for the moves."""
        await self.work.read()
        await self.work.shed()
        await self.work.moves.idle()

    async def goal_step(self) -> None:
        """Go on with the goals, wait for the moves, and read what has become of it."""
        await self.work.operations.goals.step()
        await self.work.moves.idle()
        self.clock.pass_s(15)
        await self.work.read()


@asynccontextmanager
async def watching(
    folder: Path,
    share: tuple[int, ...] = (12, 2, 2),
    *,
    settings: dict[str, str] | None = None,
    token: str | None = None,
    epoch: int = 1,
    unwritten: Unwritten | None = None,
    **state: Any,
) -> AsyncIterator[Watching]:
    """A fake cluster with so many bundles on each broker, and the daemon's parts."""
    async with a_pulsar(len(share), token=token, **state) as pulsar:
        pulsar.spread(list(share))
        given = dict(settings or {})
        if token is not None:
            (folder / "token").write_text(token)
            given["tokenFile"] = str(folder / "token")
        async with beside(pulsar, folder, given, epoch=epoch, unwritten=unwritten) as daemon:
            yield daemon


@asynccontextmanager
async def beside(
    pulsar: FakePulsar,
    folder: Path,
    settings: dict[str, str],
    *,
    epoch: int = 1,
    unwritten: Unwritten | None = None,
    marks: bool = False,
    lock: str = "",
    producing: Producing | None = None,
    notices: list[tuple[str, str]] | None = None,
) -> AsyncIterator[Watching]:
    """The daemon's parts beside a fake cluster. What they did not finish is left undone. With
    `marks` they look for other daemons, `lock` names the one that they have. `producing`: opens the
    canary's producers; `notices`: where what people are told is kept.
    """
    given = {**MANY_MOVES, "pulsar": pulsar.url(), "requestsPerSecondMax": "10000", **settings}
    known = conf.parse("test", given)
    clock, history = Clock(), Kept()
    async with PulsarClient(known.pulsar) as client, Scope("test") as scope:
        reader = AdminReader(client, clock)
        outside = FleetOutside(
            me=Leader("fleet-test", "http://127.0.0.1:1", epoch),
            reader=reader,
            orders=partial(AdminOrders, client, reader, looks_s=LOOKS_S, again_s=AGAIN_S),
            wishes=WishesFile(folder / "wishes.json", clock),
            note=FileNote(folder / "acted.json"),
            unwritten=unwritten or Unwritten(),
            clock=clock,
            rng=random.Random(1),
            history=history,
            marks=AdminMarks(client) if marks else None,
            daemon_id=id_of_lock(lock, "test") if lock else id_in(folder),
            has_lock=bool(lock),
            canary=producing and CanaryOutside(producing, AdminWay(client)),
            tell=None if notices is None else lambda *notice: notices.append(notice),
        )
        work = build_fleet_work(known, outside, scope, Steps())
        if known.fleet.mode in ("approve", "act"):
            scope.spawn(work.moves.run(), "moves")
        yield Watching(pulsar, work, clock, history, client)
        scope.cancel()


async def traffic_falls(daemon: Watching) -> None:
    """To a quarter, and the daemon looks until every move that it expected something of is due."""
    for bundle in daemon.pulsar.rates:
        daemon.pulsar.rates[bundle] /= 4
    for _ in range(8):
        daemon.clock.pass_s(30)
        await daemon.work.read()
