"""How busy was each broker, and for how long was it over the threshold?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadmanager.nightly.day import (
    NUMBER,
    TEXT,
    WHOLE,
    Columns,
    Day,
    Finding,
    Row,
    command,
    hours,
    lasting,
)
from loadmanager.nightly.hurt import OnBrokers
from loadmanager.nightly.trusted import by_broker, trusted

NAME = "broker_usage"
ABOUT = (
    "How busy was each broker? Usage is the most used resource after weighting, as a fraction; of "
    "a broker whose sensor lied, that of its other sensors."
)
COLUMNS: Columns = {
    "broker": (TEXT, "the broker"),
    "samples": (WHOLE, "records of its load"),
    "mean": (NUMBER, "mean usage"),
    "p50": (NUMBER, "usage that half of the samples did not exceed"),
    "p95": (NUMBER, "usage that 95% of the samples did not exceed"),
    "p99": (NUMBER, "usage that 99% of the samples did not exceed"),
    "max": (NUMBER, "highest usage of a sample"),
    "hours_over": (NUMBER, "hours above loadBalancerBrokerOverloadedThresholdPercentage"),
    "hours": (NUMBER, "hours that the samples stand for"),
    "throughput_mean": (NUMBER, "mean bytes/s in and out"),
    "rate_mean": (NUMBER, "mean messages/s in and out"),
    "bundles_max": (WHOLE, "most bundles that it had at a time"),
    "over_from_ts": (WHOLE, "when the first five minutes above the threshold began"),
    "over_until_ts": (WHOLE, "when the last ones ended"),
    "unexplained": (
        NUMBER,
        (
            "usage for the same bytes or messages in most five minutes above the threshold, as a "
            "multiple of what is usual of that broker; the smaller of both"
        ),
    ),
}
OVER_HOURS_MIN = 0.1
"""Shorter peaks are not reported."""
UNEXPLAINED = 1.4
"""A multiple of the usual usage for the same traffic that the traffic does not explain."""
USUAL = 0.25
"""Of the five minutes in order of usage for the same traffic, the one at this part is usual: a
sensor may lie most of the day. Of those above the threshold, it is what most exceed.
"""


def table(day: Day) -> list[Row]:
    """A row a broker. Percentiles are exact, but for a broker whose sensor lied: of its five
    minutes' means.
    """
    rows = [_row(broker, steps, day) for broker, steps in by_broker(trusted(day)).items()]
    return sorted(rows, key=lambda row: (-row["hours_over"], -row["p95"], row["broker"]))


def _row(broker: str, steps: Sequence[Row], day: Day) -> Row:
    samples = sum(step["samples"] for step in steps)
    limit = day.settings.overloaded_percent / 100
    over = [step for step in steps if step["over_ms"] > 0]
    if any(step["lied"] for step in steps):
        means = sorted(step["usage"] for step in steps)
        quantiles = [means[int(share * (len(means) - 1))] for share in (0.5, 0.95, 0.99)]
        highest = means[-1]
        over = [step for step in steps if step["usage"] > limit]
        over_ms = sum(step["interval_ms"] for step in over)
    else:
        quantiles = day.facts.usage_quantiles[broker]
        highest = max(step["usage_max"] for step in steps)
        over_ms = sum(step["over_ms"] for step in steps)
    return {
        "broker": broker,
        "samples": samples,
        "mean": sum(step["usage"] * step["samples"] for step in steps) / samples,
        **dict(zip(("p50", "p95", "p99"), quantiles, strict=True)),
        "max": highest,
        "hours_over": hours(over_ms),
        "hours": hours(sum(step["interval_ms"] for step in steps)),
        "throughput_mean": sum(step["throughput_sum"] for step in steps) / samples,
        "rate_mean": sum(step["rate_sum"] for step in steps) / samples,
        "bundles_max": max(step["bundles_max"] for step in steps),
        "over_from_ts": over[0]["first_ts"] if over else None,
        "over_until_ts": over[-1]["last_ts"] if over else None,
        "unexplained": _unexplained(steps, over),
    }


def _unexplained(steps: Sequence[Row], above: Sequence[Row]) -> float | None:
    """How much more usage than usual the same traffic took above the threshold; None where nothing
    else was recorded, or without traffic.
    """
    multiples = []
    for figure in ("throughput_sum", "rate_sum"):
        each = sorted(step["usage"] / step[figure] for step in steps if step[figure] > 0)
        then = sorted(step["usage"] / step[figure] for step in above if step[figure] > 0)
        if not then or len(above) == len(steps):
            return None
        usual, least = (values[int(USUAL * (len(values) - 1))] for values in (each, then))
        multiples.append(least / usual if usual > 0 else 0.0)
    return min(multiples)


def findings(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Brokers that were overloaded, or said so."""
    return [_finding(row, day) for row in rows if row.hours_over >= OVER_HOURS_MIN]


def _finding(row: Any, day: Day) -> Finding:
    threshold, spent = day.settings.overloaded_percent, lasting(row.hours_over)
    title = f"{row.broker} was overloaded for {spent}"
    advice = "If other brokers had room, look at the day's moves; otherwise add a broker."
    more, importance = "", 60 + 20 * row.hours_over / (row.hours_over + 3)
    commands = ["loadmanager admin moves list", "loadmanager admin dry-run"]
    if (row.unexplained or 0.0) >= UNEXPLAINED:
        title = f"{row.broker} showed more than {threshold:g}% for {spent}, which its traffic does "
        title += "not explain"
        more = f" The same traffic took {row.unexplained:.1f} times its usual usage then, or more."
        advice = "Its sensor lies, or something else runs on its machine: look there first."
        commands, importance = command("loadmanager admin brokers report", row.broker), 60
    return Finding(
        importance=importance,
        question=NAME,
        title=title,
        text=f"Its usage was above {threshold:g}% for {spent} of {lasting(row.hours)}; half of the "
        f"time it was at least {row.p50:.0%}, and a twentieth of the time at least "
        f"{row.p95:.0%}.{more}",
        advice=advice,
        hurt=OnBrokers(
            [row.broker],
            "on a broker that was too busy"
            if importance > 60
            else "on a broker that may have been too busy",
            row.over_from_ts,
            row.over_until_ts,
        ),
        numbers={"hoursOver": row.hours_over, "p50": row.p50, "p95": row.p95, "max": row.max},
        at_ms=row.over_from_ts,
        until_ms=row.over_until_ts,
        where=row.broker,
        plot="usage",
        commands=commands,
        causes=[f"slow {row.broker}", f"broker {row.broker}", f"overload {row.broker}"],
    )
