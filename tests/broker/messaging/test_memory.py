"""Shares of the memory of all topics: whoever holds most is the first to wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadmanager.broker.messaging.memory import SHARE_OF_FREE, TopicMemory

LIMIT = 1_000_000


def fill(memory: TopicMemory, names: list[str], step: int = 100) -> dict[str, int]:
    """Let namespaces take memory in turns, until none of them gets any more; what each has."""
    parts = {name: memory.part(name) for name in names}
    going = True
    while going:
        going = False
        for part in parts.values():
            if not part.full:
                part.add(step)
                going = True
    return {name: part.used_bytes for name, part in parts.items()}


def test_a_namespace_alone_leaves_a_quarter() -> None:
    """So that there is something for whoever comes."""
    memory = TopicMemory(LIMIT)
    held = fill(memory, ["a"])
    assert abs(held["a"] - LIMIT * SHARE_OF_FREE / (SHARE_OF_FREE + 1)) <= 200


@given(st.integers(2, 8))
def test_those_who_want_all_get_the_same(count: int) -> None:
    """And something is left."""
    memory = TopicMemory(LIMIT)
    held = fill(memory, [f"n{index}" for index in range(count)])
    assert max(held.values()) - min(held.values()) <= 200
    assert memory.used_bytes < LIMIT


def test_who_comes_late_gets_something_and_then_its_share() -> None:
    """One namespace has taken all that it may. Another one may take most of what is left; the first
    one takes nothing more until it holds as little as the other, and then both share.
    """
    memory = TopicMemory(LIMIT)
    greedy, late = memory.part("greedy"), memory.part("late")
    fill(memory, ["greedy"])
    assert fill(memory, ["late"])["late"] > LIMIT // 8
    assert greedy.full
    while greedy.used_bytes > late.used_bytes:
        greedy.add(-1_000)  # its consumers catch up
        if not late.full:
            late.add(100)
    assert not greedy.full or not late.full
    assert memory.used_bytes == greedy.used_bytes + late.used_bytes


def test_a_small_namespace_is_taken_in_at_any_time() -> None:
    """Whatever the others hold, unless they are many."""
    memory = TopicMemory(LIMIT)
    parts = [memory.part(f"n{index}") for index in range(4)]
    for part in parts:
        while not part.full:
            part.add(100)
    assert not memory.part("small").full
