"""Each card says who was hurt, for how long, by what, what to do, and how certain that is: all
kinds of cards, wherever the code makes one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import loadmanager.nightly
from loadmanager.kit.units import HOUR_MS
from loadmanager.nightly import causes
from loadmanager.nightly.certainty import of_question
from loadmanager.nightly.day import Finding
from loadmanager.nightly.hurt import NOBODY, OnBrokers, clients_of, in_words
from loadmanager.nightly.job import QUESTIONS
from loadmanager.nightly.questions import calibration, tenant_costs

FOLDER = Path(loadmanager.nightly.__path__[0])
MODULES = sorted(FOLDER.rglob("*.py"))
WHOLE_DAY = {
    "hot_bundles": "its share of the day's bytes",
    "hot_topics": "its share of the day's bytes",
    "namespaces": "its boundaries were so all day",
    "slow_brokers": "the text has the days",
    "growth": "the text has the days",
    "capacity": "the text has the days until then",
    "calibration": "the replay of the whole day",
    "clocks": "the clock was off all day",
    "idle_brokers": "the title has the hours",
    "news": "the text compares days",
    "moves": "of costs: the moves of the day",
    "_the_worst": "the titles of the others, as the table has them",
}
"""Module, or function of the job, whose cards may lack a beginning → what says how long."""


def made(module: Path) -> Iterator[ast.Call]:
    """Where a module makes a card."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "Finding":
            yield node


KINDS = [
    pytest.param(module.stem, call, id=f"{module.stem}-{call.lineno}")
    for module in MODULES
    for call in made(module)
]


def test_there_are_kinds_of_cards() -> None:
    """Each question but three makes some."""
    asked = {question.NAME for question in QUESTIONS}
    silent = {"hourly", "tenants"}
    assert asked - silent <= {str(kind.values[0]) for kind in KINDS}


@pytest.mark.parametrize(("module", "call"), KINDS)
def test_no_kind_of_card_forgets_a_fact(module: str, call: ast.Call) -> None:
    """By name: title and text say by what, and the place that shows the time has one."""
    given = {keyword.arg for keyword in call.keywords}
    assert {"title", "text", "advice", "hurt", "question"} <= given
    name = "_the_worst" if module == "job" else module
    assert "at_ms" in given or name in WHOLE_DAY, "for how long?"


@pytest.mark.parametrize(
    "name", [*(each.NAME for each in QUESTIONS), calibration.NAME, tenant_costs.NAME]
)
def test_each_question_says_how_certain_it_is(name: str) -> None:
    """None has a certainty by default."""
    assert of_question(name)


@pytest.mark.parametrize("fact", ["title", "text", "advice", "hurt"])
def test_a_card_without_a_fact_is_none(fact: str) -> None:
    """Its question fails, which the report says; so does the first test that makes one."""
    facts: Any = dict.fromkeys(("title", "text", "advice", "hurt"), "x")
    with pytest.raises(ValueError, match=f"has no {fact}"):
        Finding(importance=1, question="moves", **{**facts, fact: ""})


def a_day(rows: list[tuple[str, str, float, int, int]]) -> Any:
    """Bundles with their broker, bytes, and first and last sample in hours; a sample each hour."""
    bundles = pa.table(
        {
            "bundle": [row[0] for row in rows],
            "broker": [row[1] for row in rows],
            "bytes": [row[2] for row in rows],
            "first_ts": [row[3] * HOUR_MS for row in rows],
            "last_ts": [row[4] * HOUR_MS for row in rows],
            "samples": [row[4] - row[3] + 1 for row in rows],
        }
    )
    steps = [{"broker": name, "interval_ms": 12 * HOUR_MS, "samples": 12} for name in ("b0", "b1")]
    facts = SimpleNamespace(bundles=bundles, brokers=steps)
    return SimpleNamespace(
        facts=facts, answers={"hot_bundles": []}, start_ms=0, until_ms=24 * HOUR_MS
    )


DAY = a_day(
    [
        ("acme/a/0x0_0x1", "b0", 60.0, 1, 24),
        ("acme/b/0x0_0x1", "b0", 15.0, 1, 24),
        ("late/a/0x0_0x1", "b0", 25.0, 20, 24),
        ("else/a/0x0_0x1", "b1", 1000.0, 1, 24),
    ]
)


def test_the_tenants_of_a_broker_are_named() -> None:
    """With their share of its traffic and for how long they had bundles there; no others."""
    slow = OnBrokers(["b0"], "served slowly")
    assert in_words(slow, DAY) == (
        "tenants acme (75% of its traffic, for 24.0 hours), late (25% of its traffic, for 5.0 "
        "hours), with bundles on b0: served slowly"
    )


def test_only_those_who_were_there_meanwhile() -> None:
    """And for no longer than that lasted; if all are of one tenant, by its namespaces."""
    busy = OnBrokers(["b0"], "too busy", 2 * HOUR_MS, 6 * HOUR_MS)
    assert in_words(busy, DAY) == (
        "namespaces acme/a (80% of its traffic, for 4.0 hours), acme/b (20% of its traffic, for "
        "4.0 hours), with bundles on b0: too busy"
    )


def test_a_broker_of_which_no_bundle_is_recorded() -> None:
    """Nobody is made up."""
    assert "no record names" in in_words(OnBrokers(["b2"], "too busy"), DAY)
    assert "no record names" in clients_of([], "no service")


def test_a_card_hurt_whom_its_effects_hurt() -> None:
    """Where what caused them hurt nobody by itself."""
    facts: Any = {"text": "x", "advice": "x"}
    cause = Finding(
        importance=36, question="news", title="a grew", hurt=f"{NOBODY} by itself", **facts
    )
    cause.explains = ["overload b0"]
    effect = Finding(
        importance=70, question="broker_usage", title="b0", hurt="tenant x", where="b0", **facts
    )
    effect.causes = ["overload b0"]
    bare: Any = SimpleNamespace(answers={})
    (card,) = causes.joined([cause, effect], bare)
    assert (card.title, card.hurt) == ("a grew", "tenant x")
