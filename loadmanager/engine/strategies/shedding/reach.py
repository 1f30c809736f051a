"""Where isolation policies let bundles go, by rows of brokers: for the search of moves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.load.columns import Array, Rows
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.policies import isolation
from loadmanager.engine.strategies import filters


class Reach:
    """Which brokers may serve which bundles, and which brokers can help each other."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        everyone = np.arange(len(snapshot.columns.names))
        self.everywhere = not snapshot.isolation_policies
        """Whether any broker may serve any bundle."""
        self.alike: list[Rows] = [everyone]
        """The brokers by group; to every policy, those of a group are the same."""
        self.reaches: list[list[int]] = [[0]]
        """The groups that a bundle of each group may go to, as far as some policy lets it."""
        self._group_of = np.zeros(len(everyone), np.int64)
        self.together: list[Rows] = [everyone]
        """The brokers that can help each other, also by way of others."""
        self._which = np.zeros((0, len(everyone)), np.bool_)
        """The brokers that may serve the bundles of a kind: `[kind, broker]`."""
        self._kinds: dict[int, int] = {}
        """A policy's identity → the kind of the bundles that it covers."""
        self._policies = isolation.with_matches(snapshot.isolation_policies)
        if not self.everywhere:
            self._part()

    def _part(self) -> None:
        which = np.array(self._policies.allowed_by_each(self._snapshot.columns))
        kinds, group_of = np.unique(which, axis=1, return_inverse=True)
        self._group_of, count = group_of.reshape(-1), kinds.shape[1]
        self.alike = [np.flatnonzero(self._group_of == group) for group in range(count)]
        shared = kinds.T.astype(np.int64) @ kinds.astype(np.int64) > 0
        shared |= np.eye(count, dtype=np.bool_)
        self.reaches = [np.flatnonzero(row).tolist() for row in shared]
        left, self.together = set(range(count)), []
        while left:
            groups, ahead = set[int](), {min(left)}
            while ahead:
                groups |= ahead
                ahead = {each for group in ahead for each in self.reaches[group]} - groups
            left -= groups
            rows = np.concatenate([self.alike[group] for group in sorted(groups)])
            self.together.append(np.sort(rows))

    def farthest(self, usage: Array, size: Array, counts: NDArray[np.bool_]) -> float:
        """How far the usage of the broker that is farthest from the mean of those that count and
        can help it is from that.
        """
        farthest = 0.0
        for group in self.together:
            rows = group[counts[group]]
            if len(rows):
                mean = (usage[rows] * size[rows]).sum() / size[rows].sum()
                farthest = max(farthest, float(np.abs(usage[rows] - mean).max()))
        return farthest

    def around(self, row: int) -> list[int]:
        """The groups that a broker's bundles may go to or come from, and 0: the only one of a
        search that is told from which brokers to look.
        """
        return [0, *self.reaches[int(self._group_of[row])]]

    def kinds_of(self, bundles: Sequence[str]) -> Rows:
        """The kind of each bundle: what `barred` goes by."""
        if self.everywhere:
            return np.zeros(len(bundles), np.int64)
        kinds = [self._kind(split_bundle_name(bundle)[0]) for bundle in bundles]
        return np.array(kinds, np.int64)

    def _kind(self, namespace: str) -> int:
        policy = id(self._policies.of(namespace))
        if policy not in self._kinds:
            self._kinds[policy] = len(self._which)
            which = filters.serving_rows(self._snapshot, namespace)
            self._which = np.concatenate([self._which, which[None]])
        return self._kinds[policy]

    def bars(self, takers: Rows | list[int], kinds: Rows) -> NDArray[np.bool_]:
        """Whether a broker may not have a bundle of this kind: `[bundle]`. `takers`: the broker of
        each bundle, or one for all.
        """
        if self.everywhere:
            return np.zeros(len(kinds), np.bool_)
        bars: NDArray[np.bool_] = ~self._which[kinds, takers]
        return bars
