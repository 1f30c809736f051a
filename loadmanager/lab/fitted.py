"""Fits the live leader's model of usage to a whole recorded day.

    usage = beside + slow × Σ cost × traffic / limit

The leader learns it minute by minute (`engine.load.usage_model`); a day can be looked at as a
whole. Traffic is bytes, of which a part may count by messages instead: those of small messages then
count for more. `cost` is that of a class of namespaces, learned as the leader does; `slow` is what
a broker needs more than others for the same, a machine of half the speed say. Moves of bundles are
experiments, which correct the cost of traffic and those of classes (`lab.from_moves`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from loadmanager.engine.load import class_costs
from loadmanager.engine.load.bundle_traffic import COST_CLASSES, Traffic, cost_class_of
from loadmanager.engine.load.class_costs import BundleCosts
from loadmanager.engine.load.columns import Array, Rows
from loadmanager.engine.load.usage_line import usage_line
from loadmanager.lab import from_moves
from loadmanager.lab.days import CPU_OF_A_CORE
from loadmanager.lab.from_moves import MoveSteps

LOOKS, ROUNDS = 60, 4
"""Minutes at which costs of classes are learned, and how often."""
SLOW_MAX = 3.0
SLOW_LEAST = 0.1
"""A broker that needs less more than others, or less, is as fast as they are."""
POINTS_LEAST = 30
ALIKE_MINUTES = 30
"""For so long, what the line of all brokers is off stays alike."""
CLASSES_MAX, CELLS_MAX = 64, 20_000_000
"""Classes that moves correct, those that moved most; and figures that this may take in memory."""
TELLS = 0.7
"""Costs of classes, and a part by messages, count if they leave less than this part of the error
without them, but for the noise of sensors.
"""
EXPLAINED_LEAST = 0.5
"""The part of the brokers' usage that a model must explain to say anything of a day by itself."""
ERROR_LEAST = 1.0
"""Points of usage: no model is nearer."""
PARTS = tuple(part / 20 for part in range(21))
"""The parts of the cost that are tried as going by messages."""


@dataclass(frozen=True, slots=True)
class DayTraffic:
    """The samples of a day's bundles, in columns."""

    minutes: int
    brokers: int
    minute: Rows
    row: Rows
    """The row of the broker."""
    bundle: Rows
    """The number of the bundle."""
    bytes_s: Array

    def of_brokers(self, weights: Array) -> Array:
        """The bytes/s of each broker, each bundle's times its weight: `[minute, broker]`."""
        at = self.minute * self.brokers + self.row
        amounts = self.bytes_s * weights[self.bundle]
        sums = np.bincount(at, amounts, self.minutes * self.brokers).astype(np.float64)
        return sums.reshape(self.minutes, self.brokers)

    def of_classes(self, of_bundle: Rows, classes: int) -> Array:
        """The bytes/s of each broker and class: `[minute, broker, class]`. `of_bundle`: bundle →
        its class; those of -1 are left out.
        """
        there = np.flatnonzero(of_bundle[self.bundle] >= 0)
        at = self.minute[there] * self.brokers + self.row[there]
        at = at * classes + of_bundle[self.bundle[there]]
        sums = np.bincount(at, self.bytes_s[there], self.minutes * self.brokers * classes)
        return sums.astype(np.float64).reshape(self.minutes, self.brokers, classes)

    def at(self, minute: int, classes: Rows) -> Traffic:
        """The traffic of a minute, broker by broker."""
        inside = np.flatnonzero(self.minute == minute)
        inside = inside[np.argsort(self.row[inside], kind="stable")]
        counts = np.bincount(self.row[inside], minlength=self.brokers)
        return Traffic(self.bytes_s[inside], classes[self.bundle[inside]], counts)


@dataclass(frozen=True, slots=True)
class TrafficCosts:
    """What the traffic of bundles costs."""

    mean: float = 0.0
    """CPU for each byte/s of mean cost, in percent of one core."""
    of_class: Mapping[int, float] = field(default_factory=dict)
    """Class of namespaces → what its bytes cost, relative to the mean; 1 for the others."""
    by_messages: float = 0.0
    """The part of the cost that goes by messages, and not by bytes."""
    usual_bytes: float = 1.0
    """The bytes of the day's mean message."""

    def of(self, bundle: str, message_bytes: float) -> float:
        """CPU for each byte/s of a bundle, in percent of one core."""
        by_size = 1 + self.by_messages * (self.usual_bytes / message_bytes - 1)
        return self.mean * by_size * self.of_class.get(cost_class_of(bundle), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What usage is made of on one day."""

    costs: TrafficCosts = field(default_factory=TrafficCosts)
    beside: float = 0.0
    """Usage beside traffic, as a fraction."""
    slow: Mapping[str, float] = field(default_factory=dict)
    """brokerId → how much more it needs for the same; 1 for the others."""
    explained: float = 0.0
    """The part of the variance of the brokers' usage that this explains (R²)."""
    error: float = 0.0
    """The mean error of a broker's usage in a minute, as a fraction."""
    used: Array = field(default_factory=lambda: np.zeros((0, 0)))
    """The usage of each broker by the model, with the bundles that it had: `[minute, broker]`."""

    @property
    def text(self) -> str:
        """How well it explains the day, for people."""
        part = self.costs.by_messages
        by = f"; {part:.0%} of its cost goes by messages" if part else ""
        return f"{explained_text(self.explained)}{by}"

    @property
    def says_little(self) -> bool:
        """See `says_little`."""
        return says_little(self.explained, self.error)

    @property
    def tells_costs(self) -> bool:
        """Whether the day tells what traffic costs."""
        return self.costs.mean > 0 and not self.says_little


def says_little(explained: float, error: float) -> bool:
    """Whether a model explains too little of a day for a verdict: where usage hardly changed, there
    is little to explain.
    """
    return explained < EXPLAINED_LEAST and 100 * error > ERROR_LEAST


def explained_text(part: float) -> str:
    """How much a model explains, for people."""
    return f"the model explains {part:.0%} of the brokers' usage"


def fit(
    points: Sequence[tuple[int, int, float]],
    traffic: DayTraffic,
    *,
    bundles: Sequence[str],
    message_bytes: Array,
    brokers: Sequence[tuple[str, float]],
) -> Fit:
    """The fit to these points: minute, row of a broker, usage. `bundles` and the mean bytes of
    their messages by number; `brokers` by row: brokerId and cores.
    """
    if not points:
        return Fit()
    minute, row, usage = (np.array(each) for each in zip(*points, strict=True))
    showing = np.full((traffic.minutes, traffic.brokers), np.nan)
    showing[minute, row] = usage
    steps = from_moves.move_steps(traffic.minute, traffic.row, traffic.bundle, showing)
    shown = _Shown(minute, row, usage, np.array([number for _, number in brokers]), steps)
    classes = np.array([cost_class_of(name) for name in bundles], np.int64)
    messages_s = float((traffic.bytes_s / message_bytes[traffic.bundle]).sum())
    usual_bytes = float(traffic.bytes_s.sum()) / messages_s if messages_s > 0 else 1.0
    more = usual_bytes / message_bytes - 1
    by_messages = _part_by_messages(traffic, shown, more)
    if by_messages > 0:
        counted = traffic.bytes_s * (1 + by_messages * more[traffic.bundle])
        traffic = replace(traffic, bytes_s=counted)
    plain = _fitted(traffic, classes, shown, by_class=False)
    by_class = [
        _fitted(traffic, classes, shown, by_class=True, corrected=corrected)
        for corrected in ((True, False) if len(steps) else (False,))
    ]
    best = min(by_class, key=lambda fitted: fitted.systematic)
    if best.systematic >= TELLS * plain.systematic:
        best = plain
    slow = zip([name for name, _ in brokers], best.slow.tolist(), strict=True)
    return Fit(
        costs=TrafficCosts(
            best.slope * CPU_OF_A_CORE,
            class_costs.told_apart(best.costs),
            by_messages,
            usual_bytes,
        ),
        beside=best.beside,
        slow={name: factor for name, factor in slow if factor != 1},
        explained=best.explained,
        error=best.error,
        used=best.used,
    )


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A fit, while it is compared with another."""

    slope: float
    beside: float
    costs: Array
    slow: Array
    used: Array
    error: float
    systematic: float
    """The variance of the error without that of the sensors' noise."""
    explained: float


def _part_by_messages(traffic: DayTraffic, shown: _Shown, more: Array) -> float:
    """The part of the cost that goes by messages, if it shows. `more`: what each bundle's bytes
    count for more than others where all of the cost does.
    """
    plain, more_of = traffic.of_brokers(np.ones(len(more))), traffic.of_brokers(more)
    left = [_left_over(shown, (plain + part * more_of) / shown.cores) for part in PARTS]
    best = int(np.argmin(left))
    return PARTS[best] if left[best] < TELLS * left[0] else 0.0


def _left_over(shown: _Shown, each: Array) -> float:
    """What a line leaves of the usages' variance, but for the sensors' noise; `each`: `[minute,
    row]`.
    """
    slow, slope, beside = np.ones(len(shown.cores)), 0.0, 0.0
    for _ in range(ROUNDS):
        slope, beside = _line(shown, each * slow)
        slow = _slow(shown, slope * each, beside)
    left = shown.usage - (beside + slope * slow * each)[shown.minute, shown.row]
    return max(float((left**2).mean()) - _noise(shown, left), 0.0)


def _fitted(
    traffic: DayTraffic,
    classes: Rows,
    shown: _Shown,
    *,
    by_class: bool,
    corrected: bool = False,
) -> _Fitted:
    """A fit; `by_class`: costs of classes are learned, and `corrected` by moves."""
    costs, slow = np.ones(COST_CLASSES), np.ones(len(shown.cores))
    slope = beside = 0.0
    for _ in range(ROUNDS):
        weighted = traffic.of_brokers(costs[classes]) / shown.cores
        slope, beside = _line(shown, weighted * slow)
        if by_class:
            costs = _class_costs(traffic, classes, shown, costs, (slope * slow, beside))
            if corrected:
                costs = _corrected(traffic, classes, shown, costs, slope * slow)
            weighted = traffic.of_brokers(costs[classes]) / shown.cores
            slope, beside = _line(shown, weighted * slow)
        slow = _slow(shown, slope * weighted, beside)
    used = beside + slow * slope * traffic.of_brokers(costs[classes]) / shown.cores
    left = shown.usage - used[shown.minute, shown.row]
    total = float(shown.usage.var()) * len(left)
    explained = max(1 - float((left**2).sum()) / total, 0.0) if total > 0 else 0.0
    return _Fitted(
        slope=slope,
        beside=beside,
        costs=costs,
        slow=slow,
        used=used,
        error=float(np.abs(left).mean()),
        systematic=max(float((left**2).mean()) - _noise(shown, left), 0.0),
        explained=explained,
    )


def _noise(shown: _Shown, left: Array) -> float:
    """The variance of what differs from one minute to the next."""
    order = np.lexsort((shown.minute, shown.row))
    row, changes = shown.row[order], np.diff(left[order])
    same = row[1:] == row[:-1]
    return float((changes[same] ** 2).mean()) / 2 if same.any() else 0.0


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the sensors showed."""

    minute: Rows
    row: Rows
    usage: Array
    cores: Array
    steps: MoveSteps


def _line(shown: _Shown, each: Array) -> tuple[float, float]:
    """Usage for each byte/s of a core, and beside it; `each`: bytes/s of a core, `[minute, row]`.

    A shedder makes brokers alike, so that comparing them says little. All brokers together tell,
    wherever the bundles are, if their traffic changes over the day; and so does each move. The more
    exact of both counts for more.
    """
    minutes = len(each)
    count = np.bincount(shown.minute, minlength=minutes)
    there = count > 0
    carried = each[shown.minute, shown.row]
    traffic, usage = (
        np.bincount(shown.minute, values, minutes)[there] / count[there]
        for values in (carried, shown.usage)
    )
    line = usage_line(traffic, usage)
    if (moved := from_moves.slope(shown.steps, each)) is not None:
        slope, weight = moved[0], moved[1] ** -2
        if line is not None:
            other = _line_error(traffic, usage, line) ** -2
            slope = (slope * weight + line[0] * other) / (weight + other)
        beside = float((shown.usage - slope * carried).mean())
        if beside >= 0:
            return slope, beside
    if (line := line or usage_line(carried, shown.usage)) is not None:
        return line
    slope = float(usage.sum() / traffic.sum()) if traffic.sum() > 0 else 0.0
    return slope, 0.0 if slope else float(usage.mean())


def _line_error(traffic: Array, usage: Array, line: tuple[float, float]) -> float:
    """The standard error of a line's slope: what it is off in one minute it is off in the next."""
    from_mean = traffic - traffic.mean()
    off = from_mean * (usage - line[0] * traffic - line[1])
    blocks = np.add.reduceat(off, np.arange(0, len(off), ALIKE_MINUTES))
    error = np.sqrt((blocks**2).sum()) / (from_mean**2).sum()
    return float(max(error, 1e-3 * line[0]))


def _class_costs(
    traffic: DayTraffic,
    classes: Rows,
    shown: _Shown,
    costs: Array,
    line: tuple[Array, float],
) -> Array:
    """What the classes cost, from which brokers are busier than expected; `line`: the slope of each
    broker, and usage beside it.
    """
    slope, beside = line
    if not slope.any() or len(set(classes.tolist())) < 2:
        return costs
    for look in np.unique(np.linspace(0, traffic.minutes - 1, LOOKS).astype(np.int64)).tolist():
        here = shown.minute == look
        if not here.any():
            continue
        used, rows = np.zeros(traffic.brokers), shown.row[here]
        used[rows] = np.maximum(shown.usage[here] - beside, 0.0) * shown.cores[rows]
        carried = traffic.at(look, classes)
        expected = np.where(used > 0, slope * carried.totals(carried.bytes_s), 0.0)
        costs = class_costs.learn(BundleCosts(costs), carried, used, expected)
    return costs


def _corrected(
    traffic: DayTraffic, classes: Rows, shown: _Shown, costs: Array, slopes: Array
) -> Array:
    """The costs of classes, corrected by what moves left over; `slopes`: of each broker."""
    steps = shown.steps
    moved, counts = np.unique(classes[steps.bundles], return_counts=True)
    room = CELLS_MAX // (traffic.minutes * traffic.brokers)
    moved = moved[np.argsort(-counts, kind="stable")][: min(CLASSES_MAX, room)]
    if len(steps) < from_moves.STEPS_LEAST or not len(moved):
        return costs
    place = np.full(COST_CLASSES, -1)
    place[moved] = np.arange(len(moved))
    each = traffic.of_classes(place[classes], len(moved)) * costs[moved]
    usage_of = (slopes / shown.cores)[None, :]
    expected = steps.changed(traffic.of_brokers(costs[classes]) * usage_of)
    of_classes = np.stack(
        [steps.changed(each[:, :, at] * usage_of) for at in range(len(moved))], axis=1
    )
    corrected = costs.copy()
    corrected[moved] *= from_moves.corrections(steps, expected, of_classes)
    return corrected


def _slow(shown: _Shown, expected: Array, beside: float) -> Array:
    """How much more each broker needs than the others, in the median of its minutes; `expected`:
    `[minute, row]`.
    """
    slow = np.ones(len(shown.cores))
    for broker in range(len(slow)):
        here = np.flatnonzero(shown.row == broker)
        of_traffic = expected[shown.minute[here], broker]
        here, of_traffic = here[of_traffic > 0], of_traffic[of_traffic > 0]
        if len(here) >= POINTS_LEAST:
            needs = np.median((shown.usage[here] - beside) / of_traffic)
            slow[broker] = np.clip(needs, 1 / SLOW_MAX, SLOW_MAX)
    slow /= float(np.median(slow))
    return np.where(np.abs(slow - 1) < SLOW_LEAST, 1.0, slow)
