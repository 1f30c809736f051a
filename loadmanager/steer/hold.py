"""Says why a daemon may not decide, or move anything, now."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from loadmanager.engine.moves.breaker import Breaker
from loadmanager.engine.moves.move import Author
from loadmanager.engine.strategies.budget import Budget, is_quiet, quiet_spans
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import ConflictError
from loadmanager.kit.reason import Reason
from loadmanager.steer.advice import switch_command
from loadmanager.steer.daemon_note import DaemonNote
from loadmanager.steer.picture import Picture
from loadmanager.steer.settings import ACT, APPROVE, FleetSettings

STALE_READINGS = 2.5
"""Data that could not be read for this many intervals are no longer used, and a broker that did not
answer for so long counts as gone.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetHold:
    """Why nothing is decided, or moved, now (`leader.load_manager.LeaderHold`)."""

    picture: Picture
    settings: Live[FleetSettings]
    note: DaemonNote
    url: str
    """The address of the daemon's API."""
    budget: Budget = field(default_factory=Budget)
    breaker: Breaker = field(default_factory=Breaker)

    def reason(self) -> Reason | None:
        """Say why nothing is decided now; None: decide."""
        settings = self.settings.value
        missing = self.picture.missing(settings.policies_interval_s * STALE_READINGS)
        if missing is not None:
            return missing
        listed, answering = len(self.picture.registered), len(self.picture.answering)
        if 2 * answering < listed:
            return Reason("Incomplete", f"{answering} of {listed} brokers answer")
        if settings.mode != ACT:
            return None
        return self.refusal() or self.stopped()

    def held(self, author: Author) -> Reason | None:
        """Why no move that an author wants may begin now; None: it may. An operator's own move
        waits for nothing but Pulsar's balancing; only moves of cycles wait for quiet hours to end.
        """
        why = self.refusal()
        if why is not None or author is Author.OPERATOR:
            return why
        why = self.reason() or self.stopped()
        if why is not None or author is not Author.CYCLE:
            return why
        return self.quiet() or self.note.problem

    def held_text(self, author: Author) -> str | None:
        """The text of `held`."""
        why = self.held(author)
        return None if why is None else str(why)

    def told(self) -> Reason | None:
        """Why nothing is moved now, for operators."""
        mode = self.settings.value.mode
        if mode == ACT:
            return self.held(Author.CYCLE) or self.spent()
        return self.held(Author.PLAN) if mode == APPROVE else self.reason()

    def quiet(self) -> Reason | None:
        """The reason if these are quiet hours, else None."""
        hours = self.settings.value.quiet_hours
        if not is_quiet(self.picture.clock.now_ms(), quiet_spans(hours)):
            return None
        return Reason("QuietHours", f"no moves in {', '.join(hours)} (UTC)")

    def check(self, author: Author = Author.OPERATOR) -> None:
        """Raise `ConflictError` where nothing may be moved that an author wants."""
        mode = self.settings.value.mode
        if mode not in (APPROVE, ACT):
            raise ConflictError(
                f"nothing is moved in mode {mode}: start the daemon with --mode {APPROVE}"
            )
        problem = self.held(author)
        if problem is not None:
            raise ConflictError(str(problem))

    def refusal(self) -> Reason | None:
        """Why nothing may be moved: Pulsar moves bundles itself, or that is not known now."""
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
        """Why the circuit breaker stops moves, when that ends, and how an operator ends it; None:
        it is closed.
        """
        why = self.breaker.reason(self.picture.clock.now_ms())
        if why is None:
            return None
        command = f"loadmanager admin --url {self.url} moves resume"
        return Reason(why.code, f"{why.text}, or now with: {command}")

    def spent(self) -> Reason | None:
        """Why no move of a cycle may begin, if the moves of an hour are made."""
        per_hour = self.settings.value.moves_per_hour_max
        if per_hour == 0:
            return Reason("HourlyBudget", "movesPerHourMax is 0")
        until_ms = self.budget.full_until_ms(self.picture.clock.now_ms(), per_hour)
        if until_ms is None:
            return None
        until = datetime.fromtimestamp(until_ms / 1000, UTC)
        text = f"{per_hour} moves an hour are made; more from {until:%H:%M} UTC on"
        return Reason("HourlyBudget", text)
