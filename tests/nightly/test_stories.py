"""The report tells the stories of made-up days, and no others: `python -m bench stories` prints the
table of docs/explanation/report-stories.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench._other_days import DAYS, OtherDay
from bench._stories import STORIES, Report, Story, judge, tell
from loadmanager.nightly.in_process import InProcess

QUIET = next(story for story in STORIES if story.name == "quiet")
TITLED = [story for story in STORIES if story.title]


@pytest.fixture(scope="module")
def report_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Story], Report]:
    """Tells a story, once."""
    folder = tmp_path_factory.mktemp("stories")
    engine = InProcess()
    pasts: dict[Any, Path] = {}
    reports: dict[str, Report] = {}

    def tell_once(story: Story) -> Report:
        if story.name not in reports:
            reports[story.name] = tell(story, engine, folder, pasts)
        return reports[story.name]

    return tell_once


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_the_report_tells_it_and_nothing_else(
    story: Story, report_of: Callable[[Story], Report]
) -> None:
    """Who was hurt, for how long, by what, what to do; and no card that is not so."""
    report = report_of(story)
    assert judge(story, report) == ("told", []), report["findings"]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_its_cards_have_five_facts(story: Story, report_of: Callable[[Story], Report]) -> None:
    """In words."""
    for card in report_of(story)["findings"]:
        facts = [card[name] for name in ("hurt", "title", "text", "advice", "certainty")]
        assert all(isinstance(fact, str) and fact.strip() for fact in facts), card


def test_a_slow_broker_hurt_the_tenants_that_it_had(
    report_of: Callable[[Story], Report],
) -> None:
    """With their share of its traffic, and for how long; here, all namespaces are of one tenant."""
    story = next(story for story in STORIES if story.name == "slow-broker")
    (card,) = [card for card in report_of(story)["findings"] if "slow" in card["question"]]
    assert re.match(r"namespaces? \S+ \(\d+% of its traffic, for \d+\.\d hours\)", card["hurt"])


@pytest.mark.parametrize("story", TITLED, ids=lambda story: story.name)
def test_a_quiet_day_is_without_it(story: Story, report_of: Callable[[Story], Report]) -> None:
    """No card of it, nor an effect that says so."""
    assert judge(story, report_of(QUIET))[0] == "missed"


@pytest.mark.parametrize("day", DAYS, ids=lambda day: day.name)
def test_days_of_another_generator(day: OtherDay, tmp_path: Path) -> None:
    """Each of their stories is told, and no card is false."""
    lived = Story(name=day.name, about=day.name, make=day.make, past=day.past)
    report = tell(lived, InProcess(), tmp_path, {})
    verdicts, false = day.judged(report)
    assert (set(verdicts.values()) - {"told"}, false) == (set(), []), report["findings"]
