"""How much of its member each shard uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.kit.clock import Clock
from loadmanager.leader.brokers import RATE_MAX
from loadmanager.member.ports.hosting import HostUsage
from loadmanager.sharding.extra_hooks import ExtraHooks
from loadmanager.sharding.shards import Shard

PERIOD_S = 5.0
"""Rates are averaged over as much, at least."""
BYTES_OF_LOAD = 1 << 20
"""What one unit of load counts as, where shedders go by bytes: they look at shares of a member's
traffic, and at none that is next to nothing.
"""
RATE_OF_A_BUDGET = 1_000.0
"""What a whole budget counts as, in units of load a second."""
REQUESTS = "requests"
"""The name of the load that `Member.own` counts, a second."""
WHOLE_BUDGET_BYTES = 1 << 40
PART_MAX = 1_000.0
"""What uses more of a budget uses as much."""
REPORTED_MAX = RATE_MAX / 2
"""What a member reports at most of all its shards together, with a margin for rounding."""


class ShardLoads:
    """Of the shards that are open."""

    def __init__(
        self,
        shards: Mapping[str, Shard[Any]],
        clock: Clock,
        extra: ExtraHooks,
        budgets: Mapping[str, float],
    ) -> None:
        self._shards, self._clock, self._extra, self._budgets = shards, clock, extra, budgets
        self._measured_s = clock.monotonic_s()

    def stats(self) -> dict[str, NamespaceBundleStats]:
        """The load of each shard, as messages and bytes a second: with budgets, by the one of which
        it uses the greatest part. All in proportion, if it is more than a report may say.
        """
        self._measure()
        parts = self._parts()
        rates = {bundle: sum(shard.rates.values()) for bundle, shard in self._shards.items()}
        loads = {
            bundle: max(parts[bundle].values()) * RATE_OF_A_BUDGET if parts else rate
            for bundle, rate in rates.items()
        }
        fits = REPORTED_MAX / max(
            REPORTED_MAX, sum(rates.values()), sum(loads.values()) * BYTES_OF_LOAD
        )
        return {
            bundle: NamespaceBundleStats(
                topics=len(shard.rates),
                msg_rate_in=rates[bundle] * fits,
                msg_throughput_in=loads[bundle] * BYTES_OF_LOAD * fits,
            )
            for bundle, shard in self._shards.items()
        }

    def used_parts(self, cpu: float) -> dict[str, float]:
        """Bundle → the part of this member that it uses: of the budget of which it uses most, or of
        the processor, which is busy by `cpu`, by its part of all that `own` counts.
        """
        self._measure()
        rates = {bundle: sum(shard.rates.values()) for bundle, shard in self._shards.items()}
        total, parts = sum(rates.values()) or 1.0, self._parts()
        return {
            bundle: max(cpu * rate / total, *parts.get(bundle, {}).values(), 0.0)
            for bundle, rate in rates.items()
        }

    def usage(self) -> HostUsage:
        """How much the member uses of the budget that is used most; shown as memory, of which a
        service has none that we know.
        """
        parts = self._parts().values()
        used = max(
            (sum(part[name] for part in parts) for name in self._budgets if parts), default=0.0
        )
        limit = WHOLE_BUDGET_BYTES if self._budgets else 0
        return HostUsage(round(min(used, PART_MAX) * limit), limit, 0, 0)

    def _parts(self) -> dict[str, dict[str, float]]:
        """Bundle → name → the part of that budget which the shard uses; empty without budgets."""
        if not self._budgets:
            return {}
        loads = self._extra.loads(self._shards)
        return {
            bundle: {
                name: min(used.get(name, 0.0) / budget, PART_MAX)
                for name, budget in self._budgets.items()
            }
            for bundle, shard in self._shards.items()
            for used in [{REQUESTS: sum(shard.rates.values())} | loads.get(bundle, {})]
        }

    def _measure(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._measured_s < PERIOD_S:
            return
        seconds, self._measured_s = now_s - self._measured_s, now_s
        for shard in self._shards.values():
            shard.end_period(seconds)
