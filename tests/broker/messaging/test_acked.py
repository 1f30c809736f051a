"""The acknowledgements above a mark: like a set of ids, and small."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadmanager.broker.messaging.acked import ACK_SET_BYTES, WORD_BYTES, AckedIds, AckSets
from loadmanager.broker.messaging.cursor import CURSOR_BYTES_MAX, Cursor, read_cursor, write_cursor
from loadmanager.broker.messaging.memory import TopicMemory

IDS = st.one_of(st.integers(0, 60), st.integers(1000, 1050), st.integers(0, 5000))


def messages_of(entry_id: int) -> int:
    """Any numbers."""
    return entry_id % 7


def messages_from(entry_id: int) -> int:
    """The number of messages in the entries from an id on."""
    return sum(messages_of(other) for other in range(entry_id, 10_000))


def filled(ids: set[int]) -> AckedIds:
    """With these ids."""
    acked = AckedIds()
    for entry_id in ids:
        acked.add(entry_id, messages_of(entry_id))
    return acked


def check(acked: AckedIds, ids: set[int]) -> None:
    """It is the set."""
    assert len(acked) == len(ids)
    assert acked.messages == sum(map(messages_of, ids))
    assert all(entry_id in acked for entry_id in ids)
    ranges = acked.ranges(1 << 30)
    assert [entry for first, last in ranges for entry in range(first, last + 1)] == sorted(ids)
    assert all(b[0] > a[1] + 1 for a, b in zip(ranges, ranges[1:], strict=False))


@given(st.sets(IDS), IDS, st.integers(0, 20))
def test_it_is_a_set(ids: set[int], below: int, ranges_max: int) -> None:
    """Ids come in any order, and go from the front."""
    acked = filled(ids)
    check(acked, ids)
    assert acked.ranges(ranges_max) == acked.ranges(1 << 30)[:ranges_max]
    end = below
    while end in ids:
        end += 1
    assert acked.stretch_end(below) == end
    acked.drop_below(min(ids, default=0), below, messages_of)
    left = {entry_id for entry_id in ids if entry_id >= below}
    check(acked, left)
    again = AckedIds()
    for first, last in acked.ranges(1 << 30):
        again.add_range(first, last + 1, messages_from)
    check(again, left)


def test_long_stretches_cost_little() -> None:
    """A million ids are a few bits each, and one range; a hole is found at once."""
    acked = AckedIds()
    acked.add_range(1, 1_000_001, lambda entry_id: 1_000_001 - entry_id)
    assert (len(acked), acked.messages, len(acked._bits)) == (1_000_000, 1_000_000, 977)
    assert acked.ranges(10) == ((1, 1_000_000),)
    assert acked.stretch_end(1) == 1_000_001
    assert acked.stretch_end(0) == 0


def test_ack_sets_count_towards_the_memory() -> None:
    """When it is full, no more are kept; those that are can still change. They go as entries do."""
    memory = TopicMemory(limit_bytes=2 * (ACK_SET_BYTES + 3 * WORD_BYTES))
    sets = AckSets(memory)
    for entry_id in range(5):
        sets.put(entry_id, (1, 2, 3))
    assert (len(sets), memory.full) == (2, True)
    sets.put(0, (9,))
    assert sets.get(0) == (9,)
    sets.drop_below(0, 1)
    assert memory.used_bytes == ACK_SET_BYTES + 3 * WORD_BYTES
    sets.clear()
    assert (len(sets), memory.used_bytes) == (0, 0)


def test_a_saved_cursor_is_bounded() -> None:
    """What does not fit is left out: the highest ranges, the sets that changed last."""
    words = ((1 << 63) - 1,) * 1000
    large = Cursor(5, ((7, 8), (10, 1 << 40)), dict.fromkeys(range(12, 100), words))
    value, whole = write_cursor(large)
    assert (len(value) <= CURSOR_BYTES_MAX, whole) == (True, False)
    saved = read_cursor(value, "here")
    assert (saved.mark, saved.ranges) == (5, large.ranges)
    assert list(saved.ack_sets) == list(range(12, 12 + len(saved.ack_sets)))
    assert len(saved.ack_sets) > 20
    many = tuple((2 * at + (1 << 50), 2 * at + (1 << 50)) for at in range(40_000))
    value, whole = write_cursor(Cursor(5, many))
    assert (len(value) <= CURSOR_BYTES_MAX, whole) == (True, False)
    assert read_cursor(value, "here").ranges == many[: len(read_cursor(value, "here").ranges)]
    assert write_cursor(Cursor(5, ((7, 8),)))[1]
    assert not write_cursor(Cursor(5, whole=False))[1]
