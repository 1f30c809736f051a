"""Moves by itself, within a budget and behind a circuit breaker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
import structlog

from loadmanager.core.conf import Live
from loadmanager.core.load.carried import RATES, Carried
from loadmanager.core.load.reports import LocalBrokerData, NamespaceBundleStats
from loadmanager.core.moves.breaker import Breaker, Expectation, Rules, spread
from loadmanager.core.moves.move import Author, Move, MoveState
from loadmanager.core.strategies.budget import Budget, Limits, quiet_spans
from loadmanager.core.strategies.plan import Plan, Skip
from loadmanager.ports.clock import Clock
from loadmanager.ports.mover import NOT_SENT
from loadmanager.runtime.fleet.picture import Picture
from loadmanager.runtime.fleet.settings import ACT, FleetSettings
from loadmanager.runtime.leader.moves import NOT_OWNED, Moves

MEASURED_MS = 90_000
"""After the settling: Pulsar has measured once more for certain."""
KEPT_MAX = 2_000
"""Bundles that were just moved, and brokers, of which the next daemon knows."""
SILENT_READINGS = 2.5
"""A broker that did not answer for so many intervals of reading has disappeared."""

log = structlog.get_logger("fleet")


class Acted(msgspec.Struct):
    """What is kept for the next daemon. Times are milliseconds since the epoch."""

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


@dataclass(slots=True, kw_only=True)
class Acting:
    """Queues what the budget allows, and watches what comes of it."""

    moves: Moves
    picture: Picture
    carried: Carried
    settings: Live[FleetSettings]
    clock: Clock
    url: str
    """Where the daemon is asked."""
    told: Callable[[Plan], None]
    """Puts a plan among the decisions."""
    keep: Callable[[bytes], None]
    """Keeps what the next daemon must know; see `recall`."""
    kept: str = ""
    """Where."""
    unkept: str | None = None
    """Why it is not kept."""
    splits: Callable[[str, str], bool] = lambda _bundle, _broker: False
    """Whether a bundle of a broker is being split, or was after the broker was last read."""
    budget: Budget = field(default_factory=Budget)
    breaker: Breaker = field(default_factory=Breaker)

    def recall(self, kept: bytes | None) -> None:
        """What this daemon, or the one before it, did lately counts. What makes no sense does not,
        and the log says so.
        """
        if not kept:
            return
        try:
            acted = msgspec.json.decode(kept, type=Acted)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            told = "the kept budget, breaker and moves make no sense, and count for nothing"
            log.error(told, kept=self.kept, error=str(error))
            return
        now_ms = self.clock.now_ms()
        self.moves.view.know_moves(
            *(
                {name: min(at_ms, now_ms) for name, at_ms in times.items()}
                for times in (acted.bundles, acted.brokers)
            )
        )
        self.budget.recall(acted.moves, now_ms)
        if self.breaker.recall(acted.why, acted.until_ms, now_ms, self.rules()):
            log.warning("moves stop as before", reason=self.reason())

    def _keep(self) -> None:
        bundles, brokers = (_newest(times) for times in self.moves.view.recent_moves())
        acted = Acted(
            self.budget.moves(), self.breaker.why, self.breaker.until_ms, bundles, brokers
        )
        self.keep(msgspec.json.encode(acted))

    def rules(self) -> Rules:
        """When the breaker opens."""
        settings = self.settings.value
        return Rules(
            settings.failures_max,
            settings.rate_drop_percent,
            settings.open_minutes * 60_000,
            settings.settle_s * 1000 + MEASURED_MS,
        )

    def reason(self) -> str | None:
        """Why nothing is moved, when that ends, and how an operator ends it; None: nothing."""
        why = self.breaker.reason(self.clock.now_ms())
        url = self.url
        return why and f"{why}, or now with: loadmanager admin --url {url} moves resume"

    def spent(self) -> str | None:
        """Why no move of a cycle may begin, if the moves of an hour are made."""
        per_hour = self.settings.value.moves_per_hour_max
        if per_hour == 0:
            return "HourlyBudget: movesPerHourMax is 0"
        until_ms = self.budget.full_until_ms(self.clock.now_ms(), per_hour)
        if until_ms is None:
            return None
        until = datetime.fromtimestamp(until_ms / 1000, UTC)
        return f"HourlyBudget: {per_hour} moves an hour are made; more from {until:%H:%M} UTC on"

    def queue(self, plan: Plan) -> Sequence[Move]:
        """Queue the moves of a cycle that the budget allows; returns those."""
        settings = self.settings.value
        limits = Limits(
            settings.moves_per_hour_max,
            settings.moves_per_broker_max,
            quiet_spans(settings.quiet_hours),
        )
        waiting = [
            (move.source, move.destination or "")
            for move in self.moves.queue.open_moves()
            if move.author is Author.CYCLE and move.state is MoveState.QUEUED
        ]
        splitting = [unload for unload in plan.unloads if self.splits(unload.bundle, unload.source)]
        wanted = [unload for unload in plan.unloads if unload not in splitting]
        allowed, refused = self.budget.allow(wanted, self.clock.now_ms(), limits, waiting)
        refused += tuple(Skip(unload.bundle, "Splits: it is split") for unload in splitting)
        if refused:
            self.told(Plan(plan.strategy, skipped=refused))
        return self.moves.decide(allowed, Author.CYCLE)

    def changed(self, move: Move) -> None:
        """A move begins, or has changed otherwise: what it should come to is known as it begins."""
        if move.state is not MoveState.RUNNING:
            return
        if move.author is Author.CYCLE:
            self.budget.began(move.source, move.destination, self.clock.now_ms())
            self._keep()
        if move.author in (Author.CYCLE, Author.PLAN) and self.settings.value.mode == ACT:
            self.breaker.expect(self._expectation(move))

    def _expectation(self, move: Move) -> Expectation:
        loads = _loads(self.picture.reports)
        report = self.picture.reports.get(move.source)
        stats = None if report is None else report.last_stats.get(move.bundle)
        after = dict(loads)
        if stats is not None and move.source in after and move.destination in after:
            after[move.source] -= stats.rate
            after[move.destination] += stats.rate
        wait_ms = self.settings.value.settle_s * 1000 + MEASURED_MS
        return Expectation(
            move=move.bundle,
            check_ms=round(self.clock.now_ms() + wait_ms),
            publish_rate=_publish_rate(self.picture.reports),
            spread_before=spread(loads),
            spread_predicted=spread(after),
        )

    def ended(self, move: Move) -> None:
        """A move has ended: its load counts at the destination from now on."""
        if move.state is MoveState.DONE and move.destination is not None:
            self._carry(move)
        text = move.outcome.text if move.outcome else ""
        if move.state is MoveState.DONE:
            self._keep()
        if text == NOT_OWNED or text.startswith(NOT_SENT):
            return
        if move.state in (MoveState.DONE, MoveState.FAILED):
            failed = move.state is MoveState.FAILED
            problem = f"{move.bundle}: {text}"
            if self.breaker.ended(
                move.bundle, problem if failed else None, self.clock.now_ms(), self.rules()
            ):
                self._opened()

    def _carry(self, move: Move) -> None:
        report = self.picture.reports.get(move.source)
        stats = None if report is None else report.last_stats.get(move.bundle)
        if stats is not None:
            until_ms = self.clock.now_ms() + self.settings.value.settle_s * 1000
            self.carried.moved(move.bundle, stats, round(until_ms))

    def carry_parts(self, parts: Sequence[str], whole: NamespaceBundleStats) -> None:
        """A bundle was split: each of its parts counts with its share, at least, for a while."""
        until_ms = round(self.clock.now_ms() + self.settings.value.settle_s * 1000)
        for part in parts:
            share = {name: getattr(whole, name) / len(parts) for name in RATES}
            self.carried.moved(part, msgspec.structs.replace(whole, **share), until_ms)

    def look(self) -> None:
        """The cluster was read."""
        picture = self.picture
        oldest_ms = (
            self.clock.now_ms() - self.settings.value.read_interval_s * SILENT_READINGS * 1000
        )
        live = frozenset(
            broker
            for broker, report in picture.reports.items()
            if broker in picture.registered and report.last_update > oldest_ms
        )
        reports = {name: picture.reports[name] for name in live if name in picture.reports}
        if self.breaker.look(
            live,
            _publish_rate(reports),
            _loads(reports),
            self.clock.now_ms(),
            self.rules(),
            may_leave=self.moves.wishes.cordons.keys(),
        ):
            self._opened()

    def _opened(self) -> None:
        why = self.reason() or ""
        cancelled = self.moves.cancel(None, f"cancelled: {why}", urgent=False)
        log.error("moves stop", reason=why, cancelled=cancelled)
        self.told(Plan("CircuitBreaker", skipped=(Skip("cluster", why),)))
        self._keep()

    def resume(self) -> bool:
        """An operator ends what the breaker began; returns whether it was open."""
        was_open = self.breaker.close()
        if was_open:
            self._keep()
        return was_open


def _newest(times_ms: Mapping[str, int]) -> dict[str, int]:
    """As many as a note has room for."""
    newest = sorted(times_ms, key=lambda name: (-times_ms[name], name))[:KEPT_MAX]
    return {name: times_ms[name] for name in newest}


def _loads(reports: Mapping[str, LocalBrokerData]) -> dict[str, float]:
    return {broker: reports[broker].rate for broker in sorted(reports)}


def _publish_rate(reports: Mapping[str, LocalBrokerData]) -> float:
    return sum(report.msg_rate_in for report in reports.values())
