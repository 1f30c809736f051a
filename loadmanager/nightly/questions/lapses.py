"""When could brokers not prove their sessions, because the metadata store did not answer, say?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadmanager.engine.history.lapses import SessionLapse, together, unproven_of
from loadmanager.engine.history.members import MemberChange
from loadmanager.nightly.day import (
    NUMBER,
    TEXT,
    TEXTS,
    WHOLE,
    YES_NO,
    Columns,
    Day,
    Finding,
    Row,
    clock,
    lasting,
    listed,
)
from loadmanager.nightly.hurt import OnBrokers
from loadmanager.nightly.trusted import by_broker

NAME = "lapses"
ABOUT = (
    "When could brokers not prove their sessions, and when did they stand still? A broker records "
    "that itself, once it is over, and after some seconds that the metadata store gives no answer: "
    "where no record tells how that ended, the broker had ended before. If several had no answer, "
    "the store gave none: topics that are stored and open go on meanwhile, all else waits."
)
STORE, STOOD, UNPROVEN = "metadata store", "stood still", "not proven"
COLUMNS: Columns = {
    "ts": (WHOLE, "when it began: with the last answer of the store, if that is known"),
    "until_ts": (WHOLE, "when it ended, or the last sign of its brokers if `at_least`"),
    "what": (
        TEXT,
        "metadata store: it gave no answer; stood still: the brokers did; not proven: one of these",
    ),
    "brokers": (TEXTS, "the brokers"),
    "unproven_s": (
        NUMBER,
        "for how long they could not prove their sessions or stood still, in s; 0: not as recorded",
    ),
    "at_least": (
        YES_NO,
        "whether no record tells how it ended: it lasted until `until_ts` at least",
    ),
}


def table(day: Day) -> list[Row]:
    """A row for each time, of all brokers together."""
    changes = [
        MemberChange(
            ts=round(it["ts"] - day.corrections.get(it["of"], 0.0)),
            broker=it["broker"],
            of=it["of"],
            event=it["event"],
            took_ms=it["took_ms"],
            unheard_ms=it["unheard_ms"],
        )
        for it in day.facts.members
        if it["event"] in ("proven", "stood", "unanswered", "starts")
    ]

    def last_sign(broker: str, at_ms: int) -> int:
        """Of five minutes, at most."""
        ahead = day.corrections.get(broker, 0.0)
        loads = (round(it["last_ts"] - ahead) for it in loads_of.get(broker, ()))
        return min((ts for ts in loads if ts >= at_ms), default=at_ms)

    loads_of = by_broker(day.facts.brokers)
    return [_row(it) for it in together(unproven_of(changes, last_sign), SessionLapse)]


def _row(lapse: SessionLapse) -> Row:
    return {
        "ts": lapse.since,
        "until_ts": lapse.end,
        "what": STORE if lapse.is_of_store else STOOD if lapse.stood_ms else UNPROVEN,
        "brokers": sorted(lapse.brokers),
        "unproven_s": (lapse.end - lapse.begin) / 1000,
        "at_least": lapse.is_open,
    }


def findings(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Outages of the metadata store: of several brokers, or of all that there are."""
    there = {step["broker"] for step in day.facts.brokers}
    return [
        _finding(row)
        for row in rows
        if row.what == STORE and (len(row.brokers) > 1 or there <= set(row.brokers))
    ]


def _finding(row: Any) -> Finding:
    least = "at least " if row.at_least else ""
    spent = f"{least}{lasting((row.until_ts - row.ts) / 3_600_000)}"
    unproven = lasting(row.unproven_s / 3600)
    effect = (
        f"For {unproven} of it they could not prove their sessions: stored topics that were open "
        "went on, all others were closed, and nobody could move a bundle or open a topic."
    )
    hurt = f"for up to {unproven}, only stored topics that were open went on"
    if not row.unproven_s:
        hurt = "open topics went on, as far as it is recorded"
        effect = "Nobody could move a bundle or open a topic. "
        effect += "No record tells how it ended." if row.at_least else "All sessions stayed proven."
    return Finding(
        importance=58 if row.unproven_s or row.at_least else 32,
        question=NAME,
        title=f"The metadata store did not answer at {clock(row.ts)} for {spent}",
        text=f"{listed(row.brokers)} had no answer for {spent}, from {clock(row.ts)} on. {effect}",
        advice="Look at the servers of the metadata store, and at the network to them.",
        hurt=OnBrokers(row.brokers, hurt, row.ts, row.until_ts),
        numbers={"brokers": len(row.brokers), "unprovenS": row.unproven_s},
        at_ms=row.ts,
        until_ms=row.until_ts,
        where=listed(row.brokers),
        plot="timeline",
        commands=["loadmanager doctor"],
        explains=[key_of(row.ts)],
    )


def key_of(ts: int) -> str:
    """What a finding names as its cause."""
    return f"lapse {ts}"
