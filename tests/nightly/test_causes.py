"""Cards: the worst first, and the headline tells of it."""

from __future__ import annotations

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
            text="",
            advice="",
            numbers={},
        )
        for number in range(9)
    ]
    found = _the_worst(cast("ModuleType", SimpleNamespace(NAME="outages")), crashes)
    cards = causes.joined(found, cast("Day", SimpleNamespace(answers={})))
    assert [card.title for card in cards][-1] == "And 4 more like these: outages"
    assert causes.headline(cards, [], []).startswith("Not a good day: b0 crashed.")


def test_a_cause_that_nobody_can_look_up_costs_no_card() -> None:
    """The loads of bundles could not be summed up: that question says why."""
    busy = Finding(importance=70, question="broker_usage", title="b0 was busy", text="", advice="")
    assert causes.joined([busy], cast("Day", SimpleNamespace(answers={}))) == [busy]
