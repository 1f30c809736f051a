"""Which clients of a lost broker are counted as back, and how long they waited."""

from __future__ import annotations

import pytest

from loadmanager.leader.ports.mover import ClientsBack
from loadmanager.leader.returning import Awaited, Waited, newcomers

LATE_MS = 10_000


def counted(clients: int, *answers: ClientsBack, earlier: int = 0) -> Waited:
    """What was counted after these answers of one owner, of so many clients."""
    item = Awaited(clients, came=Waited(back=earlier), earlier=earlier)
    for answer in answers:
        item.came.add(newcomers(item, answer, LATE_MS))
        item.asked_ms = answer.served_ms or 0.0
    return item.came


def answer(served_ms: float, *returned_ms: float) -> ClientsBack:
    """Those that are there when the bundle has been served for so long."""
    return ClientsBack(len(returned_ms), returned_ms, 0, served_ms)


def test_one_that_came_and_left_by_itself_was_back() -> None:
    """Nobody waits for it, and its later visit is nobody's wait."""
    first, left = answer(1_000, 200, 300, 400), answer(3_000, 200, 300)
    assert counted(4, first, left) == Waited(3, 3, 30_900, 10_400)
    last = answer(9_000, 200, 300, 8_000)
    assert counted(4, first, left, last) == Waited(4, 4, 48_900, 18_000)
    both = answer(17_000, 200, 300, 8_000, 16_000)
    assert counted(4, first, left, both) == Waited(4, 4, 48_900, 18_000)


def test_clients_that_are_new_are_not_more_than_were_lost() -> None:
    """They cannot be told from those that come back."""
    assert counted(2, answer(1_000, 100, 200, 300)) == Waited(2, 2, 20_500, 10_300)
    assert counted(2, answer(1_000, 100), answer(2_000, 100, 1_500, 1_600)).back == 2


def test_those_that_a_move_only_disturbed_again() -> None:
    """They were back at the owner before; the last of more than came there is the missing one."""
    some, more = answer(1_000, 100, 200), answer(5_000, 100, 200, 4_000)
    assert counted(3, some, earlier=2) == Waited(2)
    assert counted(3, some, more, earlier=2) == Waited(3, 1, 14_000, 14_000)


@pytest.mark.parametrize("served_ms", [None, 1_000.0])
def test_an_owner_that_does_not_tell_when_they_came(served_ms: float | None) -> None:
    """It counts them."""
    one, two = ClientsBack(1, (), 0, served_ms), ClientsBack(2, (), 0, served_ms)
    assert counted(2, one, one, two) == Waited(2)
