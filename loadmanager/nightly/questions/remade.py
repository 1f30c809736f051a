"""Which namespaces were made and deleted, and by whom?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadmanager.nightly.day import TEXT, WHOLE, Columns, Day, Finding, Row, clock, lasting
from loadmanager.nightly.hurt import clients_of

NAME = "remade"
ABOUT = (
    "Which namespaces were made and deleted? From the records of what operators changed, so only "
    "where brokers wrote them."
)
COLUMNS: Columns = {
    "ts": (WHOLE, "when"),
    "namespace": (TEXT, "the namespace"),
    "what": (TEXT, "made or deleted"),
    "who": (TEXT, "the role that asked, or without authentication the address"),
}


def table(day: Day) -> list[Row]:
    """A row for each time."""
    rows: dict[tuple[int, str, str], Row] = {}
    for change in day.facts.namespace_changes:
        row = {
            "ts": round(change["ts"] - day.corrections.get(change["broker"], 0.0)),
            "namespace": change["namespace"],
            "what": "deleted" if change["method"] == "DELETE" else "made",
            "who": change["role"] or change["address"],
        }
        rows.setdefault((row["ts"] // 1000, row["namespace"], row["what"]), row)
    return sorted(rows.values(), key=lambda row: (row["ts"], row["namespace"]))


def findings(rows: Sequence[Any], _day: Day) -> list[Finding]:
    """Namespaces that were deleted and made again."""
    cards, deleted = [], {}
    for row in rows:
        if row.what == "deleted":
            deleted[row.namespace] = row
        elif row.namespace in deleted:
            cards.append(_again(deleted.pop(row.namespace), row))
    return cards


def _again(gone: Any, made: Any) -> Finding:
    lasted = lasting((made.ts - gone.ts) / 3_600_000)
    return Finding(
        importance=48,
        question=NAME,
        title=f"{gone.namespace} was deleted at {clock(gone.ts)} and made again",
        text=f"{gone.who} deleted it, and {made.who} made it again {lasted} later. Its topics, "
        "subscriptions, limits and permissions of before are gone; clients that were connected had "
        "no service meanwhile.",
        advice="If that was not meant, ask them, and restore what the namespace had from a backup.",
        hurt=clients_of(
            [gone.namespace], f"no service for {lasted}, and nothing of before is left"
        ),
        numbers={"minutes": (made.ts - gone.ts) / 60_000},
        at_ms=gone.ts,
        until_ms=made.ts,
        where=gone.namespace,
        plot="bundles",
        commands=["loadmanager admin audit"],
        explains=[f"growth of {gone.namespace}"],
    )
