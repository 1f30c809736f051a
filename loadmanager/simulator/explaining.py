"""A decision for a person: brokers as bars before and after, and the numbers behind it."""

from __future__ import annotations

import math

from loadmanager.core.load.reports import LocalBrokerData
from loadmanager.core.load.usage import max_usage
from loadmanager.core.strategies.decision import Plan, Unload
from loadmanager.simulator.lines import Line, decode_reports

BAR_WIDTH = 40
TO_BE_PLACED = "(to be placed)"


def explain(number: int, line: Line, plan: Plan) -> str:
    """The text of one cycle."""
    found = decode_reports(line.brokers)
    before = {
        **{name: max_usage(report) for name, report in found.local.items()},
        **{name: data.weighted_max_ema for name, data in found.load.items()},
    }
    after = dict(before)
    for unload in plan.unloads:
        moved = _share(found.local.get(unload.source), line, unload) * before.get(unload.source, 0.0)
        after[unload.source] = max(after.get(unload.source, 0.0) - moved, 0.0)
        destination = unload.destination if unload.destination in before else TO_BE_PLACED
        after[destination] = after.get(destination, 0.0) + moved
    lines = [f"cycle {number}, {plan.strategy}: {len(plan.unloads)} unloads, {len(plan.placements)} placements, {len(plan.splits)} splits"]
    if before:
        lines += _bars("before", before)
    if plan.unloads:
        lines += _bars("after (by share of traffic)", after)
    for unload in plan.unloads:
        why = ", ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in unload.why.items())
        lines.append(f"  move   {unload.bundle}  {unload.source} -> {unload.destination or TO_BE_PLACED}  {unload.reason}: {why}")
    for item in plan.placements:
        lines.append(f"  place  {item.bundle}  -> {item.broker or 'nobody'}  out of {', '.join(item.candidates) or 'no candidates'}")
        lines += [f"         not {broker}: {reason}" for broker, reason in sorted(item.rejected.items())]
    lines += [f"  split  {item.bundle}  at {', '.join(f'0x{cut:08x}' for cut in item.boundaries)}  {item.reason}" for item in plan.splits]
    lines += [f"  stay   {item.what}: {item.reason}" for item in plan.skipped]
    return "\n".join(lines) + "\n\n"


def _bars(title: str, usage: dict[str, float]) -> list[str]:
    width = max((len(name) for name in usage), default=0)
    return [f"  {title}"] + [
        f"    {name:{width}}  {'█' * round(min(max(value, 0.0), 1.0) * BAR_WIDTH):{BAR_WIDTH}}  {value:7.1%}"
        for name, value in sorted(usage.items())
    ]


def _share(report: LocalBrokerData | None, line: Line, unload: Unload) -> float:
    """The part of its broker's traffic that a bundle carries; in the extensible manager, of the bundles that the broker published."""
    if report is not None:
        averages = line.bundle_data or {}
        loads = {name: stats.throughput for name, stats in report.last_stats.items()} or {
            name: averages[name].short_term_data.throughput for name in report.bundles if name in averages
        }
    else:
        top = line.top_bundles.get(unload.source)
        loads = {item.bundle_name: item.stats.throughput for item in top.top_bundles_load_data} if top else {}
    total = math.fsum(loads.values())
    return loads.get(unload.bundle, 0.0) / total if total else 0.0
