"""BalancedPlacement: the broker where a bundle adds least to BalancedShedder's objective.

It goes by the model of usage that the shedder learned. What is on its way to a broker counts, so
that a burst of lookups is spread; so does the work of the bundle's clients, which connect again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from loadmanager.engine.load.columns import Array
from loadmanager.engine.load.reports import BundleData
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.usage_fit import fit
from loadmanager.engine.load.usage_model import CPU, UsageModel
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.balanced import SHEDDER, BalancedMemory
from loadmanager.engine.strategies.shedding.objective import FULL, objective
from loadmanager.engine.strategies.strategy import PlacementRule

IDLE_PART = 0.1
"""Each bundle counts as this part of an average one beside its traffic: otherwise all those without
any go to the one broker that is least used, with their clients and topics.
"""
SURGE = 1.5
"""A bundle's work while its clients connect, as a multiple of its usual work."""


def candidates(
    snapshot: ClusterSnapshot,
    brokers: Sequence[str],
    settings: StrategySettings,
    memory: BalancedMemory,
) -> tuple[Sequence[str], BalancedMemory]:
    """The one broker that is best, the first by name of equal ones; where traffic is lost only if
    all others would be full: its clients may rest as well.
    """
    columns = snapshot.columns
    among = columns.all_of(brokers)
    if snapshot.placing is None or not among:
        return brokers, memory
    model = _model(snapshot, settings, memory)
    _, _, on_their_way, number = snapshot.under_way.sums(columns)
    bytes_s, bundles = columns.throughputs + on_their_way, columns.bundles + number
    least = IDLE_PART * float(bytes_s.sum()) / max(float(bundles.sum()), 1.0)
    carried = _with_coming(snapshot, model) + least * bundles
    before = objective(model.most(carried))
    carried += _work(snapshot, model, snapshot.placing) + least
    usage = model.most(carried)
    if memory.losing:
        serving = [broker not in memory.losing for broker in among]
        trusted = among.where(np.array(serving, np.bool_))
        if trusted and trusted.of(usage).min() <= FULL:
            among = trusted
    added = model.size * (objective(usage) - before)
    best = int(among.of(added).argmin())
    return among[best : best + 1], memory


def why(
    snapshot: ClusterSnapshot, broker: str, settings: StrategySettings, memory: BalancedMemory
) -> Mapping[str, float | str]:
    """What the chosen broker uses, with what is on its way there, by the model and by its sensors,
    the error of the former, and what it comes to while the bundle's clients connect.
    """
    columns = snapshot.columns
    model, row = _model(snapshot, settings, memory), columns.row_of[broker]
    carried = _with_coming(snapshot, model)
    before = model.most(carried)
    after = model.most(carried + _work(snapshot, model, snapshot.placing or ""))
    figures = {
        "usage": float(before[row]),
        "usageMeasured": float(model.measured[row]),
        "usageError": float(model.error[row]),
        "usageAfter": float(after[row]),
    }
    return {name: round(figure, 4) for name, figure in figures.items()}


def _with_coming(snapshot: ClusterSnapshot, model: UsageModel) -> Array:
    """What the brokers carry as each resource counts it, with what is on its way to them:
    `[resource, broker]`.
    """
    columns, coming = snapshot.columns, snapshot.under_way
    carried: Array = model.carried + coming.sums(columns)[2]
    carried[CPU] = model.carried[CPU] + coming.work(columns, model.costs)
    return carried


def _work(snapshot: ClusterSnapshot, model: UsageModel, bundle: str) -> Array:
    """What a bundle's traffic is as each resource counts it, while its clients connect:
    `[resource, 1]`.
    """
    work = np.full((len(model.base), 1), snapshot.data_of(bundle).short_term_data.throughput)
    work[CPU] *= model.costs.of_bundle(bundle)
    return SURGE * work


def _model(
    snapshot: ClusterSnapshot, settings: StrategySettings, memory: BalancedMemory
) -> UsageModel:
    """What `BalancedShedder` learned; what the reports say alone, if it has not learned anything.
    Made once for many lookups.
    """
    columns, weights = snapshot.columns, settings.weights
    cached = columns.derived.get(weights)
    if cached is not None and cached[0] is memory.model:
        model: UsageModel = cached[1]
        return model
    learned = bool(memory.model.brokers)
    model = fit(columns, snapshot.averages, weights, memory.model, learning=not learned)
    columns.derived[weights] = memory.model, model
    return model


def _largest_first(bundles: Mapping[str, BundleData]) -> Sequence[str]:
    return sorted(bundles, key=lambda name: (-bundles[name].short_term_data.throughput, name))


PLACEMENT = PlacementRule(
    name="BalancedPlacement",
    candidates=candidates,
    why=why,
    order=_largest_first,
    memory=BalancedMemory,
    reads=SHEDDER,
)
