"""Do the brokers' clocks agree?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadmanager.engine.findings import words
from loadmanager.engine.history.tenures import CLOCKS_DIFFER_MS
from loadmanager.nightly.day import NUMBER, TEXT, WHOLE, YES_NO, Columns, Day, Finding, Row
from loadmanager.nightly.hurt import NOBODY

NAME = "clocks"
ABOUT = (
    "Do the brokers' clocks agree? When a bundle is handed over, its destination acquires it "
    "between two records of its source: that bounds the difference of their clocks. Brokers that "
    "handed nothing over are not compared."
)
COLUMNS: Columns = {
    "broker": (TEXT, "the broker"),
    "ahead_ms": (NUMBER, "by how many ms its clock is ahead of the one in the middle"),
    "uncertain_ms": (NUMBER, "so many ms more or less"),
    "handovers": (WHOLE, "bundles that were handed over with the neighbour it is compared with"),
    "differs": (YES_NO, "whether it certainly differs by more than a second"),
}


def table(day: Day) -> list[Row]:
    """A row a broker that handed bundles over."""
    rows = [
        {
            "broker": broker,
            "ahead_ms": clock.ahead_ms,
            "uncertain_ms": clock.uncertain_ms,
            "handovers": clock.handovers,
            "differs": broker in day.corrections,
        }
        for broker, clock in day.clocks.items()
    ]
    return sorted(rows, key=lambda row: (not row["differs"], row["broker"]))


def findings(rows: Sequence[Any], _day: Day) -> list[Finding]:
    """Clocks that certainly differ."""
    return [
        Finding(
            importance=45,
            question=NAME,
            title=words.clock(row.broker, row.ahead_ms),
            text=f"Known to {row.uncertain_ms / 1000:.1f} s, from bundles that it handed over. "
            f"Differences of more than {CLOCKS_DIFFER_MS / 1000:g} s are corrected in this "
            "report; the records keep the broker's own times.",
            advice=words.SYNCHRONISE,
            hurt=f"{NOBODY}: what this broker records and logs has wrong times",
            numbers={"aheadMs": row.ahead_ms, "uncertainMs": row.uncertain_ms},
            where=row.broker,
            plot="timeline",
            commands=["chronyc tracking"],
        )
        for row in rows
        if row.differs
    ]
