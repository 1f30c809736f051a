"""Checks, before each order to a Pulsar's brokers, whether it may still be sent."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.engine.moves.move import Author, Move, wish_against
from loadmanager.engine.moves.queue import MoveQueue
from loadmanager.kit.errors import OperationalError
from loadmanager.leader.ports.mover import NotSentError
from loadmanager.leader.ports.wishes import WishBook
from loadmanager.steer.daemon_note import DaemonNote
from loadmanager.steer.hold import FleetHold
from loadmanager.steer.settings import ACT
from loadmanager.steer.watching import Watching


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Implements `leader.ports.mover.OrderGate`: much may have changed since it was decided."""

    watching: Watching
    hold: FleetHold
    queue: MoveQueue
    wishes: WishBook
    note: DaemonNote

    async def first(self, bundle: str) -> None:
        """Before an order to move or to split a bundle. Raises `NotSentError` where Pulsar moves
        bundles itself, or that cannot be read; and for an order of the daemon's own, if the next
        daemon would not know of it.
        """
        move = self.queue.move_of(bundle)  # None for a split
        if move.author is Author.CYCLE if move else self.hold.settings.value.mode == ACT:
            await self._write_note()
        await self._pulsar_stays_still()

    async def _write_note(self) -> None:
        try:
            await self.note.write()
        except OperationalError as error:
            raise NotSentError(str(error)) from None

    async def _pulsar_stays_still(self) -> None:
        if not await self.watching.read_settings():
            problems = self.watching.picture.problems
            problem = problems.get("settings", "they could not be read")
            raise NotSentError(f"the settings are not known: {problem}")
        if (why := self.hold.pulsar_balances()) is not None:
            raise NotSentError(str(why))

    async def again(self, bundle: str) -> None:
        """Before a further order of a move whose bundle went elsewhere, or came back. Raises
        `NotSentError` also where its author could not begin it any more.
        """
        await self._pulsar_stays_still()
        move = self.queue.move_of(bundle)
        why = "the move has ended" if move is None else self._against(move)
        if why is not None:
            raise NotSentError(why)

    def _against(self, move: Move) -> str | None:
        if move.author is Author.OPERATOR:
            return None
        pause = self.wishes.pause()
        if pause is not None:
            return f"moves are paused: {pause.note}" if pause.note else "moves are paused"
        return wish_against(move, self.wishes.now()) or self.hold.refusal(move.author)
