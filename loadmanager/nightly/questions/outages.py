"""Which brokers went, how, and which bundles had no owner meanwhile?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from loadmanager.engine.history.outages import RESTART_MS_MIN, Outage, Silence, outages, silences
from loadmanager.nightly.day import (
    NUMBER,
    TEXT,
    TEXTS,
    WHOLE,
    Columns,
    Day,
    Finding,
    Row,
    clock,
    command,
    lasting,
    listed,
    many,
)
from loadmanager.nightly.trusted import by_broker

NAME = "outages"
ABOUT = (
    "Which brokers went? A broker that records nothing for three of its intervals, and at least "
    "two minutes, was away: in good order if it gave its bundles up; else it crashed, or was "
    "paused and lost its session, if it lost them. A broker that gave up or lost bundles in a "
    "shorter time is here, too."
)
COLUMNS: Columns = {
    "ts": (WHOLE, "the last that is known of it"),
    "broker": (TEXT, "the broker"),
    "how": (TEXT, "crash, session lost, stop, or silent: it recorded nothing and lost no bundle"),
    "back_ts": (WHOLE, "its first record afterwards; empty: it did not come back that day"),
    "bundles": (WHOLE, "bundles that it owned and lost or gave up"),
    "unowned_s_min": (NUMBER, "the shortest time that one of them had no owner, in s"),
    "unowned_s_max": (
        NUMBER,
        "the longest such time, in s; after a crash from the broker's last record, so at most",
    ),
    "bundle_minutes": (NUMBER, "these times of all of them together"),
    "never_owned": (WHOLE, "of these, bundles that got no owner any more that day"),
    "namespaces": (TEXTS, "whose bundles they were, those with most of them first"),
    "worst_bundle": (TEXT, "the bundle that had no owner for the longest time"),
}
HEALTH = "loadmanager admin brokers health"
NAMESPACES_MAX = 20
TOGETHER_MS = 300_000
STOPPED = "Nothing, if you stopped it; but a drain before moves its bundles one by one."


def gaps(day: Day) -> list[Silence]:
    """The spans in which brokers recorded nothing."""
    spans = {
        broker: [
            (step["first_ts"], step["last_ts"], step["interval_ms"] // step["samples"])
            for step in steps
        ]
        for broker, steps in by_broker(day.facts.brokers).items()
    }
    times = [ts for steps in spans.values() for step in steps for ts in step[:2]]
    return silences(spans, min(times), max(times)) if times else []


def table(day: Day) -> list[Row]:
    outage_list = outages(gaps(day), day.owners, day.corrections, _restarts(day), _stalls(day))
    return [_row(outage) for outage in outage_list if outage.at_ms >= day.start_ms]


def _restarts(day: Day) -> list[Silence]:
    """When a broker was not there, however briefly: the first sample of a process stands for the
    time since its start only.
    """
    restarts = []
    for broker, steps in by_broker(day.facts.brokers).items():
        pauses = [(pause["ts"], pause["begun"]) for step in steps for pause in step["pauses"]]
        pauses += [(step["last_ts"], after["begun"]) for step, after in pairwise(steps)]
        restarts += [
            Silence(broker, last_ms, back_ms)
            for last_ms, back_ms in sorted(pauses)
            if back_ms - last_ms > RESTART_MS_MIN
        ]
    return restarts


def _stalls(day: Day) -> list[Silence]:
    """The longest time between two samples of a process in each five minutes."""
    return [
        Silence(step["broker"], step["longest"]["begun"], step["longest"]["ts"])
        for step in day.facts.brokers
    ]


def _row(outage: Outage) -> Row:
    lasted = {
        unowned.bundle: unowned.lasted_ms / 1000
        for unowned in outage.bundles
        if unowned.lasted_ms is not None
    }
    spaces: dict[str, int] = {}
    for unowned in outage.bundles:
        space = "/".join(unowned.bundle.split("/")[:2])
        spaces[space] = spaces.get(space, 0) + 1
    return {
        "ts": round(outage.at_ms),
        "broker": outage.broker,
        "how": outage.how,
        "back_ts": None if outage.back_ms is None else round(outage.back_ms),
        "bundles": len(outage.bundles),
        "unowned_s_min": min(lasted.values(), default=None),
        "unowned_s_max": max(lasted.values(), default=None),
        "bundle_minutes": sum(lasted.values()) / 60,
        "never_owned": len(outage.bundles) - len(lasted),
        "namespaces": sorted(spaces, key=lambda name: (-spaces[name], name))[:NAMESPACES_MAX],
        "worst_bundle": max(lasted, key=lambda name: (lasted[name], name), default=None),
    }


def findings(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Crashes and lost sessions; stops only as a remark. Brokers that were silent at one time have
    one card.
    """
    groups: list[list[Any]] = []
    for row in sorted((row for row in rows if row.how == "silent"), key=lambda row: row.ts):
        if groups and row.ts - groups[-1][0].ts <= TOGETHER_MS:
            groups[-1].append(row)
        else:
            groups.append([row])
    alone = [group[0] for group in groups if len(group) == 1]
    findings = [_finding(row, day) for row in rows if row.how != "silent" or row in alone]
    return findings + [_silent(group, day) for group in groups if len(group) > 1]


def _silent(rows: Sequence[Any], day: Day) -> Finding:
    """A card for brokers that fell silent together."""
    names = [row.broker for row in rows]
    first, back = min(row.ts for row in rows), [row.back_ts for row in rows if row.back_ts]
    last = f"the last at {clock(max(back))}" if back else "none of them that day"
    return Finding(
        importance=30,
        question=NAME,
        title=f"{many(len(rows), 'broker')} recorded nothing for a while at {clock(first)}",
        text=f"{listed(names)}. No bundle lost its owner. {len(back):,} of them recorded again, "
        f"{last}.",
        advice="Nothing, if you stopped them. Else look whether their disks were full.",
        numbers={"brokers": len(rows)},
        at_ms=first,
        until_ms=max(back) if len(back) == len(rows) else day.end_ms,
        where=listed(names),
        plot="timeline",
        commands=[line for name in names[:3] for line in command(HEALTH, name)],
        explains=[f"outage {row.broker} {row.ts}" for row in rows],
    )


def _finding(row: Any, day: Day) -> Finding:
    title, advice, importance = {
        "crash": (f"{row.broker} crashed", "Look at its log, and at its host.", 85),
        "session lost": (
            f"{row.broker} lost its session",
            "Look at its log: a paused process, or a metadata store that did not answer.",
            80,
        ),
        "stop": (f"{row.broker} was stopped", STOPPED, 10),
        "silent": (
            f"{row.broker} recorded nothing for a while",
            "Nothing, if you stopped it. Else look whether its disk was full.",
            30,
        ),
    }[row.how]
    away = f"It was back at {clock(row.back_ts)}." if row.back_ts else "It did not come back."
    without = "No bundle lost its owner."
    if row.bundles:
        named = f"{many(row.bundles, 'bundle')} of {listed(row.namespaces)}"
        lasted = " had no owner"
        if row.unowned_s_max == 0:
            lasted += " for a while that no record tells"
        elif row.unowned_s_max:
            times = [lasting(row.unowned_s_min / 3600), lasting(row.unowned_s_max / 3600)]
            lasted += f" for {' to '.join(dict.fromkeys(times))}"
            lasted += f", longest {row.worst_bundle}" if row.bundles > 1 else ""
        never = f"; {row.never_owned:,} of them got no owner any more" if row.never_owned else ""
        without = f"{named}{lasted}{never}."
        if row.how == "crash" and row.unowned_s_max:
            without += " That is from its last record on, so it may have been less."
    hurt = row.how in ("crash", "session lost") and row.bundles
    return Finding(
        importance=importance + 10 * row.bundle_minutes / (row.bundle_minutes + 10)
        if hurt
        else min(importance, 70),
        question=NAME,
        title=f"{title} at {clock(row.ts)}"
        + (f": {many(row.bundles, 'bundle')} without an owner" if hurt else ""),
        text=f"{without} {away}"
        + (" Clients of such a bundle can neither publish nor consume." if row.bundles else ""),
        advice=advice,
        numbers={
            "bundles": row.bundles,
            "bundleMinutes": row.bundle_minutes,
            "longestS": row.unowned_s_max,
            "neverOwned": row.never_owned,
        },
        at_ms=row.ts,
        until_ms=row.back_ts or day.end_ms,
        where=row.broker,
        plot="timeline",
        commands=command(HEALTH, row.broker),
        explains=[f"outage {row.broker} {row.ts}"],
    )
