"""`loadmanager admin audit`: who changed what."""

from __future__ import annotations

import click

from loadmanager.cli.admin.asking import OWN, count_of, query
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.cli.admin.moves import Moment, clock
from loadmanager.cli.terminal import Shown, table
from loadmanager.kit.audit import ChangesShown


@click.command(cls=AdminCommand)
@click.option("--role", metavar="ROLE", help="what this role changed")
@click.option(
    "--since", type=Moment(), help="not before then: 2026-11-20T14:00Z, or 90s, 30m, 2h ago"
)
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, metavar="N", help="at most N changes"
)
def audit(admin: AdminClient, role: str | None, since: int | None, limit: int) -> Output:
    """Show the last changes that operators and clients made: who, what, before and after.

    Each broker keeps its last 1,000 since its start; the history has all of them (`change`).
    """
    path = f"{OWN}/changes{query(role=role, since=since, limit=limit)}"
    answer, raw = admin.ask("GET", path, None, ChangesShown)
    rows = [
        (
            clock(change.ts),
            change.role + (f" for {change.proxied}" if change.proxied else ""),
            change.address,
            change.what,
            change.path or "",
            change.before or "",
            change.after or "",
            change.note or "",
            change.broker,
        )
        for change in answer.changes
    ]
    headers = ("time", "role", "from", "what", "of", "before", "after", "note", "broker")
    parts: list[Shown] = [table(headers, rows) if rows else "no change is known"]
    if answer.not_asked:
        parts.append(f"{count_of(answer.not_asked, 'broker')} were not asked: there are too many")
    return Output(raw, tuple(parts), missing=answer.no_answer)
