"""Small data for the plots: the time axis fits the day's records; only the busiest bundles and a
bounded number of lines are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from loadmanager.nightly.day import Day, Row, many
from loadmanager.nightly.facts import BUCKET_MS, PlotSteps
from loadmanager.nightly.questions import lapses
from loadmanager.nightly.trusted import by_broker, trusted

BUNDLES_MAX = 40
BROKERS_MAX = 12
LIMITS_MAX = 12
MARKS_MAX = 400

Line = list[float | None]


@dataclass(frozen=True, slots=True)
class Mark:
    """An event on the timeline."""

    ts: float
    lane: str
    """`brokers`, `leader`, `moves` or `splits`."""
    kind: str
    """How it looks: `bad`, `good`, or the lane's."""
    text: str


@dataclass(slots=True)
class Plots:
    """Numbers for the plots; the index of a list is the time step."""

    axis: PlotSteps
    heat: dict[str, Line] = field(default_factory=dict)
    """Bundle → bytes/s, the busiest first."""
    heat_moves: list[tuple[str, int, str]] = field(default_factory=list)
    """Bundle, ms, text."""
    heat_splits: list[tuple[str, int, str]] = field(default_factory=list)
    usage: dict[str, Line] = field(default_factory=dict)
    """Broker → usage."""
    std: Line = field(default_factory=list)
    hold_shares: dict[str, float] = field(default_factory=dict)
    """Limit → share of the time in which somebody was held."""
    delivered: dict[str, Line] = field(default_factory=dict)
    """Limit → delivered over configured."""
    events: list[Mark] = field(default_factory=list)
    events_total: int = 0
    failed: list[str] = field(default_factory=list)
    """Why a plot is missing."""


def gather(day: Day, reason_of: Callable[[Exception], str]) -> Plots:
    """Draw all plots. A plot that fails is left out, with the reason that `told` gives."""
    plots = Plots(PlotSteps(day.start_ms, 900_000, 96))
    for draw in (_axis, _heat_map, _usage, _imbalance, _limits, _timeline):
        try:
            draw(plots, day)
        except (ConnectionError, KeyboardInterrupt):
            raise
        except Exception as error:  # noqa: BLE001 - contained, as a question is
            plots.failed.append(reason_of(error))
    return plots


def _axis(plots: Plots, day: Day) -> None:
    plots.axis = day.facts.plot_steps


def _heat_map(plots: Plots, day: Day) -> None:
    bundles = [row["bundle"] for row in day.answer("hot_bundles")[:BUNDLES_MAX]]
    values = [
        (row["bundle"], row["step"], row["mean"])
        for row in day.facts.busiest_bundles
        if row["step"] is not None
    ]
    plots.heat = _lines(values, bundles, plots.axis.count)
    plots.heat_moves = [
        (
            row["bundle"],
            row["ts"],
            f"{row['source']} → {row['destination']}: {row['reason']}"
            + {None: "", True: ", worth it", False: ", no gain"}[row["worth_it"]],
        )
        for row in day.answers.get("moves", ())
        if row["bundle"] in plots.heat
    ][:MARKS_MAX]
    plots.heat_splits = [
        (bundle, row["ts"], f"split of {row['parent']}")
        for row in day.answers.get("splits", ())
        for bundle in (row["parent"], *row["children"])
        if bundle in plots.heat
    ][:MARKS_MAX]


def _usage(plots: Plots, day: Day) -> None:
    brokers = by_broker(trusted(day))
    peaks = {name: max(step["usage"] for step in steps) for name, steps in brokers.items()}
    busiest = sorted(peaks, key=lambda name: (-peaks[name], name))[:BROKERS_MAX]
    values = [
        (name, at, step["usage"])
        for name in busiest
        for step in brokers[name]
        if not step["lied"]
        for at in _steps(plots.axis, step["bucket"])
    ]
    plots.usage = _lines(values, sorted(busiest), plots.axis.count)


def _imbalance(plots: Plots, day: Day) -> None:
    values = [
        ("std", at, row["std"])
        for row in day.answer("imbalance")
        for at in _steps(plots.axis, row["bucket"])
    ]
    plots.std = _lines(values, ["std"], plots.axis.count)["std"]


def _limits(plots: Plots, day: Day) -> None:
    holding = [row for row in day.answer("throttling") if row["held_share"] > 0][:LIMITS_MAX]
    plots.hold_shares = {_limit(row): row["held_share"] for row in holding}
    ratios = day.facts.delivered(sorted({row["limit"] for row in holding}))
    values = [(_limit(row), row["step"], row["value"]) for row in ratios]
    plots.delivered = _lines(values, list(plots.hold_shares), plots.axis.count)


def _limit(row: Row) -> str:
    return f"{row['limit']} of {row['broker']}" if row["broker"] else str(row["limit"])


def _timeline(plots: Plots, day: Day) -> None:
    """Crashes, joins, terms, moves and splits, by time."""
    marks = [*_of_brokers(day), *_of_leaders(day)]
    for row in day.answers.get("splits", ()):
        text = f"split of {row['parent']} into {len(row['children'])}"
        marks.append(Mark(row["ts"], "splits", "split", text))
    for row in day.answers.get("moves", ()):
        text = f"{row['bundle']} {row['source']} → {row['destination']}: {row['reason']}"
        marks.append(Mark(row["ts"], "moves", "bad" if row["cause"] == "loss" else "move", text))
    plots.events_total = len(marks)
    # what was lost, then all that is rare, then as many moves as fit
    marks.sort(
        key=lambda mark: (mark.kind != "bad", mark.lane == "moves", mark.ts, mark.lane, mark.text)
    )
    plots.events = sorted(marks[:MARKS_MAX], key=lambda mark: (mark.ts, mark.lane, mark.text))


def _of_brokers(day: Day) -> list[Mark]:
    marks = []
    for row in day.answers.get("outages", ()):
        bad = "bad" if row["how"] in ("crash", "session lost") else "gone"
        text = f"{row['broker']}: {row['how']}, {many(row['bundles'], 'bundle')} without an owner"
        marks.append(Mark(row["ts"], "brokers", bad, text))
        if row["back_ts"] is not None and row["back_ts"] > row["ts"]:
            marks.append(Mark(row["back_ts"], "brokers", "good", f"{row['broker']} is back"))
    marks += [
        Mark(
            row["ts"],
            "brokers",
            "bad",
            f"no answer to {many(len(row['brokers']), 'broker')} by the metadata store",
        )
        for row in day.answers.get("lapses", ())
        if row["what"] == lapses.STORE
    ]
    return marks + [
        Mark(row["first_ts"], "brokers", "good", f"{row['broker']} joined")
        for row in day.answers.get("idle_brokers", ())
        if row["new"]
    ]


def _of_leaders(day: Day) -> list[Mark]:
    return [
        Mark(
            row["ts"] - day.corrections.get(row["broker"], 0.0),
            "leader",
            "term",
            f"{row['broker']} leads, epoch {row['epoch']}"
            + (f", {row['strategy']}" if row["strategy"] else ""),
        )
        for row in day.facts.terms
    ]


def _steps(axis: PlotSteps, bucket: int) -> range:
    """The steps, of which some are shorter, that five minutes have a part of."""
    first, last = bucket - axis.start_ms, bucket + BUCKET_MS - 1 - axis.start_ms
    return range(max(first // axis.step_ms, 0), min(last // axis.step_ms + 1, axis.count))


def _lines(values: list[tuple[Any, int, float]], order: list[str], count: int) -> dict[str, Line]:
    """Means of the values of each step."""
    sums: dict[tuple[str, int], list[float]] = {}
    for name, step, value in values:
        if value is not None and 0 <= step < count:
            sums.setdefault((name, step), []).append(value)
    lines: dict[str, Line] = {key: [None] * count for key in order}
    for (name, step), several in sums.items():
        if name in lines:
            lines[name][step] = fmean(several)
    return lines
