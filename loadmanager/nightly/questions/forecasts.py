"""What comes tomorrow, for each broker, namespace and busy bundle?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, Protocol

import numpy as np

from loadmanager.engine.history.forecast import DAY, Forecast, forecast
from loadmanager.engine.load.columns import Array
from loadmanager.kit.units import HOUR_MS
from loadmanager.nightly.day import NUMBER, TEXT, WHOLE, Columns, Day, Finding, Row, clock
from loadmanager.nightly.hurt import NOBODY

NAME = "forecasts"
ABOUT = (
    "What comes tomorrow? From up to 28 analysed days: the usual value of each hour of the day "
    "(from two weeks on: of the week), with the trend. The back-test foretells the last day from "
    "the days before; where the naive forecast (as a day before) did better there, that is used. "
    "A busy bundle is foretold from its daily means. Usage of brokers and of the cluster: by the "
    "traffic of namespaces, if the day was replayed and the model explains it: what the bundles "
    "that a broker has at the end of the day would make it use, and the back-test has the error of "
    "the model, too; else by its own usage, which moves and sensors that lie have changed."
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
        "back-test of the pattern or traffic: mean absolute error over the mean, of the last day",
    ),
    "naive_error": (NUMBER, "the same of the naive forecast"),
    "used": (TEXT, "pattern, naive, or traffic: that of namespaces, each by what was better"),
    "growth_per_day": (NUMBER, "growth of the daily mean, as a fraction; 0: no clear trend"),
}
TRAFFIC = "traffic"
USED = ("broker", "cluster")
"""The kinds whose value is usage."""
SERIES_MAX = 2_000
HOT_MAX = 20
ORDER = {"cluster": 0, "broker": 1, "namespace": 2, "bundle": 3}


Hours = dict[int, float]
"""Hour since the epoch → value."""
Series = Mapping[tuple[str, str], Hours]
"""Kind and name → its hours."""


class TrafficUsage(Protocol):
    """What traffic makes brokers use at the end of a day, as fractions."""

    @property
    def beside(self) -> float:
        """Usage without traffic."""

    @property
    def error(self) -> float:
        """The mean error of a broker's usage."""

    @property
    def of_byte(self) -> Mapping[str, Mapping[str, float]]:
        """Broker → namespace → for each byte/s of that namespace, wherever it goes."""


class ForecastsByModel:
    """The question, with what has the model of a date; None: that day explains too little.
    On made-up weeks that is nearer to the truth than brokers' own hours wherever bundles move,
    brokers come, namespaces grow or sensors stick (`python -m bench forecasts`).
    """

    NAME = NAME
    ABOUT = ABOUT
    COLUMNS = COLUMNS

    def __init__(self, model_of: Callable[[str], TrafficUsage | None]) -> None:
        self._model_of = model_of

    def table(self, day: Day) -> list[Row]:
        """See `rows`."""
        return rows(day, self._model_of(day.date))

    def findings(self, answer: Sequence[Any], day: Day) -> list[Finding]:
        """See `findings` of the module."""
        return findings(answer, day)


def table(day: Day) -> list[Row]:
    """See `rows`."""
    return rows(day, None)


def rows(day: Day, model: TrafficUsage | None) -> list[Row]:
    """A row for each that has two days of history and was there on the last."""
    series: dict[tuple[str, str], Hours] = {}
    for row in day.past("hourly") + day.answer("hourly"):
        key = (row["kind"], row["name"])
        series.setdefault(key, {})[row["hour_ts"] // HOUR_MS] = row["value"]
    last = day.end_ms // HOUR_MS
    foretold = foretell(series, last, model)
    answer = [_row(*key, *each, last) for key, each in foretold.items()]
    answer += _bundles(day)
    return sorted(answer, key=lambda row: (ORDER[row["kind"]], -row["peak_tomorrow"], row["name"]))


def foretell(
    series: Series, last: int, model: TrafficUsage | None
) -> dict[tuple[str, str], tuple[int, Forecast]]:
    """The day that begins at the hour `last`, of each that is there, and by how many days: usage by
    the traffic of namespaces, if there is a model, else by its own hours.
    """
    some = dict(sorted(series.items())[:SERIES_MAX])
    by_hours = {key: made for key, hours in some.items() if (made := _by_hours(hours, last))}
    if model is None:
        return by_hours
    answer = {key: made for key, made in by_hours.items() if key[0] not in USED}
    for (kind, cluster), (days, _) in by_hours.items():
        if kind == "cluster":
            for key, usage in _by_traffic(cluster, series, by_hours, last, model).items():
                answer[key] = days, usage
    return answer


def _by_hours(hours: Hours, last: int) -> tuple[int, Forecast] | None:
    first = min(hours)
    if max(hours) < last - DAY:
        return None  # it is gone
    first -= (first - last) % DAY  # whole days
    foretold = forecast(first, [hours.get(hour) for hour in range(first, last)], DAY)
    return None if foretold is None else ((last - first) // DAY, foretold)


def _by_traffic(
    cluster: str,
    series: Series,
    by_hours: Mapping[tuple[str, str], tuple[int, Forecast]],
    last: int,
    model: TrafficUsage,
) -> dict[tuple[str, str], Forecast]:
    """Usage of brokers and the cluster, with the bundles of the end of the day. The back-test
    foretells the traffic of the last day, and has the model's error, too.
    """
    traffic = {
        name: _traffic(hours, last, by_hours.get(("namespace", name)))
        for (kind, name), hours in series.items()
        if kind == "namespace"
    }
    there = series["cluster", cluster]
    recorded = np.array([hour in there for hour in range(last - DAY, last)])
    made: dict[tuple[str, str], Forecast] = {}
    sums, sum_grows = np.zeros((LOOKS, DAY)), 0.0
    for broker, of_byte in model.of_byte.items():
        usage, grows = np.full((LOOKS, DAY), model.beside), 0.0
        for name, each in of_byte.items():
            if name in traffic:
                usage += each * traffic[name][0]
                grows += each * traffic[name][1]
        sums, sum_grows = sums + usage, sum_grows + grows
        made["broker", broker] = _made(usage, recorded, grows, model.error)
    of_all = model.error * len(model.of_byte)
    made["cluster", cluster] = _made(sums, recorded, sum_grows, of_all)
    return made


LOOKS = 4
"""Tomorrow, the last day as it would have been foretold, as it was, and the day before it."""


def _traffic(hours: Hours, last: int, foretold: tuple[int, Forecast] | None) -> tuple[Array, float]:
    """Bytes/s of a namespace: `[look, hour]`, and their growth a day. What is not foretold is as on
    the last day.
    """
    came, before = (
        np.array([hours.get(hour, 0.0) for hour in range(begin, begin + DAY)])
        for begin in (last - DAY, last - 2 * DAY)
    )
    if foretold is None:
        return np.stack([came, before, came, before]), 0.0
    grows = foretold[1].growth_per_day * fmean(hours.values())
    earlier = {hour: value for hour, value in hours.items() if hour < last - DAY}
    tested = _by_hours(earlier, last - DAY) if earlier else None
    as_tested = before if tested is None else np.array(tested[1].values)
    return np.stack([np.array(foretold[1].values), as_tested, came, before]), grows


def _made(usage: Array, recorded: Array, grows: float, model_error: float) -> Forecast:
    """`usage`: `[look, hour]`; `recorded`: whether anything was in that hour of the last day."""
    _, tested, came, before = usage[:, recorded]
    mean = float(came.mean()) if len(came) else 0.0

    def error(foretold: Array) -> float | None:
        return (float(np.abs(foretold - came).mean()) + model_error) / mean if mean > 0 else None

    return Forecast(
        values=usage[0].tolist(),
        error=error(tested),
        naive_error=error(before),
        growth_per_day=grows / mean if mean > 0 else 0.0,
        used=TRAFFIC,
    )


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
    answer = []
    for row in today:
        expected, now = before.get(row["bundle"]), row["throughput_mean"]
        error = abs(expected - now) / now if expected is not None and now > 0 else None
        answer.append(
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
    return answer


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
