"""Which brokers went, how, and which bundles had no owner meanwhile?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from loadmanager.engine.history.lapses import SAME_MS
from loadmanager.engine.history.outages import Outage, outages
from loadmanager.nightly.absence_records import AbsenceRecords
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
    hours,
    lasting,
    listed,
    many,
)
from loadmanager.nightly.hurt import NOBODY, Hurt, clients_of, clients_per_bundle
from loadmanager.nightly.trusted import by_broker

NAME = "outages"
ABOUT = (
    "Which brokers went? A broker that records nothing for three of its intervals, and at least "
    "two minutes, was away: in good order if it gave its bundles up, or said farewell; else it "
    "crashed, or was paused and lost its session, if it lost them. A broker that gave up or lost "
    "bundles in a shorter time is here, too, and one that the leader saw lost."
)
COLUMNS: Columns = {
    "ts": (WHOLE, "the last that is known of it"),
    "broker": (TEXT, "the broker"),
    "how": (TEXT, "crash, session lost, stop, or silent: it recorded nothing and lost no bundle"),
    "late_s": (NUMBER, "it may have gone so much later than ts, in s; empty: not known"),
    "back_ts": (WHOLE, "its first record afterwards; empty: it did not come back that day"),
    "bundles": (WHOLE, "bundles that it owned and lost or gave up"),
    "unowned_s_min": (NUMBER, "the shortest time that one of them had no owner, in s"),
    "unowned_s_max": (
        NUMBER,
        "the longest such time, in s; at most, from the last sign on, where late_s is not 0",
    ),
    "bundle_minutes": (NUMBER, "these times of all of them together"),
    "clients": (
        NUMBER,
        "producers and consumers of these bundles, on the mean of the day; empty: none is recorded",
    ),
    "client_minutes": (NUMBER, "bundle_minutes, of each bundle times its clients; empty, too"),
    "never_owned": (WHOLE, "of these, bundles that got no owner any more that day"),
    "namespaces": (TEXTS, "whose bundles they were, those with most of them first"),
    "worst_bundle": (TEXT, "the bundle that had no owner for the longest time"),
}
HEALTH = "loadmanager admin brokers health"
NAMESPACES_MAX = 20
TOGETHER_MS, AT_ONCE_MS = 300_000, 60_000
"""Brokers that fall silent, or that go with the whole cluster, within this time have one cause."""
LOST_TOGETHER_MS = 10_000
"""Brokers that are lost within this time have one card. Those of which only the last record tells
when they went have it within `AT_ONCE_MS`: a broker records its load once a minute, by default.
"""
WHOLE_WEIGHT = 2
"""A client-minute without the whole cluster ranks as so many without one broker."""
WHOLE_HOW = {
    "crash": "crashed",
    "session lost": "lost their sessions",
    "stop": "stopped in order",
    "silent": "recorded nothing",
}
WAITED_MIN = 0.05
"""Fewer client-minutes are not said."""
STOOD = (
    "Find out what stopped its process: a signal (SIGSTOP), a debugger, a virtual machine that was "
    "suspended, or a host that was out of memory or CPU."
)
STOPPED = "Nothing, if you stopped it; but a drain before moves its bundles one by one."


def table(day: Day) -> list[Row]:
    absences = AbsenceRecords(day)
    outage_list = outages(absences.silences, day.owners, day.corrections, absences.evidence)
    of_day = [it for it in outage_list if it.at_ms + (it.late_ms or 0.0) >= day.start_ms]
    names = {unowned.bundle for outage in of_day for unowned in outage.bundles}
    clients = clients_per_bundle(names, day) if names else None
    return [_row(outage, clients) for outage in of_day]


def _row(outage: Outage, clients: Mapping[str, float] | None) -> Row:
    """`clients`: bundle → how many it had; None: not known. A bundle that it lacks, because no load
    of it is recorded, counts as one with a client.
    """
    of_each = {it.bundle: (clients or {}).get(it.bundle, 1.0) for it in outage.bundles}
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
        "late_s": None if outage.late_ms is None else outage.late_ms / 1000,
        "back_ts": None if outage.back_ms is None else round(outage.back_ms),
        "bundles": len(outage.bundles),
        "unowned_s_min": min(lasted.values(), default=None),
        "unowned_s_max": max(lasted.values(), default=None),
        "bundle_minutes": sum(lasted.values()) / 60,
        "clients": None if clients is None else sum(of_each.values()),
        "client_minutes": None
        if clients is None
        else sum(lasted_s * of_each[name] for name, lasted_s in lasted.items()) / 60,
        "never_owned": len(outage.bundles) - len(lasted),
        "namespaces": sorted(spaces, key=lambda name: (-spaces[name], name))[:NAMESPACES_MAX],
        "worst_bundle": max(lasted, key=lambda name: (lasted[name], name), default=None),
    }


def findings(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Crashes and lost sessions; stops only as a remark. Brokers that were silent at one time have
    one card, and so have all brokers when none was there.
    """
    whole = _whole_stops(rows, day)
    of_whole = {id(row) for group in whole for row in group if not _earlier(row, group, day)}
    rows = [row for row in rows if id(row) not in of_whole]
    return [_whole_stop(group, day) for group in whole] + _of_single(rows, day)


def _whole_stops(rows: Sequence[Any], day: Day) -> list[list[Any]]:
    """Outages of all brokers that were there, at one time."""
    joined = {
        broker: steps[0]["first_ts"] for broker, steps in by_broker(day.facts.brokers).items()
    }
    groups: list[list[Any]] = []
    used: set[int] = set()
    for row in rows:
        away = {
            other.broker: other
            for other in rows
            if id(other) not in used and other.ts <= row.ts < (other.back_ts or day.until_ms)
        }
        there = {broker for broker, first_ts in joined.items() if first_ts <= row.ts}
        lost = any(other.how != "silent" for other in away.values())
        if len(there) > 1 and lost and there <= away.keys():
            groups.append(list(away.values()))
            used.update(map(id, away.values()))
    return groups


def _earlier(row: Any, group: Sequence[Any], day: Day) -> bool:
    """Whether a broker was lost before all others went: that has a card of its own."""
    within_ms = AT_ONCE_MS
    if row.late_s is None:  # it may have been there for longer
        within_ms = max(within_ms, AbsenceRecords(day).intervals.get(row.broker, 0))
    lost = row.how in ("crash", "session lost")
    return lost and max(other.ts for other in group) - row.ts > within_ms


def _whole_stop(rows: Sequence[Any], day: Day) -> Finding:
    """A card for a time in which no broker was there."""
    begun_ms = max(row.ts for row in rows)
    back = [row.back_ts for row in rows if row.back_ts]
    until_ms = min(back) if back else day.until_ms
    lasted = lasting((until_ms - begun_ms) / 3_600_000)
    how: dict[str, int] = {}
    for row in rows:
        how[WHOLE_HOW[row.how]] = how.get(WHOLE_HOW[row.how], 0) + 1
    ways = ", ".join(f"{number} {way}" for way, number in sorted(how.items()))
    again = f"The first was back at {clock(until_ms)}" if back else _not_back("None", day)
    if back:
        again += f", the last at {clock(max(back))}" if len(back) == len(rows) else ""
    longest = _longest_unowned_s(rows, begun_ms, AbsenceRecords(day).intervals)
    unowned = f", for up to {lasting(longest / 3600)}" if longest else ""
    stopped, felt = all(row.how == "stop" for row in rows), _felt(rows)
    waited = sum(_waited_minutes(row, until_ms) for row in rows)
    of_clients = _client_minutes(waited) if any(row.clients for row in rows) else ""
    advice = (
        "Nothing, if that was meant; brokers that are drained and restarted one by one keep "
        "serving."
        if stopped
        else "Look at what they share: power, network, hosts, the metadata store. Their logs say "
        "what they saw last."
    )
    return Finding(
        importance=_rank_of(WHOLE_WEIGHT * waited) if felt else 30 if stopped else 58,
        question=NAME,
        title=f"The whole cluster was down at {clock(begun_ms)} for {lasted}"
        + ("" if back else _until_now(day)),
        text=f"All {len(rows)} brokers were away: {ways}. "
        f"{many(sum(row.bundles for row in rows), 'bundle')} had no owner{unowned}: nobody could "
        f"publish or consume. {again}.",
        advice=advice,
        hurt=clients_of(
            (name for row in rows for name in row.namespaces), f"no service{unowned}{of_clients}"
        )
        if felt
        else f"{NOBODY} that is recorded: its bundles had no client that day",
        numbers={
            "brokers": len(rows),
            "bundles": sum(row.bundles for row in rows),
            "clientMinutes": waited if any(row.clients for row in rows) else None,
        },
        at_ms=begun_ms,
        until_ms=until_ms,
        where=listed([row.broker for row in rows]),
        plot="timeline",
        commands=["loadmanager admin brokers list"],
        explains=[f"outage {row.broker} {row.ts}" for row in rows],
    )


def _not_back(who: str, day: Day) -> str:
    if day.now_ms is None:
        return f"{who} came back that day"
    return f"{who} was back by {clock(day.now_ms)}, when this was written"


def _until_now(day: Day) -> str:
    """To end what is said of an outage that is not over; empty of a day that is."""
    return "" if day.now_ms is None else f", until now, at {clock(day.now_ms)}"


def _waited_minutes(row: Any, until_ms: float) -> float:
    """The minutes for which clients of a broker's bundles had no service, or the bundles no owner
    where no client is recorded; until a time of those that got no owner any more.
    """
    minutes = row.bundle_minutes if row.client_minutes is None else row.client_minutes
    if not row.bundles:
        return float(minutes)
    of_each = (row.bundles if row.clients is None else row.clients) / row.bundles
    return float(minutes + row.never_owned * of_each * max(until_ms - row.ts, 0) / 60_000)


def _longest_unowned_s(
    rows: Sequence[Any], begun_ms: float, intervals_ms: Mapping[str, int]
) -> float:
    """The longest time that a bundle had no owner. Brokers that crashed at one time were there
    until the last sign of any of them, as far as their own intervals let that be.
    """
    longest_s = 0.0
    for row in rows:
        late_ms = 0.0
        if row.how == "crash" and begun_ms - row.ts <= intervals_ms.get(row.broker, 0):
            late_ms = begun_ms - row.ts
        longest_s = max(longest_s, (row.unowned_s_max or 0.0) - late_ms / 1000)
    return longest_s


def _of_single(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Cards for outages of some brokers; those that went the same way at one time have one. A
    broker that stopped when it had no bundle any more hurt nobody.
    """
    findings = []
    rows = [row for row in rows if row.how != "stop" or row.bundles]
    for how in ("crash", "session lost", "stop"):
        groups = _together([row for row in rows if row.how == how], _apart_ms)
        findings += [_several(each, day) if each[1:] else _finding(each[0], day) for each in groups]
    silent = _together([row for row in rows if row.how == "silent"], lambda *_: TOGETHER_MS)
    return findings + [
        _silent(each, day) if each[1:] else _finding(each[0], day) for each in silent
    ]


def _apart_ms(first: Any, row: Any) -> int:
    """By how much two outages of one kind may be apart that were at one time."""
    if row.how == "stop":
        return -1
    return LOST_TOGETHER_MS if None not in (first.late_s, row.late_s) else AT_ONCE_MS


def _together(rows: Sequence[Any], apart_ms: Callable[[Any, Any], int]) -> list[list[Any]]:
    """Groups that begin within a time of their first; of a broker's outages, one in each."""
    groups: list[list[Any]] = []
    for row in sorted(rows, key=lambda row: row.ts):
        last = groups[-1] if groups else []
        again = any(other.broker == row.broker for other in last)
        if last and row.ts - last[0].ts <= apart_ms(last[0], row) and not again:
            last.append(row)
        else:
            groups.append([row])
    return groups


def _several(rows: Sequence[Any], day: Day) -> Finding:
    """A card for brokers that were lost at one time."""
    worst = max(rows, key=lambda row: (_harm([row]), row.bundle_minutes, row.broker))
    single, minutes = _finding(worst, day), sum(row.bundle_minutes for row in rows)
    names, bundles = [row.broker for row in rows], sum(row.bundles for row in rows)
    crashed = rows[0].how == "crash"
    title = f"{len(rows)} brokers {'crashed' if crashed else 'lost their sessions'} at "
    title += clock(min(row.ts for row in rows))
    back = [row.back_ts for row in rows if row.back_ts]
    apart = max(1, ceil((max(row.ts for row in rows) - min(row.ts for row in rows)) / 1000))
    return replace(
        single,
        importance=_harm(rows) if _felt(rows) else single.importance,
        title=title + (f": {many(bundles, 'bundle')} without an owner" if bundles else ""),
        text=f"{listed(names, 5)}, within {apart} s. Of the worst, {worst.broker}: {single.text}",
        advice="Look at what they share: power, network, hosts, the metadata store. "
        + single.advice,
        hurt=_without_owner(rows),
        numbers={"brokers": len(rows), "bundles": bundles, "bundleMinutes": minutes},
        at_ms=min(row.ts for row in rows),
        until_ms=max(back) if len(back) == len(rows) else day.until_ms,
        where=listed(names),
        explains=[f"outage {row.broker} {row.ts}" for row in rows],
    )


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
        hurt=f"{NOBODY}: no bundle lost its owner",
        numbers={"brokers": len(rows)},
        at_ms=first,
        until_ms=max(back) if len(back) == len(rows) else day.until_ms,
        where=listed(names),
        plot="timeline",
        commands=[line for name in names[:3] for line in command(HEALTH, name)],
        explains=[f"outage {row.broker} {row.ts}" for row in rows],
    )


def _without_owner(rows: Sequence[Any]) -> Hurt:
    """Who was hurt by outages of brokers."""
    names = [name for row in rows if row.bundles for name in row.namespaces]
    minutes = sum(row.bundle_minutes for row in rows)
    if not names:
        return f"{NOBODY}: no bundle lost its owner"
    how = "their bundles had no owner"
    how += f" for {minutes:.1f} minutes in sum" if minutes else ""
    if not _felt(rows):
        return f"{NOBODY}: no client of {listed(sorted(set(names)))} is recorded that day; {how}"
    return clients_of(names, how + _client_minutes(sum(row.client_minutes or 0.0 for row in rows)))


def _client_minutes(minutes: float) -> str:
    return f", for about {minutes:,.1f} client-minutes" if minutes >= WAITED_MIN else ""


def _felt(rows: Sequence[Any]) -> bool:
    """Whether the bundles had clients, as far as anybody knows."""
    return any(row.bundles and row.clients != 0 for row in rows)


def _harm(rows: Sequence[Any]) -> float:
    """The importance of brokers that were lost with bundles that had clients: by how long these had
    no service all together, or their bundles no owner where no client is recorded.
    """
    minutes: float = sum(
        row.bundle_minutes if row.client_minutes is None else row.client_minutes for row in rows
    )
    return _rank_of(minutes)


def _rank_of(minutes: float) -> float:
    """The importance of minutes without service."""
    return 80 + 15 * minutes / (minutes + 10)


def _gone(day: Day) -> str:
    if day.now_ms is None:
        return "It did not come back."
    return f"It was not back by {clock(day.now_ms)}, when this was written."


def _stood_ms(row: Any, day: Day) -> float:
    """For how long a broker stood still that lost its session by that; 0: it did not."""
    if row.how != "session lost":
        return 0.0
    ahead = day.corrections.get(row.broker, 0.0)
    times = [
        it.back_ms - it.last_ms
        for it in AbsenceRecords(day).stood
        if it.broker == row.broker
        and it.last_ms is not None
        and it.back_ms is not None
        and it.last_ms - SAME_MS <= row.ts + ahead <= it.back_ms + SAME_MS
    ]
    return max(times, default=0.0)


def _finding(row: Any, day: Day) -> Finding:
    title, advice, importance = {
        "crash": (f"{row.broker} crashed", "Look at its log, and at its host.", 58),
        "session lost": (
            f"{row.broker} lost its session",
            "Look at its log: a paused process, or a metadata store that did not answer.",
            56,
        ),
        "stop": (f"{row.broker} was stopped", STOPPED, 10),
        "silent": (
            f"{row.broker} recorded nothing for a while",
            "Nothing, if you stopped it. Else look whether its disk was full.",
            30,
        ),
    }[row.how]
    away = f"It was back at {clock(row.back_ts)}." if row.back_ts else _gone(day)
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
        if row.how in ("crash", "session lost") and row.unowned_s_max and row.late_s != 0:
            less = "" if row.late_s is None else f"up to {lasting(row.late_s / 3600)} "
            without += f" That is from its last sign on, so it may have been {less}less."
    if stood_ms := _stood_ms(row, day):
        without = f"It stood still for {lasting(hours(stood_ms))}. {without}"
        advice = STOOD
    hurt = row.how in ("crash", "session lost") and row.bundles
    return Finding(
        importance=_harm([row]) if hurt and _felt([row]) else importance,
        question=NAME,
        title=f"{title} at {clock(row.ts)}"
        + (f": {many(row.bundles, 'bundle')} without an owner" if hurt else ""),
        text=f"{without} {away}"
        + (" Clients of such a bundle can neither publish nor consume." if row.bundles else ""),
        advice=advice,
        hurt=_without_owner([row]),
        numbers={
            "bundles": row.bundles,
            "bundleMinutes": row.bundle_minutes,
            "clientMinutes": row.client_minutes,
            "longestS": row.unowned_s_max,
            "neverOwned": row.never_owned,
        },
        at_ms=row.ts,
        until_ms=row.back_ts or day.until_ms,
        where=row.broker,
        plot="timeline",
        commands=command(HEALTH, row.broker),
        explains=[f"outage {row.broker} {row.ts}"],
    )
