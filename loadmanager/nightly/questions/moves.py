"""What did each move of a bundle do: how long did clients wait, and were its two brokers nearer to
each other afterwards?

Each move is an experiment: its source and its destination change by one bundle, all other brokers
do not. So it is judged by these two, whatever happens elsewhere; and where no other bundle came or
left them meanwhile, what they lost and gained says what the bundle costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Any

from loadmanager.engine.history.tenures import Handover, Tenure, changes, pause_ms
from loadmanager.engine.moves.move import Author
from loadmanager.engine.ownership.states import LifeCause
from loadmanager.engine.strategies import registry
from loadmanager.nightly.certainty import Certainty
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
    namespace_of,
    step_of,
)
from loadmanager.nightly.facts import BUCKET_MS
from loadmanager.nightly.hurt import NOBODY, clients_of
from loadmanager.nightly.orders import RecordedOrders
from loadmanager.nightly.trusted import trusted

NAME = "moves"
ABOUT = (
    "What did each move do? A move belongs to the cycle of the leader that ordered it by the life "
    "of the bundle that it ended. It was worth it when its source and its destination came nearer "
    "to each other, by more than a point and a twentieth of their distance. Moves off brokers that "
    "stopped, were drained or were lost, moves that others than a cycle ordered, and moves beside "
    "bundles of a broker that stopped or was lost are not judged; moves of one broker within a "
    "quarter of an hour share what came of it."
)
COLUMNS: Columns = {
    "ts": (WHOLE, "when the destination had the bundle, by its clock, corrected"),
    "bundle": (TEXT, "the bundle"),
    "source": (TEXT, "the broker that had owned it"),
    "destination": (TEXT, "the broker that owned it afterwards"),
    "reason": (TEXT, "why the source gave it up, or who ordered the drain, plan … and their note"),
    "cause": (TEXT, "leader, drain, plan, goal, merge, operator, stop, loss, lookup …"),
    "forced": (YES_NO, "whether its broker stopped or was lost: nobody chose this move"),
    "pause_ms": (NUMBER, "how long clients had no owner, in ms; empty: not known"),
    "clients_waited_ms": (
        NUMBER,
        "how long its clients waited until they were back, on the mean, in ms; empty: not recorded",
    ),
    "gap_before": (NUMBER, "usage of the source minus that of the destination, ten minutes before"),
    "gap_after": (NUMBER, "the same, five to fifteen minutes after"),
    "gain": (NUMBER, "how much nearer each came to the mean of both"),
    "worth_it": (YES_NO, "whether the gain is more than 0.5 points and a twentieth"),
    "took": (
        NUMBER,
        "usage that the source lost and the destination gained, on the mean; empty: not alone",
    ),
    "expected": (NUMBER, "the same as the shedder expected it; empty: it does not say"),
    "author": (TEXT, "who wanted it: cycle, operator, drain …; empty: not known"),
    "move": (TEXT, "the id of the leader's move"),
    "epoch": (WHOLE, "the leader's term"),
    "cycle": (WHOLE, "the leader's cycle"),
    "clients_closed": (WHOLE, "producers and consumers that the source had"),
}
STEPS = 2
"""Time steps compared before and after a move."""
GAIN_MIN, GAIN_SHARE_MIN = 0.005, 0.05
USELESS_SHARE = 0.2
"""A smaller part of a day's moves that did not help is chance: traffic changes meanwhile."""
LONG_PAUSE_MS = 1000
LOST = "its broker was lost"
CHOSEN = ("cycle", "plan", "goal")
"""Authors of moves that even the load out."""
LEARNED_MIN = 5
"""Fewer moves do not say what bundles cost."""
EXPECTED_MIN = 0.005
AS_EXPECTED = 0.5
"""Moves that took less than this part of what was expected, or so much more, are worth a word."""
OUTCOME_MAX = 300
"""Characters of an outcome or a reason."""


def table(day: Day) -> list[Row]:
    usages = _Usages(day)
    orders = RecordedOrders(day.facts.leader_moves)
    handovers = []
    for change in changes(day.owners):
        acquired = change.after.since_ms
        if acquired is None or acquired < day.start_ms or change.after.parent is not None:
            continue
        if change.before.broker != change.after.broker:
            ts = round(acquired - day.corrections.get(change.after.broker, 0.0))
            handovers.append((change, ts))
    busy = _busy(handovers)
    upset = _busy([each for each in handovers if _forced(each[0].before)])
    rows = [
        row | _ordered(row, orders.of(change)) | _verdict(change, ts, usages, busy)
        for change, ts in handovers
        for row in [_row(change, ts, day)]
    ]
    for row in rows:
        sides = (row["source"], row["destination"])
        if row["author"] not in (None, Author.CYCLE.value) or any(
            _within(upset.get(broker, ()), row["ts"]) for broker in sides
        ):
            row["worth_it"] = None  # whatever it did to the balance
    return sorted(rows, key=lambda row: (row["ts"], row["bundle"]))


def _busy(handovers: Sequence[tuple[Handover, int]]) -> dict[str, list[int]]:
    """Broker → the five minutes in which bundles came or left."""
    busy: dict[str, list[int]] = {}
    for change, ts in handovers:
        for broker in (change.before.broker, change.after.broker):
            busy.setdefault(broker, []).append(step_of(ts))
    return busy


class _Usages:
    """The usage of each broker, without what a sensor that lied made of it."""

    def __init__(self, day: Day) -> None:
        self._usage = {
            (step["broker"], step["bucket"]): step["usage"]
            for step in trusted(day)
            if not step["lied"]
        }

    def around(self, broker: str, ts: int) -> tuple[float, float] | None:
        """The mean before a move and after it; None: one of them is not recorded."""
        step = step_of(ts)
        spans = (range(-STEPS, 0), range(1, STEPS + 1))
        parts = [
            [
                usage
                for offset in offsets
                if (usage := self._usage.get((broker, step + offset * BUCKET_MS))) is not None
            ]
            for offsets in spans
        ]
        before, after = parts
        return (fmean(before), fmean(after)) if before and after else None


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
        "forced": _forced(before),
        "pause_ms": None if before.lost else pause_ms(change, day.corrections),
    }


def _ordered(row: Row, order: Row) -> Row:
    """How long there was no owner, by the leader where the owners' records do not tell, and how
    long clients waited; and who wanted a move of the leader's that no cycle ordered.
    """
    recorded, said = order.pop("pause_ms"), order.pop("in_words")
    paused = row["pause_ms"]
    if said is not None and row["cause"] == LifeCause.LEADER.value:
        order |= {"cause": order["author"], "reason": said}
    return {**order, "pause_ms": recorded if paused is None and not row["forced"] else paused}


def _verdict(change: Handover, ts: int, usages: _Usages, busy: dict[str, list[int]]) -> Row:
    source = usages.around(change.before.broker, ts)
    destination = usages.around(change.after.broker, ts)
    row: Row = dict.fromkeys(("gap_before", "gap_after", "gain", "worth_it", "took"))
    if source is None or destination is None:
        return row
    gap_before, gap_after = source[0] - destination[0], source[1] - destination[1]
    gain = (abs(gap_before) - abs(gap_after)) / 2
    row |= {"gap_before": gap_before, "gap_after": gap_after, "gain": gain}
    if not _forced(change.before):
        row["worth_it"] = gain > max(GAIN_MIN, GAIN_SHARE_MIN * abs(gap_before) / 2)
    if _alone(change, ts, busy):
        row["took"] = (source[0] - source[1] + destination[1] - destination[0]) / 2
    return row


def _alone(change: Handover, ts: int, busy: dict[str, list[int]]) -> bool:
    """Whether no other bundle came to or left its brokers while their usage was compared."""
    sides = (change.before.broker, change.after.broker)
    return all(_within(busy[broker], ts) == 1 for broker in sides)


def _within(steps: Sequence[int], ts: int) -> int:
    """How many of these are among the five minutes that are compared."""
    return sum(abs(step - step_of(ts)) <= STEPS * BUCKET_MS for step in steps)


def _forced(tenure: Tenure) -> bool:
    """Whether nobody chose its end."""
    return tenure.stopped or tenure.lost


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
    """Moves of the leader that did not help, cost otherwise than expected or failed; what stopped
    them; and long pauses of all moves.
    """
    judged = [row for row in rows if row.worth_it is not None and _chosen(row)]
    useless = [row for row in judged if not row.worth_it]
    findings = []
    if useless and len(useless) >= USELESS_SHARE * len(judged):
        worst = min(useless, key=lambda row: (row.gain, row.ts, row.bundle))
        worse = sum(row.gain < -GAIN_MIN for row in useless)
        became = f"; after {worse} of them they were farther" if worse else ""
        findings.append(
            Finding(
                importance=20 + 25 * len(useless) / len(judged),
                question=NAME,
                title=f"{len(useless)} of {many(len(judged), 'move')} did not help",
                text="After them the usage of source and destination was as far apart as before"
                f"{became}. The worst: {worst.bundle} from {worst.source} to {worst.destination} "
                f"at {clock(worst.ts)}, {100 * worst.gap_before:+.1f} points before and "
                f"{100 * worst.gap_after:+.1f} after ({worst.reason}).",
                advice=_advice(day.facts.shedder),
                hurt=clients_of(
                    (namespace_of(row.bundle) for row in useless), "they reconnected for nothing"
                ),
                numbers={"useless": len(useless), "judged": len(judged), "worstGain": worst.gain},
                at_ms=useless[0].ts,
                until_ms=useless[-1].ts,
                where=worst.bundle,
                plot="timeline",
                commands=command("loadmanager admin decisions --bundle", worst.bundle),
                causes=["back and forth"] if _all_back(useless, day) else [],
            )
        )
    return [*findings, *_learned(judged), *_failed(day), *_stops(day), *_pauses(rows, day)]


def _all_back(useless: Sequence[Any], day: Day) -> bool:
    """Whether all these moves are of bundles that moved back and forth."""
    back = {
        row["bundle"] for row in day.answers.get("flapping", ()) if row["returns"] > row["operator"]
    }
    return all(row.bundle in back for row in useless)


def _chosen(row: Any) -> bool:
    """Whether the leader chose a move to even the load out; not a drain, say."""
    return row.cause != LifeCause.OPERATOR.value and row.author in (None, *CHOSEN)


def _learned(judged: Sequence[Any]) -> list[Finding]:
    """What moved bundles took, beside what the shedder expected of them."""
    pairs = [
        (row.took, row.expected)
        for row in judged
        if row.took is not None and row.expected is not None and row.expected >= EXPECTED_MIN
    ]
    if len(pairs) < LEARNED_MIN:
        return []
    part = median(took / expected for took, expected in pairs)
    if AS_EXPECTED <= part <= 1 / AS_EXPECTED:
        return []
    return [
        Finding(
            importance=24,
            question=NAME,
            title=f"moved bundles took {part:.1f} times what was expected of them",
            text=f"{len(pairs)} moves had their two brokers to themselves: half of them changed "
            f"these by no more than {part:.1f} times what the shedder's model of costs said.",
            advice="Look at the cost of each namespace and at the idle part of each broker, and "
            "let replay say how far off the model is.",
            hurt=f"{NOBODY} by itself: plans come out otherwise than they say",
            numbers={"moves": len(pairs), "part": part},
            commands=["loadmanager admin load"],
        )
    ]


def _failed(day: Day) -> list[Finding]:
    """Moves that were ordered and failed."""
    tried = [row for row in day.facts.leader_moves if row["state"] in ("done", "failed")]
    failed = [row for row in tried if row["state"] == "failed"]
    if not failed:
        return []
    first = failed[0]
    return [
        Finding(
            importance=36 + 20 * len(failed) / len(tried),
            question=NAME,
            certainty=Certainty.RECORDED,
            title=f"{len(failed)} of {many(len(tried), 'move')} failed",
            text=f"The first: {first['bundle']} from {first['source']} to {first['destination']} "
            f"at {clock(first['ts'])}: {(first['outcome'] or 'no reason')[:OUTCOME_MAX]}.",
            advice="Look at the logs of both brokers around that time.",
            hurt=clients_of(
                (namespace_of(row["bundle"]) for row in failed if row["bundle"]),
                "they may have reconnected for nothing",
            ),
            numbers={"failed": len(failed), "tried": len(tried)},
            at_ms=first["ts"],
            until_ms=failed[-1]["ts"],
            where=first["bundle"] or "",
            plot="timeline",
            commands=command("loadmanager admin decisions --bundle", first["bundle"] or ""),
        )
    ]


def _stops(day: Day) -> list[Finding]:
    """The circuit breaker of a daemon beside a Pulsar."""
    stops = day.facts.breaker_stops
    if not stops:
        return []
    reasons = "; ".join(
        f"at {clock(stop['ts'])}, {(stop['reason'] or '')[:OUTCOME_MAX]}" for stop in stops[:3]
    )
    return [
        Finding(
            importance=50 + min(len(stops), 9),
            question=NAME,
            certainty=Certainty.RECORDED,
            title=f"the circuit breaker stopped moves {many(len(stops), 'time')}",
            text=f"The daemon moved nothing for a while: {reasons}.",
            advice="See to what stopped it: it goes on by itself after breakerMinutes.",
            hurt=f"{NOBODY} by itself: tenants of brokers that were too busy meanwhile were so for "
            "longer",
            numbers={"stops": len(stops)},
            at_ms=stops[0]["ts"],
            until_ms=stops[-1]["ts"],
            plot="timeline",
            commands=["loadmanager admin moves resume"],
        )
    ]


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
        hurt=clients_of(
            (namespace_of(row.bundle) for row in slow),
            f"no owner of bundles for {sum(row.pause_ms for row in slow) / 1000:.1f} s in sum",
        ),
        numbers={"slow": len(slow), "maxMs": worst.pause_ms},
        at_ms=worst.ts,
        where=worst.bundle,
        plot="timeline",
        commands=["loadmanager admin moves list"],
    )
