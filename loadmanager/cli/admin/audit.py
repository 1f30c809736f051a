"""`loadmanager admin audit`: who changed what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from loadmanager.cli.admin.archives import (
    at_option,
    events_of,
    has_archives,
    incomplete,
    since_option,
    until_of,
    until_option,
)
from loadmanager.cli.admin.asking import OWN, count_of, query
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.cli.admin.past_decisions import record_as
from loadmanager.cli.admin.times import clock
from loadmanager.cli.terminal import Shown, table
from loadmanager.kit.audit import ChangeShown, ChangesShown
from loadmanager.kit.errors import OperationalError


@click.command(cls=AdminCommand)
@click.option("--role", metavar="ROLE", help="what this role changed")
@since_option
@until_option
@at_option
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, metavar="N", help="at most N changes"
)
def audit(admin: AdminClient, at: int | None, limit: int, **given: Any) -> Output:
    """Show the last changes that operators and clients made: who, what, before and after.

    The archives of the brokers answer; of a broker without one, its last 1,000 since its start.
    """
    role, since, until = given["role"], given["since"], until_of(at, given["until"])
    if has_archives(admin):
        return _archived(admin, role, since, until, limit=limit)
    if until is not None:
        raise OperationalError("this broker has no archive: it knows the last changes only")
    path = f"{OWN}/changes{query(role=role, since=since, limit=limit)}"
    answer, raw = admin.ask("GET", path, None, ChangesShown)
    parts = [_shown(answer.changes)]
    if answer.not_asked:
        parts.append(f"{count_of(answer.not_asked, 'broker')} were not asked: there are too many")
    return Output(raw, tuple(parts), missing=answer.no_answer)


def _archived(
    admin: AdminClient, role: str | None, since: int | None, until: int | None, *, limit: int
) -> Output:
    events = events_of(
        admin,
        ("change",),
        role,
        since_ms=since,
        until_ms=until,
        limit=limit,
        wanted=lambda event: role in (None, event.record.get("role")),
    )
    records = [event.record for event in events.events]
    changes = [record_as(event, ChangeShown) for event in events.events]
    parts = [_shown(changes), *incomplete(events.notes)]
    return Output({"changes": records}, tuple(parts), missing=events.missing)


def _shown(changes: Sequence[ChangeShown]) -> Shown:
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
        for change in changes
    ]
    headers = ("time", "role", "from", "what", "of", "before", "after", "note", "broker")
    return table(headers, rows) if rows else "no change is known"
