"""Keeps a daemon from deciding or moving when it must not, and does what operators ask of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from loadmanager.core.conf import Live
from loadmanager.core.errors import ConflictError
from loadmanager.core.moves.move import Author
from loadmanager.core.reason import Reason
from loadmanager.core.strategies.budget import is_quiet, quiet_spans
from loadmanager.runtime.fleet.acting import Acting
from loadmanager.runtime.fleet.advice import switch_command
from loadmanager.runtime.fleet.picture import Picture
from loadmanager.runtime.fleet.settings import ACT, APPROVE, FleetSettings
from loadmanager.runtime.leader.operations import Operations
from loadmanager.runtime.leader.plans import Kept, Plans

STALE_READINGS = 2.5
"""Data that could not be read for this many intervals are no longer used."""


@dataclass(frozen=True, slots=True)
class FleetHold:
    """Why nothing is decided, or moved, now (`runtime.leader.load_manager.Hold`)."""

    picture: Picture
    settings: Live[FleetSettings]
    acting: Acting

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
        return self.refusal() or self.acting.reason()

    def held(self, author: Author) -> Reason | None:
        """Why no move that an author wants may begin now; None: it may. An operator's own move
        waits for nothing but Pulsar's balancing; only moves of cycles wait for quiet hours to end.
        """
        why = self.refusal()
        if why is not None or author is Author.OPERATOR:
            return why
        why = self.reason() or self.acting.reason()
        if why is not None or author is not Author.CYCLE:
            return why
        return self.quiet() or self.acting.note_problem

    def told(self) -> Reason | None:
        """Why nothing is moved now, for operators."""
        mode = self.settings.value.mode
        if mode == ACT:
            return self.held(Author.CYCLE) or self.acting.spent()
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


@dataclass(slots=True, kw_only=True)
class FleetPlans(Plans):
    """Sealed plans, which are carried out in the modes that may move something."""

    hold: FleetHold
    execute_split: Callable[[Kept], Awaitable[None]]
    """Makes the split of a plan."""

    async def execute(self, plan_id: str) -> dict[str, Any]:
        """See the base class. Raises `ConflictError` where nothing may be moved. A plan with a
        split is carried out when this returns; raises `OperationalError` if the split failed.
        """
        self.hold.check(Author.PLAN)
        if not self.is_split(plan_id):
            return await Plans.execute(self, plan_id)
        await self.execute_split(self.find(plan_id))
        return self.plan(plan_id)

    def is_split(self, plan_id: str) -> bool:
        """True if a plan is kept, and splits a bundle."""
        return plan_id in self._kept and bool(self.find(plan_id).sealed.plan.splits)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOperations(Operations):
    """Does what operators ask for, in the modes that may move something."""

    hold: FleetHold

    async def move(
        self, bundle: str, destination: str, *, pin_s: float | None = None, note: str = ""
    ) -> dict[str, Any]:
        """See the base class. Raises `ConflictError` where nothing may be moved."""
        self.hold.check()
        return await Operations.move(self, bundle, destination, pin_s=pin_s, note=note)

    async def cordon(
        self, broker: str, *, drain: bool, until_restart: bool = False, note: str = ""
    ) -> dict[str, Any]:
        """See the base class. Raises `ConflictError` for a drain where nothing may be moved."""
        if drain:
            self.hold.check()
        return await Operations.cordon(
            self, broker, drain=drain, until_restart=until_restart, note=note
        )

    def list_moves(self, limit: int) -> dict[str, Any]:
        """See the base class. The open circuit breaker is a pause."""
        document = Operations.list_moves(self, limit)
        acting = self.hold.acting
        reason = acting.reason()
        if document["paused"] is None and reason is not None:
            document["paused"] = {"until": acting.breaker.until_ms, "note": str(reason)}
        return document

    async def pause(self, seconds: float | None, note: str = "") -> dict[str, Any] | None:
        """See the base class. The end of a pause also closes the circuit breaker."""
        if seconds is None:
            self.hold.acting.resume()
        return await Operations.pause(self, seconds, note)


class NoMerging:
    """Pulsar cannot merge bundles."""

    async def step(self) -> None:
        """Do nothing."""

    async def merge(self, left: str, right: str, reason: str, *, epoch: int | None) -> str:
        """Raises `ConflictError`."""
        raise ConflictError("Pulsar cannot merge bundles")
