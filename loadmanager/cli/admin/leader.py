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
from loadmanager.cli.admin.times import at_option, clock, time_of_day
from loadmanager.cli.changes import change_options
from loadmanager.engine.strategies.plan_document import figure, plan_lines
from loadmanager.leader.documents.moves import MovesShown
from loadmanager.leader.documents.plans import SealedPlan

NO_CHANGE = {
    "without": (), "zones": (), "added": 0, "times": 1.0, "tenants": {}, "fewest": False
}  # fmt: skip
"""What `change_options` say when nothing is different."""
OTHER_SETTINGS = (
    "other brokers or traffic are tried with the settings in force: give no --strategy, "
    "--placement or --set; `loadmanager what-if HISTORY --try` tries both"
)
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
@at_option
@change_options
def dry_run(
    admin: AdminClient,
    strategy: str | None,
    placement: str | None,
    pairs: tuple[str, ...],
    at: int | None,
    **change: Any,
) -> Output:
    """Show what a shedding cycle would do now; `plans execute` carries out exactly that.

    With --at, what one would have done then, on the loads that were recorded. With other brokers or
    other traffic (--without, --add, --times, --tenant …), it is `what-if`: the last hour, or that
    before --at, in a simulator, by the settings in force.
    """
    keys = dict(map(pair, pairs))
    named = {"shedder": strategy, "placement": placement}
    if any(change[name] != value for name, value in NO_CHANGE.items()):
        from loadmanager.cli.admin.what_if import lived_again  # it takes time

        if keys or any(named.values()):
            raise click.UsageError(OTHER_SETTINGS)
        return lived_again(admin, None, at, **change)
    if change["price"] is not None:
        raise click.UsageError("--price says what other brokers would cost: give --add, say")
    if at is not None:
        from loadmanager.cli.admin.past_dry_run import dry_run_at  # it takes time

        return dry_run_at(admin, at, keys, **named)
    body = {"settings": keys, **{name: value for name, value in named.items() if value}}
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
