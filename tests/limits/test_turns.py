"""Turns on the event loop: fair by time, without idle time, bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadmanager.limits.turns import ALONE_NS, STEP_NS, TURN_NS, Share, Turns

costs = st.integers(min_value=1_000, max_value=20 * TURN_NS)


class Loop:
    """An event loop with parties that always have something to do, each piece of which takes as
    long as it says; `served` is the time of each.
    """

    def __init__(self, pieces_ns: list[int]) -> None:
        self.turns: Turns[int] = Turns()
        self.shares: list[Share[int]] = [Share() for _ in pieces_ns]
        self.pieces_ns = pieces_ns
        self.served = [0] * len(pieces_ns)
        self.now_ns = 0
        for number, share in enumerate(self.shares):
            self.turns.wait(share, number)

    def step(self) -> int:
        """Run the next piece; returns whose it was."""
        number = self.turns.take()
        if number is None:
            self.turns.next_round()
            number = self.turns.take()
        assert number is not None, "the loop is idle while somebody waits"
        self.work(number)
        self.turns.wait(self.shares[number], number)
        return number

    def work(self, number: int) -> None:
        """A piece of work."""
        took_ns = self.pieces_ns[number]
        self.now_ns += took_ns
        self.served[number] += took_ns
        self.turns.charge(self.shares[number], took_ns - STEP_NS, self.now_ns)


@given(st.lists(costs, min_size=2, max_size=6))
def test_all_get_the_same_time(pieces_ns: list[int]) -> None:
    """Whatever their pieces take; they differ by a turn and the pieces that cannot be divided."""
    loop = Loop(pieces_ns)
    for _ in range(400):
        loop.step()
    longest_ns = max(pieces_ns)
    assert max(loop.served) - min(loop.served) <= 3 * (TURN_NS + longest_ns)


@given(st.lists(costs, min_size=1, max_size=8))
def test_whoever_uses_little_waits_for_nobody(pieces_ns: list[int]) -> None:
    """While others use all that they get, a party that has used less than its turn since the last
    round may run at once.
    """
    loop = Loop(pieces_ns)
    light: Share[int] = Share()
    for _ in range(100):
        for _ in range(2 * len(pieces_ns)):
            loop.step()
        loop.turns.next_round()
        assert loop.turns.may_run(light)
        loop.turns.charge(light, TURN_NS // 2, loop.now_ns)
        assert loop.turns.may_run(light)


def test_a_party_that_is_alone_has_the_whole_loop() -> None:
    """It never has to wait, and its turns become longer; they are short again when another one
    comes.
    """
    turns: Turns[int] = Turns()
    alone, other = Share[int](), Share[int]()
    now_ns = 0
    for _ in range(1000):
        if not turns.may_run(alone):
            turns.next_round()
        assert turns.may_run(alone)
        now_ns += turns.allowance_ns(alone, now_ns)
        turns.charge(alone, TURN_NS, now_ns)
    assert now_ns > ALONE_NS
    assert turns.allowance_ns(alone, now_ns) > TURN_NS
    assert turns.may_run(other)
    turns.charge(other, 1_000, now_ns)
    turns.next_round()
    assert turns.may_run(alone)
    assert turns.allowance_ns(alone, now_ns) == TURN_NS


def test_what_a_party_owes_is_paid_in_rounds() -> None:
    """Ten turns of work at once keep it from ten rounds, in which the other one works."""
    turns: Turns[str] = Turns()
    heavy, steady = Share[str](), Share[str]()
    assert turns.may_run(heavy)
    turns.charge(heavy, 10 * TURN_NS, 0)
    turns.wait(heavy, "heavy")
    worked = 0
    while True:
        turns.wait(steady, "steady")
        taken = turns.take()
        if taken is None:
            turns.next_round()
            taken = turns.take()
        if taken == "heavy":
            break
        worked += 1
        turns.charge(steady, TURN_NS - STEP_NS, 0)
    assert 9 <= worked <= 11


def test_within_a_party_the_first_comes_first() -> None:
    """Work that waits is not overtaken by work of the same party that came later."""
    turns: Turns[int] = Turns()
    share = Share[int]()
    for number in range(5):
        turns.wait(share, number)
    turns.next_round()
    assert not turns.may_run(share), "others of its own wait before it"
    assert [turns.take() for _ in range(5)] == [0, 1, 2, 3, 4]
    assert turns.may_run(share)
