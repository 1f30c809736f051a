"""The queue of moves: what may start; nothing is lost, overtaken for ever or torn apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leader.documents import a_move_shown

from loadmanager.engine.moves.move import Author, Move, MoveState, Outcome
from loadmanager.engine.moves.queue import Group, MoveQueue
from loadmanager.engine.moves.settings import MoveSettings
from loadmanager.kit.errors import ConflictError, NotFoundError

DONE = Outcome("moved")


def a_move(
    number: int,
    source: str = "b1",
    destination: str | None = "b2",
    *,
    author: Author = Author.CYCLE,
    swap: str | None = None,
) -> Move:
    """A move of bundle `number`."""
    return a_move_shown(
        id=f"1-{number}",
        bundle=f"t/n/0x{number:08x}_0xffffffff",
        source=source,
        destination=destination,
        author=author,
        swap=swap,
        state=MoveState.QUEUED,
        started_at=None,
        ended_at=None,
        outcome=None,
    )


def started(groups: Sequence[Group]) -> list[int]:
    """The numbers of the moves that start."""
    return [int(move.id[2:]) for group in groups for move in group.moves]


def test_limits_at_once() -> None:
    """Of a source, of a destination, of the cluster; what ends makes room."""
    queue, settings = MoveQueue(), MoveSettings(at_once_max=3, per_source_max=2)
    moves = [a_move(1), a_move(2), a_move(3), a_move(4, "b3"), a_move(5, "b4")]
    for move in moves:
        queue.add([move], 0, settings)
    assert started(queue.start(0, settings, paused=False)) == [1, 2, 4]
    assert started(queue.start(0, settings, paused=False)) == []
    queue.end(moves[1], MoveState.DONE, DONE, 5)
    assert started(queue.start(0, settings, paused=False)) == [3]
    tight = MoveSettings(per_destination_max=1)
    other = MoveQueue()
    for move in (a_move(1, "b1", "b2"), a_move(2, "b3", "b2"), a_move(3, "b3", "b4")):
        other.add([move], 0, tight)
    assert started(other.start(0, tight, paused=False)) == [1, 3]


def test_nobody_is_overtaken_for_ever() -> None:
    """A swap waits for two brokers at once; moves of either one alone leave it a place."""
    queue, settings = MoveQueue(), MoveSettings(per_source_max=1, per_destination_max=1)
    swap = [a_move(2, "b1", "b2", swap="s"), a_move(3, "b2", "b1", swap="s")]
    for moves in ([a_move(1, "b1", "b3")], swap, [a_move(4, "b4", "b2")], [a_move(5, "b5", "b6")]):
        queue.add(moves, 0, settings)
    assert started(queue.start(0, settings, paused=False)) == [1, 5]
    queue.end(next(queue.open_moves()), MoveState.DONE, DONE, 1)
    assert started(queue.start(0, settings, paused=False)) == [2, 3]


def test_rate() -> None:
    """So many moves begin in any minute; a swap that is larger waits until a minute is free."""
    queue, settings = MoveQueue(), MoveSettings(per_minute_max=2)
    swap = [a_move(number, swap="s") for number in (3, 4, 5)]
    for moves in ([a_move(1)], [a_move(2)], swap, [a_move(6, "b8", "b9")]):
        queue.add(moves, 0, settings)
    assert started(queue.start(0, settings, paused=False)) == [1, 2]
    assert started(queue.start(59.9, settings, paused=False)) == []
    assert started(queue.start(60, settings, paused=False)) == [3, 4, 5]
    assert started(queue.start(119, settings, paused=False)) == []
    assert started(queue.start(120, settings, paused=False)) == [6]


def test_operators_stand_first() -> None:
    """Neither a pause nor the rate holds the request for one bundle; limits at once do."""
    queue, settings = MoveQueue(), MoveSettings(per_minute_max=0, per_source_max=1)
    for move in (a_move(1), *(a_move(n, author=Author.OPERATOR) for n in (2, 3))):
        queue.add([move], 0, settings)
    assert [move.id for move in queue.open_moves()] == ["1-2", "1-3", "1-1"]
    assert started(queue.start(0, settings, paused=True)) == [2]
    queue.end(next(queue.open_moves()), MoveState.DONE, DONE, 1)
    assert started(queue.start(0, settings, paused=True)) == [3]


def test_one_move_of_a_bundle_and_a_bounded_queue() -> None:
    """Further ones are refused, and change nothing."""
    queue, settings = MoveQueue(), MoveSettings(queue_max=2)
    queue.add([a_move(1)], 0, settings)
    with pytest.raises(ConflictError, match="1-1 under way"):
        queue.add([a_move(1)], 0, settings)
    with pytest.raises(ConflictError, match="loadManagerMovesQueueMax allows 2"):
        queue.add([a_move(2, swap="s"), a_move(3, swap="s")], 0, settings)
    assert queue.waiting == 1


def test_a_swap_stays_whole() -> None:
    """It is cancelled or expires as a whole, never once it has begun; if a move of it fails, the
    later ones are not made.
    """
    queue, settings = MoveQueue(), MoveSettings(ttl_s=10)
    first, second = a_move(1, swap="s"), a_move(2, "b2", "b1", swap="s")
    queue.add([first, second], 0, settings)
    assert queue.cancel("1-2", 7) == [first, second]
    assert (first.state, first.ended_at) == (MoveState.CANCELLED, 7)
    first, second = a_move(1, swap="s"), a_move(2, "b2", "b1", swap="s")
    queue.add([first, second], 0, settings)
    queue.start(1, settings, paused=False)
    first.state = MoveState.RUNNING
    with pytest.raises(ConflictError, match="stays whole"):
        queue.cancel("1-2", 8)
    with pytest.raises(ConflictError, match="it is running, and will end by itself"):
        queue.cancel("1-1", 8)
    assert queue.expire(100, 9, settings) == queue.cancel(None, 9) == []
    assert queue.end(first, MoveState.FAILED, Outcome("no"), 9) == [first, second]
    assert (second.state, list(queue.open_moves())) == (MoveState.CANCELLED, [])
    with pytest.raises(NotFoundError):
        queue.cancel("1-9", 9)


def test_moves_expire() -> None:
    """After their time in the queue, also while it is paused."""
    queue, settings = MoveQueue(), MoveSettings(ttl_s=10)
    queue.add([a_move(1)], 0, settings)
    queue.add([a_move(2)], 5, settings)
    (old,) = queue.expire(10, 3, settings)
    assert (old.id, old.state) == ("1-1", MoveState.EXPIRED)
    assert [move.id for move in queue.open_moves()] == ["1-2"]
    assert queue.waiting == 1
    assert [move.id for move in queue.ended] == ["1-1"]


def test_the_moves_of_a_drain_are_cancelled_by_their_source() -> None:
    """And those of others are not."""
    queue, settings = MoveQueue(), MoveSettings()
    for move in (a_move(1, author=Author.DRAIN), a_move(2), a_move(3, "b3", author=Author.DRAIN)):
        queue.add([move], 0, settings)
    assert [move.id for move in queue.cancel_of("b1", Author.DRAIN, 1)] == ["1-1"]
    assert queue.sources() == {a_move(2).bundle: "b1", a_move(3).bundle: "b3"}


def test_a_document() -> None:
    """A move as JSON: the outcome beside the reason."""
    move = a_move(1)
    assert msgspec.to_builtins(move)["outcome"] is None
    move.outcome = Outcome("moved", owner="b2", clients_closed=5, clients_back=4, pause_ms=3.5)
    assert msgspec.to_builtins(move)["outcome"] == {
        "text": "moved",
        "code": None,
        "owner": "b2",
        "clientsClosed": 5,
        "clientsBack": 4,
        "clientsUnserved": None,
        "clientsWaitedMs": None,
        "clientsWaitedMeanMs": None,
        "pauseMs": 3.5,
        "unansweredSince": None,
        "clientsBackAt": None,
        "clientsWithinMs": None,
    }


BROKERS = st.sampled_from(["b1", "b2", "b3", "b4"])
PAIRS = st.tuples(BROKERS, BROKERS).filter(lambda pair: pair[0] != pair[1])
GROUPS = st.lists(st.lists(PAIRS, min_size=1, max_size=3), min_size=1, max_size=12)
LIMITS = st.builds(
    MoveSettings,
    at_once_max=st.integers(1, 4),
    per_source_max=st.integers(1, 3),
    per_destination_max=st.integers(1, 3),
    per_minute_max=st.integers(-1, 5).filter(bool),
)


@given(groups=GROUPS, settings=LIMITS, data=st.data())
def test_whatever_ends_first(
    groups: list[list[tuple[str, str]]], settings: MoveSettings, data: st.DataObject
) -> None:
    """The limits hold at every moment, whichever move ends next; every group starts in the end, and
    those of the same brokers in their order; in no minute more moves begin than may, unless one
    swap alone is larger.
    """
    queue, number, order = MoveQueue(), 0, []
    for pairs in groups:
        moves = []
        for source, destination in pairs:
            number += 1
            moves.append(a_move(number, source, destination, swap="s" if pairs[1:] else None))
        queue.add(moves, 0, settings)
        order.append(moves)
    now_s, under_way, begun = 0.0, list[Group](), list[tuple[float, int]]()
    start_order: list[str] = []
    for _ in range(200):
        for group in queue.start(now_s, settings, paused=False):
            under_way.append(group)
            begun.append((now_s, len(group.moves)))
            start_order.append(group.moves[0].id)
        leaving = Counter(broker for group in under_way for broker in group.sources)
        coming = Counter(broker for group in under_way for broker in group.destinations)
        assert len(under_way) <= settings.at_once_max
        assert max(leaving.values(), default=0) <= settings.per_source_max
        assert max(coming.values(), default=0) <= settings.per_destination_max
        recent = [count for at_s, count in begun if at_s > now_s - 60]
        limit = settings.per_minute_max
        assert limit < 0 or sum(recent) <= limit or len(recent) == 1
        if under_way:
            group = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
            failing = data.draw(st.integers(-1, len(group.moves) - 1))
            for index, move in enumerate(group.moves):
                if not move.ended:
                    state = MoveState.FAILED if index == failing else MoveState.DONE
                    queue.end(move, state, DONE, 1)
        elif not list(queue.open_moves()):
            break
        else:
            now_s += 30
    assert not list(queue.open_moves())
    assert queue.waiting == 0
    assert sorted(start_order) == sorted(moves[0].id for moves in order)
    for first, second in zip(order, order[1:], strict=False):
        if [(move.source, move.destination) for move in first] == [
            (move.source, move.destination) for move in second
        ]:
            assert start_order.index(first[0].id) < start_order.index(second[0].id)


@given(groups=GROUPS, cancelled=st.sets(st.integers(1, 36)))
def test_nothing_is_lost(groups: list[list[tuple[str, str]]], cancelled: set[int]) -> None:
    """Every move is waiting, under way, or among those that ended; the counts agree."""
    queue, settings, number = MoveQueue(), MoveSettings(), 0
    for pairs in groups:
        moves = []
        for source, destination in pairs:
            number += 1
            moves.append(a_move(number, source, destination))
        queue.add(moves, 0, settings)
    for chosen in cancelled:
        try:
            queue.cancel(f"1-{chosen}", 1)
        except (NotFoundError, ConflictError):
            continue
    waiting = [move for move in queue.open_moves() if move.state is MoveState.QUEUED]
    assert len(waiting) == queue.waiting
    assert len(waiting) + len(queue.ended) == number
    assert queue.sources() == {move.bundle: move.source for move in waiting}


def test_moves_that_are_held() -> None:
    """Those of some authors; the others pass them."""
    queue, settings = MoveQueue(), MoveSettings()
    for number, author in enumerate((Author.CYCLE, Author.DRAIN, Author.OPERATOR), 1):
        queue.add([a_move(number, f"b{number}", "b9", author=author)], 0, settings)
    held = {Author.CYCLE, Author.OPERATOR}
    assert started(queue.start(0, settings, paused=False, held_authors=held)) == [2]
    assert sorted(started(queue.start(0, settings, paused=False))) == [1, 3]


def test_what_operators_ordered_is_spared() -> None:
    """Where all others are cancelled."""
    queue, settings = MoveQueue(), MoveSettings()
    for number, author in enumerate((Author.CYCLE, Author.OPERATOR, Author.PLAN), 1):
        queue.add([a_move(number, author=author)], 0, settings)
    assert [move.id for move in queue.cancel(None, 5, "why", urgent=False)] == ["1-1", "1-3"]
    assert [move.id for move in queue.cancel(None, 5)] == ["1-2"]
