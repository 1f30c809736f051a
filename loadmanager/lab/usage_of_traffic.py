"""What the traffic of each namespace makes each broker use, by the model of a day: with the bundles
that brokers had at its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from loadmanager.lab.days import CPU_OF_A_CORE
from loadmanager.lab.recorded import Recording

LAST_MINUTES = 60
"""Brokers that were there then are there at the end of the day."""


@dataclass(frozen=True, slots=True)
class UsageOfTraffic:
    """A linear model of usage, as a fraction."""

    beside: float
    """Without traffic."""
    of_byte: Mapping[str, Mapping[str, float]]
    """Broker → namespace → for each byte/s of that namespace, wherever it goes."""
    error: float
    """The mean error of a broker's usage in a minute."""


def usage_of_traffic(recording: Recording) -> UsageOfTraffic | None:
    """None: the day does not tell what traffic costs."""
    day, fit = recording.day, recording.fit
    if not fit.tells_costs or day.carried is None:
        return None
    bytes_s = np.asarray(day.carried, np.float64).mean(axis=0)
    spaces = ["/".join(name.split("/")[:2]) for name in day.bundles]
    sums: dict[str, float] = {}
    for space, carried in zip(spaces, bytes_s.tolist(), strict=True):
        sums[space] = sums.get(space, 0.0) + carried
    live = {name for minute in recording.modelled[-LAST_MINUTES:] for name in minute.live}
    of_byte: dict[str, dict[str, float]] = {name: {} for name in live}
    for at, name in enumerate(day.bundles):
        space, broker = spaces[at], recording.owners[name]
        if broker in of_byte and sums[space]:
            costs = day.cost[at] * bytes_s[at] / sums[space] * fit.slow.get(broker, 1.0)
            costs /= day.cores[broker] * CPU_OF_A_CORE
            of_byte[broker][space] = of_byte[broker].get(space, 0.0) + float(costs)
    return UsageOfTraffic(fit.beside, of_byte, fit.error)
