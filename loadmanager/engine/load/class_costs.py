"""What the CPU of a byte/s costs in each class of namespaces, learned from the brokers' surprises.

Namespaces differ: small messages, many subscriptions or no batches cost more CPU for each byte. No
sensor says which namespace a broker's CPU works for. But if a broker is busier than the costs so
far let expect, some of what it carries is dearer than was thought. Each class is taken for dearer
by the mean surprise of the brokers that carry it, weighted with how much of it they carry. Classes
that are not dear are on brokers without such surprises, too, so theirs cancel out. (Richardson and
Lucy restore pictures that way; it is expectation maximisation for sums.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.load.bundle_traffic import COST_CLASSES, Traffic, cost_class_of
from loadmanager.engine.load.columns import Array

LEARNED = 0.3
"""How much of a surprise is taken over: a sensor's noise should not look like a cost."""
FADES = 0.002
"""How much of what was learned fades with each cycle that brings reports."""
COST_MAX = 50.0
"""A class costs at most so many times, or at least this part of, the mean."""
SURPRISE_MAX = 2.0
"""A broker counts as at most so many times, or at least this part, as busy as expected."""
CARRIED_MIN = 1e-9
"""Less traffic, in bytes/s, says nothing of what it costs."""


def in_columns(costs: Mapping[int, float]) -> Array:
    """Class → its cost as an array of all classes; 1 is the mean. Costs of classes that do not
    exist, or that nothing could have taught, do not count: a store may hold anything.
    """
    columns = np.ones(COST_CLASSES)
    for cost_class, cost in costs.items():
        if 0 <= cost_class < COST_CLASSES and 1 / COST_MAX <= cost <= COST_MAX:
            columns[cost_class] = cost
    return columns


def told_apart(costs: Array) -> dict[int, float]:
    """The classes that do not cost the mean, to five digits, so that few bytes keep them."""
    rounded = costs.round(5)
    classes = np.flatnonzero(rounded != 1.0).tolist()
    return dict(zip(classes, rounded[classes].tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class BundleCosts:
    """What the CPU of a byte/s costs, as a multiple of the mean."""

    of_classes: Array
    moved: Mapping[str, float] = field(default_factory=dict)
    """Bundle → what it costs as a multiple of its class, learned from its moves."""
    by_row: Array | None = None
    """What bundles cost as a multiple of their class, by their moves and their messages, for each
    row of the averages; None: none differs.
    """
    row_of: Mapping[str, int] = field(default_factory=dict)
    """Bundle → its row."""

    def of(self, traffic: Traffic) -> Array:
        """For each bundle."""
        each: Array = self.of_classes[traffic.cost_classes]
        if self.by_row is not None and traffic.rows is not None:
            each *= self.by_row[traffic.rows]
        return each

    def of_bundle(self, bundle: str) -> float:
        """For one."""
        row, of_class = self.row_of.get(bundle), float(self.of_classes[cost_class_of(bundle)])
        if self.by_row is None or row is None:
            return of_class * self.moved.get(bundle, 1.0)
        return of_class * float(self.by_row[row])


def learn(
    costs: BundleCosts, traffic: Traffic, used: Array, expected: Array, part: float = 1.0
) -> Array:
    """The costs of all classes, relative to the mean, after some brokers reported.

    `traffic`: what these brokers carry; `used`: their CPU; `expected`: what it would be with costs
    of 1. In any unit. Brokers of which nothing is expected do not count.
    """
    work = traffic.bytes_s * costs.of(traffic)
    expected = expected * _dearness(traffic, work)
    surprises = np.divide(used, expected, out=np.zeros_like(used), where=expected > 0)
    surprises = np.clip(surprises, 1 / SURPRISE_MAX, SURPRISE_MAX)
    if not (expected > 0).all():
        work *= np.repeat(expected > 0, traffic.counts)
    of_each = work * np.repeat(surprises, traffic.counts)
    carried = np.bincount(traffic.cost_classes, work, COST_CLASSES)
    surprised = np.bincount(traffic.cost_classes, of_each, COST_CLASSES)
    means = np.divide(surprised, carried, out=np.ones(COST_CLASSES), where=carried > CARRIED_MIN)
    learned = costs.of_classes ** (1 - FADES) * means ** (LEARNED * part)
    return np.clip(learned, 1 / COST_MAX, COST_MAX)


def without(costs: BundleCosts, traffic: Traffic, brokers: NDArray[np.bool_]) -> Array:
    """The costs of all classes without the cheapness that these brokers taught: as much of it as
    they carry of a class. `brokers`: of those whose traffic it is.
    """
    theirs = traffic.bytes_s * np.repeat(brokers, traffic.counts)
    of_all, of_them = (
        np.bincount(traffic.cost_classes, bytes_s, COST_CLASSES)
        for bytes_s in (traffic.bytes_s, theirs)
    )
    part = np.divide(of_them, of_all, out=np.zeros(COST_CLASSES), where=of_all > 0)
    return np.where(costs.of_classes < 1, costs.of_classes ** (1 - part), costs.of_classes)


def dearness(costs: BundleCosts, traffic: Traffic) -> Array:
    """What the traffic of each broker costs, relative to the mean; 1 for a broker without any."""
    return _dearness(traffic, traffic.bytes_s * costs.of(traffic))


def _dearness(traffic: Traffic, work: Array) -> Array:
    plain, weighted = traffic.totals(traffic.bytes_s), traffic.totals(work)
    dear: Array = np.divide(weighted, plain, out=np.ones_like(plain), where=plain > CARRIED_MIN)
    return dear
