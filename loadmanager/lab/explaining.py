"""A decision for a person: brokers as bars before and after, and the numbers behind it."""

from __future__ import annotations

import math

from loadmanager.engine.load.reports import LocalBrokerData
from loadmanager.engine.load.usage import Weights, max_weighted_usage
from loadmanager.engine.strategies.plan_document import TO_BE_PLACED, PlanShown, plan_lines
from loadmanager.lab.lines import Line, decode_reports

BAR_WIDTH = 40
PARTS = ("unloads", "placements", "splits")


def explain(number: int, line: Line, plan: PlanShown, weights: Weights) -> str:
    """The text of one cycle. The bars are the usages that the strategies
    compare: the most used resource after weighting, or what the extensible manager publishes.
    """
    reports = decode_reports(line.brokers)
    before = {
        **{name: max_weighted_usage(report, weights) for name, report in reports.local.items()},
        **{name: data.weighted_max_ema for name, data in reports.load.items()},
    }
    unloads = plan.unloads
    after = dict(before)
    for unload in unloads:
        source = unload.source
        moved = _share(reports.local.get(source), line, source, unload.bundle) * before.get(
            source, 0.0
        )
        after[source] = max(after.get(source, 0.0) - moved, 0.0)
        destination = unload.destination if unload.destination in before else TO_BE_PLACED
        after[destination] = after.get(destination, 0.0) + moved
    counts = [_counted(len(getattr(plan, name)), name) for name in PARTS]
    lines = [f"cycle {number}, {plan.strategy}: {', '.join(counts)}"]
    if before:
        lines += _bars("before", before)
    if unloads:
        lines += _bars("after (by share of traffic)", after)
    return "\n".join([*lines, *plan_lines(plan)]) + "\n\n"


def _counted(count: int, things: str) -> str:
    return f"1 {things[:-1]}" if count == 1 else f"{count} {things}"


def _bars(title: str, usage: dict[str, float]) -> list[str]:
    width = max((len(name) for name in usage), default=0)
    return [f"  {title}"] + [
        f"    {name:{width}}  {'█' * round(min(max(value, 0.0), 1.0) * BAR_WIDTH):{BAR_WIDTH}}  "
        f"{value:7.1%}"
        for name, value in sorted(usage.items())
    ]


def _share(report: LocalBrokerData | None, line: Line, source: str, bundle: str) -> float:
    """A bundle's part of its broker's traffic; in the extensible manager, of the traffic of the
    bundles that the broker published.
    """
    if report is not None:
        averages = line.bundle_data or {}
        loads = {name: stats.throughput for name, stats in report.last_stats.items()} or {
            name: averages[name].short_term_data.throughput
            for name in report.bundles
            if name in averages
        }
    else:
        top = line.top_bundles.get(source)
        published = top.top_bundles_load_data if top else []
        loads = {entry.bundle_name: entry.stats.throughput for entry in published}
    total = math.fsum(loads.values())
    return loads.get(bundle, 0.0) / total if total else 0.0
