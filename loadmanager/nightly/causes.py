"""One cause, one card: findings that another finding explains become its effects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loadmanager.engine.history.lapses import CONSEQUENCE_MS
from loadmanager.nightly.day import Day, Finding, Row, clock, many
from loadmanager.nightly.facts import BUCKET_MS
from loadmanager.nightly.hurt import NOBODY, in_words
from loadmanager.nightly.questions import lapses

MOST_OF_BROKER = 0.5
"""A bundle that carries so much of its broker's traffic is why that broker is busy."""
SOON_MS = 900_000


def joined(findings: Sequence[Finding], day: Day) -> list[Finding]:
    """The cards, the most harmful first."""
    named = [
        replace(
            finding,
            causes=[*finding.causes, *_more_causes(finding, day)],
            hurt=in_words(finding.hurt, day),
        )
        for finding in findings
    ]
    order = sorted(named, key=_rank)
    explained = {key: finding for finding in reversed(order) for key in finding.explains}
    heads = {id(finding): _head(finding, explained) for finding in named}
    cards = []
    for finding in order:
        if heads[id(finding)] is not finding:
            continue
        effects = [other for other in order if other is not finding and heads[id(other)] is finding]
        cards.append(_card(finding, effects))
    return sorted(cards, key=_rank)


def _rank(finding: Finding) -> tuple[float, bool, str]:
    """The worst first; of equal ones that which tells of the others last."""
    return -finding.importance, "more" in finding.numbers, finding.title


def _head(finding: Finding, explained: dict[str, Finding]) -> Finding:
    """The finding at the end of the chain of causes."""
    visited = {id(finding)}
    while True:
        causes = (explained[key] for key in finding.causes if key in explained)
        cause = next((each for each in causes if id(each) not in visited), None)
        if cause is None:
            return finding
        visited.add(id(cause))
        finding = cause


def _card(head: Finding, effects: Sequence[Finding]) -> Finding:
    """A card is as important as the worst of its effects, and hurt whom that hurt if its own
    finding hurt nobody.
    """
    titles = [
        f"{effect.title}{f' (from {clock(effect.at_ms)})' if effect.at_ms is not None else ''}."
        for effect in effects
    ]
    worst = max([head.importance, *(effect.importance for effect in effects)])
    hurt = [finding.hurt for finding in (head, *effects) if not _nobody(finding)]
    return replace(head, importance=worst, effects=titles, hurt=(hurt or [head.hurt])[0])


def _nobody(finding: Finding) -> bool:
    return isinstance(finding.hurt, str) and finding.hurt.startswith(NOBODY)


def _more_causes(finding: Finding, day: Day) -> list[str]:
    """Causes that only a look at other tables tells."""
    if finding.question in ("broker_usage", "forecasts"):
        busy = [f"bundle {bundle}" for bundle in _busy_with(finding.where, day)]
        return [*_fled_to(finding, day), *busy]
    if finding.question == "imbalance":
        busiest = max(day.answers.get("broker_usage", []), key=_busy, default=None)
        if busiest is None:
            return []
        bundles = [f"bundle {bundle}" for bundle in _busy_with(busiest["broker"], day)]
        return [*bundles, *(f"{what} {busiest['broker']}" for what in ("overload", "slow"))]
    if finding.question == "outages":
        return _lapses_of(finding, day)
    if finding.question == "moves" and finding.at_ms is not None and finding.importance >= 60:
        return [
            f"outage {row['broker']} {row['ts']}"
            for row in day.answers.get("outages", [])
            if row["how"] in ("crash", "session lost") and 0 <= finding.at_ms - row["ts"] <= SOON_MS
        ]
    return []


def _lapses_of(finding: Finding, day: Day) -> list[str]:
    """The outages of the metadata store in which all brokers of a card lost their sessions."""
    lost = [
        row
        for row in day.answers.get("outages", ())
        if f"outage {row['broker']} {row['ts']}" in finding.explains
    ]
    return [
        lapses.key_of(lapse["ts"])
        for lapse in day.answers.get("lapses", ())
        if lapse["what"] == lapses.STORE
        and all(
            row["how"] == "session lost"
            and row["broker"] in lapse["brokers"]
            and lapse["ts"] <= row["ts"] <= lapse["until_ts"] + CONSEQUENCE_MS
            for row in lost
        )
    ]


def _fled_to(finding: Finding, day: Day) -> list[str]:
    """The lost or stopped brokers whose bundles a broker got just before it was overloaded."""
    if finding.question != "broker_usage" or finding.at_ms is None:
        return []
    got = {
        row["source"]: row["ts"]
        for row in day.answers.get("moves", ())
        if row["forced"]
        and row["destination"] == finding.where
        and -BUCKET_MS <= finding.at_ms - row["ts"] <= SOON_MS
    }
    return [
        f"outage {row['broker']} {row['ts']}"
        for row in day.answers.get("outages", ())
        if row["broker"] in got and 0 <= got[row["broker"]] - row["ts"] <= SOON_MS
    ]


def _busy(row: Row) -> tuple[float, float, str]:
    return row["hours_over"], row["mean"], row["broker"]


def _busy_with(broker: str, day: Day) -> list[str]:
    """The bundles that carry most of a broker's traffic."""
    if "hot_bundles" not in day.answers:
        return []  # that question failed, and said why
    totals: list[Row] = [row for row in day.facts.bundles.to_pylist() if row["broker"] == broker]
    everything = sum(row["bytes"] for row in totals)
    return [row["bundle"] for row in totals if row["bytes"] > MOST_OF_BROKER * everything]


def headline(cards: Sequence[Finding], failed: Sequence[str], problems: Sequence[str]) -> str:
    """One sentence that says whether the night was fine."""
    serious = [card for card in cards if card.importance >= 60]
    notable = [card for card in cards if 35 <= card.importance < 60]
    if serious:
        text = f"Not a good day: {serious[0].title}."
        text += (
            f" {many(len(serious) - 1, 'more matter')} hurt clients or brokers."
            if len(serious) > 1
            else ""
        )
    elif notable:
        text = f"Nobody was hurt. Worth a look: {notable[0].title}."
    else:
        text = "A quiet day: nothing that needs you."
    if failed:
        text += f" {many(len(failed), 'question')} could not be answered."
    elif problems:
        text += " Part of the history could not be read."
    return text
