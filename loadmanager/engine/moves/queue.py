"""The queue of a leader's moves, pure: what may start now, what ends without having started.

The unit is a *group*: a single move, or the moves of a swap, which run one after the other. A group
counts once at every broker that it touches, until its last move has ended. Groups start in order.
The first group that waits for a broker keeps a place there, so that no later one overtakes it for
ever. Requests of operators stand first, and are held neither by a pause nor by
the rate.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

from loadmanager.engine.moves.move import Author, Move, MoveState, Outcome
from loadmanager.engine.moves.settings import MoveSettings
from loadmanager.kit.errors import ConflictError, NotFoundError

WINDOW_S = 60.0
KEPT_MAX = 1_000
"""Ended moves that are kept for those who ask."""
BY_OPERATOR = "cancelled by an operator"
SUPERSEDED = "an operator ordered another move of the bundle in its place"


@dataclass(slots=True, eq=False)
class Group:
    """Moves that stand or fall together, in the order in which they are made."""

    moves: Sequence[Move]
    since_s: float
    started: bool = False
    sources: frozenset[str] = field(init=False)
    destinations: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        """The brokers that it touches."""
        self.sources = frozenset(move.source for move in self.moves)
        self.destinations = frozenset(
            move.destination for move in self.moves if move.destination is not None
        )

    @property
    def urgent(self) -> bool:
        """True if an operator asked for this very move."""
        return self.moves[0].author is Author.OPERATOR

    @property
    def ended(self) -> bool:
        return all(move.ended for move in self.moves)


class MoveQueue:
    """The moves of one term. `now_s` is on a clock that never goes back."""

    def __init__(self) -> None:
        self._groups: list[Group] = []
        """Groups that have not ended, in order."""
        self._moves: dict[str, Move] = {}
        """Bundle → its move, of the groups that have not ended."""
        self._begun_s: deque[float] = deque()
        """When moves began in the last minute, those of operators' requests not counted."""
        self.ended: deque[Move] = deque(maxlen=KEPT_MAX)
        """The newest first."""
        self.waiting = 0
        """Moves of groups that have not started."""

    # Queries

    def running(self) -> int:
        """Moves that are under way."""
        return sum(move.state is MoveState.RUNNING for move in self._moves.values())

    def open_moves(self) -> Iterator[Move]:
        """The moves that have not ended, in order."""
        for group in self._groups:
            yield from (move for move in group.moves if not move.ended)

    def sources(self) -> dict[str, str]:
        """Bundle → the broker that it is about to leave, or leaves now."""
        return {move.bundle: move.source for move in self.open_moves()}

    def move_of(self, bundle: str) -> Move | None:
        """The move of a bundle that has not ended."""
        move = self._moves.get(bundle)
        return None if move is None or move.ended else move

    def begun_s(self, now_s: float) -> list[float]:
        """How long ago moves began in the last minute that count for `per_minute_max`, the first
        that began first.
        """
        return [now_s - at_s for at_s in self._begun_s if at_s > now_s - WINDOW_S]

    # Events

    def add(self, moves: Sequence[Move], now_s: float, settings: MoveSettings) -> None:
        """Let a move, or the moves of a swap, wait for their turn.

        Raises `ConflictError` when a bundle has a move already, or the queue is full.
        """
        group = Group(moves, now_s)
        for move in moves:
            earlier = self.move_of(move.bundle)
            if earlier is not None:
                raise ConflictError(f"{move.bundle} has move {earlier.id} under way already")
        if self.waiting + len(moves) > settings.queue_max:
            raise ConflictError(
                f"{self.waiting} moves wait; loadManagerMovesQueueMax allows {settings.queue_max}"
            )
        at = len(self._groups)
        if group.urgent:
            at = next((n for n, other in enumerate(self._groups) if not other.urgent), at)
        self._groups.insert(at, group)
        self.waiting += len(moves)
        self._moves.update((move.bundle, move) for move in moves)

    def start(
        self,
        now_s: float,
        settings: MoveSettings,
        *,
        paused: bool,
        held_authors: Set[Author] = frozenset(),
    ) -> list[Group]:
        """The groups that start now; the caller carries them out, and calls `end` for each move.
        `held_authors`: whose moves may not begin now.
        """
        while self._begun_s and self._begun_s[0] <= now_s - WINDOW_S:
            self._begun_s.popleft()
        under_way = [group for group in self._groups if group.started]
        leaving = Counter(broker for group in under_way for broker in group.sources)
        coming = Counter(broker for group in under_way for broker in group.destinations)
        kept_leaving: set[str] = set()
        kept_coming: set[str] = set()
        starting: list[Group] = []
        for group in self._groups:
            if (
                group.started
                or (paused and not group.urgent)
                or group.moves[0].author in held_authors
            ):
                continue
            if len(under_way) + len(starting) >= settings.at_once_max:
                break
            if not group.urgent and not self._rate_allows(len(group.moves), settings):
                break
            if any(leaving[broker] >= settings.per_source_max for broker in group.sources) or any(
                coming[broker] >= settings.per_destination_max for broker in group.destinations
            ):
                leaving.update(group.sources - kept_leaving)
                coming.update(group.destinations - kept_coming)
                kept_leaving |= group.sources
                kept_coming |= group.destinations
                continue
            group.started = True
            self.waiting -= len(group.moves)
            leaving.update(group.sources)
            coming.update(group.destinations)
            if not group.urgent:
                self._begun_s.extend([now_s] * len(group.moves))
            starting.append(group)
        return starting

    def _rate_allows(self, count: int, settings: MoveSettings) -> bool:
        """A swap larger than the rate starts once nothing else has begun for a minute."""
        limit = settings.per_minute_max
        return limit < 0 or (not self._begun_s and limit > 0) or len(self._begun_s) + count <= limit

    def end(self, move: Move, state: MoveState, outcome: Outcome, now_ms: int) -> list[Move]:
        """A move has ended; returns it, and the moves of its swap that are not made after all."""
        ended = [move]
        group = next(group for group in self._groups if move in group.moves)
        _finish(move, state, outcome, now_ms)
        if state is not MoveState.DONE:
            why = Outcome(f"{move.bundle} of the same swap was not moved")
            for other in group.moves:
                if other.state is MoveState.QUEUED:
                    _finish(other, MoveState.CANCELLED, why, now_ms)
                    ended.append(other)
        self._forget(group)
        return ended

    def _forget(self, group: Group) -> None:
        if not group.ended:
            return
        self._groups.remove(group)
        for move in group.moves:
            if self._moves.get(move.bundle) is move:
                del self._moves[move.bundle]
            self.ended.appendleft(move)

    def expire(self, now_s: float, now_ms: int, settings: MoveSettings) -> list[Move]:
        """End the groups that have waited too long; returns their moves."""
        oldest_s = now_s - settings.ttl_s
        old = [group for group in self._groups if not group.started and group.since_s <= oldest_s]
        outcome = Outcome(f"it waited longer than {settings.ttl_s:g} s")
        return self._drop(old, MoveState.EXPIRED, outcome, now_ms)

    def cancel(
        self, move_id: str | None, now_ms: int, why: str = BY_OPERATOR, *, urgent: bool = True
    ) -> list[Move]:
        """End a move that waits, with its swap; None: all that wait, without `urgent` all but those
        that operators ordered. Returns the cancelled moves.

        Raises `NotFoundError` for an unknown move, `ConflictError` for one that has begun or ended.
        """
        waiting = [group for group in self._groups if not group.started]
        outcome = Outcome(why)
        if move_id is None:
            some = [group for group in waiting if urgent or not group.urgent]
            return self._drop(some, MoveState.CANCELLED, outcome, now_ms)
        for group in waiting:
            if any(move.id == move_id for move in group.moves):
                return self._drop([group], MoveState.CANCELLED, outcome, now_ms)
        for move in [*self.open_moves(), *self.ended]:
            if move.id == move_id:
                verb = "has" if move.state in (MoveState.FAILED, MoveState.EXPIRED) else "is"
                state = f"it {verb} {move.state.value}"
                if move.state is MoveState.QUEUED:
                    state = "its swap has begun, and stays whole"
                elif move.state is MoveState.RUNNING:
                    state += ", and will end by itself; `undo` can move the bundle back then"
                raise ConflictError(f"move {move_id} cannot be cancelled: {state}")
        raise NotFoundError(f"there is no move {move_id}")

    def cancel_of(
        self, source: str | None, author: Author, now_ms: int, why: str = "no longer wanted"
    ) -> list[Move]:
        """End the waiting moves away from a broker that an author wanted; None: from any."""
        groups = [
            group
            for group in self._groups
            if not group.started
            and group.moves[0].author is author
            and (source is None or source in group.sources)
        ]
        return self._drop(groups, MoveState.CANCELLED, Outcome(why), now_ms)

    def _drop(
        self, groups: Sequence[Group], state: MoveState, outcome: Outcome, now_ms: int
    ) -> list[Move]:
        dropped = []
        for group in groups:
            self.waiting -= len(group.moves)
            for move in group.moves:
                _finish(move, state, outcome, now_ms)
                dropped.append(move)
            self._forget(group)
        return dropped


def _finish(move: Move, state: MoveState, outcome: Outcome, now_ms: int) -> None:
    move.state, move.outcome, move.ended_at = state, outcome, now_ms
