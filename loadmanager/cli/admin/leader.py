"""`loadmanager admin decisions` and `dry-run`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from typing import Any

import click
from msgspec import UNSET

from loadmanager.cli.admin.asking import OWN, count_of, query
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminCommand, Output, pair
from loadmanager.cli.admin.moves import Moment, clock, text_of, time_of_day
from loadmanager.engine.strategies.plan_document import PlanShown, figure, plan_lines
from loadmanager.leader.documents.decisions import DecisionShown, DecisionsShown
from loadmanager.leader.documents.plans import SealedPlan

LINE = 98
"""Characters of a line."""


@click.command(cls=AdminCommand)
@click.option("--bundle", metavar="TENANT/NAMESPACE/RANGE", help="what concerns this bundle")
@click.option("--broker", metavar="BROKER", help="what concerns this broker, host:port")
@click.option(
    "--since", type=Moment(), help="not before then: 2026-11-20T14:00Z, or 90s, 30m, 2h ago"
)
@click.option("--until", type=Moment(), help="not after then")
@click.option("--limit", default=20, metavar="N", help="at most N decisions")
def decisions(admin: AdminClient, limit: int, **wanted: str | int | None) -> Output:
    """Show the leader's last decisions with their reasons, newest first."""
    path = f"{OWN}/decisions{query(**wanted, limit=limit)}"
    answer, raw = admin.ask("GET", path, None, DecisionsShown)
    nothing = "no decision in this term yet"
    if any(value is not None for value in wanted.values()):
        nothing = "no decision of this term that is still kept matches"
    lines = [
        line
        for decision, fields in zip(answer.decisions, raw["decisions"], strict=True)
        for line in decision_lines(decision, fields)
    ]
    return Output(raw, lines or nothing, status=0 if lines else 1)


def decision_lines(decision: DecisionShown, fields: Mapping[str, Any]) -> list[str]:
    """A decision in lines: its time and kind, and below them, indented, the other fields, also
    those of a later version.
    """
    head = f"{clock(decision.ts)}  {decision.kind}"
    if decision.times is not UNSET and decision.first_at is not UNSET:
        head += f"  {decision.times} cycles in a row since {time_of_day(decision.first_at)}"
    others = [
        f"{words(name)} {shown(name, value)}"
        for name, value in fields.items()
        if name not in SHOWN_APART and not name.endswith("Count") and value not in EMPTY
    ]
    lines = [head, *(_wrapped("; ".join(others)) if others else [])]
    if decision.unloads is not UNSET:
        plan = PlanShown(
            strategy="",
            unloads=decision.unloads,
            placements=decision.placements or [],
            splits=decision.splits or [],
            skipped=decision.skipped or [],
        )
        lines += plan_lines(plan)
    return lines


def words(name: str) -> str:
    """The name of a field of JSON, as words."""
    return re.sub("[A-Z]", lambda letter: f" {letter[0].lower()}", name).replace("_", " ")


def shown(name: str, value: Any) -> str:
    """A field of JSON for people: times as such, no brackets."""
    if isinstance(value, dict):
        parts = (f"{words(key)} {shown(key, part)}" for key, part in value.items())
        return f"({', '.join(parts)})"
    if isinstance(value, list):
        return ", ".join(shown("", part) for part in value)
    if isinstance(value, int) and name.lower().endswith(("at", "until")) and value > MOMENT_MIN:
        return clock(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return figure(value) if isinstance(value, float) else str(value)


MOMENT_MIN = 10**11
"""Larger numbers in fields that end with `At` are times in milliseconds."""
SHOWN_APART = (
    *("ts", "kind", "times", "firstAt", "inputs"),
    *("unloads", "placements", "splits", "skipped"),
)
EMPTY: tuple[object, ...] = (None, [], {}, "")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        LINE,
        initial_indent="    ",
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
    )


@click.command(cls=AdminCommand)
@click.option("--strategy", metavar="NAME", help="another shedder than the one in force")
@click.option("--placement", metavar="NAME", help="another placement rule")
@click.option(
    "--set", "pairs", multiple=True, metavar="KEY=VALUE", help="another setting; may be repeated"
)
def dry_run(
    admin: AdminClient, strategy: str | None, placement: str | None, pairs: tuple[str, ...]
) -> Output:
    """Show what a shedding cycle would do now; `plans execute` carries out exactly that."""
    body: dict[str, Any] = {"settings": dict(map(pair, pairs))}
    body |= {"shedder": strategy} if strategy else {}
    body |= {"placement": placement} if placement else {}
    plan, raw = admin.ask("POST", f"{OWN}/dry-runs", body, SealedPlan)
    return Output(raw, plan_text(plan))


def plan_text(plan: SealedPlan) -> list[str]:
    """A sealed plan for people."""
    count = plan.unload_count
    head = f"plan {plan.id}  {plan.state}  {plan.shedder}: {count_of(count, 'bundle')} "
    executed = "moves" if count == 1 else "move"
    head += executed if plan.state == "executed" else "would move"
    until = f"; it can be carried out until {time_of_day(plan.expires_at)}"
    lines = [head + (until if plan.state == "ready" and count else "")]
    lines += plan_lines(plan.plan)
    return lines + [
        f"  {move.state.value:<9} {move.bundle}  {text_of(move.outcome)}".rstrip()
        for move in plan.moves
    ]
