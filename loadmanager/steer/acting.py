"""Moves by itself, within a budget and behind a circuit breaker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from loadmanager.engine.load.carried import RATES, Carried
from loadmanager.engine.load.reports import LocalBrokerData, NamespaceBundleStats
from loadmanager.engine.moves.breaker import BreakerRules, Expectation, LoadSeen
from loadmanager.engine.moves.move import NOT_AGAIN, NOT_OWNED, NOT_SENT, Author, Move, MoveState
from loadmanager.engine.strategies.plan import Plan, Skip
from loadmanager.kit.conf import Live
from loadmanager.kit.logger import get_logger
from loadmanager.kit.reason import Reason
from loadmanager.kit.text import printable
from loadmanager.leader.load_manager import LoadManager
from loadmanager.leader.moves import Moves
from loadmanager.leader.pauses import CANARY, CanaryPause
from loadmanager.steer.daemon_note import DaemonNote
from loadmanager.steer.hold import STALE_READINGS, FleetHold, limits
from loadmanager.steer.picture import Picture
from loadmanager.steer.ports.note import NOTE_BYTES_MAX
from loadmanager.steer.settings import ACT, APPROVE, FleetSettings

MEASURED_MS = 90_000
"""After the settling: Pulsar has measured once more for certain."""
SESSION_MS = 60_000
"""A broker that dies is listed until its session ends: twice what that takes in Pulsar."""
NOTE_NAMES_MAX = 2_000
"""Bundles that were just moved, brokers, and bundles that were just split, of which the next daemon
knows; fewer if their names are long.
"""
PAUSES_MAX = 10
WHY_MAX = 1_000
"""Characters of a kept reason."""

log = get_logger("fleet")


class Acted(msgspec.Struct):
    """The deeds of this daemon, kept for the next one. Times are milliseconds since the epoch."""

    moves: list[tuple[int, str, str]] = []
    """Moves of the last hour: when each began, its source and destination."""
    why: str = ""
    """Why the circuit breaker opened last."""
    until_ms: int = 0
    """When it closes by itself."""
    bundles: dict[str, int] = {}
    """Bundle → when it was moved, whoever wanted it: it stays for a while."""
    brokers: dict[str, int] = {}
    """Broker → when a bundle left it."""
    splits: dict[str, int] = {}
    """Bundle → when the order to split it was last sent."""
    canary: list[tuple[int, float]] = []
    """The canary's last pauses: when, and how many seconds."""
    waits: bool = False
    """Whether the circuit breaker opened last because brokers disappeared."""


@dataclass(slots=True, kw_only=True)
class Acting:
    """Queues what the budget allows, and watches what comes of it."""

    moves: Moves
    picture: Picture
    carried: Carried
    settings: Live[FleetSettings]
    load_manager: LoadManager
    hold: FleetHold
    note: DaemonNote
    pauses: deque[CanaryPause] = field(default_factory=lambda: deque(maxlen=PAUSES_MAX), init=False)
    """What the canary measured last, the newest last."""

    def __post_init__(self) -> None:
        """Hear of the moves, and of the note. Count what an earlier term could not write, whatever
        the note says.
        """
        self.moves.on_change.append(self._changed)
        self.moves.on_end.append(self._ended)
        self.note.on_read.append(self._read)
        if self.note.unwritten.value is not None:
            self.recall(self.note.unwritten.value)

    def _read(self, note_bytes: bytes | None) -> None:
        """The note was read for the first time."""
        self.recall(note_bytes)
        if self.note.unwritten.value is not None or (note_bytes and self.steers()):
            self.write_note()  # both in one, without times of a clock that was ahead

    def recall(self, note_bytes: bytes | None) -> None:
        """Count what this daemon, or the one before it, did lately, beside what is known already.

        Opens the breaker if `kept` makes no sense: nobody knows then what was done.
        """
        if not note_bytes:
            return
        try:
            acted = msgspec.json.decode(note_bytes, type=Acted)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            name = self.note.note.name
            event = "what was kept of the budget, the breaker and the moves makes no sense"
            log.error(event, note=name, error=str(error))
            why = f"{name} makes no sense, and what was done lately is not known"
            if self.steers() and self.hold.breaker.open(
                why, self.moves.term.clock.now_ms(), self.rules()
            ):
                self._opened()
            return
        now_ms, view = self.moves.term.clock.now_ms(), self.moves.cluster.view
        bundles, brokers = view.recent_moves()
        view.know_moves(
            _later(acted.bundles, bundles, now_ms), _later(acted.brokers, brokers, now_ms)
        )
        splits = self.load_manager.split_ms
        splits.update(_later(acted.splits, splits, now_ms))
        self.hold.budget.recall(acted.moves, now_ms)
        if not self.pauses:
            self.pauses.extend(CanaryPause(*pause) for pause in acted.canary if pause[0] <= now_ms)
        why = printable(acted.why[:WHY_MAX])
        breaker = self.hold.breaker
        if breaker.recall(why, acted.until_ms, now_ms, self.rules(), waits=acted.waits):
            log.warning("moves stop as before", reason=str(self.hold.stopped()))

    def note_pause(self, pause: CanaryPause) -> None:
        """The canary has measured."""
        self.pauses.append(pause)
        self.write_note()

    def steers(self) -> bool:
        """True if anything may be moved in this mode."""
        return self.settings.value.mode in (APPROVE, ACT)

    def write_note(self) -> None:
        """Have what the next daemon must know written."""
        note_bytes, names_max = self._encoded(NOTE_NAMES_MAX), NOTE_NAMES_MAX
        while len(note_bytes) > NOTE_BYTES_MAX and names_max > 0:
            names_max //= 2
            note_bytes = self._encoded(names_max)
        self.note.write_soon(note_bytes)

    def _encoded(self, names_max: int) -> bytes:
        times = (*self.moves.cluster.view.recent_moves(), self.load_manager.split_ms)
        bundles, brokers, splits = (_newest(names, names_max) for names in times)
        acted = Acted(
            self.hold.budget.moves(),
            self.hold.breaker.why,
            self.hold.breaker.until_ms,
            bundles,
            brokers,
            splits,
            [(pause.at_ms, pause.seconds) for pause in self.pauses],
            self.hold.breaker.waits,
        )
        return msgspec.json.encode(acted)

    def rules(self) -> BreakerRules:
        """The limits at which the breaker opens."""
        settings = self.settings.value
        return BreakerRules(
            settings.failures_max,
            settings.rate_drop_percent,
            settings.open_minutes * 60_000,
            settings.settle_s * 1000 + MEASURED_MS,
            near_ms=SESSION_MS + settings.read_interval_s * STALE_READINGS * 1000,
        )

    def queue(self, plan: Plan, splits: Callable[[str, str], bool]) -> Sequence[Move]:
        """Queue the moves of a cycle that the budget allows; returns those, none on hold. `splits`:
        whether a bundle of a broker is being split, or was after the broker was last read.
        """
        if self.moves.hold_of(Author.CYCLE) is not None:
            return ()  # what the budget has is not known, say
        within = limits(self.settings.value, self.picture.reports)
        waiting = [
            (move.source, move.destination or "")
            for move in self.moves.queue.open_moves()
            if move.author is Author.CYCLE and move.state is MoveState.QUEUED
        ]
        splitting = [unload for unload in plan.unloads if splits(unload.bundle, unload.source)]
        wanted = [unload for unload in plan.unloads if unload not in splitting]
        allowed, refused = self.hold.budget.allow(
            wanted, self.moves.term.clock.now_ms(), within, waiting
        )
        refused += tuple(Skip(unload.bundle, "Splits", "it is being split") for unload in splitting)
        if refused:
            self.load_manager.record_plan(Plan(plan.strategy, skipped=refused))
        return self.moves.decide(allowed, Author.CYCLE)

    def _changed(self, move: Move) -> None:
        """A move begins, or has changed otherwise: what it should come to is known as it begins."""
        if move.state is not MoveState.RUNNING:
            return
        if move.author is Author.CYCLE:
            self.hold.budget.began(move.source, move.destination, self.moves.term.clock.now_ms())
            self.write_note()
        if (
            move.author in (Author.CYCLE, Author.PLAN, Author.GOAL)
            and self.settings.value.mode == ACT
            and move.reason != CANARY  # what it moves carries nothing
        ):
            expectation = self._expectation(move)
            if expectation is not None:
                self.hold.breaker.expect(expectation)

    def _expectation(self, move: Move) -> Expectation | None:
        report = self.picture.reports.get(move.source)
        stats = None if report is None else report.last_stats.get(move.bundle)
        if stats is None or move.destination is None:
            return None
        wait_ms = self.settings.value.settle_s * 1000 + MEASURED_MS
        return Expectation(
            move=move.bundle,
            source=move.source,
            destination=move.destination,
            bundle=LoadSeen(stats.rate, stats.msg_rate_in),
            check_ms=round(self.moves.term.clock.now_ms() + wait_ms),
            brokers=_loads(self.picture.reports),
        )

    def _ended(self, move: Move) -> None:
        """A move has ended: its load counts at the destination from now on."""
        if move.state is MoveState.DONE and move.destination is not None:
            self._carry(move)
        text, code = (move.outcome.text, move.outcome.code) if move.outcome else ("", None)
        if move.state is MoveState.DONE:
            self.write_note()
        if code == NOT_SENT:
            self._not_made(move)
        if code == NOT_AGAIN:
            self.hold.breaker.not_made(move.bundle)  # what held it back says what is wrong
        if code in (NOT_SENT, NOT_AGAIN, NOT_OWNED) or move.started_at is None:
            return  # nothing was tried: its destination left before it began, say
        if move.state in (MoveState.DONE, MoveState.FAILED):
            failed = move.state is MoveState.FAILED
            problem = f"{move.bundle}: {text}"
            if self.hold.breaker.ended(
                move.bundle,
                problem if failed else None,
                self.moves.term.clock.now_ms(),
                self.rules(),
                brokers={move.source, move.destination or move.source},
                began_ms=move.started_at,
            ):
                self._opened()

    def _not_made(self, move: Move) -> None:
        self.hold.breaker.not_made(move.bundle)
        if move.author is Author.CYCLE:
            self.hold.budget.not_made(move.source, move.destination)
            self.write_note()

    def _carry(self, move: Move) -> None:
        report = self.picture.reports.get(move.source)
        stats = None if report is None else report.last_stats.get(move.bundle)
        if stats is not None:
            until_ms = self.moves.term.clock.now_ms() + self.settings.value.settle_s * 1000
            self.carried.moved(move.bundle, stats, round(until_ms))

    def carry_parts(self, parts: Sequence[str], whole: NamespaceBundleStats) -> None:
        """A bundle was split: each of its parts counts with its share, at least, for a while."""
        until_ms = round(self.moves.term.clock.now_ms() + self.settings.value.settle_s * 1000)
        for part in parts:
            share = {name: getattr(whole, name) / len(parts) for name in RATES}
            self.carried.moved(part, msgspec.structs.replace(whole, **share), until_ms)

    def look(self) -> None:
        """The cluster was read."""
        picture = self.picture
        oldest_ms = (
            self.moves.term.clock.now_ms()
            - self.settings.value.read_interval_s * STALE_READINGS * 1000
        )
        live = frozenset(
            broker
            for broker, report in picture.reports.items()
            if broker in picture.registered and report.last_update > oldest_ms
        )
        reports = {name: picture.reports[name] for name in live if name in picture.reports}
        if self.hold.breaker.look(
            _loads(reports),
            self.moves.term.clock.now_ms(),
            self.rules(),
            may_leave=self.moves.cluster.wishes.cordons.keys(),
            of_bundle=self._load_of,
        ):
            self._opened()

    def _load_of(self, bundle: str, broker: str) -> LoadSeen | None:
        report = self.picture.reports.get(broker)
        stats = None if report is None else report.last_stats.get(bundle)
        return None if stats is None else LoadSeen(stats.rate, stats.msg_rate_in)

    def _opened(self) -> None:
        why = self.hold.stopped() or Reason("CircuitBreaker")
        cancelled = self.moves.cancel(None, f"cancelled: {why}", urgent=False)
        say = log.warning if self.hold.breaker.waits else log.error
        say("moves stop", reason=str(why), cancelled=cancelled)
        skip = Skip("cluster", why.code, why.text)
        self.load_manager.record_plan(Plan("CircuitBreaker", skipped=(skip,)))
        self.write_note()

    def resume(self) -> bool:
        """An operator ends what the breaker began; returns whether it was open."""
        was_open = self.hold.breaker.close()
        if was_open:
            self.write_note()
        return was_open


def _newest(times_ms: Mapping[str, int], names_max: int) -> dict[str, int]:
    newest = sorted(times_ms, key=lambda name: (-times_ms[name], name))[:names_max]
    return {name: times_ms[name] for name in newest}


def _later(
    noted_ms: Mapping[str, int], present_ms: Mapping[str, int], now_ms: int
) -> dict[str, int]:
    """The times of the note that are later than those at hand."""
    clipped = {name: min(at_ms, now_ms) for name, at_ms in noted_ms.items()}
    return {name: at_ms for name, at_ms in clipped.items() if at_ms > present_ms.get(name, 0)}


def _loads(reports: Mapping[str, LocalBrokerData]) -> dict[str, LoadSeen]:
    return {
        broker: LoadSeen(reports[broker].rate, reports[broker].msg_rate_in)
        for broker in sorted(reports)
    }
