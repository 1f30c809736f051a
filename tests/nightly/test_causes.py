"""Cards: the worst first, and the headline tells of it."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import cast

from loadmanager.nightly import causes
from loadmanager.nightly.day import Day, Finding
from loadmanager.nightly.job import _the_worst


def test_the_headline_is_a_finding() -> None:
    """Not the card that names the others, though it is as important, and its title comes first."""
    crashes = [
        Finding(
            importance=90,
            question="outages",
            title=f"b{number} crashed",
            text="x",
            advice="x",
            hurt="nobody",
            numbers={},
        )
        for number in range(9)
    ]
    found = _the_worst(cast("ModuleType", SimpleNamespace(NAME="outages")), crashes)
    cards = causes.joined(found, cast("Day", SimpleNamespace(answers={})))
    assert [card.title for card in cards][-1] == "And 4 more like these: outages"
    assert causes.headline(cards, [], []).startswith("Not a good day: b0 crashed.")


def test_an_overload_after_a_crash_is_its_effect() -> None:
    """Of a broker that got bundles of the lost one, and soon: later overloads are their own."""
    crash = Finding(
        importance=90, question="outages", title="b0 crashed", text="x", advice="x", hurt="nobody"
    )
    crash = replace(crash, explains=["outage b0 1000000"])
    busy = Finding(
        importance=70,
        question="broker_usage",
        title="b1 was busy",
        text="x",
        advice="x",
        hurt="nobody",
    )
    after = {"source": "b0", "destination": "b1", "forced": True, "ts": 1_006_000}
    answers = {
        "outages": [{"broker": "b0", "ts": 1_000_000}],
        "moves": [after],
        "hot_bundles": [],
    }
    facts = SimpleNamespace(bundles=SimpleNamespace(to_pylist=list))
    day = cast("Day", SimpleNamespace(answers=answers, facts=facts))
    for at_ms, where, cards in ((1_200_000, "b1", 1), (9_000_000, "b1", 2), (1_200_000, "b2", 2)):
        overload = replace(busy, at_ms=at_ms, where=where)
        assert len(causes.joined([crash, overload], day)) == cards


def test_uneven_load_is_an_effect_of_the_busiest_brokers_slowness() -> None:
    """What makes the busiest broker busy makes the load uneven."""
    slow = Finding(
        importance=52,
        question="slow_brokers",
        title="b0 is slow",
        text="x",
        advice="x",
        hurt="nobody",
    )
    slow = replace(slow, explains=["slow b0"])
    uneven = Finding(
        importance=35, question="imbalance", title="uneven", text="x", advice="x", hurt="nobody"
    )
    facts = SimpleNamespace(bundles=SimpleNamespace(to_pylist=list))
    for busiest, cards in (("b0", 1), ("b1", 2)):
        usage = [{"broker": busiest, "hours_over": 1.0, "mean": 0.5}]
        answers = {"broker_usage": usage, "hot_bundles": []}
        day = cast("Day", SimpleNamespace(answers=answers, facts=facts))
        assert len(causes.joined([slow, uneven], day)) == cards


def test_a_cause_that_nobody_can_look_up_costs_no_card() -> None:
    """The loads of bundles could not be summed up: that question says why."""
    busy = Finding(
        importance=70,
        question="broker_usage",
        title="b0 was busy",
        text="x",
        advice="x",
        hurt="nobody",
    )
    assert causes.joined([busy], cast("Day", SimpleNamespace(answers={}))) == [busy]
