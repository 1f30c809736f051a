"""`loadmanager admin decisions` and `dry-run`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import click

from loadmanager.cli.admin.asking import V2, query
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.core.strategies.plan_document import plan_lines


@click.command(cls=AdminCommand)
@click.option("--limit", default=20, metavar="N", help="at most N decisions")
def decisions(admin: AdminClient, limit: int) -> Output:
    """Show the leader's last decisions with their reasons, newest first."""
    latest = admin.get(f"{V2}/loadmanager/decisions" + query(limit=limit))
    return Output(latest, "\n".join(map(_line, latest)) or "no decision in this term yet")


def _line(decision: dict[str, Any]) -> str:
    fields = "  ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in decision.items()
        if name != "ts"
    )
    if "ts" not in decision:
        return fields
    return f"{datetime.fromtimestamp(decision['ts'] / 1000, UTC):%Y-%m-%d %H:%M:%SZ}  {fields}"


@click.command(cls=AdminCommand)
def dry_run(admin: AdminClient) -> Output:
    """Show what a shedding cycle would do now."""
    plan = admin.get(f"{V2}/loadmanager/dry-run")
    head = f"strategy {plan['strategy']}: {len(plan['unloads'])} bundles would move"
    return Output(plan, "\n".join([head, *plan_lines(plan)]))
