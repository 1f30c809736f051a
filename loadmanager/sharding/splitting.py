"""Splits shards that use much of their member, and merges again what has become of them and stays
idle. A shard whose load is that of one key stays whole: so no load is divided for ever.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from loadmanager.engine.bundles.ranges import BundleRange, equal_boundaries, topic_hash
from loadmanager.engine.strategies.plan import Skip, Split
from loadmanager.engine.strategies.splitting.algorithms import (
    ALGORITHMS,
    HashedTopic,
    useful_boundaries,
)
from loadmanager.engine.strategies.splitting.merging import MergeSettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.engine.strategies.splitting.threshold import BROKERS_MIN, Splits
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import ConflictError, LoadManagerError, OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.tasks import for_each
from loadmanager.leader.present_leader import PresentLeader
from loadmanager.member.compose import ComposedMember
from loadmanager.sharding.host import ShardHost
from loadmanager.sharding.said import Said
from loadmanager.sharding.shard_owners import ShardOwners
from loadmanager.sharding.shards import Shard

SPLIT_AT = 0.25
"""The part of its member from which on a shard is split."""
PART_MIN = 0.2
"""The part of the load that the smaller one gets, at least: otherwise a split would not help."""
IDLE_AT = 0.01
"""The part of its member below which a shard is idle."""

log = get_logger("splitting")


def halve(span: BundleRange, loads: Mapping[str, float]) -> tuple[tuple[int, ...], str]:
    """The boundary that divides the load of the keys most evenly, or none and why."""
    by_hash: dict[int, float] = {}
    for key, load in loads.items():
        place = topic_hash(key)
        if load > 0 and place in span:  # not the figure of all keys that are not counted one by one
            by_hash[place] = by_hash.get(place, 0.0) + load
    if not by_hash:
        return (), "nothing is known of the load of its keys"
    total, before = sum(by_hash.values()), 0.0
    places = sorted(by_hash)
    best, smaller = 0, 0.0
    for place, after in zip(places, places[1:], strict=False):
        before += by_hash[place]
        if min(before, total - before) > smaller:
            best, smaller = (place + after + 1) // 2, min(before, total - before)
    if smaller < PART_MIN * total:
        largest = max(by_hash.values()) / total
        return (), f"one key carries {largest:.0%} of its load"
    return (best,), ""


def boundaries_of(
    algorithm: str, span: BundleRange, loads: Mapping[str, float], settings: SplitSettings
) -> tuple[tuple[int, ...], str]:
    """By the algorithm of a plug-in, if that is wanted, else by halves; or none and why."""
    if ALGORITHMS.get(algorithm) is None:
        return halve(span, loads)
    keys = {key: HashedTopic(topic_hash(key), load) for key, load in loads.items()}
    return useful_boundaries(algorithm, span, keys, limits=settings.flow_limits)


@dataclass(slots=True, kw_only=True)
class SplitInputs:
    """What splits and merges go by, beside the shards."""

    clock: Clock
    leading: PresentLeader
    members: Callable[[], Collection[str]]
    """Those that run."""
    cpu: Callable[[], float]
    """How busy the processor is, from 0 to 1."""
    settings: Live[SplitSettings]
    merges: Live[MergeSettings]


def inputs_of(member: ComposedMember) -> SplitInputs:
    """Those of a member."""
    report, base = member.reporter, member.base

    def cpu() -> float:
        used = report.report.cpu
        return used.usage / used.limit if used.limit > 0 else 0.0

    return SplitInputs(
        clock=base.clock,
        leading=member.cluster.leading,
        members=lambda: member.cluster.brokers.registered,
        cpu=cpu,
        settings=base.settings.live(SplitSettings),
        merges=base.settings.live(MergeSettings),
    )


class ShardSplits:
    """`choose` says what this member splits. `merge` is called again and again, as are
    `idle.tell` and, with changes, `idle.on_change`.
    """

    def __init__(
        self,
        host: ShardHost,
        owners: ShardOwners,
        inputs: SplitInputs,
        idle: Callable[[Callable[[], list[str]]], Said[list[str]]],
    ) -> None:
        """`idle`: makes what says which shards are idle, from a function that looks."""
        self._host, self._owners, self._inputs = host, owners, inputs
        self.idle = idle(self._idle_here)
        self._hits: dict[str, int] = {}
        self._since_ms: dict[tuple[str, str], int] = {}
        """Neighbours that are idle → since when, as this member knows."""
        self._original: frozenset[int] = frozenset()

    def begin(self, shards: int) -> None:
        """The service began with so many shards: merges go no further back."""
        self._original = frozenset(equal_boundaries(shards))

    @asynccontextmanager
    async def replacing(self, before: Sequence[str], after: Sequence[str]) -> AsyncIterator[None]:
        """Prepare what replaces shards of this member in a split or a merge, if the service has a
        `prepare`. Raises `OperationalError` if it cannot, or says that it is not to be now.
        """
        shards = self._host.shards
        closing = {name: shards[name] for name in before if name in shards}
        for name, cost in self._host.extra.costs(closing).items():
            if isinstance(cost, str):
                raise OperationalError(f"{name}: the service says: not now{cost and f': {cost}'}")
        try:
            if self._host.copies.possible:
                await for_each(after, self._host.copies.make, len(after), "prepare")
            yield
        finally:
            for name in after:
                self._host.copies.forget_move(name)

    async def choose(self, settings: SplitSettings) -> Splits:
        """The shards that have used too much of this member in enough checks in a row."""
        splits, skipped = list[Split](), list[Skip]()
        before, self._hits = self._hits, {}
        if len(self._inputs.members()) < BROKERS_MIN:
            return Splits((), ())  # nobody would get a part
        for bundle, used in sorted(self._host.loads.used_parts(self._inputs.cpu()).items()):
            if used <= SPLIT_AT or len(splits) >= settings.splits_per_cycle_max:
                continue
            hits = self._hits[bundle] = before.get(bundle, 0) + 1
            skip = self._not_yet(bundle, used, hits, len(splits), settings)
            places, why_not = ((), "") if skip else self._places(bundle)
            if skip or why_not:
                text = f"it uses {used:.0%} of its member, but {why_not}"
                skipped.append(skip or Skip(bundle, "Unsplittable", text))
            else:
                why = {"percent": round(100 * used, 1), "limit": 100 * SPLIT_AT}
                splits.append(Split(bundle, places, "PartOfMember", why))
        return Splits(tuple(splits), tuple(skipped))

    def _not_yet(
        self, bundle: str, used: float, hits: int, chosen: int, settings: SplitSettings
    ) -> Skip | None:
        if hits <= settings.hits_min:
            text = f"it uses {used:.0%} of its member in {hits} of more than {settings.hits_min}"
            return Skip(bundle, "HitCount", f"{text} checks in a row")
        if len(self._owners.names) + chosen >= settings.bundles_max:
            return Skip(bundle, "MaxBundles", f"there are {len(self._owners.names)} shards")
        return None

    def by_hand(self, shard: Shard[Any]) -> tuple[int, ...]:
        """Where to split a shard that its program wants to have split. Raises `ConflictError`."""
        places, why_not = self._places(shard.bundle)
        if why_not and shard.rates:
            raise ConflictError(f"{shard.name} is not split: {why_not}")
        return places or ((shard.range.lower + shard.range.upper) // 2,)

    def _places(self, bundle: str) -> tuple[tuple[int, ...], str]:
        """Where to split a shard, or nowhere and why."""
        settings = self._inputs.settings.value
        span = BundleRange.parse(bundle.rpartition("/")[2])
        if not span.splittable:
            return (), "it is one hash wide"
        loads = {key: traffic.msg_rate_in for key, traffic in self._host.topics(bundle).items()}
        return boundaries_of(settings.algorithm, span, loads, settings)

    def _idle_here(self) -> list[str]:
        """The idle ones of this member that others were split into."""
        if len(self._owners.names) < len(self._original):
            return []
        parts = [bundle for bundle in self._host.shards if not self._is_original(bundle)]
        used = self._host.loads.used_parts(self._inputs.cpu()) if parts else {}
        return sorted(bundle for bundle in parts if used.get(bundle, 1.0) < IDLE_AT)

    def _is_original(self, bundle: str) -> bool:
        span = BundleRange.parse(bundle.rpartition("/")[2])
        return {span.lower, span.upper} <= self._original

    async def merge(self) -> None:
        """Have two neighbours merged that have been idle for long enough; on the member that
        leads. Those with the narrowest range come first.
        """
        leading, settings = self._inputs.leading, self._inputs.merges.value
        if leading.operations is None or leading.load_manager is None or not settings.enabled:
            self._since_ms = {}
            return
        now_ms = self._inputs.clock.now_ms()
        idle = {bundle for bundles in self.idle.of.values() for bundle in bundles}
        names = self._owners.names
        self._since_ms = {
            pair: self._since_ms.get(pair, now_ms)
            for pair in zip(names, names[1:], strict=False)
            if idle.issuperset(pair) and self._upper(pair[0]) not in self._original
        }
        due = [
            (self._upper(pair[1]) - self._upper(pair[0]), *pair)
            for pair, since_ms in self._since_ms.items()
            if now_ms - since_ms >= settings.idle_minutes * 60_000
        ]
        if not due:
            return
        _, left, right = min(due)
        reason = f"Idle: for {settings.idle_minutes:g} minutes"
        try:
            await leading.operations.merge(left, right, reason)
        except LoadManagerError as error:
            self._since_ms[left, right] = now_ms
            log.warning("bundles were not merged", left=left, right=right, error=str(error))

    def _upper(self, bundle: str) -> int:
        return BundleRange.parse(bundle.rpartition("/")[2]).upper
