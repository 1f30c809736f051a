"""Quick averages: of the last few samples, whoever owns the bundle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmanager.engine.load.averages import QUICK_RISE, QUICK_WEIGHT, BundleAverages
from loadmanager.engine.load.bundle_traffic import cost_class_of
from loadmanager.engine.load.reports import NamespaceBundleStats

BUNDLE = "t/n/0x00000000_0xffffffff"


def a_sample(bytes_s: float) -> NamespaceBundleStats:
    """Traffic of so many bytes/s, out and in."""
    return NamespaceBundleStats(msg_throughput_in=bytes_s / 4, msg_throughput_out=bytes_s * 3 / 4)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=20))
def test_the_first_sample_counts_whole(samples: list[float]) -> None:
    """The first sample replaces what was expected; each later one weighs the same, but for what is
    more than five times what was there before.
    """
    averages, quick, before = BundleAverages(), samples[0], samples[0]
    for number, bytes_s in enumerate(samples):
        averages.observe(f"b{number % 2}", {BUNDLE: a_sample(bytes_s)})
        most = QUICK_RISE * max(before, quick)
        counted = min(bytes_s, most) if number and most > 0 else bytes_s
        quick, before = quick + (counted - quick) * (QUICK_WEIGHT if number else 1), bytes_s
        assert averages.quick_of(BUNDLE) == pytest.approx(quick)


def test_brokers() -> None:
    """By broker: its bundles in order of name, and their sum."""
    averages = BundleAverages()
    names = {broker: [f"t/{broker}/{number}" for number in range(3)] for broker in ("a", "b", "c")}
    for broker in "ab":
        stats = {name: a_sample(number + 1.0) for number, name in enumerate(names[broker])}
        averages.observe(broker, stats)
    assert list(averages.names("b", names["b"][::-1])) == names["b"]
    quick = averages.traffic("quick", {"b": names["b"][::-1]})
    assert quick.bytes_s.tolist() == [1.0, 2.0, 3.0]
    assert quick.cost_classes.tolist() == [cost_class_of("t/b/0")] * 3
    averages.observe("b", {name: a_sample(10.0) for name in names["b"]})
    brokers = {"c": names["c"], "b": names["b"], "a": []}
    last = averages.traffic("last", brokers)
    assert np.array_equal(last.totals(last.bytes_s), [0.0, 30.0, 0.0])
    quick = averages.traffic("quick", brokers)
    counted = sum(min(10.0, QUICK_RISE * each) for each in (1.0, 2.0, 3.0))
    expected = 6 + QUICK_WEIGHT * (counted - 6)
    assert quick.totals(quick.bytes_s) == pytest.approx([0.0, expected, 0.0])
    assert averages.quick_of("t/nobody/0") == 0


def test_equal_brokers_have_equal_sums() -> None:
    """To the last bit, whoever is before them: ties are decided by name, not by rounding."""
    averages = BundleAverages()
    names = {broker: [f"t/{broker}/{number}" for number in range(7)] for broker in "abc"}
    for broker, factor in (("a", 1e9 / 3), ("b", 0.1), ("c", 0.1)):
        averages.observe(
            broker, {name: a_sample(factor * at) for at, name in enumerate(names[broker])}
        )
    quick = averages.traffic("quick", {"none": [], **names, "nobody": []})
    none, _, b, c, nobody = quick.totals(quick.bytes_s)
    assert (none, nobody) == (0.0, 0.0)
    assert b == c > 0


def test_lists_that_were_read_before_are_read_as_they_are_now() -> None:
    """Whatever was forgotten, came, or took its place, here or in a copy."""
    names = {"a": ["t/x/0", "t/x/1"], "b": ["t/y/0"]}

    def seen(averages: BundleAverages) -> tuple[list[float], list[int], list[int]]:
        quick = averages.traffic("quick", names)
        last = averages.traffic("last", {"b": names["b"]})
        counts = [*quick.counts.tolist(), *last.counts.tolist()]
        return quick.bytes_s.tolist(), quick.cost_classes.tolist(), counts

    x, y = cost_class_of("t/x/0"), cost_class_of("t/y/0")
    averages = BundleAverages()
    averages.observe("a", {name: a_sample(1.0) for name in names["a"]})
    averages.observe("b", {name: a_sample(2.0) for name in names["b"]})
    assert seen(averages) == seen(averages) == ([1.0, 1.0, 2.0], [x, x, y], [2, 1, 1])
    copy = averages.copy()
    averages.forget("t/x/0")
    assert seen(averages) == ([1.0, 2.0], [x, y], [1, 1, 1])
    averages.observe("c", {"t/z/0": a_sample(3.0)})
    assert seen(averages) == ([1.0, 2.0], [x, y], [1, 1, 1])
    copy.forget("t/y/0")
    copy.observe("d", {"t/v/0": a_sample(4.0)})
    assert seen(copy) == ([1.0, 1.0], [x, x], [2, 0, 0])
    averages.observe("a", {name: a_sample(5.0) for name in names["a"]})
    quick = 1.0 + QUICK_WEIGHT * (QUICK_RISE - 1.0)
    assert seen(averages) == ([5.0, quick, 2.0], [x, x, y], [2, 1, 1])
    assert seen(copy) == ([1.0, 1.0], [x, x], [2, 0, 0])
