"""Does what operators ask of the leader: moves, pins, cordons, drains, a pause of the queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import UNSET, structs, to_builtins

from loadmanager.engine.load.wishes import NOTE_MAX, Cordon, Pause, Pin, check_hold
from loadmanager.engine.moves.move import Author, MoveState, PartialOutcome
from loadmanager.engine.strategies.plan import Unload
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.audit import asked_by, note_change, nothing_changed
from loadmanager.kit.errors import BadInputError, ConflictError, NotFoundError, OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import Check
from loadmanager.leader.documents.moves import (
    CordonShown,
    Moved,
    MovesShown,
    NothingMoved,
    PauseShown,
    PinShown,
)
from loadmanager.leader.draining import Draining
from loadmanager.leader.goals import TermGoals
from loadmanager.leader.move_notes import moves_note
from loadmanager.leader.moves import Moves
from loadmanager.leader.overview import TermOverview
from loadmanager.leader.plans import TermPlans
from loadmanager.leader.undo import TermUndo

log = get_logger("operations")


class Merger(Protocol):
    """Merges bundles (`leader.merging.Merging`)."""

    async def step(self) -> None:
        """Merge what has stayed idle for long enough."""
        ...

    async def merge(self, left: str, right: str, reason: str, *, epoch: int | None) -> str:
        """Merge two neighbours, the lower one first; returns the name of the new bundle."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """Carries out operators' requests under the checks of one term."""

    undo: TermUndo | None
    """None beside a Pulsar cluster, whose documents are its own."""
    moves: Moves
    draining: Draining
    merging: Merger
    overview: TermOverview
    plans: TermPlans
    goals: TermGoals

    @property
    def _checks(self) -> Sequence[Check]:
        return self.goals.checks

    # Moves

    async def move(
        self, bundle: str, destination: str, *, pin_s: float | None = None, note: str = ""
    ) -> Moved | NothingMoved:
        """Move a bundle to a broker, and pin it there for `pin_s` seconds; waits for the outcome.

        A bundle that is pinned already stays pinned until the same time, at its new broker. The pin
        is written first, and taken back if the bundle does not arrive. A bundle without an owner
        goes there with its next lookup. Returns the move, or says why there was nothing to move.
        Raises `ConflictError` for a destination that is cordoned or not active, `OperationalError`
        if the bundle did not get there.
        """
        self._destination(destination)
        before, in_force = (
            self.moves.cluster.wishes.pins.get(bundle),
            self.moves.cluster.wishes.now().pin_of(bundle),
        )
        pin = in_force and structs.replace(in_force, broker=destination)
        if pin_s is not None:
            pin = Pin(destination, self._until_ms(pin_s), _checked(note), asked_by())
        if pin is not None and pin != in_force:
            await self.moves.cluster.wishes.pin(bundle, pin, self._checks)
            log.info(
                "bundle pinned",
                bundle=bundle,
                peer=pin.broker,
                until_ms=pin.until_ms,
                note=pin.note,
                before=in_force and in_force.broker,
            )
        pinned_until = UNSET if pin is None else pin.until_ms
        source = await self.moves.orders.owner(bundle)
        if source is None:
            self.moves.preferred.set(bundle, destination)
            text = f"{bundle} has no owner; its next lookup places it on {destination}"
            if self.moves.orders.assign is not None:
                assigned = await self.moves.orders.assign(bundle, destination)
                to = f"it is assigned to {destination}" if assigned else "another broker gets it"
                text = f"{bundle} had no owner; {to}"
            outcome = PartialOutcome(text)
            return NothingMoved(
                bundle=bundle, state=None, outcome=outcome, pinned_until=pinned_until
            )
        if source == destination:
            nothing_changed()
            outcome = PartialOutcome(f"{destination} owns it already", owner=source)
            return NothingMoved(
                bundle=bundle, state=None, outcome=outcome, pinned_until=pinned_until
            )
        move = await self.moves.move(
            Unload(bundle, source, destination, "Operator", {"note": note} if note else {})
        )
        if move.state is not MoveState.DONE:
            if pin != in_force:
                await self.moves.cluster.wishes.pin(bundle, before, self._checks)
                log.info("pin taken back", bundle=bundle, before=in_force and in_force.broker)
            text = move.outcome.text if move.outcome else "unknown"
            raise OperationalError(f"{bundle} was not moved to {destination}: {text}")
        note_change(moves_note([move.id]))
        return Moved(**structs.asdict(move), pinned_until=pinned_until)

    def _destination(self, destination: str) -> BrokerAddress:
        brokers = self.moves.cluster.brokers
        address = brokers.address(destination)
        if address is None:
            raise ConflictError(
                f"Destination broker {destination} is not active: the brokers are "
                f"{', '.join(sorted(brokers.reports))}"
            )
        if destination in self.moves.cluster.wishes.cordons:
            raise ConflictError(f"Destination broker {destination} is cordoned")
        return address

    def list_moves(self, limit: int) -> MovesShown:
        """See `Moves.shown`."""
        return self.moves.shown(limit)

    def cancel(self, move_id: str | None) -> int:
        """Cancel a move that waits, or all that wait; returns how many.

        Raises `NotFoundError` for an unknown move, `ConflictError` for one that has begun or ended.
        """
        return self.moves.cancel(move_id)

    async def pause(self, seconds: float | None, note: str = "") -> PauseShown | None:
        """Let no queued move begin for so long; None: go on now. Returns the pause."""
        if seconds is None:
            if await self.resume():
                log.info("moves go on")
            else:
                nothing_changed()
            return None
        pause = Pause(
            self._until_ms(seconds), _checked(note), asked_by(), self.moves.term.clock.now_ms()
        )
        await self.moves.cluster.wishes.set_pause(pause, self._checks)
        self.moves.wake()
        log.info("moves paused", seconds=seconds, note=note)
        return PauseShown.of(pause)

    async def resume(self) -> bool:
        """End the pause; returns whether there was one."""
        was_paused = self.moves.cluster.wishes.pause() is not None
        await self.moves.cluster.wishes.set_pause(None, self._checks)
        self.moves.wake()
        return was_paused

    # Pins

    def pins(self) -> dict[str, PinShown]:
        """Bundle → the pin that counts now."""
        pins = self.moves.cluster.wishes.now().pins
        return {bundle: PinShown.of(pin) for bundle, pin in sorted(pins.items())}

    async def unpin(self, bundle: str) -> None:
        """Remove a pin. Raises `NotFoundError`."""
        await self.moves.cluster.wishes.pin(bundle, None, self._checks)
        log.info("bundle no longer pinned", bundle=bundle)

    # Cordons

    def cordons(self) -> list[CordonShown]:
        """The cordoned brokers, each with the progress of its drain."""
        cordons = self.moves.cluster.wishes.cordons
        return [self.draining.shown(broker, cordons[broker]) for broker in sorted(cordons)]

    async def cordon(
        self, broker: str, *, drain: bool, until_restart: bool = False, note: str = ""
    ) -> CordonShown:
        """Send no new bundle to a broker; with `drain`, move its bundles away, too.

        With `until_restart` the cordon ends when the broker is back; one that was set without an
        end stays. A broker that is cordoned already keeps what is not said anew. Raises
        `NotFoundError` for a broker that is not active, `ConflictError` for the last one that is
        not cordoned.
        """
        brokers, wishes = self.moves.cluster.brokers, self.moves.cluster.wishes
        address = brokers.address(broker)
        if address is None:
            raise NotFoundError(
                f"Broker {broker} is not active: the brokers are "
                f"{', '.join(sorted(brokers.reports))}"
            )
        if not brokers.reports.keys() - wishes.cordons.keys() - {broker}:
            raise ConflictError(f"{broker} is the last broker that is not cordoned")
        now_ms = self.moves.term.clock.now_ms()
        began_ms = int(brokers.reports[broker].start_timestamp) if until_restart else 0
        cordon = wishes.cordons.get(broker) or Cordon(
            now_ms, until_restart_of=began_ms, by=asked_by()
        )
        before = cordon
        if drain and not cordon.drain:
            total = await self.draining.count(address)
            cordon = structs.replace(cordon, drain=True, total=total)
        if note:
            cordon = structs.replace(cordon, note=_checked(note))
        if cordon != before and cordon.by != (by := asked_by()):
            if not note and cordon.note:  # it is not theirs who drain
                of = f"{cordon.by} had cordoned it" if cordon.by else "it was cordoned"
                cordon = structs.replace(cordon, note=f"{of}: {cordon.note}"[:NOTE_MAX])
            cordon = structs.replace(cordon, by=by)
        await wishes.cordon(broker, cordon, self._checks)
        log.info("broker cordoned", peer=broker, drain=cordon.drain, note=note)
        return self.draining.shown(broker, cordon)

    async def uncordon(self, broker: str) -> None:
        """Let a broker have bundles again; the moves of its drain that wait are cancelled.

        Raises `NotFoundError` for a broker that is not cordoned.
        """
        await self.moves.cluster.wishes.cordon(broker, None, self._checks)
        cancelled = self.moves.cancel_of(broker, Author.DRAIN)
        await self.draining.over(broker)
        log.info("broker no longer cordoned", peer=broker, cancelled_moves=cancelled)

    async def step(self) -> None:
        """End the cordons that held until a restart, and queue the next moves of drains."""
        for broker, cordon in sorted(self.moves.cluster.wishes.cordons.items()):
            report = self.moves.cluster.brokers.reports.get(broker)
            began_ms = 0 if report is None else report.start_timestamp
            if cordon.until_restart_of and began_ms > cordon.until_restart_of:
                await self.uncordon(broker)
                if (record := self.draining.own_changes) is not None:
                    what = f"ends the cordon of {broker}, which has restarted"
                    before = to_builtins(cordon)
                    record.made(what, paths.cordon(broker), before=before)
        await self.draining.step()

    # Merges

    async def merge(self, left: str, right: str, reason: str = "Operator") -> str:
        """Merge two neighbours, the lower one first; see `Merging.merge`."""
        return await self.merging.merge(left, right, reason, epoch=None)

    def _until_ms(self, seconds: float) -> int:
        return self.moves.term.clock.now_ms() + round(check_hold(seconds) * 1000)


def _checked(note: str) -> str:
    if len(note) > NOTE_MAX:
        raise BadInputError(f"a note has at most {NOTE_MAX} characters")
    return note
