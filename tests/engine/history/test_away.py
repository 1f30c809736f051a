"""How long a bundle had no owner that served it."""

from __future__ import annotations

from typing import Any

from loadmanager.engine.history.away import Away, away_of
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import OwnershipStep

PARENT, CHILD = "t/n/0x00000000_0xffffffff", "t/n/0x00000000_0x80000000"
ALL = (0, 100_000)


def step(ts: int, broker: str, before: str, after: str, **more: Any) -> OwnershipStep:
    """One of the bundle."""
    fields = {"bundle": PARENT, "reason": "", **more}
    return OwnershipStep(ts=ts, broker=broker, before=before, after=after, **fields)


def gains(ts: int, broker: str, **more: Any) -> OwnershipStep:
    """A broker has it."""
    return step(ts, broker, "Opening", "Owned", **more)


def member(ts: int, of: str, event: str, **more: Any) -> MemberChange:
    """A record of a broker."""
    return MemberChange(ts=ts, broker="leader", of=of, event=event, **more)


def gaps(away: Away) -> list[tuple[int, int, int]]:
    """Begin, end, and how much earlier it may have begun."""
    return [(it.begin, it.end, it.earlier_ms) for it in away.gaps]


def test_a_move_is_measured_by_the_clock_of_its_source() -> None:
    """From the fence to the acquisition by the destination, whose clock may be another."""
    steps = [
        gains(1_000, "a"),
        step(5_000, "a", "Owned", "Releasing", destination="b"),
        gains(4_800, "b"),
        step(5_250, "a", "Releasing", "Free", destination="b", pause_ms=200.0),
    ]
    away = away_of(steps, [], [], ALL)
    assert (away.since_ms, gaps(away), away.unknown) == (1_000, [(5_000, 5_200, 0)], 0)


def test_a_loss_begins_within_its_last_signs() -> None:
    """Also where the leader records it after the next owner has come, or together with the return;
    what was asked for bounds it.
    """
    steps = [gains(1_000, "a"), gains(9_000, "b")]
    lost = member(8_000, "a", "left", how="lost", unheard_ms=6_000)
    assert gaps(away_of(steps, [lost], [], ALL)) == [(8_000, 9_000, 6_000)]
    assert gaps(away_of(steps, [lost], [], (7_500, 50_000))) == [(8_000, 9_000, 500)]
    late = member(9_900, "a", "left", how="lost", unheard_ms=6_000)
    back = member(9_910, "a", "back", took_ms=1_410, same_process=False)
    again = [gains(1_000, "a"), gains(9_000, "a")]
    assert gaps(away_of(again, [late, back], [], ALL)) == [(8_500, 9_000, 6_000)]
    unneeded = member(30_000, "b", "left", how="stopped")
    (first, second) = away_of(steps, [lost, unneeded], [], ALL).gaps
    assert (first.least_ms, first.most_ms, first.lasts) == (1_000, 7_000, False)
    assert (second.begin, second.end, second.lasts) == (30_000, 100_000, True)


def test_an_owner_that_stood_still_served_nobody() -> None:
    """Until it went on, or until another one had the bundle; then both times are one."""
    frozen = member(20_000, "a", "stood", took_ms=5_000)
    assert gaps(away_of([gains(1_000, "a")], [frozen], [], ALL)) == [(15_000, 20_000, 0)]
    lost = member(18_000, "a", "left", how="lost", unheard_ms=6_000)
    steps = [
        gains(1_000, "a"),
        gains(18_500, "b"),
        step(20_000, "a", "Owned", "Free", cause="loss"),
    ]
    assert gaps(away_of(steps, [lost, frozen], [], ALL)) == [(15_000, 18_500, 0)]
    assert gaps(away_of([gains(16_000, "a")], [frozen], [], ALL)) == []


def test_what_is_not_recorded_is_said() -> None:
    """A broker that ended without a word when nobody led; unless the whole cluster was down."""
    steps = [gains(1_000, "a"), gains(9_000, "b")]
    away = away_of(steps, [], [], ALL)
    assert (gaps(away), away.unknown) == ([], 1)
    away = away_of(steps, [], [(3_000, 8_500)], ALL)
    assert (gaps(away), away.unknown) == ([(3_000, 9_000, 0)], 0)
    assert away_of([], [], [], ALL).since_ms is None


def test_a_crash_of_all_ended_an_owner_within_its_last_sign() -> None:
    """It served after its last sign, for as long as one that lives may be silent: so much shorter
    the time without an owner may be. One that had stopped in order did not.
    """
    steps, down = [gains(1_000, "a"), gains(20_000, "b")], [(5_000, 19_000)]
    crash = [("a", 15_000, 11_000)]
    assert gaps(away_of(steps, [], down, ALL, crash)) == [(15_000, 20_000, 11_000)]
    assert gaps(away_of(steps, [], down, ALL, [("c", 15_000, 11_000)])) == [(5_000, 20_000, 0)]
    stopped = step(4_000, "a", "Owned", "Free", cause="stop")
    assert gaps(away_of([*steps, stopped], [], down, ALL, crash)) == [(4_000, 20_000, 0)]


def test_a_split_interrupts_nothing() -> None:
    """The children are owned in the transaction that ends the parent."""
    steps = [
        gains(1_000, "a"),
        step(4_000, "a", "Owned", "Splitting", cause="split"),
        step(5_000, "a", "Free", "Owned", bundle=CHILD, parent=PARENT),
        step(5_001, "a", "Splitting", "Free", cause="split"),
    ]
    away = away_of(steps, [], [], ALL)
    assert (gaps(away), away.unknown) == ([], 0)
