"""What did each move of a bundle do: how long did clients wait, and was the cluster better balanced
afterwards?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from loadmanager.engine.history.tenures import Handover, changes, pause_ms
from loadmanager.engine.moves.move import Author
from loadmanager.engine.ownership.states import LifeCause
from loadmanager.engine.strategies import registry
from loadmanager.nightly.day import (
    NUMBER,
    TEXT,
    WHOLE,
    YES_NO,
    Columns,
    Day,
    Finding,
    Row,
    clock,
    command,
    many,
    step_of,
)
from loadmanager.nightly.facts import BUCKET_MS

NAME = "moves"
ABOUT = (
    "What did each move do? A move belongs to the cycle of the leader that ordered it by the life "
    "of the bundle that it ended. A move was worth it when the imbalance fell by more than 0.5 "
    "points and a twentieth; moves off brokers that stopped, were drained or were lost are not "
    "judged, and moves within the same five minutes share their verdict."
)
COLUMNS: Columns = {
    "ts": (WHOLE, "when the destination had the bundle, by its clock, corrected"),
    "bundle": (TEXT, "the bundle"),
    "source": (TEXT, "the broker that had owned it"),
    "destination": (TEXT, "the broker that owned it afterwards"),
    "reason": (TEXT, "why the source gave it up"),
    "cause": (TEXT, "leader, operator, stop, loss, lookup …"),
    "forced": (YES_NO, "whether its broker stopped or was lost: nobody chose this move"),
    "pause_ms": (NUMBER, "how long clients had no owner, in ms; empty: not known"),
    "std_before": (NUMBER, "standard deviation of usage in the ten minutes before"),
    "std_after": (NUMBER, "the same, five to fifteen minutes after"),
    "gain": (NUMBER, "before minus after"),
    "worth_it": (YES_NO, "whether the gain is more than 0.5 points and a twentieth"),
    "move": (TEXT, "the id of the leader's move"),
    "epoch": (WHOLE, "the leader's term"),
    "cycle": (WHOLE, "the leader's cycle"),
    "author": (TEXT, "who wanted it: cycle, operator, drain or merge; empty: no record tells"),
    "clients_closed": (WHOLE, "producers and consumers that the source had"),
}
STEPS = 2
"""Time steps compared before and after a move."""
GAIN_MIN, GAIN_SHARE_MIN = 0.005, 0.05
LONG_PAUSE_MS = 1000
LOST = "its broker was lost"


def table(day: Day) -> list[Row]:
    imbalance = {row["bucket"]: row["std"] for row in day.answer("imbalance")}
    orders = _Orders(day.facts.leader_moves)
    rows = []
    for change in changes(day.owners):
        acquired = change.after.since_ms
        if acquired is None or acquired < day.start_ms or change.after.parent is not None:
            continue
        if change.before.broker != change.after.broker:
            ts = round(acquired - day.corrections.get(change.after.broker, 0.0))
            row = _row(change, ts, day) | _verdict(change, ts, imbalance) | orders.of(change)
            if row["author"] not in (None, Author.CYCLE.value):
                row["worth_it"] = None  # it was to be, whatever it did to the balance
            rows.append(row)
    return sorted(rows, key=lambda row: (row["ts"], row["bundle"]))


def _row(change: Handover, ts: int, day: Day) -> Row:
    before = change.before
    lost = before.until_ms is None
    return {
        "ts": ts,
        "bundle": before.bundle,
        "source": before.broker,
        "destination": change.after.broker,
        "reason": LOST if lost else before.reason,
        "cause": LifeCause.LOSS.value if lost else before.cause,
        "forced": before.stopped or before.lost,
        "pause_ms": None if before.lost else pause_ms(change, day.corrections),
    }


def _verdict(change: Handover, ts: int, imbalance: dict[int, float]) -> Row:
    step = step_of(ts)

    def mean(offsets: range) -> float | None:
        spreads = [imbalance.get(step + offset * BUCKET_MS) for offset in offsets]
        values = [value for value in spreads if value is not None]
        return fmean(values) if values else None

    before, after = mean(range(-STEPS, 0)), mean(range(1, STEPS + 1))
    gain = None if before is None or after is None else before - after
    worth = None
    if (
        gain is not None
        and before is not None
        and not (change.before.stopped or change.before.lost)
    ):
        worth = gain > GAIN_MIN and gain > GAIN_SHARE_MIN * before
    return {"std_before": before, "std_after": after, "gain": gain, "worth_it": worth}


class _Orders:
    """The leaders' own records of moves: by the life that each ended, and of leaders that were not
    told it, in order by bundle and brokers.
    """

    def __init__(self, moves: Sequence[Row]) -> None:
        self._by_life = {(row["bundle"], row["life"]): row for row in moves if row["life"]}
        self._others: dict[tuple[str, str, str], list[Row]] = {}
        for row in moves:
            if not row["life"] and row["state"] == "done" and row["destination"]:
                key = (row["bundle"], row["source"], row["destination"])
                self._others.setdefault(key, []).append(row)

    def of(self, change: Handover) -> Row:
        """The leader's record of this change of owners."""
        before, after = change
        row = self._by_life.get((before.bundle, before.life))
        if row is None:
            others = self._others.get((before.bundle, before.broker, after.broker))
            row = others.pop(0) if others else {}
        return {
            "move": row.get("move"),
            "epoch": row.get("epoch"),
            "cycle": row.get("cycle"),
            "clients_closed": row.get("clientsClosed"),
            "author": row.get("author"),
        }


def _advice(name: str | None) -> str:
    """What saves such moves."""
    shedder = registry.SHEDDERS.get(name or "")
    if shedder is not None and shedder.fewer_moves:
        return shedder.fewer_moves
    shedders = registry.SHEDDERS.values()
    *others, last = sorted(each.name for each in shedders if each.names_destinations)
    return (
        "A longer loadBalancerSheddingGracePeriodMinutes or a higher threshold saves such moves; "
        f"{', '.join(others)} and {last} name destinations."
    )


def findings(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Moves of the leader that did not help, and long pauses of all moves."""
    judged = [
        row for row in rows if row.worth_it is not None and row.cause != LifeCause.OPERATOR.value
    ]
    useless = [row for row in judged if not row.worth_it]
    findings = []
    if useless:
        worst = min(useless, key=lambda row: (row.gain, row.ts, row.bundle))
        worse = sum(row.gain < -GAIN_MIN for row in useless)
        became = f"; after {worse} of them it was worse" if worse else ""
        findings.append(
            Finding(
                importance=20 + 25 * len(useless) / len(judged),
                question=NAME,
                title=f"{len(useless)} of {many(len(judged), 'move')} did not help",
                text=f"After them the brokers' usage was spread as before{became}. "
                f"The worst: {worst.bundle} from {worst.source} to {worst.destination} at "
                f"{clock(worst.ts)}, standard deviation {worst.std_before:.1%} before and "
                f"{worst.std_after:.1%} after ({worst.reason}).",
                advice=_advice(day.facts.shedder),
                numbers={"useless": len(useless), "judged": len(judged), "worstGain": worst.gain},
                at_ms=useless[0].ts,
                until_ms=useless[-1].ts,
                where=worst.bundle,
                plot="timeline",
                commands=command("loadmanager admin decisions --bundle", worst.bundle),
            )
        )
    return findings + _pauses(rows, day)


def _pauses(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Long pauses: those of a broker that stopped belong to its stop."""
    paused = [row for row in rows if row.pause_ms is not None]
    slow = [row for row in paused if row.pause_ms > LONG_PAUSE_MS]
    stopped: dict[tuple[str, int], list[Any]] = {}
    others = []
    for row in slow:
        stop = _stop_before(row, day)
        if stop is None:
            others.append(row)
        else:
            stopped.setdefault(stop, []).append(row)
    findings = [_stop(*stop, of_stop) for stop, of_stop in sorted(stopped.items())]
    if others:
        middle = sorted(row.pause_ms for row in paused)[(len(paused) - 1) // 2]
        text = f"half of all moves took no more than {middle:.0f} ms. "
        title = f"{many(len(others), 'move')} left a bundle without an owner for more than a second"
        advice = "Look at the metadata store's latency and at the logs of both brokers around that "
        findings.append(_long(others, title, text, f"{advice}time."))
    return findings


def _stop_before(row: Any, day: Day) -> tuple[str, int] | None:
    """The stop of its source that a move came from: broker and time."""
    if row.cause != LifeCause.STOP.value:
        return None
    stops = [
        (outage["broker"], outage["ts"])
        for outage in day.answers.get("outages", ())
        if outage["how"] == "stop" and outage["broker"] == row.source and outage["ts"] <= row.ts
    ]
    return max(stops, default=None)


def _stop(broker: str, ts: int, slow: Sequence[Any]) -> Finding:
    title = f"{many(len(slow), 'bundle')} had no owner for more than a second as {broker} stopped"
    advice = "Drain a broker before you stop it: its bundles then move one by one."
    finding = _long(slow, title, "its bundles waited for a lookup. ", advice)
    return replace(finding, causes=[f"outage {broker} {ts}"])


def _long(slow: Sequence[Any], title: str, text: str, advice: str) -> Finding:
    worst = max(slow, key=lambda row: (row.pause_ms, row.bundle))
    return Finding(
        importance=60 + min(len(slow), 19),
        question=NAME,
        title=title,
        text=f"The longest pause was {worst.pause_ms / 1000:.1f} s: {worst.bundle} from "
        f"{worst.source} to {worst.destination} at {clock(worst.ts)}; {text}"
        "Clients of the bundle could not publish or consume meanwhile.",
        advice=advice,
        numbers={"slow": len(slow), "maxMs": worst.pause_ms},
        at_ms=worst.ts,
        where=worst.bundle,
        plot="timeline",
        commands=["loadmanager admin moves list"],
    )
