"""What a cycle went by: the load of brokers, for the documents of decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.usage import max_weighted_usage
from loadmanager.engine.strategies.plan_document import BrokerLoadSeen, Inputs
from loadmanager.engine.strategies.settings import StrategySettings

BROKERS_MAX = 20
"""Brokers whose load is kept beside a cycle, besides those that the plan names."""


def _as_shown(_broker: str, usage: float) -> float:
    return usage


def inputs_of(
    snapshot: ClusterSnapshot,
    settings: StrategySettings,
    named: Iterable[str],
    counted: Callable[[str, float], float] = _as_shown,
) -> Inputs:
    """What a cycle went by: the load of the most used brokers, and of those that are named.
    `counted`: what counts of a broker, whose sensors show so much.
    """
    shown_usages = broker_usages(snapshot, settings)
    usages = {name: counted(name, usage) for name, usage in shown_usages.items()}
    first = sorted(usages, key=lambda broker: (-usages[broker], broker))[:BROKERS_MAX]
    shown = sorted({*first, *(broker for broker in named if broker in usages)})
    average = sum(usages.values()) / len(usages) if usages else None
    return Inputs(
        brokers=len(usages),
        average_usage=average,
        loads={broker: _load(snapshot, broker, usages[broker]) for broker in shown},
    )


def broker_usages(snapshot: ClusterSnapshot, settings: StrategySettings) -> dict[str, float]:
    """brokerId → its most used resource after weighting, of all brokers with a report; in the
    extensible manager the average of that, by which TransferShedder goes.
    """
    if snapshot.extensible:
        return {name: float(data.weighted_max_ema) for name, data in snapshot.load_data.items()}
    weights = settings.weights
    return {name: max_weighted_usage(report, weights) for name, report in snapshot.reports.items()}


def _load(snapshot: ClusterSnapshot, broker: str, usage: float) -> BrokerLoadSeen:
    data = snapshot.load_data.get(broker)
    if data is not None and snapshot.extensible:
        rate, throughput = (
            data.msg_rate_in + data.msg_rate_out,
            data.msg_throughput_in + data.msg_throughput_out,
        )
        bundles, at_ms = data.bundle_count, data.updated_at
    else:
        report = snapshot.reports[broker]
        rate, throughput = report.rate, report.throughput
        bundles, at_ms = len(report.bundles), report.last_update
    return BrokerLoadSeen(
        usage=usage,
        rate=rate,
        throughput=throughput,
        bundles=int(bundles),
        report_age_ms=max(0, snapshot.now_ms - int(at_ms)) if at_ms else None,
    )
