"""`loadmanager admin decisions` and `dry-run`."""

from __future__ import annotations

import json
import textwrap
from datetime import UTC, datetime
from typing import Any

import click

from loadmanager.cli.admin.asking import OWN, query
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.core.strategies.plan_document import plan_lines

LINE = 98
"""Characters of a line."""


@click.command(cls=AdminCommand)
@click.option("--limit", default=20, metavar="N", help="at most N decisions")
def decisions(admin: AdminClient, limit: int) -> Output:
    """Show the leader's last decisions with their reasons, newest first."""
    latest = admin.get(f"{OWN}/decisions" + query(limit=limit))
    return Output(latest, "\n".join(map(_lines, latest)) or "no decision in this term yet")


def _lines(decision: dict[str, Any]) -> str:
    """When and what; below it, indented, the other fields."""
    at = ""
    if "ts" in decision:
        at = f"{datetime.fromtimestamp(decision['ts'] / 1000, UTC):%Y-%m-%d %H:%M:%SZ}  "
    fields = [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in decision.items()
        if name not in ("ts", "kind") and value not in (None, [], {}, "")
    ]
    wrapped = textwrap.fill(
        "  ".join(fields),
        LINE,
        initial_indent="    ",
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"{at}{decision.get('kind', '')}\n{wrapped}"


@click.command(cls=AdminCommand)
def dry_run(admin: AdminClient) -> Output:
    """Show what a shedding cycle would do now."""
    plan = admin.get(f"{OWN}/dry-run")
    head = f"strategy {plan['strategy']}: {len(plan['unloads'])} bundles would move"
    return Output(plan, "\n".join([head, *plan_lines(plan)]))
