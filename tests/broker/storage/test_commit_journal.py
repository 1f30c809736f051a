"""The bytes of a journal, torn anywhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadmanager.broker.storage.commit_journal import Place, read_batches, write_batch

PLACES = st.builds(Place, *[st.integers(0, (1 << bits) - 1) for bits in (64, 32, 64, 64)])
BATCHES = st.lists(st.lists(st.tuples(PLACES, st.binary(max_size=20)), min_size=1), max_size=4)
NAME = "writers/0123456789abcdef/00000000.journal"


@given(BATCHES, st.data())
def test_whole_batches_are_read_up_to_where_a_journal_is_torn(
    batches: list[list[tuple[Place, bytes]]], data: st.DataObject
) -> None:
    """All that was written before the tear is found, with the offset to go on from."""
    records = [write_batch(NAME, batch) for batch in batches]
    raw = b"".join(records)
    torn = raw[: data.draw(st.integers(0, len(raw)))]
    found = list(read_batches(NAME, torn))
    sizes = [sum(map(len, records[: number + 1])) for number in range(len(records))]
    whole = [size for size in sizes if size <= len(torn)]
    assert [at for at, _, _ in found] == whole
    assert not any(damaged for _, damaged, _ in found)
    assert [pieces for _, _, pieces in found] == batches[: len(whole)]


@given(BATCHES.filter(len), st.data())
def test_damage_costs_the_batch_that_it_hits(
    batches: list[list[tuple[Place, bytes]]], data: st.DataObject
) -> None:
    """All others are found, and how many bytes are damaged between them."""
    records = [write_batch(NAME, batch) for batch in batches]
    hit = data.draw(st.integers(0, len(records) - 1))
    at = data.draw(st.integers(0, len(records[hit]) - 1))
    spoilt = bytearray(records[hit])
    spoilt[at] ^= data.draw(st.integers(1, 255))
    raw = b"".join([*records[:hit], bytes(spoilt), *records[hit + 1 :]])
    found = list(read_batches(NAME, raw))
    assert [pieces for _, _, pieces in found] == batches[:hit] + batches[hit + 1 :]
    lost = len(raw) - sum(map(len, records[hit + 1 :])) - sum(map(len, records[:hit]))
    assert [damaged for _, damaged, _ in found if damaged] == [lost] * (hit < len(records) - 1)


def test_nothing_in_a_message_is_taken_for_a_batch() -> None:
    """Neither behind a damaged header nor in a torn batch: another journal's name is not known."""
    place = Place(7, 1, 0, 0)
    forged = write_batch("writers/mine/00000000.journal", [(place, b"forged")])
    raw = bytearray(write_batch(NAME, [(place, forged)]))
    assert list(read_batches(NAME, bytes(raw[:-1]))) == []
    raw[0] ^= 1
    assert list(read_batches(NAME, bytes(raw))) == []
