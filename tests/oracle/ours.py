"""Our answers to the oracle's cases, in the form in which the Java harness gives Pulsar's.

As a program: one case a line in, one answer a line out.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from loadmanager.broker import settings
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies import cycle
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.from_reports import LoadAverages, with_load_data
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.lab.deciding import Deciding
from loadmanager.lab.lines import Line, decode_line


class First:
    """A random generator that chooses the first candidate by name."""

    def randrange(self, stop: int, /) -> int:
        return 0


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Our decisions in each cycle of a case."""
    config = dict(case["config"])
    deciding = Deciding(First())
    averages: LoadAverages = {}
    cycles = []
    for raw in case["cycles"]:
        line = decode_line(msgspec.json.encode(raw))
        config |= {name: str(value) for name, value in line.config.items()}
        loaded = settings.KEYS.load(None, config)
        strategies, splits = loaded.leaf(StrategySettings), loaded.leaf(SplitSettings)
        if case["kind"] == "samples":
            snapshot = deciding._snapshot(line, strategies)
            derived, averages = with_load_data(snapshot, strategies, averages)
            cycles.append(_derived(derived))
        else:
            plan = (
                _moves(deciding, line, strategies)
                if case["kind"] == "moves"
                else deciding.decide(line, strategies, splits)
            )
            cycles.append(_plan(plan, case["kind"], line.do))
    return {"cycles": cycles}


def _moves(deciding: Deciding, line: Line, settings: StrategySettings) -> Plan:
    """The leader's orders: moves with their destinations."""
    snapshot = deciding._snapshot(line, settings)
    plan, memories = cycle.shed(snapshot, settings, deciding._memories)
    plan, deciding._memories = cycle.destinations(snapshot, plan, settings, memories, First())
    for unload in plan.unloads:
        deciding._view.moved(unload.bundle, unload.source, snapshot.now_ms)
    return plan


def _plan(plan: Plan, kind: str, asked: list[str]) -> dict[str, Any]:
    answered: dict[str, Any] = {}
    if "shed" in asked:
        answered["unloads"] = [
            [move.source, move.bundle, move.destination]
            + ([move.reason] if kind == "extensible" else [])
            for move in plan.unloads
        ]
    if "split" in asked:
        answered["splits"] = [
            [split.bundle, list(split.boundaries)]
            + ([split.reason] if kind == "extensible" else [])
            for split in plan.splits
        ]
    if "place" in asked:
        answered["placements"] = [
            [item.bundle, item.broker, sorted(item.candidates)] for item in plan.placements
        ]
    return answered


def _derived(snapshot: ClusterSnapshot) -> dict[str, Any]:
    return {
        "bundles": {
            bundle: [
                getattr(average, name)
                for average in (data.short_term_data, data.long_term_data)
                for name in (
                    "msg_throughput_in",
                    "msg_throughput_out",
                    "msg_rate_in",
                    "msg_rate_out",
                )
            ]
            for bundle, data in snapshot.bundle_data.items()
            if any(bundle in report.last_stats for report in snapshot.reports.values())
        },
        "brokers": {
            broker: list(msgspec.structs.astuple(snapshot.time_averages[broker]))
            for broker in snapshot.brokers
        },
        "loads": {
            broker: [data.max_resource_usage, data.weighted_max_ema, data.msg_throughput_ema]
            for broker, data in snapshot.load_data.items()
        },
        "tops": {
            broker: [item.bundle_name for item in top.top_bundles_load_data]
            for broker, top in snapshot.top_bundles.items()
        },
    }


if __name__ == "__main__":
    for raw in sys.stdin.buffer:
        sys.stdout.buffer.write(msgspec.json.encode(answer(msgspec.json.decode(raw))) + b"\n")
        sys.stdout.buffer.flush()
