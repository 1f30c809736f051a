"""`loadmanager admin audit`: who changed what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click
from msgspec import to_builtins

from loadmanager.cli.admin.archives import events_of, has_archives, incomplete
from loadmanager.cli.admin.asking import OWN, count_of, query
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.cli.admin.times import at_option, clock, since_option, until_of, until_option
from loadmanager.cli.terminal import Shown, table
from loadmanager.kit.audit import ChangeShown, ChangesShown
from loadmanager.kit.errors import OperationalError

PEERS = f"{OWN}/peers/"
"""What brokers ask of each other."""
CHANGES_MAX = 1_000


@click.command(cls=AdminCommand)
@click.option(
    "--role",
    metavar="ROLE",
    help="what this role changed, or, of changes without one, this address",
)
@since_option
@until_option
@at_option
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, metavar="N", help="at most N changes"
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="also what clients opened, and brokers asked of others",
)
def audit(
    admin: AdminClient, at: int | None, limit: int, *, everything: bool, **given: Any
) -> Output:
    """Show the last changes: when, who, what, and the values that became others. `admin undo` takes
    their ids; --json has the requests and the stored documents before and after.

    The archives of the brokers answer; of a broker without one, its last 1,000 since its start.
    """
    until = until_of(at, given["until"])
    asked = limit if everything else CHANGES_MAX
    changes = changes_of(admin, given["role"], given["since"], until, limit=asked)
    if not everything:
        if len(changes.changes) == asked:
            changes.notes.append(f"only the last {asked:,} changes of all were looked through")
        changes.changes = list(filter(is_decided, changes.changes))[:limit]
    data = {"changes": to_builtins(changes.changes), "notes": changes.notes}
    return Output(
        data, (_shown(changes.changes), *incomplete(changes.notes)), missing=changes.missing
    )


def is_decided(change: ChangeShown) -> bool:
    """Whether somebody decided it: an operator, or a broker of itself."""
    return change.over != "binary" and PEERS not in change.what


def by_operator(change: ChangeShown) -> bool:
    """Whether it is no change of a client, and no order of a broker to another."""
    return change.over in ("http", "fleet") and PEERS not in change.what


@dataclass(slots=True)
class KnownChanges:
    """Changes, the newest first, and what is missing, as far as that is known."""

    changes: list[ChangeShown]
    notes: list[str]
    missing: dict[str, str]


def changes_of(
    admin: AdminClient, role: str | None, since: int | None, until: int | None, *, limit: int
) -> KnownChanges:
    """The changes of a time, from the archives if there are any, else from the memories of the
    brokers. Raises `OperationalError` for earlier ones without archives.
    """
    if has_archives(admin):
        events = events_of(
            admin,
            ("change",),
            role,
            since_ms=since,
            until_ms=until,
            limit=limit,
            wanted=lambda event: role is None or event.record_as(ChangeShown).is_by(role),
            before_start=False,
        )
        changes = [event.record_as(ChangeShown) for event in events.events]
        return KnownChanges(changes, events.notes, events.missing)
    if until is not None:
        raise OperationalError("this broker has no archive: it knows the last changes only")
    answer = admin.get(f"{OWN}/changes{query(role=role, since=since, limit=limit)}", ChangesShown)
    notes = []
    if answer.not_asked:
        notes.append(f"{count_of(answer.not_asked, 'broker')} were not asked: there are too many")
    return KnownChanges(answer.changes, notes, answer.no_answer)


def _shown(changes: Sequence[ChangeShown]) -> Shown:
    rows = [(change.id or "", clock(change.ts), _who(change), _what(change)) for change in changes]
    headers = ("id", "time", "who", "what")
    return table(headers, rows) if rows else "no change is known"


def _who(change: ChangeShown) -> str:
    roles = " for ".join(filter(None, (change.role, change.proxied)))
    return " from ".join(filter(None, (roles, change.address)))


def _what(change: ChangeShown) -> str:
    return str(change) + (f" ({change.note})" if change.note else "")
