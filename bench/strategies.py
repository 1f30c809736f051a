"""A leader's work over large clusters: whole cycles, decisions alone, and a cold start.

`python -m bench strategies [--repeat 20] [--no-java]`: milliseconds, best and median of the
repeats. (a) is a cycle after every broker reported, (b) after one in a hundred did, (c) the
decision alone, over figures that are there already; beside each, where Java and Maven are at hand,
Pulsar's own classes over the same snapshot. Reading the reports from JSON is apart.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from bench._java import Times, java_times, write_extensible, write_modular
from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import (
    BrokerLoadData,
    LocalBrokerData,
    NamespaceBundleStats,
    ResourceUsage,
    TopBundle,
    TopBundlesLoadData,
    decode_local_broker_data,
)
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies import cycle, registry
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.avg import AvgSettings
from loadmanager.engine.strategies.shedding.threshold import ThresholdSettings
from loadmanager.engine.strategies.shedding.transfer import TransferSettings

SHAPES = ((1000, 100), (162, 667))
EAGER = {
    AvgSettings: AvgSettings(low_hits=1, high_hits=1),
    ThresholdSettings: ThresholdSettings(min_throughput_mib=0),
    TransferSettings: TransferSettings(hits_min=0),
}
EAGER_KEYS = {
    "loadBalancerAvgShedderHitCountLowThreshold": "1",
    "loadBalancerAvgShedderHitCountHighThreshold": "1",
    "loadBalancerBundleUnloadMinThroughputThreshold": "0",
    "loadBalancerSheddingConditionHitCountThreshold": "0",
}
OURS = ("BalancedShedder",)
"""Pulsar has no such shedder."""
REPORT_BUNDLES = 75
"""Makes a report of about 20 KB."""
COLD_BUNDLES = (10_000, 100_000)
COLD_BROKERS = 1_000

Timing = tuple[float, float]
"""Best and median, ms."""


def main(argv: list[str]) -> int:
    """Measure and print, a line a figure."""
    parser = argparse.ArgumentParser(
        prog="python -m bench strategies",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--repeat", type=int, default=20, help="rounds of each figure (20)")
    parser.add_argument("--no-java", action="store_true", help="leave Pulsar's classes out")
    args = parser.parse_args(argv)
    print("ms, best / median; (a) all reports changed, (b) 1 % changed, (c) the decision alone")
    for brokers, bundles in SHAPES:
        _shape(brokers, bundles, args.repeat, java=not args.no_java)
    raw = [
        msgspec.json.encode(_report(random.Random(number), f"b{number}", REPORT_BUNDLES))
        for number in range(1000)
    ]
    decode = _times(lambda: [decode_local_broker_data(text) for text in raw], args.repeat)
    size = len(raw[0]) / 1000
    print(f"\nread 1,000 reports of {size:.0f} KB from JSON, as they arrive   {_text(decode)}")
    print(f"\ncold start: unowned bundles on {COLD_BROKERS:,} brokers, a lookup each")
    for name in sorted(registry.PLACEMENTS):
        for count in COLD_BUNDLES:
            took_s = _apart(_cold_start, name, count)
            each_us = took_s / count * 1e6
            print(f"{name:30} {count:8,} bundles  {took_s:7.2f} s  {each_us:6.1f} µs each")
    return 0


def _shape(brokers: int, bundles: int, repeat: int, *, java: bool) -> None:
    print(f"\n{brokers:,} brokers x {bundles} bundles")
    reports, loads, tops = _cluster(brokers, bundles)
    with tempfile.TemporaryDirectory() as directory:
        modular, extensible = Path(directory) / "modular", Path(directory) / "extensible"
        write_modular(modular, reports)
        write_extensible(extensible, loads, tops)
        for name in sorted(registry.SHEDDERS):
            ours, moves = _apart(_row, name, brokers, bundles, repeat)
            print(f"{name:20} {'  '.join(map(_text, ours))}   {moves:5} moves")
            if not java or name in OURS:
                continue
            path = extensible if registry.SHEDDERS[name].extensible else modular
            theirs = java_times(path, name, EAGER_KEYS, rounds=repeat)
            if isinstance(theirs, str):
                print(f"{'  in Java':20} not measured: {theirs}")
                java = False
                continue
            print(_java_line(theirs))


def _row(name: str, brokers: int, bundles: int, repeat: int) -> tuple[list[Timing], int]:
    """(a), (b) and (c) of a shedder, and its moves."""
    over = _Over(name, *_cluster(brokers, bundles))
    timings = [_times(call, repeat) for call in (over.all_changed, over.some, over.decide)]
    return timings, over.moves


def _apart(call: Callable[..., Any], *arguments: object) -> Any:
    """The result of a call in a process of its own, as a leader and Java have one."""
    with multiprocessing.get_context("spawn").Pool(1) as process:
        return process.apply(call, arguments)


def _java_line(theirs: Times) -> str:
    """Pulsar updates all of its data in each cycle, so that (b) is (a)."""
    figures = (theirs.updated, theirs.updated, theirs.decision)
    note = "" if theirs.rounds >= 20 else f", {theirs.rounds} rounds"
    return f"{'  in Java':20} {'  '.join(map(_text, figures))}   {theirs.moves:5} moves{note}"


class _Over:
    """One shedder over one cluster, whose figures a view keeps, with its memory of one cycle."""

    def __init__(
        self,
        name: str,
        reports: dict[str, LocalBrokerData],
        loads: dict[str, BrokerLoadData],
        tops: dict[str, TopBundlesLoadData],
    ) -> None:
        self._settings = StrategySettings(shedder=name, own=EAGER)
        self._reports = loads if registry.SHEDDERS[name].extensible else reports
        self._some = sorted(reports)[::100]
        self._tops = tops if registry.SHEDDERS[name].extensible else {}
        self._view, self._memories = ClusterView(), Memories()
        self._now_ms = self.moves = 0
        self.all_changed()
        _, self._memories = cycle.shed(self._taken(), self._settings, self._memories)
        self.all_changed()
        self._snapshot = self._taken()

    def all_changed(self) -> None:
        """(a)."""
        self._observe(self._reports)
        self._view.observe_top_bundles(self._tops)
        self._shed(self._taken())

    def some(self) -> None:
        """(b)."""
        self._observe(self._some)
        self._shed(self._taken())

    def decide(self) -> None:
        """(c)."""
        self._shed(self._snapshot)

    def _observe(self, brokers: Iterable[str]) -> None:
        self._now_ms += 1
        for broker in brokers:
            report = self._reports[broker]
            if isinstance(report, LocalBrokerData):
                report.last_update = self._now_ms
            self._view.observe(broker, report, self._now_ms)

    def _taken(self) -> ClusterSnapshot:
        return _snapshot(self._view, self._settings)

    def _shed(self, snapshot: ClusterSnapshot) -> None:
        self.moves = len(cycle.shed(snapshot, self._settings, self._memories)[0].unloads)


def _snapshot(
    view: ClusterView, settings: StrategySettings, *, passing: bool = False
) -> ClusterSnapshot:
    return view.snapshot(
        2,
        settings,
        isolation_policies={},
        anti_affinity_groups={},
        failure_domains={},
        passing=passing,
    )


def _cold_start(placement: str, bundles: int) -> float:
    """Seconds to place so many bundles of a hundred namespaces, one lookup after the other."""
    rng, view, memories = random.Random(1), ClusterView(), Memories()
    settings = StrategySettings(placement=placement)
    for number in range(COLD_BROKERS):
        usage = ResourceUsage(usage=rng.random() * 50, limit=100)
        view.observe(f"b{number:04}:8080", LocalBrokerData(cpu=usage), 1)
    names = [f"t/ns{at % 100}/0x{at:08x}_0x{at + 1:08x}" for at in range(bundles)]
    began_s = time.perf_counter()
    for name in names:
        snapshot = _snapshot(view, settings, passing=True)
        (choice,), memories = cycle.place(snapshot, [name], settings, memories, rng)
        assert choice.broker is not None
        view.placed(name, choice.broker, 2)
    return time.perf_counter() - began_s


def _times(call: Callable[[], object], repeat: int) -> Timing:
    times = []
    for _ in range(repeat):
        began_s = time.perf_counter()
        call()
        times.append((time.perf_counter() - began_s) * 1000)
    return min(times), statistics.median(times)


def _text(timing: Timing) -> str:
    return f"{timing[0]:9.2f} /{timing[1]:9.2f}"


def _report(rng: random.Random, name: str, bundles: int) -> LocalBrokerData:
    step = (1 << 32) // bundles  # Java's JSON reader refuses many names of one hash
    stats = {
        f"tenant/ns-{name}/0x{step * number:08x}_0x{step * (number + 1):08x}": NamespaceBundleStats(
            msg_rate_in=rng.random() * 1e3,
            msg_throughput_in=rng.random() * 1e6,
            msg_rate_out=rng.random() * 1e3,
            msg_throughput_out=rng.random() * 1e6,
            topics=3,
        )
        for number in range(bundles)
    }
    total = sum(traffic.throughput for traffic in stats.values())
    return LocalBrokerData(
        cpu=ResourceUsage(usage=rng.random() * 100, limit=100),
        bundles=list(stats),
        last_stats=stats,
        msg_throughput_in=total,
        num_bundles=bundles,
    )


def _cluster(
    brokers: int, bundles: int
) -> tuple[dict[str, LocalBrokerData], dict[str, BrokerLoadData], dict[str, TopBundlesLoadData]]:
    """The same cluster as each manager sees it: brokerId → reports, and the published bundles."""
    rng = random.Random(1)
    reports = {
        f"b{number:04}:8080": _report(rng, str(number), bundles) for number in range(brokers)
    }
    load: dict[str, BrokerLoadData] = {}
    tops: dict[str, TopBundlesLoadData] = {}
    for name, report in reports.items():
        load[name] = BrokerLoadData(
            weighted_max_ema=report.cpu.percent / 100,
            msg_throughput_in=report.throughput,
            msg_throughput_ema=report.throughput,
            updated_at=1,
        )
        top = sorted(report.last_stats.items(), key=lambda entry: entry[1].throughput)[-10:]
        tops[name] = TopBundlesLoadData(
            top_bundles_load_data=[
                TopBundle(bundle_name=bundle, stats=traffic) for bundle, traffic in top
            ]
        )
    return reports, load, tops
