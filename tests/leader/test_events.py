"""Events and kept decisions are bounded, and nobody who listens slows the leader."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest

from loadmanager.kit.errors import OperationalError
from loadmanager.leader import decisions, events
from loadmanager.leader.decisions import Decisions
from loadmanager.leader.documents.decisions import DecisionShown
from loadmanager.leader.events import EventHub, EventQueue
from loadmanager.testing.cluster import LoopTime


def publish(hub: EventHub, *numbers: int) -> None:
    """Some events."""
    for number in numbers:
        hub.publish("x", partial(dict, {"n": number}))


async def taken(queue: EventQueue) -> list[tuple[str, Any]]:
    """The events that wait for a listener: ids or kinds, and data."""
    found: list[tuple[str, Any]] = []
    while True:
        try:
            async with asyncio.timeout(0):
                event = await queue.next()
        except TimeoutError:
            return found
        if event is None:
            return [*found, ("end", None)]
        found.append((event[0] or event[1], json.loads(event[2])))


async def test_a_listener_gets_what_comes() -> None:
    """In order, with ids of the term; after the end, nothing; who left, nothing."""
    hub = EventHub()
    hub.begin(7)
    one, other = hub.listen(None), hub.listen(None)
    publish(hub, 1, 2)
    hub.leave(other)
    hub.leave(other)
    publish(hub, 3)
    hub.end()
    assert await taken(one) == [
        ("7-1", {"n": 1}),
        ("7-2", {"n": 2}),
        ("7-3", {"n": 3}),
        ("end", None),
    ]
    assert [name for name, _ in await taken(other)] == ["7-1", "7-2"]


async def test_a_slow_listener_is_told_what_it_lost() -> None:
    """The oldest give way; others lose nothing."""
    hub = EventHub()
    slow = hub.listen(None)
    publish(hub, *range(events.QUEUE_MAX + 5))
    got = await taken(slow)
    assert got[0] == ("lost", {"lost": 5})
    assert len(got) == events.QUEUE_MAX + 1
    assert got[1][1] == {"n": 5}
    publish(hub, 1)
    assert len(await taken(slow)) == 1


@pytest.mark.parametrize(
    ("after", "expected"),
    [("3-2", ["3-3", "3-4"]), ("3-4", []), ("2-9", 4), ("3-99", 4), ("x", 4), ("", 4)],
)
async def test_who_comes_back_gets_what_it_missed(after: str, expected: Any) -> None:
    """From the last event on; everything that is kept, if that is of another term or unknown."""
    hub = EventHub()
    hub.begin(3)
    publish(hub, 1, 2, 3, 4)
    got = [name for name, _ in await taken(hub.listen(after))]
    assert (len(got) if isinstance(expected, int) else got) == expected


async def test_what_is_no_longer_kept_is_counted() -> None:
    """As lost."""
    hub = EventHub()
    hub.begin(1)
    publish(hub, *range(events.EVENTS_MAX + 10))
    got = await taken(hub.listen("1-4"))
    assert got[0] == ("lost", {"lost": 6})
    assert len(got) == events.EVENTS_MAX + 1


async def test_listeners_are_limited() -> None:
    """One more is refused until another leaves."""
    hub = EventHub()
    listeners = [hub.listen(None) for _ in range(events.LISTENERS_MAX)]
    with pytest.raises(OperationalError):
        hub.listen(None)
    hub.leave(listeners[0])
    hub.listen(None)


async def test_quiet_cycles_in_a_row_are_one_decision() -> None:
    """With the newest figures; another reason, kind or term begins a new one."""
    kept = Decisions(LoopTime())
    told: list[str] = []
    kept.listener = lambda decision: told.append(decision.id)
    for cycle, (same, epoch) in enumerate([("a", 1), ("a", 1), ("b", 1), ("a", 1), ("a", 2)]):
        kept.remember(
            "shed", partial(DecisionShown, error=str(cycle)), epoch=epoch, cycle=cycle, same=same
        )
        kept.remember("place", DecisionShown, epoch=epoch, cycle=cycle)
    cycles = [document for document in kept.last(100) if document.kind == "shed"]
    assert [(one.error, one.times or 1) for one in cycles] == [
        ("4", 1),
        ("3", 1),
        ("2", 1),
        ("1", 2),
    ]
    assert cycles[-1].first_at <= cycles[-1].ts
    assert len(kept.last(100)) == 9
    assert len(told) == 10


async def test_what_is_known_later_stands_where_it_happened() -> None:
    """A move whose clients were counted for a minute, among what was decided meanwhile."""
    time = LoopTime()
    kept, now = Decisions(time), time.now_ms()
    for at in (-60_000, None, -90_000, -60_000):
        at_ms = None if at is None else now + at
        kept.remember("x", DecisionShown, epoch=1, cycle=0, at_ms=at_ms)
    assert [(it.id, it.ts - now) for it in kept.last(10)] == [
        ("1-2", 0), ("1-4", -60_000), ("1-1", -60_000), ("1-3", -90_000),
    ]  # fmt: skip


async def test_kept_decisions_are_bounded_by_number_and_size() -> None:
    """The oldest go; a single one that is too large stays alone."""
    kept = Decisions(LoopTime())
    for number in range(decisions.DECISIONS_MAX + 5):
        kept.remember("x", partial(dict, n=number), epoch=1, cycle=0)
    assert len(kept.last(10_000)) == decisions.DECISIONS_MAX
    kept.remember("x", dict, epoch=1, cycle=0, weight=decisions.WEIGHT_MAX - 10)
    assert len(kept.last(10_000)) == 11
    kept.remember("x", dict, epoch=1, cycle=0, weight=2 * decisions.WEIGHT_MAX)
    assert len(kept.last(10_000)) == 1
    kept.remember("x", dict, epoch=1, cycle=0)
    assert len(kept.last(10_000)) == 1
