"""Tenures, with crashes, clocks and midnights."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmanager.engine.history.outages import Evidence, Silence, outages, silences
from loadmanager.engine.history.tenures import (
    Step,
    Tenure,
    add_owners,
    changes,
    clocks_of,
    corrections,
    ordered,
    pause_ms,
    tenures_of,
)

MINUTE = 60_000
Tracks = dict[str, list[tuple[int, int, int]]]


def taken(ts: int, broker: str, bundle: str, life: int | None = None) -> list[Step]:
    """A broker comes to own a bundle."""
    return [
        Step(ts - 1, broker, bundle, "Free", "Assigning"),
        Step(ts, broker, bundle, "Opening", "Owned", life=life),
    ]


def given_up(
    ts: int, broker: str, bundle: str, to: str | None, *, took: int = 10, cause: str = "leader"
) -> list[Step]:
    """A broker hands a bundle over; `took` ms by its own clock."""
    common = {"reason": "shed", "cause": cause, "destination": to}
    return [
        Step(ts, broker, bundle, "Owned", "Releasing", **common),
        Step(ts + took, broker, bundle, "Releasing", "Free", pause_ms=float(took), **common),
    ]


def spans(brokers: dict[str, list[tuple[int, int]]]) -> Tracks:
    """Stretches of minutes in which brokers recorded their loads."""
    return {
        broker: [(a * MINUTE, b * MINUTE, MINUTE) for a, b in parts]
        for broker, parts in brokers.items()
    }


def test_a_crash_is_seen_although_nobody_recorded_the_ownership() -> None:
    """b0 owned two bundles since before the day; only their loads tell. It dies at minute 100."""
    steps = taken(102 * MINUTE, "b1", "t/n/x")
    found = add_owners(
        tenures_of(steps), {"t/n/x": ("b0", 0), "t/n/idle": ("b0", 0), "t/n/other": ("b1", 0)}
    )
    owners = ordered(found, {})
    silent = silences(spans({"b0": [(0, 100)], "b1": [(0, 500)]}), 0, 500 * MINUTE)
    (outage,) = outages(silent, owners, {})
    assert (outage.broker, outage.how, outage.at_ms) == ("b0", "crash", 100 * MINUTE)
    assert outage.back_ms is None
    lasted = {one.bundle: one.lasted_ms for one in outage.bundles}
    assert lasted == {"t/n/x": 2 * MINUTE, "t/n/idle": None}
    assert [one.next for one in outage.bundles if one.bundle == "t/n/x"] == ["b1"]


def test_a_stop_is_no_crash() -> None:
    """b0 gives its bundle up and goes."""
    steps = [
        *given_up(100 * MINUTE, "b0", "t/n/x", None, cause="stop"),
        *taken(100 * MINUTE + 500, "b1", "t/n/x"),
    ]
    owners = ordered(tenures_of(sorted(steps)), {})
    silent = silences(spans({"b0": [(0, 100), (110, 500)], "b1": [(0, 500)]}), 0, 500 * MINUTE)
    (outage,) = outages(silent, owners, {})
    assert (outage.how, outage.back_ms) == ("stop", 110 * MINUTE)
    assert [one.lasted_ms for one in outage.bundles] == [490]


def test_a_broker_whose_disk_was_full_did_not_crash() -> None:
    """It recorded nothing for a while, and kept its bundle."""
    owners = ordered(add_owners([], {"t/n/x": ("b0", 0)}), {})
    silent = silences(spans({"b0": [(0, 100), (110, 500)], "b1": [(0, 500)]}), 0, 500 * MINUTE)
    (outage,) = outages(silent, owners, {})
    assert (outage.how, outage.bundles) == ("silent", [])


def test_a_broker_without_bundles_that_is_gone_did_not_crash() -> None:
    """It was drained before it was stopped, say; one that had bundles did."""
    steps = [*given_up(500_000, "b0", "t/n/x", "b1"), *taken(500_010, "b1", "t/n/x")]
    silent = silences(spans({"b0": [(0, 10)], "b1": [(0, 60)]}), 0, 60 * MINUTE)
    (outage,) = outages(silent, ordered(tenures_of(steps), {}), {})
    assert (outage.how, outage.back_ms, outage.bundles) == ("silent", None, [])
    (outage,) = outages(silent, ordered([Tenure(bundle="t/n/x", broker="b0")], {}), {})
    assert (outage.how, len(outage.bundles)) == ("crash", 1)


def test_a_stop_needs_no_silence() -> None:
    """A broker that restarts in less than three intervals stopped, too; it is back with its first
    sample, or not at all.
    """
    steps = [*given_up(600_000, "b0", "t/n/x", None, cause="stop"), *taken(602_010, "b1", "t/n/x")]
    of_bundles = ordered(tenures_of(steps), {})
    (outage,) = outages([], of_bundles, {}, Evidence(restarted=[Silence("b0", 590_000, 650_000)]))
    assert (outage.how, outage.at_ms, outage.back_ms) == ("stop", 600_010, 650_000)
    assert [one.lasted_ms for one in outage.bundles] == [2_000]
    (outage,) = outages([], of_bundles, {})
    assert (outage.how, outage.back_ms) == ("stop", None)


def test_a_session_that_expired_needs_no_silence() -> None:
    """Owned → Free for the loss of the session."""
    steps = [
        Step(50 * MINUTE, "b0", "t/n/x", "Owned", "Free", "session lost", "loss"),
        *taken(50 * MINUTE + 3000, "b1", "t/n/x"),
    ]
    (outage,) = outages([], ordered(tenures_of(steps), {}), {})
    assert (outage.how, outage.bundles[0].lasted_ms) == ("session lost", 3000)


@pytest.mark.parametrize("minutes", [1.5, 4, 40])
def test_a_broker_that_was_paused_lost_its_bundle_before_it_knew(minutes: float) -> None:
    """b0 records its load each 20 s, and last at 50:00. b1 takes the bundle 40 s later. When b0
    goes on, it finds its session gone, and records that before or after its load.
    """
    paused, back = 50 * MINUTE, 50 * MINUTE + round(minutes * MINUTE)
    for found_ms in (back - 5, back + 5):
        steps = [
            *taken(MINUTE, "b0", "t/n/x", life=1),
            Step(found_ms, "b0", "t/n/x", "Owned", "Free", "session lost", "loss", life=1),
            *taken(paused + 40_000, "b1", "t/n/x", life=2),
        ]
        owners = ordered(tenures_of(sorted(steps)), {})
        samples = {"b0": [(0, paused, 20_000), (back, 500 * MINUTE, 20_000)]}
        silent = silences(samples, 0, 500 * MINUTE)
        stalls = [Silence("b0", paused - 20_000, paused), Silence("b0", paused, back)]
        (outage,) = outages(silent, owners, {}, Evidence(stalled=stalls))
        assert (outage.how, outage.at_ms) == ("session lost", paused)
        assert [one.lasted_ms for one in outage.bundles] == [40_000]


def test_a_broker_that_restarts_at_once_left_its_bundles_without_an_owner() -> None:
    """b0 records its load each minute, and last at 50:00. Its next process starts at 50:20, when
    the store still holds the old claims. At 50:30 b1 takes one bundle, and b0 the other again.
    """
    crashed, back, free = 50 * MINUTE, 50 * MINUTE + 20_000, 50 * MINUTE + 30_000
    steps = [
        *taken(MINUTE, "b0", "t/n/x", life=1),
        *taken(crashed + 5_000, "b0", "t/n/y", life=2),
        *taken(free, "b1", "t/n/x", life=3),
        *taken(free, "b0", "t/n/y", life=4),
        Step(70 * MINUTE, "b0", "t/n/y", "Owned", "Free", "session lost", "loss", life=4),
        *taken(70 * MINUTE + 3000, "b1", "t/n/y", life=5),
    ]
    owners = ordered(tenures_of(sorted(steps)), {})
    crash, lost = outages([], owners, {}, Evidence(restarted=[Silence("b0", crashed, back)]))
    assert (crash.how, crash.at_ms, crash.back_ms) == ("crash", crashed, back)
    lasted = {one.bundle: one.lasted_ms for one in crash.bundles}
    assert lasted == {"t/n/x": 30_000, "t/n/y": 25_000}
    assert (lost.how, lost.at_ms) == ("session lost", 70 * MINUTE)


def test_a_session_that_was_lost_before_a_crash_is_an_outage_of_its_own() -> None:
    """b0 loses its session, has its bundle again, and crashes three minutes later."""
    lost, crashed = 97 * MINUTE, 100 * MINUTE
    steps = [
        *taken(MINUTE, "b0", "t/n/x", life=1),
        Step(lost, "b0", "t/n/x", "Owned", "Free", "session lost", "loss", life=1),
        *taken(lost + 3_000, "b0", "t/n/x", life=2),
        *taken(crashed + 6_000, "b1", "t/n/x", life=3),
    ]
    silent = silences(spans({"b0": [(0, 100)], "b1": [(0, 500)]}), 0, 500 * MINUTE)
    found = outages(silent, ordered(tenures_of(steps), {}), {})
    assert [(it.how, it.at_ms, it.bundles[0].lasted_ms) for it in found] == [
        ("session lost", lost, 3_000),
        ("crash", crashed, 6_000),
    ]


def test_a_clock_that_is_ahead_is_measured_and_hides_no_move() -> None:
    """b0's clock is 90 s ahead: its hand-overs to and from b1 and b2 are told with their pauses."""
    ahead, steps = 90_000, []
    for number, other in enumerate(("b1", "b2", "b1")):
        at = (number + 1) * 10 * MINUTE
        bundle = f"t/n/{number}"
        steps += [*given_up(at + ahead, "b0", bundle, other), *taken(at + 5, other, bundle)]
        steps += [
            *given_up(at + MINUTE, other, bundle, "b0"),
            *taken(at + MINUTE + 5 + ahead, "b0", bundle),
        ]
    found = tenures_of(sorted(steps))
    clocks = corrections(clocks_of(found))
    assert list(clocks) == ["b0"]
    assert abs(clocks["b0"] - ahead) <= 10
    moves = changes(ordered(found, clocks))
    assert [(move.before.broker, move.after.broker) for move in moves] == [
        ("b0", "b1"),
        ("b1", "b0"),
        ("b0", "b2"),
        ("b2", "b0"),
        ("b0", "b1"),
        ("b1", "b0"),
    ]
    assert [pause_ms(move, clocks) for move in moves] == [10.0] * 6


def test_a_source_that_stalls_does_not_look_like_a_wrong_clock() -> None:
    """It records the end 3.4 s after the destination has the bundle."""
    steps = [
        *given_up(MINUTE, "b0", "t/n/x", "b1", took=8400),
        *taken(MINUTE + 5000, "b1", "t/n/x"),
    ]
    found = tenures_of(sorted(steps))
    assert corrections(clocks_of(found)) == {}
    (move,) = changes(ordered(found, {}))
    assert (move.before.cause, pause_ms(move, {})) == ("leader", 8400)


def test_lives_put_tenures_in_order_whatever_the_clocks_say() -> None:
    """b1's clock is an hour behind, and nothing else tells."""
    steps = [*taken(120 * MINUTE, "b0", "t/n/x", life=7), *taken(60 * MINUTE, "b1", "t/n/x", 9)]
    (of_bundle,) = ordered(tenures_of(sorted(steps)), {}).values()
    assert [tenure.broker for tenure in of_bundle] == ["b0", "b1"]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60_000)), min_size=1, max_size=12),
    st.lists(st.integers(-300_000, 300_000), min_size=3, max_size=3),
)
def test_hand_overs_are_told_whatever_the_clocks(
    hops: list[tuple[int, int]], offsets: list[int]
) -> None:
    """Each hand-over is one change, in order, with the source's own pause: lives order them."""
    now, owner, steps, life = 10**9, 0, [], 1
    steps += taken(now + offsets[0], "b0", "t/n/x", life)
    told = []
    for to, wait in hops:
        now += wait
        if to == owner:
            continue
        steps += given_up(now + offsets[owner], f"b{owner}", "t/n/x", f"b{to}")
        life += 1
        steps += taken(now + 5 + offsets[to], f"b{to}", "t/n/x", life)
        told.append((f"b{owner}", f"b{to}"))
        now, owner = now + 20, to
    by_broker = sorted(steps, key=lambda step: step.broker)  # each broker's in its own order
    moves = changes(ordered(tenures_of(by_broker), {}))
    assert [(move.before.broker, move.after.broker) for move in moves] == told
    assert all(pause_ms(move, {}) == 10.0 for move in moves)
    assert all(a.after is b.before for a, b in pairwise(moves))
