"""Who led when, and did the leader change often?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import Any

from loadmanager.engine.findings import words
from loadmanager.engine.findings.leaders import CHANGES_MIN, NAMED_MAX
from loadmanager.engine.history.outages import NEAR_MS
from loadmanager.kit.units import HOUR_MS
from loadmanager.nightly.absence_records import in_order, left_ms
from loadmanager.nightly.day import TEXT, WHOLE, YES_NO, Columns, Day, Finding, Row, clock, many
from loadmanager.nightly.hurt import NOBODY

NAME = "leaders"
ABOUT = (
    "Who led when? A term is there from its beginning on, or from its first decision if no record "
    "tells that. A change is in order if the leader before had stopped in order."
)
COLUMNS: Columns = {
    "ts": (WHOLE, "when the term began"),
    "epoch": (WHOLE, "the term"),
    "broker": (TEXT, "the leader"),
    "last_ts": (WHOLE, "its last decision of the day"),
    "before": (
        TEXT,
        "the leader before; empty: of the day's first term, if its beginning does not tell",
    ),
    "orderly": (YES_NO, "whether that one had stopped in order"),
}


def table(day: Day) -> list[Row]:
    """A row a term."""
    terms = sorted(day.facts.terms, key=lambda term: (term["epoch"], term["ts"]))
    ends = _ends(day)
    rows = [_row(None, term, ends, day) for term in terms[:1]]
    return rows + [_row(before, term, ends, day) for before, term in pairwise(terms)]


def _ends(day: Day) -> list[tuple[str, float, bool]]:
    """Brokers that went, when, and whether they stopped in order: by their records and outages, and
    as leaders saw them leave.
    """
    ends = [
        (row["broker"], float(row["ts"]), row["how"] == "stop")
        for row in day.answers.get("outages", ())
        if row["how"] != "silent"
    ]
    return ends + [
        (
            left["of"],
            left_ms(left) - day.corrections.get(left["broker"], 0.0),
            in_order(left),
        )
        for left in day.facts.members
        if left["event"] in ("left", "stops")
    ]


def _row(before: Row | None, term: Row, ends: Sequence[tuple[str, float, bool]], day: Day) -> Row:
    ahead = day.corrections.get(term["broker"], 0.0)
    ts = round(term["ts"] - ahead)
    name = term.get("before") or (None if before is None else before["broker"])
    begun_ms = -inf  # of the term before: whoever led it had not gone
    if before is not None and before["broker"] == name:
        begun_ms = before["ts"] - day.corrections.get(name, 0.0)
    until_ms = ts if name == term["broker"] else inf  # it is back
    near = [
        (abs(at_ms - ts), at_ms, orderly)
        for broker, at_ms, orderly in ends
        if broker == name and begun_ms < at_ms <= until_ms and at_ms - ts <= NEAR_MS
    ]
    return {
        "ts": ts,
        "epoch": term["epoch"],
        "broker": term["broker"],
        "last_ts": round(term["last_ts"] - ahead),
        "before": name,
        "orderly": min(near)[2] if near else False,
    }


def findings(rows: Sequence[Any], _day: Day) -> list[Finding]:
    """Several changes within an hour, beside those of leaders that stopped in order."""
    times = [row.ts for row in rows if row.before is not None and not row.orderly]
    near = {
        other
        for ts in times
        for within in [[each for each in times if ts <= each < ts + HOUR_MS]]
        if len(within) >= CHANGES_MIN
        for other in within
    }
    changes = [row for row in rows if row.before is not None and row.ts in near]
    if not changes:
        return []
    gave_up: dict[str, int] = {}
    for row in changes:
        gave_up[row.before] = gave_up.get(row.before, 0) + 1
    order = sorted(gave_up, key=lambda broker: (-gave_up[broker], broker))
    named = ", ".join(f"{broker} {gave_up[broker]} ×" for broker in order[:NAMED_MAX])
    more = f" and {len(order) - NAMED_MAX} others" if len(order) > NAMED_MAX else ""
    first, last = changes[0].ts, changes[-1].ts
    return [
        Finding(
            importance=40 + min(len(changes), 15),
            question=NAME,
            title=f"The leader changed {many(len(changes), 'time')} between {clock(first)} and "
            f"{clock(last)}",
            text=f"These led no longer: {named}{more}; leaders that stopped in order are not "
            "counted. Every new leader waits for reports before it decides: meanwhile nobody moves "
            "load away from a broker that is too busy.",
            advice=words.LEADER_LOGS,
            hurt=f"{NOBODY} by itself: tenants of brokers that were too busy meanwhile were so for "
            "longer, as cards of these brokers say",
            numbers={"changes": len(changes)},
            at_ms=first,
            until_ms=last,
            where=order[0],
            plot="timeline",
            commands=["loadmanager admin brokers list"],
        )
    ]
