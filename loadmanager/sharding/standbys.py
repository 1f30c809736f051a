"""Standby copies: which members have a copy of which shards, made before anybody needs it.

The leader writes down for each member which bundles it stands by for; the member makes copies of
those, a few at once, and says which are ready.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import BadInputError, LoadManagerError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import Change, ChangeKind, Store
from loadmanager.kit.tasks import Scope
from loadmanager.sharding.copies import Copies
from loadmanager.sharding.said import Said
from loadmanager.sharding.shards import Service

STANDBYS_MAX = 3
AT_ONCE_MAX = 4
"""So many copies are made at once by a member."""
FIRST_S, LAST_S = 10.0, 300.0
"""A copy that could not be made gets another try after so long, twice as long with each failure."""

Orders = dict[str, list[str]]
"""Member → the bundles that it stands by for, in order."""


def wanted(service: Service[Any], *, eager: bool) -> int:
    """How many standbys each shard shall have. Raises `BadInputError`."""
    count: object = getattr(service, "standbys", 0)
    if not isinstance(count, int) or not 0 <= count <= STANDBYS_MAX:
        raise BadInputError(f"0 to {STANDBYS_MAX} standbys are possible, not {count!r}")
    if count and not (eager and hasattr(service, "prepare")):
        raise BadInputError("standbys need a service with `prepare`, and eager=True")
    return count


@dataclass(frozen=True, slots=True)
class Owned:
    """Where the shards are: bundle → the member that owns it, opens it, or is about to take it; and
    whether it is served there.
    """

    holder: Callable[[str], str | None]
    served: Callable[[str], bool]


class StandbyPlan:
    """Who stands by for what: `orders`. Whatever can stay does: `keep` comes first."""

    def __init__(
        self,
        bundles: Sequence[str],
        owned: Owned,
        members: Sequence[str],
        failing: Collection[str] = (),
    ) -> None:
        """`failing`: the members that keep what copies they have, and get no more."""
        self._owned, self._members = owned, members
        self._takers = [member for member in members if member not in failing]
        self._of: dict[str, list[str]] = {bundle: [] for bundle in bundles}
        """Bundle → its standbys."""
        self._arriving: list[tuple[str, str]] = []
        """Standbys that open a bundle now, from their copies."""
        self._totals: Counter[str] = Counter()
        self._behind: Counter[tuple[str | None, str]] = Counter()
        """Member and standby → how many bundles of the one the other has copies of."""

    def _add(self, bundle: str, member: str) -> None:
        self._of[bundle].append(member)
        self._totals[member] += 1
        self._behind[self._owned.holder(bundle), member] += 1

    def keep(self, before: Orders, count: int) -> None:
        """Take over what was ordered before, up to `count` standbys for each bundle."""
        for member in self._members:
            for bundle in before.get(member, ()):
                if self._owned.holder(bundle) == member:
                    if not self._owned.served(bundle):
                        self._arriving.append((member, bundle))
                elif bundle in self._of and len(self._of[bundle]) < count:
                    self._add(bundle, member)

    def complete(self, count: int) -> None:
        """Give each bundle that somebody has `count` standbys, or as many as there are other
        members: so that what one member leaves behind goes to all others.
        """
        for bundle, of in self._of.items():
            holder = self._owned.holder(bundle)
            others = [each for each in self._takers if each != holder and each not in of]
            while holder is not None and others and len(of) < count:
                best = min(
                    others, key=lambda each: (self._behind[holder, each], self._totals[each], each)
                )
                others.remove(best)
                self._add(bundle, best)

    def even_out(self) -> None:
        """Give a member that has less than half of its part one more, in the place of the one with
        the most.
        """
        totals = self._totals
        by_total = sorted(self._takers, key=lambda each: (totals[each], each))
        if not by_total or totals[by_total[0]] >= totals.total() / len(by_total) / 2:
            return
        fewest, most = by_total[0], by_total[-1]
        for bundle, of in self._of.items():
            holder = self._owned.holder(bundle)
            if most in of and fewest not in of and holder not in (fewest, None):
                of.remove(most)
                totals[most] -= 1
                self._add(bundle, fewest)
                return

    def orders(self) -> Orders:
        """Of all members."""
        orders: Orders = {member: [] for member in self._members}
        for bundle, of in self._of.items():
            for member in of:
                orders[member].append(bundle)
        for member, bundle in self._arriving:
            orders[member].append(bundle)
        return orders


@dataclass(slots=True)
class _Failure:
    times: int = 0
    until_s: float = 0.0


class Standbys:
    """`on_change` and `said.on_change` must be called by a watch on `paths.SERVICE`, `tend` and
    `said.tell` again and again; `arrange` too, on the member that leads.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        me: str,
        copies: Copies,
        scope: Scope,
        *,
        count: int,
    ) -> None:
        self._store, self._clock, self._me, self._scope = store, clock, me, scope
        self._copies, self.count = copies, count
        self.said: Said[list[str]] = Said(store, paths.SERVICE_COPIES, me, copies.ready, list[str])
        self._orders: Orders = {}
        self._making: set[str] = set()
        self._failed: dict[str, _Failure] = {}
        self._merged_at = -1
        self._ready: dict[str, frozenset[str]] = {}
        self._orders_changed = 0

    async def on_change(self, change: Change) -> None:
        """Read the orders. What is damaged counts as none."""
        if change.kind is ChangeKind.RESYNC:
            names = await self._store.children(paths.SERVICE_STANDBYS)
            self._orders.clear()
            self._orders_changed += 1
            for name in names:
                await self._read(paths.decode(name))
        elif change.path.startswith(f"{paths.SERVICE_STANDBYS}/"):
            await self._read(paths.decode(paths.last(change.path)))

    async def _read(self, member: str) -> None:
        node = await self._store.get(_path(member))
        self._orders_changed += 1
        self._orders.pop(member, None)
        if node is not None:
            with suppress(msgspec.MsgspecError):
                self._orders[member] = msgspec.json.decode(node.value, type=list[str])

    @property
    def changes(self) -> int:
        """Grows with each change of the orders, and of what is ready."""
        return self._orders_changed + self.said.changes

    def ready(self) -> Mapping[str, frozenset[str]]:
        """Bundle → the members that have a copy of it."""
        if self._merged_at != self.said.changes:
            self._merged_at = self.said.changes
            of: dict[str, set[str]] = {}
            for member, bundles in self.said.of.items():
                for bundle in bundles:
                    of.setdefault(bundle, set()).add(member)
            self._ready = {bundle: frozenset(members) for bundle, members in of.items()}
        return self._ready

    # On the member that leads

    async def arrange(
        self,
        bundles: Sequence[str],
        owned: Owned,
        members: Sequence[str],
        failing: Collection[str],
    ) -> None:
        """Write down who stands by for what; see `StandbyPlan`."""
        ready = {member: set(self.said.of.get(member, ())) for member in members}
        calm = all(ready.get(member, set()).issuperset(of) for member, of in self._orders.items())
        plan = StandbyPlan(bundles, owned, members, failing)
        plan.keep(self._orders, self.count)
        plan.complete(self.count)
        for _ in range(AT_ONCE_MAX if calm else 0):
            plan.even_out()
        orders = plan.orders()
        for member in sorted(orders.keys() | self._orders.keys()):
            await self._write(member, orders.get(member))

    async def _write(self, member: str, bundles: list[str] | None) -> None:
        if bundles == self._orders.get(member):
            return
        if bundles is None:
            await self._store.delete(_path(member))
        else:
            await self._store.put(_path(member), msgspec.json.encode(bundles))

    # On every member

    async def tend(self, holder: Callable[[str], str | None]) -> None:
        """Make the copies that are ordered, and let go of others."""
        orders = dict.fromkeys(self._orders.get(self._me, ()))
        before, self._copies.standing = self._copies.standing, frozenset(orders)
        for bundle in before - orders.keys():
            self._failed.pop(bundle, None)
            if holder(bundle) != self._me:  # otherwise it is about to be opened from its copy
                self._copies.forget(bundle)
        now_s, there = self._clock.monotonic_s(), set(self._copies.bundles)
        for bundle in orders:
            if len(self._making) >= AT_ONCE_MAX:
                return
            if bundle in there or bundle in self._making or holder(bundle) in (self._me, None):
                continue
            if self._failed.get(bundle, _Failure()).until_s <= now_s:
                self._making.add(bundle)
                self._scope.spawn(self._make(bundle), f"stand by for {bundle}")

    async def _make(self, bundle: str) -> None:
        try:
            await self._copies.make(bundle)
            self._failed.pop(bundle, None)
        except LoadManagerError:
            failure = self._failed.setdefault(bundle, _Failure())
            wait_s = min(FIRST_S * 2.0 ** min(failure.times, 10), LAST_S)
            failure.times += 1
            failure.until_s = self._clock.monotonic_s() + wait_s
        finally:
            self._making.discard(bundle)


def _path(member: str) -> str:
    return f"{paths.SERVICE_STANDBYS}/{paths.encode(member)}"
