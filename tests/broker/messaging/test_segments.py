"""The bytes of stored topics, torn and damaged anywhere, and the log over them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from loadmanager.broker.messaging.cursor import Cursor, read_cursor, write_cursor
from loadmanager.broker.messaging.memory import EntryCache, TopicMemory
from loadmanager.broker.messaging.segments import (
    ABSENT,
    ANY_TIME,
    HEADER_BYTES,
    SECTOR_BYTES,
    Damage,
    SegmentIndex,
    entries_in,
    read_index,
    scan,
    write_index,
)
from loadmanager.broker.messaging.segments import Sent as Last
from loadmanager.broker.messaging.stored_log import Rollover, StoredLog
from loadmanager.kit.errors import CorruptDataError

Sent = tuple[bytes, int, int, str, int]
"""Tail, messages, delivery time, producer, sequence id."""
SENT = st.tuples(
    st.binary(max_size=40),
    st.integers(1, 1000),
    st.integers(0, 1 << 60),
    st.sampled_from(["p", "q", "ü" * 20]),
    st.integers(0, (1 << 63) - 1),
)


def a_log(segments: Sequence[SegmentIndex] = (), *, run: int = 1, entries_max: int = 1000):
    """A log that goes on after some segments, without a storage."""
    next_id = segments[-1].end_id if segments else 0
    return StoredLog(
        TopicMemory(1 << 40),
        EntryCache(1 << 20),
        segments,
        run=run,
        next_id=next_id,
        rollover=Rollover(entries_max, 1 << 30, 10),
    )


def ids(index: SegmentIndex) -> dict[str, int]:
    """Producer → its last sequence id."""
    return {name: sent.sequence_id for name, sent in index.producers.items()}


def written(sent: Sequence[Sent], *, entries_max: int = 1000) -> dict[int, bytes]:
    """First entry id → the bytes of each segment that these messages make."""
    log = a_log(entries_max=entries_max)
    for message in sent:
        log.append(*message)
    found: dict[int, bytes] = {}
    for piece in log.take()[0]:
        found[piece.segment.first_id] = found.get(piece.segment.first_id, b"") + piece.data
    return found


@given(st.lists(SENT, min_size=1, max_size=12), st.integers(1, 5))
def test_what_is_written_is_found_again(sent: list[Sent], entries_max: int) -> None:
    """A scan finds every entry of every segment with its messages and its producer's last sequence
    id, and says the same as the index that the writer kept.
    """
    entries, indexes = [], []
    for first_id, data in written(sent, entries_max=entries_max).items():
        index, damages = scan(data, 1, first_id)
        assert (damages, index.size) == ([], len(data))
        assert read_index(write_index(index), 1) == index
        indexes.append(index)
        entries += entries_in(data)
    assert [(e.tail, e.messages, e.deliver_at_ms) for e in entries] == [item[:3] for item in sent]
    assert [e.entry_id for e in entries] == list(range(len(sent)))
    assert ids(indexes[-1]) == {item[3]: item[4] for item in sent}
    log = a_log(indexes, run=2)
    assert log.messages_from(0) == sum(item[1] for item in sent)
    assert [log.messages_of(entry_id) for entry_id in range(len(sent))] == [s[1] for s in sent]


def test_an_index_of_an_earlier_version_can_be_read() -> None:
    """It does not tell when the producers' last messages were published."""
    index = SegmentIndex(1, 0, array("Q", [0]), array("Q", [1]), 9, {"p": Last(5, 77)})
    body = write_index(index)[4:].removesuffix(b'{"p": 77}')
    earlier = crc32c(body).to_bytes(4, "big") + body
    assert read_index(write_index(index), 1) == index
    found = read_index(earlier, 1)
    assert found is not None
    assert found.producers == {"p": Last(5, ANY_TIME)}


@given(st.lists(SENT, min_size=1, max_size=4))
def test_a_tail_torn_at_any_byte_loses_only_what_is_torn(sent: list[Sent]) -> None:
    """Cut anywhere, a segment has exactly the entries whose records are whole."""
    data = written(sent)[0]
    whole = scan(data, 1, 0)[0]
    ends = [*whole.offsets[1:], len(data)]
    for cut in range(len(data)):
        index, damages = scan(data[:cut], 1, 0)
        # The bytes before an entry may name its producer: they may be whole without it.
        count = sum(end <= cut for end in ends)
        assert index.offsets[:count] == whole.offsets[:count]
        assert len(index.offsets) <= count + 1
        assert all(offset < cut for offset in index.offsets)
        assert all(damage.torn for damage in damages)
        # What is torn is not stored, so it must not be taken for a repetition when it comes again.
        last = {item[3]: item[4] for item in sent[: len(index.offsets)]}
        assert {name: number for name, number in ids(index).items() if number >= 0} == last
        assert index.size + sum(damage.size for damage in damages) == cut


@given(st.lists(SENT, min_size=2, max_size=5), st.data())
def test_damage_costs_the_records_that_it_hits(sent: list[Sent], data: st.DataObject) -> None:
    """A flipped bit makes one record unreadable, and nothing is made up: every entry that is found
    is one that was sent, under its own id.
    """
    good = written(sent)[0]
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[at] ^= 1 << data.draw(st.integers(0, 7))
    index, damages = scan(bytes(bad), 1, 0)
    assert sum(damage.size for damage in damages) > 0
    found = {}
    for entry_id, offset in enumerate(index.offsets):
        if offset < len(bad):
            entry = next(entries_in(bytes(bad[offset:])))
            assert entry.entry_id == entry_id
            found[entry_id] = entry.tail
    assert all(sent[entry_id][0] == tail for entry_id, tail in found.items())
    assert len(found) >= len(sent) - 1


@pytest.mark.parametrize("at", [0, HEADER_BYTES, -1])
def test_a_complete_last_record_is_damaged_and_not_torn(at: int) -> None:
    """Its producer may have the receipt, and a consumer the message: if its id can be read, no
    other entry gets it. What a file system fills with zeros is torn.
    """
    first = written([(b"first", 1, 0, "p", 1)])[0]
    both = written([(b"first", 1, 0, "p", 1), (b"x" * 600, 1, 0, "p", 2)])[0]
    bad = bytearray(both)
    bad[at if at < 0 else len(first) + at] ^= 1
    for data, torn in ((bytes(bad), False), (both[:-550] + bytes(550), True)):
        index, damages = scan(data, 1, 0)
        assert (index.end_id, ids(index)) == (1 if torn or not at else 2, {"p": 1})
        assert list(index.offsets[1:]) == [ABSENT] * (index.end_id - 1)
        assert damages == [Damage(len(first), len(both) - len(first), torn)]


@given(st.integers(0, 2**20), st.integers(0, 7), st.integers(0, 700))
def test_damage_is_told_from_a_torn_write_also_where_messages_end_in_zeros(
    at: int, bit: int, name_bytes: int
) -> None:
    """One flipped bit anywhere is damage, and the damaged message keeps its id; what ends in zeros
    is torn, and gives its id to the message that its producer repeats. The producer is remembered
    with what is whole.
    """
    name = "p" * name_bytes
    first = written([(b"first", 1, 0, name, 1)])[0]
    both = written([(b"first", 1, 0, name, 1), (bytes(5_000), 1, 0, name, 2)])[0]
    bad = bytearray(both)
    at = len(first) + HEADER_BYTES + at % (len(both) - len(first) - HEADER_BYTES)
    bad[at] ^= 1 << bit
    index, damages = scan(bytes(bad), 1, 0)
    assert [damage.torn for damage in damages] == [False]
    assert index.end_id == 2
    assert ids(index) == {name: 1 if index.offsets[1] == ABSENT else 2}
    size = min(at - len(first), len(both) - len(first) - SECTOR_BYTES)
    torn = both[: len(first) + size] + bytes(len(both) - len(first) - size)
    index, damages = scan(torn, 1, 0)
    assert [damage.torn for damage in damages] == [True]
    assert ids(index) == {name: index.end_id}


@pytest.mark.parametrize("torn", [False, True])
def test_nothing_in_a_message_is_taken_for_a_record(*, torn: bool) -> None:
    """A client may send records: in a message that is damaged or torn they are its bytes."""
    forged = written([(b"forged", 1, 0, "victim", 9)])[0]
    sent = written([(forged + b"!", 1, 0, "p", 1), (b"last", 1, 0, "p", 2)])[0]
    mark = sent.index(forged + b"!") + len(forged)
    data = sent[:mark] if torn else sent[:mark] + b"?" + sent[mark + 1 :]
    index, damages = scan(data, 1, 0)
    assert ids(index) == ({"p": -1} if torn else {"p": 2})
    assert index.offsets == array("Q", [] if torn else [ABSENT, sent.index(b"last") - HEADER_BYTES])
    assert [damage.torn for damage in damages] == [torn]


@given(st.binary(max_size=200))
def test_any_bytes_can_be_scanned(data: bytes) -> None:
    """Bytes that are no segment have no entries, and are damage as a whole."""
    index, damages = scan(data, 1, 0)
    assert (len(index.offsets), sum(damage.size for damage in damages)) == (0, len(data))
    assert read_index(data, 1) is None


def test_a_damaged_record_is_an_error_for_its_reader() -> None:
    """Reading does not return a message whose checksum is wrong."""
    data = bytearray(written([(b"tail", 1, 0, "p", 1)])[0])
    data[-1] ^= 1
    with pytest.raises(CorruptDataError, match="entry 0 is damaged"):
        list(entries_in(bytes(data)))


def test_entries_exist_for_readers_once_they_are_stored() -> None:
    """What was appended cannot be read before `stored`, and is counted in memory until then."""
    log = a_log()
    log.append(b"x" * 100, 1, 0, "p", 0)
    assert (log.end_id, log.next_id, log.get(0), log.loading(0)) == (0, 1, None, False)
    _, end_id, size = log.take()
    log.stored(end_id, size)
    entry = log.get(0)
    assert entry is not None
    assert (log.end_id, entry.tail, log.memory.used_bytes) == (1, b"x" * 100, 16)
    log.close()
    assert log.memory.used_bytes == 0


def test_the_cache_is_bounded_and_the_rest_is_asked_for() -> None:
    """Entries that the cache lacks are requested, those that do not exist are not."""
    log = a_log()
    for number in range(2000):
        log.append(b"x" * 1000, 1, 0, "p", number)
    _, end_id, size = log.take()
    log.stored(end_id, size)
    asked: list[int] = []
    log.request = asked.append
    assert log.get(0) is None
    assert log.get(1999) is not None
    assert (log.loading(0), log.loading(2000), asked) == (True, False, [0])
    place = log.place(0)
    assert place is not None
    assert place.size >= 1000


def test_finished_segments_are_dropped_when_they_are_consumed() -> None:
    """A segment goes when all of its entries are consumed and enough bytes stay."""
    log = a_log(entries_max=10)
    for number in range(35):
        log.append(b"x", 1, 0, "p", number)
    log.stored(*log.take()[1:])
    log.drop_until(25, 0)
    assert (log.first_id, log.messages_from(0)) == (20, 15)
    log.drop_until(35, 1 << 30)
    assert log.first_id == 20
    log.drop_until(35, 0)
    assert log.first_id == 30, "the active segment stays"


@given(st.lists(st.integers(2, 9), max_size=20))
def test_a_saved_cursor_is_read_again(steps: list[int]) -> None:
    """With its ranges, and its batches."""
    edges = [sum(steps[: at + 1]) for at in range(len(steps))]
    ranges = tuple((edge, edge) for edge in edges)
    cursor = Cursor(0, ranges, {3: (1, -(1 << 63))})
    value, whole = write_cursor(cursor)
    assert (read_cursor(value, "here"), whole) == (cursor, True)


def test_the_id_of_a_batch_that_was_acknowledged_in_part_is_not_given_again() -> None:
    """If the batch is lost, another one with its id would count as acknowledged in part."""
    assert Cursor(3, ((5, 6),), {4: (1,), 9: (1,)}).end_id == 10
    assert Cursor(3, ((5, 6),), {4: (1,)}).end_id == 7


@pytest.mark.parametrize(
    "value",
    [b"x", b"[]", b"{}", b'{"mark":-1}', b'{"mark":1.5}', b'{"mark":5,"ranges":[[4,6]]}',
     b'{"mark":1,"ranges":[[9,8]]}', b'{"mark":1,"ackSets":{"a":[1]}}', b"[" * 9999],
)  # fmt: skip
def test_a_damaged_cursor_is_named(value: bytes) -> None:
    """What is no cursor raises an error that says where it is."""
    with pytest.raises(CorruptDataError, match="here"):
        read_cursor(value, "here")
