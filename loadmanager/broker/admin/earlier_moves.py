"""Finds the moves of earlier leaders in the archives of all brokers, so that they can be undone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from loadmanager.broker.admin.everybody import Everybody
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.engine.history.records import Decision
from loadmanager.engine.moves.move import Author, Move, MoveState, Outcome
from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.history.archive_answers import ArchivedEvent, ArchivedEvents
from loadmanager.kit.history.archive_reader import ArchiveReader
from loadmanager.kit.units import DAY_MS
from loadmanager.leader.http.archive import EVENTS_MAX, ROOT, TIME_MAX
from loadmanager.leader.moves_back import moves_noted
from loadmanager.leader.undo_documents import EarlierMoves

MOVE, UNLOAD = "decision.move", "decision.unload"
WITHIN_MS = DAY_MS
"""A move that a change ordered ended at most this long after it."""
BEFORE_MS = 600_000
"""Or so long before it, at most: a change is recorded when its request is answered."""
_ARCHIVED = re.compile(r"(\d{1,12})-a(\d{1,12})")


@dataclass(slots=True)
class _Parts:
    """What the archives answered."""

    events: list[ArchivedEvent] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)
    cut_off: bool = False

    def add(self, part: ArchivedEvents) -> None:
        """Take a part."""
        self.events += part.events
        self.cut_off = self.cut_off or part.cut_off


class MovesOfAll:
    """Finds the moves that decisions and changes of earlier terms made, in all archives."""

    def __init__(self, use: UseCases, everybody: Everybody) -> None:
        self._use, self._everybody = use, everybody

    async def find(self, ids: Sequence[str], changes: Iterable[ChangeShown]) -> EarlierMoves:
        """Those of the decisions that archives named so (`7-a25`), and of the changes."""
        answer = EarlierMoves()
        if self._use.archive is None:
            return answer
        decisions = {
            id_: (int(it[1]), int(it[2])) for id_ in ids if (it := _ARCHIVED.fullmatch(id_))
        }
        ordered_moves = [
            (change.ts, names) for change in changes if (names := self._earlier(change))
        ]
        parts = _Parts()
        if decisions:
            await self._ask(parts, MOVE, 0, None)
            await self._ask(parts, UNLOAD, 0, None)
        elif ordered_moves:
            first, last = min(ts for ts, _ in ordered_moves), max(ts for ts, _ in ordered_moves)
            await self._ask(parts, MOVE, max(first - BEFORE_MS, 0), last + WITHIN_MS)
        records = [(event, _decision(event)) for event in parts.events]
        moves = [(event, record) for event, record in records if record.action == "move"]
        answer.by_move = {record.move or "": _move(event, record) for event, record in moves}
        for id_, (epoch, number) in decisions.items():
            decided_so = [
                record for event, record in records if (record.epoch, event.id) == (epoch, number)
            ]
            answer.by_decision[id_] = [
                move
                for event, record in moves
                if any(_made(each, record) for each in decided_so)
                and (move := answer.by_move[record.move or ""])
            ]
            if not decided_so:
                answer.unknown.add(id_)
        answer.silent, answer.cut_off = sorted(parts.silent), parts.cut_off
        return answer

    def _earlier(self, change: ChangeShown) -> list[str]:
        """The moves of earlier terms that a change ordered."""
        epoch = f"{self._use.leading.epoch}-"
        return [name for name in moves_noted(change.note) if not name.startswith(epoch)]

    async def _ask(self, parts: _Parts, kind: str, since_ms: int, until_ms: int | None) -> None:
        archive = self._use.archive
        assert archive is not None
        until = TIME_MAX if until_ms is None else min(until_ms, TIME_MAX)

        def read(reader: ArchiveReader) -> ArchivedEvents:
            return reader.events([kind], None, since_ms, until, EVENTS_MAX)

        me = self._use.self_address.broker_id
        own = ArchivedEvents(part=me, recorded=[], events=[])
        try:
            own = await archive.ask(read)
        except OperationalError:
            parts.silent.add(me)
        query = {
            "kind": kind,
            "since": f"{since_ms}",
            "until": f"{until}",
            "limit": f"{EVENTS_MAX}",
        }
        answers = await self._everybody.ask(
            "GET", f"{ROOT}/events", ArchivedEvents, lambda: own, query
        )
        for part in answers.brokers.values():
            parts.add(part)
        for name in await archive.beside():
            if name not in answers.brokers:
                try:
                    parts.add(await archive.ask(read, name))
                    answers.no_answer.pop(name, None)
                except OperationalError:
                    answers.no_answer.setdefault(name, "its archive cannot be read")
        parts.silent |= answers.no_answer.keys()


def _made(decision: Decision, move: Decision) -> bool:
    """Whether a decision is this move, or of the cycle that made it."""
    if decision.action == "move":
        return decision.move == move.move
    return (decision.epoch, decision.cycle, Author.CYCLE.value) == (
        move.epoch,
        move.cycle,
        move.author,
    )


def _decision(event: ArchivedEvent) -> Decision:
    """Raises `OperationalError` for a record of another shape."""
    try:
        return msgspec.convert(event.record, Decision)
    except msgspec.ValidationError as error:
        raise OperationalError(f"an archive has a decision that cannot be read: {error}") from None


def _move(event: ArchivedEvent, record: Decision) -> Move:
    """As the leader of then knew it."""
    is_done = record.state == MoveState.DONE.value
    return Move(
        id=record.move or "",
        bundle=record.bundle or "",
        source=record.source or "",
        destination=record.destination,
        reason=record.reason,
        why=dict(record.why),
        author=Author.OPERATOR,
        swap=None,
        state=MoveState.DONE if is_done else MoveState.FAILED,
        created_at=event.ts,
        started_at=None,
        ended_at=event.last,
        outcome=Outcome(record.outcome or "", owner=record.owner),
    )
