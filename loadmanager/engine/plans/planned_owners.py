"""Which brokers have which bundles while a plan is made, and which of them tenants keep apart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from functools import partial

import numpy as np

from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.plans.goals import Staying, name_of
from loadmanager.engine.strategies.shedding.modelled import ModelledBrokers
from loadmanager.engine.strategies.shedding.objective import OVERLOAD

NOTHING = (0, 0.0)


class PlannedOwners:
    """Which bundles brokers have, while a plan is made: `[row]`. `names`: tenants and namespaces
    that are told apart; `stay`: what does not move.
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        cluster: ModelledBrokers,
        names: Sequence[str],
        stay: Staying,
    ) -> None:
        self._snapshot, self.cluster, self._names = snapshot, cluster, frozenset(names)
        self.stay = stay
        self.bundles: list[set[str]] = [set() for _ in cluster.rows]
        self.named: list[dict[str, tuple[int, float]]] = [{} for _ in cluster.rows]
        """The names of whose bundles a broker has any → how many, and their bytes/s."""
        self._bound: list[dict[str, float]] = [{} for _ in cluster.rows]
        """The names of whose bundles some have to stay at a broker → the bytes/s of these."""
        self._shares: dict[int, list[float]] = {}

    def read(self) -> Generator[None, None, None]:
        """Take up the reports."""
        cluster, on_the_way = self.cluster, self._snapshot.under_way.bundles
        for row, broker in enumerate(cluster.names):
            for bundle in self._snapshot.reports[broker].last_stats:
                if bundle not in on_the_way and cluster.leaving.get(bundle) != broker:
                    self._count(row, bundle, 1)
                    self._bind(row, bundle)
            yield
        for bundle, broker in on_the_way.items():
            if broker in self._snapshot.columns.row_of:
                self._count(cluster.row(broker), bundle, 1)

    def _bind(self, row: int, bundle: str) -> None:
        """A broker cannot give away a bundle that stays, so that it is to be that name's."""
        name, broker = name_of(bundle, self._names), self.cluster.names[row]
        if name is None:
            return
        if self.stay.has(bundle) or self._snapshot.wishes.keep(bundle, broker) is not None:
            traffic = self._bound[row].get(name, 0.0) + self._snapshot.averages.quick_of(bundle)
            self._bound[row][name] = traffic

    def move(self, bundle: str, source: int, destination: int) -> None:
        """A bundle moves."""
        self._count(source, bundle, -1)
        self._count(destination, bundle, 1)

    def _count(self, row: int, bundle: str, more: int) -> None:
        (self.bundles[row].add if more > 0 else self.bundles[row].discard)(bundle)
        self._shares.pop(row, None)
        name = name_of(bundle, self._names)
        if name is None:
            return
        count, traffic = self.named[row].pop(name, (0, 0.0))
        if count + more > 0:
            traffic += more * self._snapshot.averages.quick_of(bundle)
            self.named[row][name] = count + more, traffic

    def shares(self, row: int) -> Sequence[float]:
        """What each bundle of a broker adds to one of average size, the largest first."""
        if row not in self._shares:
            shares = self.cluster.shares(sorted(self.bundles[row]))
            self._shares[row] = np.sort(shares)[::-1].tolist()
        return self._shares[row]

    def bundles_by_share(self, row: int) -> list[tuple[float, str]]:
        """The same with the bundles, equal ones in order of name."""
        bundles = sorted(self.bundles[row])
        shares = self.cluster.shares(bundles).tolist()
        return sorted(zip(shares, bundles, strict=True), key=lambda it: (-it[0], it[1]))

    def apart(self, names: Sequence[str]) -> dict[int, str]:
        """The broker's rows, each with the tenant or namespace that keeps it.

        A broker is kept by that whose bundles have to stay there, or else by that which has most
        bundles there, so that the fewest move; if they have no room then, by that which has most
        traffic there.
        """
        by_count = {row: dict(served) for row, served in enumerate(self.named)}
        keeper = self._shared_out(names, by_count)
        if self._have_room(names, keeper):
            return keeper
        by_traffic = {
            row: {name: (0, bytes_s) for name, (_, bytes_s) in served.items()}
            for row, served in by_count.items()
        }
        return self._shared_out(names, by_traffic)

    def _have_room(self, names: Sequence[str], keeper: Mapping[int, str]) -> bool:
        """Whether each name's bundles use no more than its brokers have beside other bundles."""
        cluster, carries = self.cluster, dict.fromkeys(names, 0.0)
        room = dict.fromkeys(names, 0.0)
        for row in cluster.rows:
            bundles = sorted(self.bundles[row])
            used, size = 0.0, float(cluster.size[row])
            for bundle, share in zip(bundles, cluster.shares(bundles).tolist(), strict=True):
                if (name := name_of(bundle, self._names)) is not None:
                    carries[name] += share
                    used += share
            if row in keeper:
                room[keeper[row]] += OVERLOAD * size - (float(cluster.usage[row]) * size - used)
        return all(carries[name] <= room[name] for name in names)

    def _shared_out(
        self, names: Sequence[str], named: Mapping[int, Mapping[str, tuple[int, float]]]
    ) -> dict[int, str]:
        """Who keeps which broker: of those that have something there, that with the greatest
        figures. A broker without any goes to the name that has least room for its traffic. One
        that has none then takes, of those of a name that has two, the one that costs least, or is
        least used.
        """
        keeper = {
            row: max(sorted(bound), key=bound.__getitem__)
            if (bound := self._bound[row])
            else max(sorted(served), key=served.__getitem__)
            for row, served in named.items()
            if served
        }
        total = {name: sum(it.get(name, NOTHING)[1] for it in named.values()) for name in names}
        usage, keepers = self.cluster.usage, Counter(keeper.values())

        def need(name: str) -> tuple[float, str]:
            return (total[name] / keepers[name] if keepers[name] else math.inf), name

        def costs(row: int, name: str) -> tuple[int, float, int]:
            more = named[row].get(keeper[row], NOTHING)[0] - named[row].get(name, NOTHING)[0]
            return more, usage[row], row

        free = [row for row in self.cluster.open_rows if row not in keeper]
        for row in sorted(free, key=lambda row: (usage[row], row)):
            keeper[row] = max(sorted(names), key=need)
            keepers[keeper[row]] += 1
        for name in sorted(names):
            if not keepers[name]:
                several = [
                    row
                    for row, other in keeper.items()
                    if keepers[other] > 1 and not self._bound[row]
                ]
                if several:
                    row = min(several, key=partial(costs, name=name))
                    keepers[keeper[row]] -= 1
                    keepers[name] += 1
                    keeper[row] = name
        return keeper
