"""The numbers of bundles of each namespace that the brokers serve or will serve."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from loadmanager.engine.load.columns import Array, BrokerColumns

ARRAYS_MAX = 1_000
"""Namespaces that have an array; the others are counted when they are asked for."""


def namespace_of(bundle: str) -> str:
    """The namespace of a bundle, of whatever form its name is."""
    return bundle.rpartition("/")[0]


class Served:
    """Bundles that a broker reports, and those on their way to it. A bundle that is both counts
    once.

    `owners` (bundle → brokerId) corrects the reports, where given.
    """

    def __init__(
        self,
        reported: Mapping[str, Collection[str]],
        pending: Mapping[str, Collection[str]],
        owners: Mapping[str, str],
    ) -> None:
        self._reported: dict[str, frozenset[str]] = {}
        self._counts: dict[str, dict[str, int]] = {}
        """Namespace → brokerId → bundles."""
        self._arrays: dict[str, Array] = {}
        self._row_of: Mapping[str, int] | None = None
        for broker, bundles in reported.items():
            self.reported(broker, bundles, ())
        for broker, bundles in pending.items():
            self.placed(broker, bundles)
        if owners:
            self._correct(reported, pending, owners)

    def _correct(
        self,
        reported: Mapping[str, Collection[str]],
        pending: Mapping[str, Collection[str]],
        owners: Mapping[str, str],
    ) -> None:
        holders: dict[str, set[str]] = {}
        for counted in (reported, pending):
            for broker, bundles in counted.items():
                for bundle in bundles:
                    holders.setdefault(bundle, set()).add(broker)
        for bundle, owner in owners.items():
            there = holders.get(bundle, set())
            for broker in there - {owner}:
                self._count(broker, [bundle], -1)
            if owner in reported and owner not in there:
                self._count(owner, [bundle], 1)

    def copy(self) -> Served:
        """The same counts; changes of one do not show in the other."""
        other = Served({}, {}, {})
        other._reported = dict(self._reported)
        other._counts = {namespace: dict(counts) for namespace, counts in self._counts.items()}
        return other

    def reported(self, broker: str, bundles: Collection[str], pending: Collection[str]) -> None:
        """A broker has a new report; `pending` are the bundles on their way to it."""
        before, after = self._reported.get(broker, frozenset()), frozenset(bundles)
        if after:
            self._reported[broker] = after
        else:
            self._reported.pop(broker, None)
        if before != after:
            self._count(broker, (after - before).difference(pending), 1)
            self._count(broker, (before - after).difference(pending), -1)

    def gone(self, broker: str) -> None:
        """Forget all bundles of a broker."""
        self._reported.pop(broker, None)
        for namespace in [name for name, counts in self._counts.items() if broker in counts]:
            self._set(namespace, broker, 0)

    def placed(self, broker: str, bundles: Iterable[str]) -> None:
        """Bundles are on their way to a broker now."""
        reported = self._reported.get(broker, frozenset())
        self._count(broker, [bundle for bundle in bundles if bundle not in reported], 1)

    def not_placed(self, broker: str, bundles: Iterable[str]) -> None:
        """Bundles are on their way to a broker no longer."""
        reported = self._reported.get(broker, frozenset())
        self._count(broker, [bundle for bundle in bundles if bundle not in reported], -1)

    def counts(self, namespace: str, columns: BrokerColumns) -> Array:
        """The numbers of bundles of a namespace that the brokers serve, by row. Callers must not
        change it.
        """
        if self._row_of is not columns.row_of:
            self._row_of = columns.row_of
            self._arrays.clear()
        counts = self._arrays.get(namespace)
        if counts is None:
            counts = np.zeros(len(columns.names))
            for broker, number in self._counts.get(namespace, {}).items():
                row = columns.row_of.get(broker)
                if row is not None:
                    counts[row] = number
            if len(self._arrays) >= ARRAYS_MAX:
                del self._arrays[next(iter(self._arrays))]
            self._arrays[namespace] = counts
        return counts

    def bundles(self, namespaces: Iterable[str]) -> dict[str, int]:
        """brokerId → how many bundles of these namespaces it serves, if any."""
        total: Counter[str] = Counter()
        for namespace in namespaces:
            total.update(self._counts.get(namespace, {}))
        return total

    def namespaces(self, namespaces: Iterable[str]) -> dict[str, int]:
        """brokerId → of how many of these namespaces it serves bundles, if any."""
        total: Counter[str] = Counter()
        for namespace in namespaces:
            total.update(self._counts.get(namespace, {}).keys())
        return total

    def _count(self, broker: str, bundles: Iterable[str], by: int) -> None:
        for bundle in bundles:
            namespace = namespace_of(bundle)
            self._set(namespace, broker, self._counts.get(namespace, {}).get(broker, 0) + by)

    def _set(self, namespace: str, broker: str, number: int) -> None:
        counts = self._counts.setdefault(namespace, {})
        counts[broker] = number
        if not number:
            del counts[broker]
            if not counts:
                del self._counts[namespace]
        if self._row_of is not None and namespace in self._arrays:
            row = self._row_of.get(broker)
            if row is not None:
                self._arrays[namespace][row] = number
