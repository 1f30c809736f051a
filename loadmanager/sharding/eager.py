"""Gives every shard an owner without being asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

from loadmanager.engine.ownership.states import BundleState
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.tasks import for_each
from loadmanager.member import compose

EVERY_S = 0.5
AT_ONCE_MAX = 32


class EagerOwnership:
    """`step` and `open_again` are called each `EVERY_S`."""

    def __init__(self, member: compose.ComposedMember, bundles: Sequence[str]) -> None:
        self._member, self._all = member, bundles
        self._filling: set[str] = set()
        """Members that have joined, or come back, and are getting their share."""

    async def step(self) -> None:
        """Place what has no owner, evenly, and wait until it is open; on the member that leads."""
        member = self._member
        if member.cluster.leading.load_manager is None:
            return
        owners = {bundle: member.ownership.cached_owner(bundle) for bundle in self._all}
        free = [bundle for bundle, owner in owners.items() if owner is None]
        counts = Counter(owner.broker_id for owner in owners.values() if owner is not None)
        await for_each(free, lambda bundle: self._place(bundle, counts), AT_ONCE_MAX, "place")
        if not free:
            await self._fill(owners, counts)

    async def _fill(self, owners: Mapping[str, BrokerAddress | None], counts: Counter[str]) -> None:
        """Move one shard to a member that has less than half of its share, until it has all of it.
        Members with a little less or more are the shedder's, which goes by load.
        """
        members = self._able("")
        share = len(self._all) // max(len(members), 1)
        self._filling = {
            name
            for name in members
            if counts[name] < (share if name in self._filling else share / 2)
        }
        if not self._filling:
            return
        poorest = min(self._filling, key=lambda name: (counts[name], name))
        richest = max(members, key=lambda name: (counts[name], name))
        if counts[richest] <= share:
            return
        bundle = min(
            bundle for bundle, owner in owners.items() if owner and owner.broker_id == richest
        )
        operations = self._member.cluster.leading.operations
        if operations is not None:
            with suppress(LoadManagerError):  # the next step tries again
                await operations.move(bundle, poorest)

    async def open_again(self) -> None:
        """Open what this member has claimed and does not serve, because for a moment it could not
        prove its session.
        """
        member, session_id = self._member, self._member.base.store.session_id
        idle = [
            bundle
            for bundle in self._all
            if member.ownership.state(bundle) is BundleState.FREE
            and (owner := member.manager.claims.cached_owner(bundle)) is not None
            and owner.session_id == session_id
        ]
        await for_each(idle, self._open_again, AT_ONCE_MAX, "open-again")

    async def _open_again(self, bundle: str) -> None:
        with suppress(LoadManagerError):  # the next step tries again, or places it
            await self._member.ownership.acquire(bundle, "claimed by this session")

    def _able(self, bundle: str) -> list[str]:
        """The members that may get a bundle."""
        wishes, brokers = self._member.cluster.wishes.now(), self._member.cluster.brokers
        return [
            name
            for name in brokers.registered
            if name not in wishes.cordons and not wishes.refuses(name, bundle)
        ]

    async def _place(self, bundle: str, counts: Counter[str]) -> None:
        able = self._able(bundle)
        if not able:
            return
        chosen = min(able, key=lambda name: (counts[name], name))
        counts[chosen] += 1
        assign = self._member.manager.assign
        assert assign is not None, "the extensible manager assigns"
        try:
            await assign(bundle, chosen)
            await self._member.lookups.of_bundle(bundle)
        except LoadManagerError:
            counts[chosen] -= 1  # the next step places it
