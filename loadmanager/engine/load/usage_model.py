"""What brokers use, as a model: an idle part of their own, and what their traffic costs them.

    usage = idle + offset + cost × traffic / limit

`idle` and `cost` are those of all brokers together, fitted over time; a namespace's traffic has a
cost of its own (`class_costs`), and so have small messages (`message_costs`). `offset` is what one
broker differs by: it runs something else beside, its cores are slow, or its bundles are dearer than
others of their namespaces. It is bounded, so that a sensor may only claim so much. One that
contradicts the model is not believed any more, and neither is one that stands still while traffic
changes: such a broker, as one without a sensor, uses what its traffic says.

`usage_fit` learns it from the reports of each cycle; `learned` is what it remembers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.load.class_costs import BundleCosts
from loadmanager.engine.load.columns import Array
from loadmanager.engine.load.headroom import Headroom, at_least, headroom, measurable_from
from loadmanager.engine.load.learned import Learned

RESOURCES = ("cpu", "directMemory", "bandwidthIn", "bandwidthOut")
CPU = 0
"""The resource whose use depends on what the traffic is, and of which a broker uses a part when it
is idle; the others count bytes.
"""
DIP = 0.6
"""Below this part of their usual traffic, the clients are away."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A broker whose sensor does not count, and why."""

    broker: str
    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageModel:
    """The model at one moment. Arrays are `[resource, broker]` or `[broker]`, brokers in the order
    of `BrokerColumns`.
    """

    learned: Learned
    measured: Array
    """What the sensors show of the most used resource: `[broker]`."""
    base: Array
    """What is used beside traffic."""
    per_byte: Array
    """The usage that a byte/s of mean cost adds."""
    error: Array
    """The mean error of the model's usage, of the resource that a broker uses most: `[broker]`."""
    unproven: Array
    """What a broker's sensor claims to be less than traffic costs at most others: `[broker]`."""
    trusted: NDArray[np.bool_]
    """Whether the broker's own sensor counts."""
    size: Array
    """A broker's limit relative to the mean, of the resource that the cluster uses most."""
    costs: BundleCosts
    """What the CPU of each bundle's traffic costs, relative to the mean."""
    carried: Array
    """What the brokers carry as each resource counts it, in bytes/s of mean cost."""
    doubts: tuple[Doubt, ...]
    part_of_usual: float
    """The part of their usual traffic that the clients make."""
    noise: float
    """The usual noise of the sensors: a standard deviation."""
    misjudges: str
    """How sensors together contradict the model, so that it knows no more what traffic costs; empty
    if they do not.
    """

    @property
    def dip(self) -> float | None:
        """The same, if the clients are away."""
        return self.part_of_usual if self.part_of_usual < DIP else None

    def usages(self, carried: Array) -> Array:
        """The usage of each resource with this work: `[resource, broker]`."""
        return self.base + self.per_byte * carried

    def carry(self, carried: Array, row: int, bundle: str, bytes_s: float) -> None:
        """Add what a bundle's bytes/s are as each resource counts them to what a broker carries."""
        carried[:, row] += bytes_s
        carried[CPU, row] += bytes_s * (self.costs.of_bundle(bundle) - 1)

    def usage_with(self, more: Mapping[int, Iterable[tuple[str, float]]]) -> Array:
        """The most used resource of each broker, with bundles and their bytes/s in addition, by the
        row of the broker: what their own traffic costs, which may be unlike what it has.
        """
        carried = self.carried.copy()
        for row, bundles in more.items():
            for bundle, bytes_s in bundles:
                self.carry(carried, row, bundle, bytes_s)
        return self.most(carried)

    def most(self, carried: Array) -> Array:
        """The most used resource of each broker with this work."""
        most: Array = self.usages(carried).max(axis=0, initial=0.0)
        return most

    @property
    def used(self) -> Array:
        """The most used resource of each broker now."""
        return self.most(self.carried)

    def headroom(
        self, limit: float, closed: NDArray[np.bool_] | None = None
    ) -> tuple[str, Headroom] | None:
        """The resource that ends first as traffic grows, and its headroom below this usage; the one
        that is used most, if the traffic uses too little of that to tell which ends first. None:
        nothing is carried, or no sensor says what that costs. `closed`: `[broker]`.
        """
        if not self.trusted.any():
            return None
        parts = zip(RESOURCES, self.base, self.per_byte, self.carried, strict=True)
        rooms = [(name, headroom(limit, *of_one, closed=closed)) for name, *of_one in parts]
        ends = [(name, room) for name, room in rooms if room is not None]
        if not ends:
            return None
        used = (self.base + self.per_byte * self.carried).mean(axis=1)
        most, room = rooms[int(used.argmax())]
        name, first = min(ends, key=lambda end: end[1].times)
        if room is None or room.carried_usage < measurable_from(self.error.tolist()):
            name, first = most, room or Headroom(0.0, 0.0, 0.0)
        none = np.zeros(len(self.measured), np.bool_)
        least, without_one = at_least(limit, self.measured, none if closed is None else closed)
        return name, replace(first, least=least, least_without_one=without_one)
