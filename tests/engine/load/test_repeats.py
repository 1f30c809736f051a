"""What a broker reported last counts again while it reports nothing: little happens to it."""

from __future__ import annotations

from typing import Any

import pytest
from clusters.views import a_report, without_policies
from hypothesis import given
from hypothesis import strategies as st

from loadmanager.engine.load.cluster_view import LATE_MS, REPEATS_MAX, REPEATS_MS, ClusterView
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.strategies import cycle
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.units import MINUTE_MS

SETTINGS = StrategySettings(shedder="BalancedShedder", placement="BalancedPlacement")
BUNDLE = "t/n/0x00000000_0xffffffff"


def reported(view: ClusterView, broker: str, bytes_s: float, now_ms: int) -> None:
    """A broker says what its bundle carries."""
    stats = {BUNDLE: NamespaceBundleStats(msg_throughput_in=bytes_s, msg_rate_in=1.0)}
    view.observe(broker, a_report(stats, cpu=10.0, last_update=now_ms), now_ms)


def known(view: ClusterView, now_ms: int) -> float:
    """What a leader takes the bundle to carry."""
    return without_policies(view, SETTINGS, now_ms).averages.quick_of(BUNDLE)


def a_step() -> ClusterView:
    """The bundle's traffic has gone up from 100 to 200, and is reported once: the next report is
    due when it changes.
    """
    view = ClusterView()
    for minute in range(10):
        reported(view, "b", 100.0, minute * MINUTE_MS)
    reported(view, "b", 200.0, 10 * MINUTE_MS)
    return view


def test_a_step_is_known_within_minutes() -> None:
    """As if the broker had said it again each minute; not before it is half a minute late."""
    view, begin = a_step(), 10 * MINUTE_MS
    assert known(view, begin) == pytest.approx(130.0)
    assert known(view, begin + REPEATS_MS + LATE_MS - 1) == pytest.approx(130.0)
    assert known(view, begin + REPEATS_MS + LATE_MS) == pytest.approx(151.0)
    assert known(view, begin + 6 * MINUTE_MS) > 185.0
    assert known(view, begin + 2 * REPEATS_MAX * MINUTE_MS) == pytest.approx(200.0)


@given(st.lists(st.integers(0, 20 * MINUTE_MS), max_size=8), st.integers(0, 25 * MINUTE_MS))
def test_it_does_not_matter_who_asks_when(asked: list[int], then: int) -> None:
    """Neither for what is known later, nor for what the next report makes of it."""
    often, once, begin = a_step(), a_step(), 10 * MINUTE_MS
    for at_ms in sorted(it for it in asked if it <= then):
        known(often, begin + at_ms)
    assert known(often, begin + then) == known(once, begin + then)
    for view in (often, once):
        reported(view, "b", 50.0, begin + then + 1)
    assert known(often, begin + then + 1) == known(once, begin + then + 1)


def test_what_another_broker_has_reported_since_counts() -> None:
    """The one that had the bundle before says nothing of it any more."""
    view, now = a_step(), 10 * MINUTE_MS + 1
    reported(view, "c", 10.0, now)
    for view_at in range(now, now + 8 * MINUTE_MS, MINUTE_MS):
        reported(view, "c", 10.0, view_at)
    assert known(view, now + 8 * MINUTE_MS) < 25.0


@pytest.mark.parametrize("gone", ["leaves", "restored"])
def test_a_broker_of_which_nothing_is_known(gone: str) -> None:
    """Nothing counts again of one that left, or whose averages are given."""
    view, now = a_step(), 10 * MINUTE_MS
    if gone == "leaves":
        view.gone("b", now)
    else:
        view.restore({BUNDLE: view.bundle_data[BUNDLE]}, now)
    before = view.bundle_data.quick_of(BUNDLE)
    assert known(view, now + 10 * MINUTE_MS) == before


def test_a_step_that_lasts_is_balanced() -> None:
    """Brokers report what changes by a tenth, or each quarter of an hour, as Pulsar's do."""
    view, memories = ClusterView(), Memories()
    owner = {f"t/n{at % 4}/0x{at:08x}_0x{at + 1:08x}": at % 4 for at in range(48)}
    before: dict[int, float] = {}
    fields: dict[str, Any] = {}
    for minute in range(60):
        for number in range(4):
            bundles = [bundle for bundle, it in owner.items() if it == number]
            times = 4.0 if minute >= 30 else 1.0
            load = {it: 1e6 * (times if owner[it] == 0 and minute >= 30 else 1.0) for it in bundles}
            total = sum(load.values())
            if minute and abs(total - before[number]) <= 0.1 * before[number] and minute % 15:
                continue
            before[number] = total
            stats = {
                it: NamespaceBundleStats(msg_throughput_in=each, msg_rate_in=100.0)
                for it, each in load.items()
            }
            fields = {"cpu": 100 * total / 8e7, "last_update": minute * MINUTE_MS}
            view.observe(f"b{number}", a_report(stats, **fields), minute * MINUTE_MS)
        snapshot = without_policies(view, SETTINGS, minute * MINUTE_MS)
        plan, memories = cycle.shed(snapshot, SETTINGS, memories)
        if minute < 30:
            assert not plan.unloads
        elif plan.unloads:
            assert all(move.source == "b0" for move in plan.unloads)
            assert minute <= 33
            return
    pytest.fail("nothing moved")
