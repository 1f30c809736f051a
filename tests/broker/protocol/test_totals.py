"""Sums of topics that are kept equal sums over the topics."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from loadmanager.broker.protocol.totals import (
    COUNTS,
    NO_RATES,
    PRESENT,
    RATES,
    WRITES,
    Figures,
    NamespaceTotals,
    Totals,
    WriteCounts,
)

small = st.integers(0, 1000)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("count"), st.integers(0, 5), st.lists(small, min_size=9, max_size=9)),
        st.tuples(st.just("leave"), st.integers(0, 5), st.none()),
        st.tuples(st.just("measure"), st.integers(0, 5), st.lists(small, min_size=4, max_size=4)),
    ),
    max_size=40,
)


@given(steps)
def test_totals_are_those_of_the_open_topics(
    steps: list[tuple[str, int, list[int] | None]],
) -> None:
    """However topics come, change and go, the sums are those of a fresh addition; what was
    published stays with its namespace while that has open topics, and with the broker for ever.
    """
    totals, topics = NamespaceTotals(), dict[int, Figures]()
    grown: Counter[str] = Counter()
    for what, number, values in steps:
        if what == "leave":
            if number in topics:
                totals.leave(topics.pop(number))
        elif what == "count":
            assert values is not None
            topic = topics.setdefault(number, Figures(f"ns{number % 2}"))
            present, more = (1, *values[: PRESENT - 1]), values[PRESENT - 1 :]
            before = topic.counts[PRESENT:]
            totals.count(topic, (*present, *(a + b for a, b in zip(before, more, strict=True))))
            grown.update(dict(zip(COUNTS[PRESENT:], more, strict=True)))
        elif number in topics:
            assert values is not None
            topics[number].rates = (*map(float, values), *NO_RATES[4:])
            totals.measure(topics.values())
    by_namespace: dict[str, Totals] = {}
    for topic in topics.values():
        by_namespace[topic.namespace] = by_namespace.get(topic.namespace, Totals()) + topic
    assert totals.namespaces.keys() == by_namespace.keys()
    for name, fresh in by_namespace.items():
        kept = totals.namespaces[name]
        assert kept.counts[:PRESENT] == fresh.counts[:PRESENT]
        assert all(map(int.__ge__, kept.counts[PRESENT:], fresh.counts[PRESENT:]))
    whole = sum(by_namespace.values(), Totals())
    assert totals.broker.counts[:PRESENT] == whole.counts[:PRESENT]
    assert dict(zip(COUNTS[PRESENT:], totals.broker.counts[PRESENT:], strict=True)) == {
        name: grown[name] for name in COUNTS[PRESENT:]
    }
    totals.measure(topics.values())
    assert totals.broker.rates == whole.rates
    assert {name: each.rates for name, each in totals.namespaces.items()} == {
        name: each.rates for name, each in by_namespace.items()
    }


def test_entries_fall_into_pulsars_buckets() -> None:
    """A size that is a bucket's limit belongs to it; what is larger to the next. Storing takes no
    time that the buckets of times could tell.
    """
    writes = WriteCounts()
    for size in (128, 129, 1_232_896, 1_232_897):
        writes.add(size)
    taken = dict(zip(WRITES, writes.take(), strict=True))
    assert {name: count for name, count in taken.items() if count and "sum" not in name} == {
        "entry_size_le_128": 1,
        "entry_size_le_512": 1,
        "entry_size_le_1_mb": 1,
        "entry_size_le_overflow": 1,
        "storage_write_latency_le_0_5": 4,
    }
    assert taken["entry_size_sum"] == 128 + 129 + 1_232_896 + 1_232_897
    assert not any(writes.take())


def test_orders_agree() -> None:
    """The figures of the last stats period end the rates."""
    assert tuple(islice(RATES, 6, None)) == WRITES
