"""Says why a daemon may not decide, or move anything, now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from loadmanager.engine.load.reports import LocalBrokerData
from loadmanager.engine.moves.breaker import Breaker
from loadmanager.engine.moves.move import Author
from loadmanager.engine.strategies.budget import Budget, BudgetLimits, limits_of
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import ConflictError
from loadmanager.kit.reason import Reason
from loadmanager.leader.may_move import Asker, Rule, why_not
from loadmanager.leader.windows import any_open
from loadmanager.steer.daemon_note import DaemonNote
from loadmanager.steer.own_balancing import switch_command
from loadmanager.steer.picture import Picture
from loadmanager.steer.rivals import Rivals
from loadmanager.steer.settings import ACT, APPROVE, FleetSettings

STALE_READINGS = 2.5
"""Data that could not be read for this many intervals are no longer used, and a broker that did not
answer for so long counts as gone.
"""
DECISION, ACTION, CYCLE = Asker.DECISION, Asker.ACTION, Asker.CYCLE
PLAN, OPERATOR, SPLIT = Asker.PLAN, Asker.OPERATOR, Asker.SPLIT


def _nobody() -> Reason | None:
    return None


def check_mode(mode: str) -> None:
    """Raise `ConflictError` in a mode that moves nothing."""
    if mode not in (APPROVE, ACT):
        raise ConflictError(
            f"nothing is moved in mode {mode}: start the daemon with --mode {APPROVE}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetHold:
    """Why nothing is decided, or moved, now (`leader.load_manager.LeaderHold`)."""

    picture: Picture
    settings: Live[FleetSettings]
    note: DaemonNote
    url: str
    """Where the daemon's API takes orders."""
    budget: Budget = field(default_factory=Budget)
    breaker: Breaker = field(default_factory=Breaker)
    rivals: Rivals | None = None
    """The other daemons; None: they are not looked for."""

    def rules(self) -> tuple[Rule, ...]:
        """The table. What an operator moves waits for nothing but Pulsar's own balancing,
        and a second daemon.
        """
        rivals = _nobody if self.rivals is None else self.rivals.reason
        return (
            Rule(self.pulsar_balances, frozenset({ACTION, CYCLE, PLAN, OPERATOR, SPLIT})),
            Rule(rivals, frozenset({ACTION, CYCLE, PLAN, OPERATOR, SPLIT})),
            Rule(self.not_read, frozenset({DECISION, ACTION, CYCLE, PLAN, SPLIT})),
            Rule(self.incomplete, frozenset({DECISION, ACTION, CYCLE, PLAN, SPLIT})),
            Rule(self.stopped, frozenset({ACTION, CYCLE, PLAN, SPLIT})),
            Rule(self.quiet, frozenset({CYCLE, SPLIT})),
            Rule(lambda: self.note.problem, frozenset({CYCLE, SPLIT})),
        )

    def why_not(self, asker: Asker) -> Reason | None:
        """Why somebody may not go on now; None: he may."""
        return why_not(self.rules(), asker)

    def reason(self) -> Reason | None:
        """Why nothing is decided now; None: decide."""
        return self.why_not(ACTION if self.settings.value.mode == ACT else DECISION)

    def refusal(self, author: Author) -> str | None:
        """Why no move that an author wants may begin now; None: it may."""
        why = self.why_not(Asker.of(author))
        return None if why is None else str(why)

    def shown_reason(self) -> Reason | None:
        """Why nothing is moved now, for operators."""
        mode = self.settings.value.mode
        if mode == ACT:
            return self.why_not(CYCLE) or self.spent()
        return self.why_not(PLAN) if mode == APPROVE else self.reason()

    def check(self, author: Author = Author.OPERATOR) -> None:
        """Raise `ConflictError` where nothing may be moved that an author wants."""
        check_mode(self.settings.value.mode)
        problem = self.refusal(author)
        if problem is not None:
            raise ConflictError(problem)

    # Rules

    def not_read(self) -> Reason | None:
        """A part of the cluster could not be read lately."""
        return self.picture.missing(self.settings.value.policies_interval_s * STALE_READINGS)

    def incomplete(self) -> Reason | None:
        """Fewer than half of the brokers answer."""
        listed, answering = len(self.picture.registered), len(self.picture.answering)
        if 2 * answering >= listed:
            return None
        return Reason("Incomplete", f"{answering} of {listed} brokers answer")

    def quiet(self) -> Reason | None:
        hours = self.settings.value.quiet_hours
        if not hours or not any_open(hours, self.picture.clock.now_ms()):
            return None
        return Reason("QuietHours", f"no moves in {', '.join(hours)} (UTC where no zone is named)")

    def pulsar_balances(self) -> Reason | None:
        """Pulsar moves bundles itself, or that is not known now."""
        within_s = self.settings.value.read_interval_s * STALE_READINGS
        unknown = self.picture.unknown("settings", within_s)
        if unknown is not None:
            return unknown
        on = self.picture.own_balancing()
        if not on:
            return None
        commands = "; ".join(switch_command(name, on=False) for name in on)
        return Reason("PulsarBalances", f"{' and '.join(on)} on; switch off with: {commands}")

    def stopped(self) -> Reason | None:
        """The circuit breaker stops moves: why, when that ends, and how an operator ends it."""
        why = self.breaker.reason(self.picture.clock.now_ms())
        if why is None:
            return None
        command = f"loadmanager admin --url {self.url} moves resume"
        return Reason(why.code, f"{why.text}, or now with: {command}")

    def spent(self) -> Reason | None:
        """The moves of an hour are made; which moves still fit, the budget says."""
        per_hour = limits(self.settings.value, self.picture.reports).per_hour
        if per_hour == 0:
            return Reason("HourlyBudget", "movesPerHourMax is 0")
        until_ms = self.budget.full_until_ms(self.picture.clock.now_ms(), per_hour)
        if until_ms is None:
            return None
        until = datetime.fromtimestamp(until_ms / 1000, UTC)
        text = f"{per_hour} moves an hour are made; more from {until:%H:%M} UTC on"
        return Reason("HourlyBudget", text)


def limits(settings: FleetSettings, reports: Mapping[str, LocalBrokerData]) -> BudgetLimits:
    """The limits of the moves of an hour, for a cluster of this size."""
    return limits_of(
        settings.moves_per_hour_max,
        settings.moves_per_broker_max,
        brokers=len(reports),
        bundles=sum(len(report.bundles) for report in reports.values()),
    )
