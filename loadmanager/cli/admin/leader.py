"""`loadmanager admin dry-run`, and fields of JSON as words."""

from __future__ import annotations

import re
from typing import Any

import click
from msgspec import to_builtins

from loadmanager.cli.admin.asking import OWN, count_of, query
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminCommand, Output, pair
from loadmanager.cli.admin.moves import MOVES, PAUSED, text_of
from loadmanager.cli.admin.sentences import paused_text
from loadmanager.cli.admin.times import clock, time_of_day
from loadmanager.engine.strategies.plan_document import figure, plan_lines
from loadmanager.leader.documents.moves import MovesShown
from loadmanager.leader.documents.plans import SealedPlan

RESUME = "no cycle makes these moves meanwhile; `loadmanager admin moves resume` ends the pause"


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
    pause = admin.get(MOVES + query(limit=1), MovesShown).paused
    paused = [] if pause is None else [f"{paused_text(pause)}: {PAUSED}", RESUME]
    return Output(
        {**raw, "paused": None if pause is None else to_builtins(pause)},
        [*plan_text(plan), *paused],
    )


def plan_text(plan: SealedPlan) -> list[str]:
    """A sealed plan for people."""
    count = plan.unload_count
    head = f"plan {plan.id}  {plan.state}  {plan.shedder}: {count_of(count, 'bundle')} "
    executed = "moves" if count == 1 else "move"
    head += executed if plan.state == "executed" else "would move"
    until = f"; it can be carried out until {time_of_day(plan.expires_at)}"
    lines = [head + (until if plan.state == "ready" and count else "")]
    lines += plan_lines(plan.plan)
    lines += [plan.replay.text] if count else []
    return lines + [
        f"  {move.state.value:<9} {move.bundle}  {text_of(move.outcome)}".rstrip()
        for move in plan.moves
    ]
