"""Copies of averages: whoever reads one sees the moment when it was made, also in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadmanager.engine.load.averages import BundleAverages
from loadmanager.engine.load.quotas import Expected, ResourceQuota
from loadmanager.engine.load.reports import BundleData, NamespaceBundleStats

BROKERS = ("a", "b", "c")
BUNDLES = [f"t/ns/0x{at:08x}_0x{at + 1:08x}" for at in range(6)]
STATS = st.dictionaries(
    st.sampled_from(BUNDLES),
    st.integers(0, 1000).map(lambda rate: NamespaceBundleStats(msg_rate_in=float(rate))),
    max_size=len(BUNDLES),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("observe"), st.integers(0, 9), st.sampled_from(BROKERS), STATS),
        st.tuples(st.just("copy"), st.integers(0, 9)),
        st.tuples(st.just("drop"), st.integers(0, 9)),
        st.tuples(st.just("forget"), st.integers(0, 9), st.sampled_from(BUNDLES)),
    ),
    max_size=30,
)


@given(STEPS)
def test_a_change_of_one_does_not_show_in_another(steps: list[tuple[object, ...]]) -> None:
    """Copies of copies, too, whichever are changed and whichever are gone meanwhile."""
    first = BundleAverages()
    first.observe("a", dict.fromkeys(BUNDLES, NamespaceBundleStats(msg_rate_in=1.0)))
    everybody: list[tuple[BundleAverages, dict[str, BundleData]]] = [(first, dict(first))]
    for what, number, *given_ in steps:
        assert isinstance(number, int)
        at = number % len(everybody)
        averages = everybody[at][0]
        if what == "copy":
            copied = averages.copy()
            everybody.append((copied, dict(copied)))
        elif what == "drop" and len(everybody) > 1:
            del everybody[at], averages
        elif what == "observe":
            averages.observe(*given_)  # type: ignore[arg-type]
            everybody[at] = averages, dict(averages)
        elif what == "forget":
            averages.forget(*given_)  # type: ignore[arg-type]
            everybody[at] = averages, dict(averages)
        for each, expected in everybody:
            assert dict(each) == expected
            loads = {bundle: data.short_term_data.rate for bundle, data in expected.items()}
            ordered = sorted(loads, key=lambda bundle: (-loads[bundle], bundle))
            assert [bundle for bundle, _ in each.ordered("rate", "x", BUNDLES)] == ordered


def test_orders_are_those_of_ones_own_averages() -> None:
    """Original and copy were changed equally often, and differently."""
    averages, (one, other) = BundleAverages(), BUNDLES[:2]
    averages.observe("a", dict.fromkeys((one, other), NamespaceBundleStats(msg_rate_in=1.0)))
    averages.ordered("rate", "a", (one, other))
    copied = averages.copy()
    copied.observe("a", {other: NamespaceBundleStats(msg_rate_in=500.0)})
    assert copied.ordered("rate", "a", (one, other)).first(2) == [other, one]
    averages.observe("a", {one: NamespaceBundleStats(msg_rate_in=900.0)})
    assert averages.ordered("rate", "a", (one, other)).first(3) == [one, other]


def test_a_quota_that_is_set_later_does_not_show_in_a_copy() -> None:
    """Neither one of a bundle nor the default."""
    averages = BundleAverages(expected=(expected := Expected()))
    copied = averages.copy()
    before = [copied.expect(bundle) for bundle in BUNDLES[:2]]
    expected.quotas[BUNDLES[0]] = expected.default = ResourceQuota(msg_rate_in=7.0)
    assert [copied.expect(bundle) for bundle in BUNDLES[:2]] == before
    assert [averages.expect(bundle).short_term_data.msg_rate_in for bundle in BUNDLES[:2]] == [7, 7]
