"""Measures what a move costs a client: now and then it moves a bundle of its own, on which it has a
producer.

Beside a Pulsar nobody tells how long the clients of a move were paused. So the daemon opens a
producer on a topic of a namespace that the operator made for that, orders its bundle to another
broker as any other (the guards, the budget, the gate and the queue count), and takes the time from
the closing of the producer to the first receipt of the next owner.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Protocol

from loadmanager.engine.moves.move import Move, MoveState
from loadmanager.engine.strategies import cycle
from loadmanager.engine.strategies.plan import Plan, Unload
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.reason import Reason
from loadmanager.kit.tasks import guarded
from loadmanager.kit.telemetry import Sample, counter, gauge
from loadmanager.leader.load_manager import LoadManager
from loadmanager.leader.may_move import Asker
from loadmanager.leader.pauses import CANARY, CanaryPause
from loadmanager.leader.ports.mover import Release, Released
from loadmanager.steer.acting import Acting
from loadmanager.steer.documents import CanaryShown
from loadmanager.steer.namespaces import FleetNamespaces
from loadmanager.steer.notices import CANARY as NOTICE
from loadmanager.steer.ports.producing import Producing, Way

TOPIC = "loadmanager-canary"
LOOK_S = 10.0
LATER_S, RETRY_S = 60.0, 300.0
"""When it tries again, if the interval is not shorter: the move was not allowed; it failed."""
LIMIT_S = 180.0
"""For all of one measurement."""
RECEIPT_S = 10.0
"""How long a move that has been made waits for the receipt."""

PAUSE = gauge(
    "loadmanager_fleet_canary_pause_seconds",
    "How long the canary's producer was paused when its bundle was last moved",
)
RUNS = counter(
    "loadmanager_fleet_canary_runs", "Moves of the canary's bundle, measured or failed", "outcome"
)

log = get_logger("canary")


class CanaryWay(Way, Protocol):
    """The way to the brokers, which can also make a topic."""

    async def make_topic(self, topic: str) -> None:
        """Make a topic, unless it is there. Raises `OperationalError`."""
        ...


@dataclass(frozen=True, slots=True)
class CanaryOutside:
    """What the canary needs of the world."""

    producing: Producing
    way: CanaryWay


class CanaryProducer:
    """The producer while it measures, and how its bundle is released meanwhile."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self._bundle = ""
        self._steps: list[float | None] = []
        """The pauses of this measurement; None at the end: it is paused now."""
        self._changed = asyncio.Event()

    async def follow(self, steps: AsyncGenerator[float | None], bundle: str) -> None:
        """Take what the producer tells, until cancelled. Raises `OperationalError` at its end."""
        self._steps, self._bundle = [], bundle
        try:
            async with aclosing(steps):
                async for step in steps:
                    self._steps = [*(each for each in self._steps if each is not None), step]
                    self._changed.set()
        finally:
            self._bundle = ""

    async def attached(self) -> None:
        """Wait until the producer has its first receipt."""
        while not self._steps:
            await self._change()

    async def release(
        self,
        owner: BrokerAddress,
        bundle: str,
        destination: BrokerAddress | None,
        *,
        epoch: int | None,
    ) -> Released | None:
        """Release a bundle, with the pause if it is the canary's (`leader.ports.mover.Release`)."""
        released = await self._release(owner, bundle, destination, epoch=epoch)
        if released is None or bundle != self._bundle:
            return released
        try:
            async with asyncio.timeout(RECEIPT_S):
                while len(self._steps) < 2 or self._steps[-1] is None:
                    await self._change()
        except TimeoutError:
            return released
        paused_s = sum(each for each in self._steps if each is not None)
        return replace(released, pause_ms=round(paused_s * 1000, 1))

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


@dataclass(slots=True, kw_only=True)
class Canary:
    """One cluster's canary."""

    load_manager: LoadManager
    acting: Acting
    namespaces: FleetNamespaces
    producer: CanaryProducer
    outside: CanaryOutside
    at_work: Callable[[], Reason | None] = lambda: None
    """Why other moves go first."""
    tell: Callable[[str, str], None] | None = None
    """Takes the kind and the text of notices for people."""
    measured: int = field(default=0, init=False)
    failed: int = field(default=0, init=False)
    problem: str | None = field(default=None, init=False)
    """Why it could not measure when it last tried."""
    _next_ms: int = field(default=0, init=False)

    @property
    def pauses(self) -> deque[CanaryPause]:
        """The last ones, the newest last; the daemon's note has them, too."""
        return self.acting.pauses

    async def step(self) -> None:
        """Measure, if it is time and moves are allowed. Whatever prevents that is logged once."""
        if not self._is_due() or self._not_now() is not None:
            return
        try:
            async with asyncio.timeout(LIMIT_S):
                move = await self._move_bundle()
        except TimeoutError:
            self._cannot(f"it took longer than {LIMIT_S:g} s")
        except LoadManagerError as error:
            self._cannot(str(error))
        else:
            self._take(move)

    def _is_due(self) -> bool:
        last_ms = self.pauses[-1].at_ms if self.pauses else 0
        noted_ms = last_ms + self.acting.settings.value.canary_interval_s * 1000
        now_ms = self._now_ms()
        return now_ms >= self._next_ms and not last_ms <= now_ms < noted_ms

    def _not_now(self) -> Reason | None:
        """Why nothing is moved for this now."""
        hold, moves = self.acting.hold, self.acting.moves
        if moves.cluster.wishes.pause() is not None:
            return Reason("Paused", "moves are paused")
        if any(True for _ in moves.queue.open_moves()):
            return Reason("MovesWait", "other moves go first")
        return hold.why_not(Asker.CYCLE) or hold.spent() or self.at_work()

    async def _move_bundle(self) -> Move | None:
        """The move, once it has ended; None: the budget has no room. Raises `LoadManagerError`."""
        namespace = NamespaceName.parse(self.acting.settings.value.canary_namespace)
        if await self.namespaces.bundle_count(namespace) == 0:
            raise OperationalError(
                f"canaryNamespace {namespace} is not there; make it with: pulsar-admin namespaces "
                f"create {namespace}"
            )
        topic = f"persistent://{namespace}/{TOPIC}"
        await self.outside.way.make_topic(topic)
        bundle = (await self.namespaces.bundles(namespace)).bundle_of_topic(topic)
        steps = self.outside.producing(topic, self.outside.way)
        return await guarded(self._moved(bundle), self.producer.follow(steps, bundle))

    async def _moved(self, bundle: str) -> Move | None:
        await self.producer.attached()
        moves = self.acting.moves
        source = await moves.orders.owner(bundle)
        if source is None:
            raise OperationalError(f"nobody owns {bundle}")
        if self._not_now() is not None:
            return None
        unload = self._unload(bundle, source)
        for move in self.acting.queue(Plan(CANARY, unloads=(unload,)), lambda *_: False):
            try:
                await moves.ended(move)
            finally:
                if move.state is MoveState.QUEUED:
                    moves.cancel(move.id, "the canary waits no longer")
            return move
        return None

    def _unload(self, bundle: str, source: str) -> Unload:
        """To the broker with the fewest bundles that may have it. Raises `OperationalError`."""
        strategies = self.load_manager.strategies.value
        snapshot = self.load_manager.snapshot(strategies)
        owners = {**snapshot.owners, bundle: source}
        snapshot = snapshot.having(owners=owners, recently_unloaded_ms={})
        reports = self.acting.picture.reports
        others = sorted(
            (broker for broker in self.acting.picture.answering - {source} if broker in reports),
            key=lambda broker: (len(reports[broker].bundles), broker),
        )
        why = "there is no other broker"
        for broker in others:
            unload = Unload(bundle, source, broker, CANARY)
            allowed, skips = cycle.admitted(snapshot, strategies, [unload])
            if allowed:
                return unload
            why = "; ".join(f"{broker}: {skip.reason}" for skip in skips)
        raise OperationalError(f"{bundle} may not leave {source}: {why}")

    def _take(self, move: Move | None) -> None:
        if move is None or move.state in (MoveState.CANCELLED, MoveState.EXPIRED):
            self._wait(LATER_S)
            return
        outcome = move.outcome
        if outcome is None or move.state is not MoveState.DONE or outcome.pause_ms is None:
            text = "" if outcome is None else f": {outcome.text}"
            self._cannot(f"{move.bundle} to {move.destination}{text}, without a measured pause")
            return
        self.measured += 1
        pause = CanaryPause(self._now_ms(), outcome.pause_ms / 1000)
        self.acting.note_pause(pause)
        log.info(
            "the canary was paused",
            seconds=round(pause.seconds, 3),
            bundle=move.bundle,
            source=move.source,
            destination=move.destination,
        )
        if self.problem is not None:
            self._say("the canary measures again")
        self.problem = None

    def _cannot(self, why: str) -> None:
        self.failed += 1
        self._wait(RETRY_S)
        if self.problem is None:
            log.warning("the canary cannot measure the pause of a move", why=why)
            self._say(f"the canary cannot measure the pause of a move: {why}")
        self.problem = why

    def _wait(self, seconds: float) -> None:
        seconds = min(seconds, self.acting.settings.value.canary_interval_s)
        self._next_ms = self._now_ms() + round(seconds * 1000)

    def _say(self, text: str) -> None:
        if self.tell is not None:
            self.tell(NOTICE, text)

    def _now_ms(self) -> int:
        return self.acting.moves.term.clock.now_ms()

    def shown(self) -> CanaryShown:
        """For operators."""
        last = self.pauses[-1] if self.pauses else None
        why = self.problem or (self._not_now() if self._is_due() else None)
        return CanaryShown(
            pause_seconds=None if last is None else round(last.seconds, 3),
            at=None if last is None else last.at_ms,
            problem=None if why is None else str(why),
        )

    def samples(self) -> Iterator[Sample]:
        """The last pause, and how the measurements ended."""
        if self.pauses:
            yield PAUSE.sample(self.pauses[-1].seconds)
        yield RUNS.sample(self.measured, "measured")
        yield RUNS.sample(self.failed, "failed")
