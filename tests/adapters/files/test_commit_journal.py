"""The bytes of a journal, torn anywhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadmanager.adapters.files.commit_journal import Place, read_batches, write_batch

PLACES = st.builds(Place, *[st.integers(0, (1 << bits) - 1) for bits in (64, 32, 64, 64)])
BATCHES = st.lists(st.lists(st.tuples(PLACES, st.binary(max_size=20)), min_size=1), max_size=4)


@given(BATCHES, st.data())
def test_whole_batches_are_read_up_to_where_a_journal_is_torn(
    batches: list[list[tuple[Place, bytes]]], data: st.DataObject
) -> None:
    """All that was written before the tear is found, with the offset to go on from."""
    records = [write_batch(batch) for batch in batches]
    raw = b"".join(records)
    torn = raw[: data.draw(st.integers(0, len(raw)))]
    found = list(read_batches(torn))
    sizes = [sum(map(len, records[: number + 1])) for number in range(len(records))]
    whole = [size for size in sizes if size <= len(torn)]
    assert [at for at, _ in found] == whole
    assert [pieces for _, pieces in found] == batches[: len(whole)]
