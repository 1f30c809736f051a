"""The live model of usage, the fit to a whole day and the line of the nightly headroom: are they
one?

`python -m bench models [--days 10] [--hours 8] [--seed 1]`: days of three kinds of cluster with
other physics (`bench/_other_world.py`). All three are `usage = idle + cost × traffic / limit`; the
live model learns it report by report, with what each broker differs by; the fit to a whole day
(replays, tournaments, what-if, bills, the nightly headroom with `--replay`) looks at all minutes at
once, with classes and machines; the line (nightly headroom without) at the sums of all brokers.
Usage is compared with what truly was there, the idle part with the true one, and the headroom with
that by the true idle part.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from bench._other_world import KINDS, MINUTE_MS, LivedDay, OtherWorld
from loadmanager.engine.history.records import BrokerLoad, BundleLoad
from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.learned import NOTHING_LEARNED
from loadmanager.engine.load.reports import LocalBrokerData, NamespaceBundleStats
from loadmanager.engine.load.usage_fit import fit
from loadmanager.engine.load.usage_line import usage_line
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.lab.measures import WARM_UP_MINUTES
from loadmanager.lab.recorded import record

SETTINGS = StrategySettings()
BUCKET = 5
"""Minutes that the nightly headroom looks at together."""


@dataclass(frozen=True)
class Compared:
    """A day, in points."""

    live_off: float
    """How far the live model's usage of a broker is from the true one, mean of the minutes."""
    fit_off: float
    apart: float
    """How far both are from each other."""
    idles: tuple[float, float, float, float]
    """By the live model at the day's end, by the fit, by the line, and the true one."""
    peaks: tuple[float, float, float, float]
    """Usage at the peak with one broker fewer, were it even: by each of these idle parts."""


def main(argv: list[str]) -> int:
    """Print a line for each kind of cluster."""
    parser = argparse.ArgumentParser(prog="python -m bench models", description=__doc__)
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--hours", type=float, default=8)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    print(
        "| kind | usage off: live, day | apart | idle: live, day, line, true | peak: the same "
        "| peak off: live, day, line |"
    )
    print("|---|---|---|---|---|---|")
    for kind in KINDS:
        world = OtherWorld(kind, args.seed)
        days = [
            compared(world, world.day(number, kind.settings, round(60 * args.hours)))
            for number in range(args.days)
        ]
        print(f"| {kind.name} | {_texts(days)} |", flush=True)
    return 0


def _texts(days: Sequence[Compared]) -> str:
    idles, peaks = (
        ", ".join(f"{fmean(values):.1f}" for values in zip(*each, strict=True))
        for each in ([day.idles for day in days], [day.peaks for day in days])
    )
    off = ", ".join(
        f"{fmean(abs(day.peaks[at] - day.peaks[-1]) for day in days):.1f}" for at in range(3)
    )
    live, fit = (fmean(getattr(day, name) for day in days) for name in ("live_off", "fit_off"))
    apart = fmean(day.apart for day in days)
    return f"{live:.1f}, {fit:.1f} | {apart:.1f} | {idles} | {peaks} | {off}"


def compared(world: OtherWorld, lived: LivedDay) -> Compared:
    """A day by all three."""
    fitted = record(lived.loads)
    live_off, fit_off, apart, live_idle = [], [], [], 0.0
    for minute, live in enumerate(_live(lived)):
        live_idle = live[1]
        true = dict(zip(lived.minutes[minute].live, lived.minutes[minute].usage, strict=True))
        whole = fitted.modelled[minute]
        by_day = dict(zip(whole.live, whole.usage, strict=True))
        both = live[0].keys() & by_day.keys() & true.keys()
        if minute >= WARM_UP_MINUTES:
            live_off += [abs(live[0][name] - true[name]) for name in both]
            fit_off += [abs(by_day[name] - true[name]) for name in both]
            apart += [abs(live[0][name] - by_day[name]) for name in both]
    usage, traffic = _sums(lived)
    line = usage_line(traffic, usage)
    idles = (live_idle, fitted.fit.beside, 0.0 if line is None else line[1], world.idle.mean())
    peak, count = float(usage.max()), world.kind.brokers
    peaks = tuple(idle + max(peak - idle, 0.0) * count / (count - 1) for idle in idles)
    live_points, fit_points, points = (100 * fmean(each) for each in (live_off, fit_off, apart))
    return Compared(
        live_points,
        fit_points,
        points,
        tuple(100 * float(idle) for idle in idles),  # type: ignore[arg-type]
        tuple(100 * float(each) for each in peaks),  # type: ignore[arg-type]
    )


def _by_minute(lived: LivedDay) -> Iterator[dict[str, LocalBrokerData]]:
    """The reports of each minute, as brokers would have sent them."""
    minutes: dict[int, dict[str, LocalBrokerData]] = {}
    for load in lived.loads:
        if isinstance(load, BrokerLoad):
            report = LocalBrokerData(broker_id=load.broker, cpu=load.cpu, last_update=load.ts)
            minutes.setdefault(load.ts, {})[load.broker] = report
    for load in lived.loads:
        if isinstance(load, BundleLoad) and load.broker in minutes[load.ts]:
            report = minutes[load.ts][load.broker]
            report.bundles.append(load.bundle)
            report.last_stats[load.bundle] = NamespaceBundleStats(
                msg_throughput_in=load.msg_throughput_in,
                msg_throughput_out=load.msg_throughput_out,
                msg_rate_in=load.msg_rate_in,
                msg_rate_out=load.msg_rate_out,
            )
            report.msg_throughput_in += load.msg_throughput_in
            report.msg_throughput_out += load.msg_throughput_out
    for _, reports in sorted(minutes.items()):
        yield reports


def _live(lived: LivedDay) -> Iterator[tuple[dict[str, float], float]]:
    """The usage of each broker by the live model after each minute, and its idle part."""
    view, learned = ClusterView(), NOTHING_LEARNED
    for reports in _by_minute(lived):
        now_ms = max(report.last_update for report in reports.values())
        for name in view.reports.keys() - reports.keys():
            view.gone(name, int(now_ms))
        for name, report in reports.items():
            view.observe(name, report, int(now_ms))
        snapshot = view.snapshot(
            int(now_ms),
            SETTINGS,
            isolation_policies={},
            anti_affinity_groups={},
            failure_domains={},
        )
        model = fit(snapshot.columns, snapshot.averages, SETTINGS.weights, learned)
        learned = model.learned
        used = model.used.tolist()
        yield dict(zip(snapshot.columns.names, used, strict=True)), learned.idle


def _sums(lived: LivedDay) -> tuple[np.ndarray, np.ndarray]:
    """Mean usage and traffic of all brokers, in steps of `BUCKET` minutes, as the nightly headroom
    has them.
    """
    usage: dict[int, list[float]] = {}
    traffic: dict[int, float] = {}
    for load in lived.loads:
        bucket = load.ts // (BUCKET * MINUTE_MS)
        if isinstance(load, BrokerLoad):
            usage.setdefault(bucket, []).append(load.usage)
        else:
            carried = load.msg_throughput_in + load.msg_throughput_out
            traffic[bucket] = traffic.get(bucket, 0.0) + carried
    counts = [len(usage[bucket]) for bucket in sorted(usage)]
    return (
        np.array([fmean(usage[bucket]) for bucket in sorted(usage)]),
        np.array([traffic.get(bucket, 0.0) for bucket in sorted(usage)]) / np.array(counts),
    )
