"""What comes tomorrow, for each broker, namespace and busy bundle?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadmanager.engine.history.forecast import DAY, Forecast, forecast
from loadmanager.kit.units import HOUR_MS
from loadmanager.nightly.day import NUMBER, TEXT, WHOLE, Columns, Day, Finding, Row, clock
from loadmanager.nightly.hurt import NOBODY

NAME = "forecasts"
ABOUT = (
    "What comes tomorrow? From up to 28 analysed days: the usual value of each hour of the day "
    "(from two weeks on: of the week), with the trend. The back-test foretells the last day from "
    "the days before; where the naive forecast (as a day before) did better there, that is used. "
    "A busy bundle is foretold from its daily means."
)
COLUMNS: Columns = {
    "kind": (TEXT, "broker, namespace, cluster or bundle"),
    "name": (TEXT, "which one"),
    "days": (WHOLE, "days of history"),
    "mean_tomorrow": (
        NUMBER,
        "expected mean: usage of a broker (of the cluster: sum), else bytes/s",
    ),
    "peak_tomorrow": (NUMBER, "expected busiest hour"),
    "peak_hour_ts": (WHOLE, "when that is"),
    "error": (
        NUMBER,
        "back-test of the pattern: mean absolute error over the mean, of the last day",
    ),
    "naive_error": (NUMBER, "the same of the naive forecast"),
    "used": (TEXT, "pattern or naive"),
    "growth_per_day": (NUMBER, "growth of the daily mean, as a fraction; 0: no clear trend"),
}
SERIES_MAX = 2_000
HOT_MAX = 20
ORDER = {"cluster": 0, "broker": 1, "namespace": 2, "bundle": 3}


def table(day: Day) -> list[Row]:
    """A row for each that has two days of history and was there on the last."""
    series: dict[tuple[str, str], dict[int, float]] = {}
    for row in day.past("hourly") + day.answer("hourly"):
        key = (row["kind"], row["name"])
        series.setdefault(key, {})[row["hour_ts"] // HOUR_MS] = row["value"]
    last = day.end_ms // HOUR_MS
    rows = []
    for (kind, name), values in sorted(series.items())[:SERIES_MAX]:
        first = min(values)
        if max(values) < last - DAY:
            continue  # it is gone
        first -= (first - last) % DAY  # whole days
        foretold = forecast(first, [values.get(hour) for hour in range(first, last)], DAY)
        if foretold is not None:
            rows.append(_row(kind, name, (last - first) // DAY, foretold, last))
    rows += _bundles(day)
    return sorted(rows, key=lambda row: (ORDER[row["kind"]], -row["peak_tomorrow"], row["name"]))


def _row(kind: str, name: str, days: int, foretold: Forecast, last: int) -> Row:
    peak = max(range(DAY), key=lambda hour: (foretold.values[hour], -hour))
    return {
        "kind": kind,
        "name": name,
        "days": days,
        "mean_tomorrow": sum(foretold.values) / DAY,
        "peak_tomorrow": foretold.peak,
        "peak_hour_ts": (last + peak) * HOUR_MS,
        "error": foretold.error,
        "naive_error": foretold.naive_error,
        "used": foretold.used,
        "growth_per_day": foretold.growth_per_day,
    }


def _bundles(day: Day) -> list[Row]:
    """The bundles expected to be busiest: as today, with what a day before would have erred."""
    today = day.answer("hot_bundles")[:HOT_MAX]
    before = {
        row["bundle"]: row["throughput_mean"]
        for row in day.past("hot_bundles", days=1, columns=["bundle", "throughput_mean"])
    }
    rows = []
    for row in today:
        expected, now = before.get(row["bundle"]), row["throughput_mean"]
        error = abs(expected - now) / now if expected is not None and now > 0 else None
        rows.append(
            {
                "kind": "bundle",
                "name": row["bundle"],
                "days": 1 + (expected is not None),
                "mean_tomorrow": now,
                "peak_tomorrow": row["throughput_p95"] or now,
                "peak_hour_ts": None,
                "error": error,
                "naive_error": error,
                "used": "naive",
                "growth_per_day": 0.0,
            }
        )
    return rows


def findings(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Brokers that are expected to be overloaded."""
    limit = day.settings.overloaded_percent / 100
    return [
        Finding(
            importance=46,
            question=NAME,
            title=f"{row.name} is expected to be overloaded tomorrow",
            text=f"At {row.peak_tomorrow:.0%} in its busiest hour, from {clock(row.peak_hour_ts)} "
            f"on, by {row.days} days of history"
            + ("." if error is None else f"; this forecast erred by {error:.0%} on the last day."),
            advice="Let the shedder move load away before, or add a broker.",
            hurt=f"{NOBODY} yet: tomorrow the tenants with bundles on {row.name}",
            numbers={"peak": row.peak_tomorrow, "error": error},
            at_ms=row.peak_hour_ts,
            where=row.name,
            plot="usage",
            commands=["loadmanager admin dry-run"],
            causes=[f"slow {row.name}", f"overload {row.name}"],
        )
        for row in rows
        if row.kind == "broker" and row.peak_tomorrow > limit
        for error in [_error(row)]
    ]


def _error(row: Any) -> float | None:
    """The error of the forecast that is used."""
    error: float | None = row.naive_error if row.used == "naive" else row.error
    return error
