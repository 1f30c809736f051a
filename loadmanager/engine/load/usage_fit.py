"""Fits the model of usage to what brokers report, a cycle at a time.

A sensor is noisy and late. Reports between which a broker's traffic changed much teach little, and
while the clients of the whole cluster are away, none teaches anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.load import class_costs, follows, message_costs, moved_costs
from loadmanager.engine.load.averages import BundleAverages
from loadmanager.engine.load.bundle_traffic import Traffic
from loadmanager.engine.load.class_costs import BundleCosts
from loadmanager.engine.load.columns import Array, BrokerColumns, Rows
from loadmanager.engine.load.cpu_sensors import CpuSensors
from loadmanager.engine.load.learned import (
    BESIDE,
    CAME,
    CAME_BYTES,
    CAME_SQUARES,
    DIGITS,
    DOUBT,
    ERROR,
    ERRORS_BESIDE,
    FIGURES,
    JUMPS,
    LIMIT,
    OFFSET,
    REPORTS,
    SHOWN,
    SINCE,
    TRAFFIC,
    UPDATED,
    USUAL,
    USUAL_BYTES,
    WORK_MIN,
    Figures,
    Learned,
    RememberedBrokers,
    cost_of,
    idle_of,
    sane,
)
from loadmanager.engine.load.message_costs import MessageCosts
from loadmanager.engine.load.moved_costs import Surprises
from loadmanager.engine.load.network_cards import IN, NetworkCards
from loadmanager.engine.load.reports import NUMBER_MAX
from loadmanager.engine.load.usage import Weights
from loadmanager.engine.load.usage_model import CPU, DIP, Doubt, UsageModel

REPORTS_MAX = 20

# how fast a broker's differences are learned, and how far
GAIN = 0.15
CLAIM_LESS, CLAIM_MORE = (0.05, 0.15), (0.5, 1.0)
"""A broker may use so much less, or more, than others: a part of its limit, and of what its traffic
costs.
"""
SURPRISE_MIN, SURPRISES = 0.1, 3.0
"""One report surprises by at most so much, or by so many times the usual error."""
ERROR_FIRST, ERROR_OF_MEAN = 0.04, 1.25
"""Before anything is learned; and the error as a multiple of the mean surprise: a standard
deviation.
"""
SETTLED = 0.15
"""A change of traffic between two reports by this part of it halves what the report teaches."""

# the cluster's idle part
LITTLE_TRAFFIC, SETTLED_LEAST = 0.4, 0.5
IDLE_KEPT, IDLE_STEP, IDLE_PART_MAX = 0.98, 0.05, 0.5
LEVEL_GAIN = 0.2

ERROR_UNSEEN, NOISE_USUAL = 0.05, 0.025
HALF_USED_BYTES_S = 1e7
"""Traffic that uses half of a broker, where nothing is known and no client sends anything."""

LEVEL_OF_CLIENTS, LEVEL_STEP = 0.1, 0.3
"""How fast the usual traffic follows what the clients send, and by what part at most in a cycle."""
FAR_ABOVE = 10.0
"""What clients have sent for two cycles is at most so many times what is usual from now on."""
RISE, OUTRUNS = 1.1, 0.1
"""Above this part of their usual traffic, what the clients send says nothing if it makes so much
more usage likely than all sensors together show: then bytes came that cost less than is known.
"""
IMPOSSIBLE, IMPOSSIBLE_PART = 1.3, 0.25
"""Where this part of the brokers would use so many times all they have, and do not, the model is
wrong.
"""


JUST_MOVED_MS = 30_000
"""What a bundle carries at its new broker is in no report for so long, or not all of it."""


def just_moved(moved_ms: Mapping[str, int], now_ms: int) -> list[str]:
    """The bundles that may still be on their way, by when each was moved."""
    return sorted(name for name, at_ms in moved_ms.items() if 0 <= now_ms - at_ms < JUST_MOVED_MS)


def fit(
    columns: BrokerColumns,
    averages: BundleAverages,
    weights: Weights,
    before: Learned,
    *,
    learning: bool = True,
    moved: Sequence[str] = (),
) -> UsageModel:
    """The model after the reports that are new since `before`; without `learning`, as it was.
    `moved`: the bundles that were just moved.
    """
    return _Fit(columns, averages, weights, sane(before), moved=moved).made(learning=learning)


class _Fit:
    """One fit. `[broker]` unless said otherwise."""

    def __init__(
        self,
        columns: BrokerColumns,
        averages: BundleAverages,
        weights: Weights,
        before: Learned,
        *,
        moved: Sequence[str] = (),
    ) -> None:
        self.columns, self.averages, self.before = columns, averages, before
        usages, self.limits = columns.usages(weights), columns.limits.copy()
        self.state, self.first = self._remembered()
        self.sensors = sensors = CpuSensors(
            columns, usages[CPU], weights.cpu, self.state, self.first
        )
        usages[CPU], self.limits[CPU] = sensors.used, sensors.limits
        self.measured = usages.max(axis=0, initial=0.0)
        self.cards = NetworkCards(columns, weights, usages)
        self.usages = np.vstack((usages[:IN], self.cards.used))
        self.sensed, self.shown, self.new = sensors.sensed, sensors.shown, sensors.new
        self.counts_cpu = sensors.counts
        self.steadiness = min(1.0, NOISE_USUAL / max(sensors.noise, 1e-9))
        """Noisier sensors teach less."""
        limits = self.limits[CPU][self.limits[CPU] > 0]
        mean = limits.mean() if len(limits) else 100.0
        self.limit = np.where(self.limits[CPU] > 0, self.limits[CPU], mean)
        self.bytes_s = columns.throughputs
        self.total = float(self.bytes_s.sum())
        self.level = before.level or self.total
        self.part_of_usual = self._part_of_usual(moved)
        self.away = self.part_of_usual < DIP
        self.settled = np.ones(len(columns.names))
        """How much a report teaches of what brokers use beside traffic: see `_settled`."""
        self.outrun = self.wrong = False
        """Whether traffic rose by far more than sensors follow; or they show, together, far less
        than the model has.
        """
        self.moves = moved_costs.no_attribution(
            self._moved(), before.differs, before.late, len(self.shown)
        )
        self.rows, (self.by_messages, usual_bytes) = averages.in_rows(), before.messages
        self.usual_bytes = message_costs.usual_bytes(usual_bytes, self.rows.mean_message)
        self.costs = self._costs(class_costs.in_columns(before.costs))

    def _part_of_usual(self, moved: Sequence[str]) -> float:
        """What part of their usual traffic the clients send. Of a bundle that was just moved,
        what it carried before counts: no move is a dip.
        """
        part = self.total / self.level if self.level >= 1 else 1.0
        if part >= 1 or not moved:
            return part
        missing, reports = 0.0, self.columns.reports
        for bundle in moved:
            if (data := self.averages.get(bundle)) is not None:
                move = self.before.moved.get(bundle)
                some = reports if move is None else {move.source, move.destination} & reports.keys()
                before = min(data.short_term_data.throughput, data.long_term_data.throughput)
                stats = [reports[broker].last_stats for broker in some]
                now = sum(each[bundle].throughput for each in stats if bundle in each)
                missing += max(before - now, 0.0)
        return min((self.total + missing) / self.level, 1.0)

    def _moved(self) -> moved_costs.Moved:
        """The moves whose bundles are watched, after the reports that are new; those of a dip say
        nothing, and are not counted.
        """
        moved = self.before.moved
        if not moved or not self.new.any() or self.away:
            return moved
        watched: dict[str, list[str]] = {}
        for bundle, move in moved.items():
            if min(move.left, move.came) <= moved_costs.WATCHED:
                for name in (move.source, move.destination):
                    watched.setdefault(name, []).append(bundle)
        reports, row_of = self.columns.reports, self.columns.row_of
        return moved_costs.reported(
            moved,
            {
                name: set(filter(reports[name].carries, bundles))
                for name, bundles in watched.items()
                if name in row_of and self.new[row_of[name]]
            },
        )

    def _costs(self, of_classes: Array) -> BundleCosts:
        moved = {
            bundle: move.times for bundle, move in self.moves.moved.items() if move.times != 1.0
        }
        by_row = self.rows.figures(moved, 1.0) if moved or self.by_messages else None
        if by_row is not None and self.by_messages:
            by_row *= 1 + self.by_messages * self._more(slice(None))
        return BundleCosts(of_classes, moved, by_row, self.rows.row_of)

    def _more(self, rows: Rows | slice) -> Array:
        """What the bytes of these bundles would cost more if all cost went by messages."""
        return self.rows.messages_more(rows, self.usual_bytes, message_costs.MORE_MAX)

    def _remembered(self) -> tuple[Array, NDArray[np.bool_]]:
        """What is remembered of each broker, or assumed of one that is not known; and which these
        are.
        """
        before, row_of = self.before.brokers, self.columns.row_of
        if isinstance(before, RememberedBrokers) and before.row_of is row_of:
            state = before.columns.copy()
        else:
            state = self._in_columns(before)
        first = np.isnan(state[UPDATED])
        assumed = np.zeros(FIGURES)
        assumed[[ERROR, *range(ERRORS_BESIDE, FIGURES)]] = ERROR_FIRST
        return np.where(first, assumed[:, None], state), first

    def _in_columns(self, before: Mapping[str, Figures]) -> Array:
        unknown = (np.nan,) * FIGURES
        rows = [before.get(name, unknown) for name in self.columns.names]
        usable = [
            row if len(row) == FIGURES and max(map(abs, row)) <= NUMBER_MAX else unknown
            for row in rows
        ]
        return np.array(usable, np.float64).reshape(-1, FIGURES).T.copy()

    def made(self, *, learning: bool) -> UsageModel:
        columns, before, level = self.columns, self.before, self.level
        rows = np.flatnonzero(self.new)
        last = self.averages.traffic(
            "last",
            {name: columns.reports[name].bundles for name in (columns.names[r] for r in rows)},
        )
        dearness = np.where(self.bytes_s > 0, self.state[TRAFFIC] * self.limit, 0.0)
        dearness = np.divide(
            dearness, self.bytes_s, out=np.ones_like(dearness), where=self.bytes_s > 0
        )
        dearness[rows] = class_costs.dearness(self.costs, last)
        traffic = np.where(self.new, self.bytes_s * dearness / self.limit, self.state[TRAFFIC])
        learned = before
        self.outrun, self.wrong = self._outrun(traffic)
        self.settled = settled = self._settled(traffic)
        if learning and not (self.away or self.outrun):
            learned = self._learn_all(traffic, settled, before)
            cost = cost_of(learned)
            self._add_up(cost, traffic, dearness, idle_of(learned) + cost * traffic)
            self._learn_moves(cost, traffic, settled, idle_of(learned))
            self._learn_each(cost, traffic, settled, idle_of(learned))
            self._learn_classes(rows, last, cost, settled, idle_of(learned))
            self._forget(rows, last)
            times = self._learn_messages(rows, last, cost, settled, idle_of(learned))
            traffic *= times
            self.state[SINCE] *= times  # costs that change are no change of traffic
        if learning:
            if len(rows):
                level = self._usual_traffic(level)
            self.state[UPDATED], self.state[TRAFFIC] = columns.updated_ms, traffic
            self.state[LIMIT] = self.limits[CPU]
            self.state[SHOWN] = np.where(self.new, self.shown, self.state[SHOWN])
            np.round(self.state, DIGITS, out=self.state)
            np.nan_to_num(self.state, copy=False)  # of reports with figures that no machine has
        return self._model(learned, dearness, level)

    def _settled(self, traffic: Array) -> Array:
        """How much a report teaches: 1, or less if the traffic changed much before it."""
        before = self.state[TRAFFIC]
        least = 0.05 * max(self.before.work, 1e-9)
        change = np.abs(traffic - before) / (SETTLED * np.maximum(before, least))
        settled: Array = np.where(self.first, 1.0, 1 / (1 + change * change)) * self.new
        return settled

    def _believed(self, expected: Array) -> Array:
        """What the sensors show, but no more than the usual surprise away from what was expected
        of brokers that are known.
        """
        band = np.maximum(SURPRISE_MIN, SURPRISES * self.state[ERROR])
        expected = np.minimum(expected, self.sensors.full)  # nobody uses more than all it has
        near: Array = np.clip(self.shown, expected - band, expected + band)
        np.copyto(near, self.shown, where=self.first | ~self.sensors.acquainted)
        return near

    def _expected(self, cost: float, idle: float, traffic: Array) -> Array:
        expected: Array = idle + self.state[OFFSET] + cost * traffic
        return expected

    def _outrun(self, traffic: Array) -> tuple[bool, bool]:
        """Whether the clients send far more than usual, and sensors do not follow; and whether the
        model is wrong, whatever they send.
        """
        tells = self._tells(self.before, traffic) & self.sensors.acquainted
        if not (self.counts_cpu and tells.any()):
            return False, False
        expected = self._expected(cost_of(self.before), idle_of(self.before), traffic)[tells]
        more = expected - self.shown[tells]
        outrun = self.part_of_usual > RISE and float(more.mean()) > OUTRUNS
        impossible = int((expected > IMPOSSIBLE * self.sensors.full).sum())
        wrong = impossible >= max(2, IMPOSSIBLE_PART * len(expected))
        return outrun, wrong or float(np.sort(more)[(len(more) - 1) // 2]) > OUTRUNS

    def _usual_traffic(self, before: float) -> float:
        """What the clients usually send, after this cycle."""
        step = LEVEL_OF_CLIENTS * (self.total - before)
        if before < 1:
            return before + step
        lasting = min(self.total, float((self.state[TRAFFIC] * self.limit).sum()))
        return max(before + min(step, LEVEL_STEP * before), lasting / FAR_ABOVE)

    def _learn_all(self, traffic: Array, settled: Array, before: Learned) -> Learned:
        """The idle part and the cost of all brokers together."""
        tells = self._tells(before, traffic)
        weight = np.where(self.new, settled, 1.0) * tells
        count = float(weight.sum())
        if count < 1 or not self.new.any():
            return before
        began = before.work < WORK_MIN
        shown = self.shown
        if not began:
            shown = self._believed(self._expected(cost_of(before), idle_of(before), traffic))
        work, used = (float((weight * each).sum()) / count for each in (traffic, shown))
        part = LEVEL_GAIN * count / max(int(tells.sum()), 1)
        idle, evidence = self._idle_seen(weight, traffic, shown)
        faded = IDLE_KEPT * before.idle_evidence
        step = (idle - before.idle) * evidence / max(faded + evidence, 1e-12)
        if not began:
            step = min(max(step, -IDLE_STEP), IDLE_STEP)
            work, used = (
                was + part * (now - was) for was, now in ((before.work, work), (before.used, used))
            )
        return Learned(
            idle=before.idle + step,
            idle_evidence=max(faded, evidence),
            used=used,
            work=work,
        )

    def _tells(self, before: Learned, traffic: Array) -> NDArray[np.bool_]:
        """Whose sensors say what traffic costs.

        A full one shows only what is used at least. It says nothing beside others, but where full
        brokers have most of the traffic, those that are not full do not know what it costs. It says
        nothing either if the model knows already that the broker is full.
        """
        trusted, full = self.sensors.trusted & (self.shown > 0), self.sensors.is_full
        tells: NDArray[np.bool_] = trusted & ~full
        if 2 * self.bytes_s[tells].sum() < self.bytes_s[trusted].sum():
            by_traffic = idle_of(before) + cost_of(before) * traffic
            tells |= trusted & full & (by_traffic < self.sensors.full)
        return tells

    def _idle_seen(self, weight: Array, traffic: Array, shown: Array) -> tuple[float, float]:
        """The usage that brokers would have without traffic, and what that counts.

        Only brokers tell that have far less traffic than others, and are used less. Shedding makes
        usages alike whatever traffic costs where, so that a line through all brokers says nothing.
        """
        tells = weight > SETTLED_LEAST
        if not tells.any():
            return 0.0, 0.0
        least = LITTLE_TRAFFIC * float(traffic[tells].mean())
        few, many = tells & (traffic < least), tells & (traffic >= least)
        if not (few.any() and many.any()):
            return 0.0, 0.0
        low, high = float(traffic[few].mean()), float(traffic[many].mean())
        idle, busy = float(np.median(shown[few])), float(shown[many].mean())
        if idle >= busy or high <= max(low, WORK_MIN):
            return 0.0, 0.0
        without = idle - (busy - idle) / (high - low) * low
        bounded = min(max(without, 0.0), IDLE_PART_MAX * busy)
        return bounded, (1 - low / high) ** 2 * (1 - idle / busy) ** 2

    def _add_up(self, cost: float, traffic: Array, dearness: Array, by_traffic: Array) -> None:
        """The bundles that came or left since the last reports, and what the sensors rose by.
        `by_traffic`: the usage by the model, whatever the broker differs by.
        """
        state, row_of = self.state, self.columns.row_of
        fades = np.where(self.sensors.doubted, follows.FADES_DOUBTED, follows.FADES) * self.new
        state[[CAME, CAME_BYTES]] *= 1 - fades
        state[CAME_SQUARES] *= (1 - fades) ** 2
        for bundle, broker, sign in moved_costs.first_reports(self.before.moved, self.moves.moved):
            if (row := row_of.get(broker)) is not None:
                bytes_s = self.averages.quick_of(bundle)
                uses = cost * bytes_s * self.costs.of_bundle(bundle) / self.limit[row]
                state[[CAME, CAME_BYTES, CAME_SQUARES], row] += sign * uses, sign * bytes_s, uses**2
        for usual, now in ((USUAL, self.shown), (USUAL_BYTES, self.bytes_s)):
            state[usual] += np.where(self.first, 1.0, fades) * (now - state[usual])
        by_clients = self.bytes_s - state[USUAL_BYTES] - state[CAME_BYTES]
        changes = follows.Changes(
            rose=self.shown - state[USUAL],
            came=state[CAME],
            clients=cost * dearness / self.limit * by_clients,
            below=by_traffic - self.shown,
            step=self.sensors.step,
            room=np.maximum(self.sensors.full - state[USUAL], 0.0),
            deviation=max(self.moves.differs, follows.DIFFER_LEAST) * np.sqrt(state[CAME_SQUARES]),
        )
        self.sensors.follow(changes, cost * (traffic - state[TRAFFIC]), self.bytes_s)
        if self.wrong:  # what came was expected to cost more than it does
            self.sensors.begin_sums(np.ones_like(self.first), self.bytes_s)

    def _learn_moves(self, cost: float, traffic: Array, settled: Array, idle: float) -> None:
        """What bundles cost that moved a moment ago."""
        surprise = self.shown - self._expected(cost, idle, traffic)
        surprise = np.where(self.sensors.is_full, np.maximum(surprise, 0.0), surprise)
        tells = self.sensed & (settled > SETTLED_LEAST) & (self.state[DOUBT] == 0)
        tells &= self.sensors.acquainted & self.counts_cpu

        def adds(bundle: str, row: int) -> float:
            bytes_s = self.averages.quick_of(bundle) * self.costs.of_bundle(bundle)
            return float(cost * bytes_s / self.limit[row])

        surprises = Surprises(surprise, self.state[ERROR], tells, self.state[JUMPS] ** 0.5)
        self.moves = moved_costs.attribute(self.moves, self.columns.row_of, adds, surprises)
        self.state[CAME] += self.moves.by_sources
        self.costs = self._costs(self.costs.of_classes)

    def _learn_each(self, cost: float, traffic: Array, settled: Array, idle: float) -> None:
        """What each broker differs by, its error, and whether its sensor is believed."""
        state, sensors = self.state, self.sensors
        expected = self._expected(cost, idle, traffic)
        surprise = self.shown - expected
        band = np.maximum(SURPRISE_MIN, SURPRISES * state[ERROR])
        bounded = np.clip(surprise, -band, band)
        bounded = np.where(sensors.is_full, np.maximum(bounded, 0.0), bounded)
        contradict = sensors.contradict(idle + cost * traffic, self.moves.lost | self.wrong)
        believed = sensors.trusted & self.new & self.counts_cpu & ~contradict
        gain = np.maximum(GAIN * self.steadiness, 1 / (state[REPORTS] + 2))
        gain = np.where(believed, settled * gain, 0.0)
        due = self.moves.part
        gain = np.where(
            self.moves.lost & believed, np.maximum(gain, self.moves.of_left), gain * (1 - due)
        )
        sensors.jump(surprise, settled)
        costly = cost * traffic
        less, more = (fixed + part * costly for fixed, part in (CLAIM_LESS, CLAIM_MORE))
        offset = np.clip(state[OFFSET] + gain * bounded, -less, more)
        state[OFFSET] = np.where(believed, offset, state[OFFSET])
        state[ERROR] += gain * (ERROR_OF_MEAN * np.minimum(np.abs(surprise), 1.0) - state[ERROR])
        state[REPORTS] = np.where(
            believed, np.minimum(state[REPORTS] + 1, REPORTS_MAX), state[REPORTS]
        )
        sensors.doubt(cost, traffic, settled, contradict)

    def _tells_of_bundles(self, settled: Array) -> NDArray[np.bool_]:
        """Whose reports say what their bundles cost."""
        tells: NDArray[np.bool_] = self.sensors.trusted & ~self.first & (settled > 0.5)
        tells &= (self.shown > 0) & self.sensors.timed
        return tells

    def _learn_classes(
        self, rows: Rows, last: Traffic, cost: float, settled: Array, idle: float
    ) -> None:
        """What classes of namespaces cost, but not from a broker's first report, nor from one
        without a time.
        """
        shown = self._believed(self._expected(cost, idle, self.state[TRAFFIC]))
        tells = self._tells_of_bundles(settled) & ~self.sensors.is_full
        if tells[rows].any():
            used = np.maximum(shown - idle, 0.0)[rows]
            expected = np.where(tells, cost * self.bytes_s / self.limit, 0.0)[rows]
            steadiness = self.steadiness**2
            learned = class_costs.learn(self.costs, last, used, expected, steadiness)
            self.costs = self._costs(learned)

    def _learn_messages(
        self, rows: Rows, last: Traffic, cost: float, settled: Array, idle: float
    ) -> Array:
        """What part of all cost goes by messages. Returns how many times more each broker's traffic
        counts from now on.
        """
        times = np.ones(len(self.bytes_s))
        tells = self._tells_of_bundles(settled)
        where = tells[rows]
        if last.rows is None or not where.any():
            return times
        more = self._more(last.rows)
        if not more.any():
            return times
        plain = last.bytes_s * self.costs.of(last)
        if self.by_messages:
            plain /= 1 + self.by_messages * more
        more_of = last.totals(plain * more) / self.limit[rows]
        expected = cost * (last.totals(plain) / self.limit[rows] + self.by_messages * more_of)
        surprises = self.shown[rows] - idle - expected
        full = self.sensors.is_full[rows]
        surprises = np.where(full, np.maximum(surprises, 0.0), surprises)
        before, self.by_messages = (
            self.by_messages,
            message_costs.learn(
                self.by_messages, surprises[where], cost * more_of[where], expected[where]
            ),
        )
        changed = (self.by_messages - before) * more_of
        offset = self.state[OFFSET, rows]
        explained = np.clip(cost * changed, np.minimum(offset, 0.0), np.maximum(offset, 0.0))
        self.state[OFFSET, rows] = offset - explained
        if self.by_messages != before:
            plainly = class_costs.dearness(self.costs, last)
            self.costs = self._costs(self.costs.of_classes)
            times[rows] = class_costs.dearness(self.costs, last) / plainly
        return times

    def _forget(self, rows: Rows, last: Traffic) -> None:
        """What sensors have taught that are not believed from now on: that something is cheap; and
        what came before, so that they may show from now on that they follow.
        """
        liars = self.sensors.liars
        if not liars[rows].any():
            return
        self.sensors.begin_sums(liars, self.bytes_s)
        names = {self.columns.names[row] for row in np.flatnonzero(liars).tolist()}
        moved = {
            bundle: move._replace(times=max(move.times, 1.0)) if move.destination in names else move
            for bundle, move in self.moves.moved.items()
        }
        self.moves = replace(self.moves, moved=moved)
        self.costs = self._costs(class_costs.without(self.costs, last, liars[rows]))

    def _model(self, learned: Learned, dearness: Array, level: float) -> UsageModel:
        state, columns = self.state, self.columns
        idle, cost = idle_of(learned), cost_of(learned)
        trusted = self.sensors.trusted
        if not self.counts_cpu:
            idle = cost = 0.0
            trusted = np.ones_like(trusted)
        per_byte, base = self._by_bytes()
        offset = np.where(trusted, state[OFFSET], np.maximum(state[OFFSET], 0.0))
        base[CPU] = idle + offset if self.counts_cpu else 0.0
        per_byte[CPU] = cost / self.limit
        if not self.counts_cpu and not base[1:].any() and not per_byte.any():
            count, total = max(len(columns.names), 1), float(self.bytes_s.sum())
            per_byte[CPU] = 0.5 * count / (total if total >= 1 else count * HALF_USED_BYTES_S)
            trusted = np.zeros_like(trusted)  # nothing is known but traffic: it is evened out
        apart = float(np.sqrt((offset[trusted] ** 2).mean())) if trusted.any() else 0.0
        error = np.where(trusted, state[ERROR], max(apart, ERROR_UNSEEN))
        usual = min(float(np.median(offset[trusted])), 0.0) if trusted.any() else 0.0
        carried = np.tile(self.bytes_s, (len(base), 1))
        carried[CPU] *= dearness
        most = (base + per_byte * carried).argmax(axis=0)
        errors = np.vstack((error, self.state[ERRORS_BESIDE:]))
        remembered = Learned(
            RememberedBrokers(columns.row_of, state),
            class_costs.told_apart(self.costs.of_classes),
            round(learned.idle, DIGITS),
            round(learned.idle_evidence, DIGITS),
            round(learned.used, DIGITS),
            learned.work,
            level,
            self.moves.moved,
            self.moves.differs,
            MessageCosts(round(self.by_messages, DIGITS), round(self.usual_bytes, DIGITS)),
            self.moves.late,
        )
        return UsageModel(
            learned=remembered,
            measured=self.measured,
            base=base,
            per_byte=per_byte,
            error=errors[most, np.arange(len(most))],
            unproven=np.maximum(usual - offset, 0.0),
            trusted=trusted,
            size=self._sizes(),
            costs=self.costs,
            carried=carried,
            doubts=tuple(self._doubts(trusted, base[CPU] + cost * state[TRAFFIC], error)),
            part_of_usual=self.part_of_usual,
            misjudges=self._misjudges(),
            noise=self.sensors.noise,
        )

    def _misjudges(self) -> str:
        if self.outrun:
            return "sensors do not follow: what it costs is not known yet"
        return "sensors show far less than is likely: what it costs is learned" * self.wrong

    def _by_bytes(self) -> tuple[Array, Array]:
        """The usage that a byte/s adds of what counts bytes, and what is used beside that."""
        usages, limits = self.usages, self.limits
        limited = limits > 0
        total = (limited * self.bytes_s).sum(axis=1, keepdims=True)  # of those that say a limit
        amounts = (usages * limits).sum(axis=1, keepdims=True)
        each = np.divide(amounts, total, out=np.zeros_like(amounts), where=total >= 1)
        count = np.maximum(limited.sum(axis=1, keepdims=True), 1)
        mean = limits.sum(axis=1, keepdims=True) / count
        limits = np.where(limited, limits, mean)  # one that says none is like the others
        per_byte = np.divide(each, limits, out=np.zeros_like(limits), where=limits > 0)
        costly = per_byte * self.bytes_s
        weight = 1 - np.where(self.first, 0.5, GAIN) * self.settled * self.new
        beside = weight * self.state[BESIDE:ERRORS_BESIDE] + (1 - weight) * (usages - costly)[1:]
        less, more = (fixed + part * costly[1:] for fixed, part in (CLAIM_LESS, CLAIM_MORE))
        beside = np.where(limited[1:], np.clip(beside, -less, more), 0.0)
        beside[IN - 1 :] = np.maximum(beside[IN - 1 :], self.cards.at_least - costly[IN:])
        surprise = np.abs(usages[1:] - costly[1:] - self.state[BESIDE:ERRORS_BESIDE])
        error = ERROR_OF_MEAN * np.minimum(surprise, 1.0)
        weight = np.where(self.first, 1.0, weight)
        error = weight * self.state[ERRORS_BESIDE:] + (1 - weight) * error
        error = np.where(limited[1:], error, self.state[ERRORS_BESIDE:])
        self.state[BESIDE:ERRORS_BESIDE] = beside.round(DIGITS)
        self.state[ERRORS_BESIDE:] = error.round(DIGITS)
        base = np.zeros_like(per_byte)
        base[1:] = self.state[BESIDE:ERRORS_BESIDE]
        return per_byte, base

    def _sizes(self) -> Array:
        limits = self.limits
        limited = limits > 0
        most = int(self.usages.sum(axis=1).argmax())
        mean = limits[most].sum() / max(int(limited[most].sum()), 1)
        size: Array = np.divide(
            limits[most], mean, out=np.ones_like(limits[most]), where=limited[most]
        )
        return size

    def _doubts(self, trusted: NDArray[np.bool_], says: Array, error: Array) -> Iterator[Doubt]:
        for row, text in self.cards.doubts():
            if trusted[row] or not self.counts_cpu:
                yield Doubt(self.columns.names[row], "NetworkCardMistrusted", text)
        if self.counts_cpu:
            yield from self.sensors.doubts(self.columns.names, says, error)
