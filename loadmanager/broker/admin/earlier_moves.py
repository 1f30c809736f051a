"""Finds the moves of earlier leaders in the archives of all brokers, so that they can be undone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from loadmanager.broker.admin.archives_of_all import ArchivesOfAll
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import Decision, recorded_move
from loadmanager.engine.moves.move import Author, Move
from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.history.archive_answers import ArchivedEvent, ArchivedEvents
from loadmanager.kit.units import DAY_MS
from loadmanager.leader.http.archive import EVENTS_MAX, TIME_MAX
from loadmanager.leader.interruptions import all_losses, downs_of
from loadmanager.leader.move_notes import moves_noted
from loadmanager.leader.undo_documents import EarlierMoves

MOVE, UNLOAD = "decision.move", "decision.unload"
DECISIONS = (MOVE, UNLOAD, "decision.place", "decision.split", "decision.skip")
WITHIN_MS = DAY_MS
"""A move that a change ordered ended at most this long after it."""
BEFORE_MS = 600_000
"""Or so long before it, at most: a change is recorded when its request is answered."""
_OF_LEADER = re.compile(r"\d{1,12}-m?\d{1,12}")
_ARCHIVED = re.compile(r"(\d{1,12})-a(\d{1,12})")


@dataclass(slots=True)
class _Parts:
    """What the archives answered."""

    records: list[tuple[ArchivedEvent, Decision]] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)
    """Parts with a record that cannot be read, and why."""
    cut_off: bool = False

    def add(self, part: ArchivedEvents) -> None:
        """Take a part, without what cannot be read."""
        self.cut_off = self.cut_off or part.cut_off
        for event in part.events:
            try:
                self.records.append((event, event.record_as(Decision)))
            except OperationalError as error:
                self.unreadable.add(f"{part.part}: {error}")


class MovesOfAll:
    """Finds the moves that decisions and changes of earlier terms made, in all archives."""

    def __init__(self, use: UseCases, archives: ArchivesOfAll) -> None:
        self._use, self._archives = use, archives

    async def find(self, ids: Sequence[str], changes: Iterable[ChangeShown]) -> EarlierMoves:
        """Those of the decisions of earlier terms (`7-12`, or `7-a25` as archives name what has no
        id), moves by their own ids (`7-m12`), and those of the changes.
        """
        answer, parts = EarlierMoves(), _Parts()
        if self._use.archive is None:
            return answer
        epoch = f"{self._use.leading.epoch}-"
        for id_ in ids:
            if _OF_LEADER.fullmatch(id_) and not id_.startswith(epoch):
                of_id = _Parts()
                await self._ask(of_id, DECISIONS, id_, 0, TIME_MAX)
                parts.silent |= of_id.silent
                parts.unreadable |= of_id.unreadable
                self._add(answer, id_, of_id, [each for _, each in of_id.records])
        archived = {
            id_: (int(it[1]), int(it[2])) for id_ in ids if (it := _ARCHIVED.fullmatch(id_))
        }
        ordered_ms = [
            change.ts
            for change in changes
            if any(not name.startswith(epoch) for name in moves_noted(change.note))
        ]
        if archived:
            await self._ask(parts, (MOVE,), None, 0, TIME_MAX)
            await self._ask(parts, (UNLOAD,), None, 0, TIME_MAX)
        elif ordered_ms:
            first, last = max(min(ordered_ms) - BEFORE_MS, 0), max(ordered_ms) + WITHIN_MS
            await self._ask(parts, (MOVE,), None, first, last)
        for id_, named in archived.items():
            decided_so = [
                record for event, record in parts.records if (record.epoch, event.id) == named
            ]
            self._add(answer, id_, parts, decided_so)
        answer.by_move = _moves(parts)
        answer.silent, answer.cut_off = sorted(parts.silent), parts.cut_off
        answer.unreadable = sorted(parts.unreadable)
        if answer.by_move or any(answer.by_decision.values()):
            answer.lost = await self._losses()
        return answer

    async def _losses(self) -> dict[str, list[int]]:
        """Broker → when it was lost, also with the whole cluster, by the records of members."""
        kind = MemberChange.kind
        parts = (await self._archives.events((kind,), 0, TIME_MAX, EVENTS_MAX)).parts
        changes = list[MemberChange]()
        for event in (event for part in parts.values() for event in part.events):
            with suppress(OperationalError):  # it is of use without
                changes.append(event.record_as(MemberChange))
        lost: dict[str, list[int]] = {}
        losses = all_losses(changes, downs_of(parts.values(), 0))
        for loss in sorted(losses, key=lambda it: it.ts):
            lost.setdefault(loss.broker, []).append(loss.ts)
        return lost

    def _add(
        self, answer: EarlierMoves, id_: str, parts: _Parts, decided_so: Sequence[Decision]
    ) -> None:
        """Add the moves that a decision made, or else why there is none."""
        if not decided_so:
            answer.unknown.add(id_)
        answer.decided[id_] = {record.action for record in decided_so}
        moves = _moves(parts)
        answer.by_decision[id_] = [
            moves[move]
            for move in dict.fromkeys(
                record.move or ""
                for _, record in parts.records
                if record.action == "move" and any(_made(each, record) for each in decided_so)
            )
            if move in moves
        ]

    async def _ask(
        self, parts: _Parts, kinds: Sequence[str], about: str | None, since_ms: int, until_ms: int
    ) -> None:
        until = min(until_ms, TIME_MAX)
        answer = await self._archives.events(kinds, since_ms, until, EVENTS_MAX, about=about)
        for part in answer.parts.values():
            parts.add(part)
        parts.silent |= answer.silent


def _made(decision: Decision, move: Decision) -> bool:
    """Whether a decision is this move, or of the cycle that made it."""
    if decision.action == "move":
        return decision.move == move.move
    if decision.ids:
        return decision.ids[0] in move.ids
    return (decision.epoch, decision.cycle, Author.CYCLE.value) == (
        move.epoch,
        move.cycle,
        move.author,
    )


def _moves(parts: _Parts) -> dict[str, Move]:
    """Id → the move as the leader of then knew it."""
    moves = {}
    for _, record in parts.records:
        if record.action == "move":
            try:
                moves[record.move or ""] = recorded_move(record)
            except OperationalError as error:
                parts.unreadable.add(str(error))
    return moves
