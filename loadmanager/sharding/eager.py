"""Gives every shard an owner without being asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from loadmanager.engine.load.wishes import Wishes
from loadmanager.engine.ownership.states import BundleState
from loadmanager.engine.strategies.plan import Placement
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.tasks import for_each
from loadmanager.member import compose
from loadmanager.member.extensible import ExtensibleManager
from loadmanager.sharding.costs import NOT_NOW, MoveCosts
from loadmanager.sharding.shard_owners import ShardOwners
from loadmanager.sharding.standbys import Owned, Standbys

EVERY_S = 0.5
AT_ONCE_MAX = 32
RESTS_MAX = 10
FILL_AGAIN_S = 10.0
"""A member that did not get a shard, because it could not prepare it, gets the next one later."""
FORGOTTEN_S = 3_600.0
"""After so long a shard that could not be moved is tried as soon as others."""


class Rest:
    """Whether a step that had nothing to do may be left out, because what it goes by is the same.
    Every few seconds it looks all the same.
    """

    def __init__(self) -> None:
        self._turns = 0
        self._key: object = None

    def goes_on(self, key: object) -> bool:
        """True: leave it out. Otherwise it may call `begin` with what it has looked at."""
        self._turns -= 1
        return self._turns >= 0 and key == self._key

    def begin(self, key: object) -> None:
        """There was nothing to do."""
        self._key, self._turns = key, RESTS_MAX


class EagerOwnership:
    """Its steps are called each `EVERY_S`. It is the `Placer` of the leader, too: what a member
    leaves that dies goes to the others evenly.
    """

    def __init__(
        self,
        member: compose.ComposedMember,
        manager: ExtensibleManager,
        owners: ShardOwners,
        costs: MoveCosts,
        standbys: Standbys,
    ) -> None:
        self._member, self._manager, self._owners = member, manager, owners
        self._costs, self._standbys = costs, standbys
        self._holder = manager.claims.openings.holder
        self._filling: set[str] = set()
        """Members that have joined, or come back, and are getting their share."""
        self._refused_s: dict[str, float] = {}
        """Member → when a shard could not be moved to it."""
        self._failed_s: dict[str, float] = {}
        """Shard → when it could not be moved, lately: others are tried before."""
        self._changes = 0
        """Of records and members."""
        self._rests = {step: Rest() for step in ("place", "fill", "open-again", "stand-by")}
        manager.records.append(self._on_change)
        member.cluster.brokers.listeners.append(self._on_change)

    def _on_change(self, *_: object) -> None:
        self._changes += 1

    @property
    def _all(self) -> Sequence[str]:
        return self._owners.names

    @property
    def _version(self) -> tuple[int, int]:
        """Another one after each change of what the steps go by."""
        return self._changes, self._owners.splits

    async def place(self) -> None:
        """Assign what nobody has, evenly; on the member that leads. Does not wait until it is
        open: one that opens slowly holds up nobody else.
        """
        if self._member.cluster.leading.load_manager is None:
            return
        rest, key = self._rests["place"], self._version
        if rest.goes_on(key):
            return
        free = [bundle for bundle in self._all if self._holder(bundle) is None]
        if not free:
            rest.begin(key)
        chosen = [placed for placed in self.choose_all(free) if placed.broker is not None]
        await for_each(chosen, self._assign, AT_ONCE_MAX, "place")

    async def _assign(self, placed: Placement) -> None:
        with suppress(LoadManagerError):  # the next step places it
            await self._manager.assign(placed.bundle, placed.broker or "")

    def choose_all(self, bundles: Sequence[str]) -> list[Placement]:
        """Choose for each the member with the fewest, of those that may get it and have a copy of
        it, or else of all that may get it.
        """
        lost, counts, ready = set(bundles), self._counts(), self._standbys.ready()
        for bundle in lost:
            counts[self._holder(bundle) or ""] -= 1
        choices, wishes = [], self._member.cluster.wishes.now()
        for bundle in bundles:
            able = self._able(bundle, wishes) or self._able(bundle, wishes, strict=False)
            copied = ready.get(bundle, frozenset()).intersection(able)
            broker = min(copied or able, key=lambda name: (counts[name], name), default=None)
            choices.append(Placement(bundle, broker, able, {}))
            counts[broker or ""] += 1
        return choices

    def _counts(self) -> Counter[str]:
        """Member → how many shards it has, opens, or is about to take."""
        return Counter(self._holder(bundle) or "" for bundle in self._all)

    async def fill(self) -> None:
        """Move one shard to a member that has less than half of its share, until it
        has all of it; on the member that leads. First those of which it has a copy, then the
        cheapest. Members with a little less or more are the shedder's, which goes by load.
        """
        operations = self._member.cluster.leading.operations
        if self._member.cluster.leading.load_manager is None or operations is None:
            return
        now_s = self._member.base.clock.monotonic_s()
        self._refused_s = {
            name: at_s for name, at_s in self._refused_s.items() if now_s - at_s < FILL_AGAIN_S
        }
        self._failed_s = {
            name: at_s for name, at_s in self._failed_s.items() if now_s - at_s < FORGOTTEN_S
        }
        wishes = self._member.cluster.wishes.now()
        members = self._able("", wishes)
        rest, key = self._rests["fill"], (self._version, members, list(self._refused_s))
        if rest.goes_on(key):
            return
        counts = self._counts()
        failed = frozenset[str]().union(*wishes.refusals.values())
        if counts[""] and any(self._holder(name) is None for name in {*self._all} - failed):
            return
        share = len(self._all) // max(len(members), 1)
        self._filling = {
            name
            for name in members
            if name not in self._refused_s
            and counts[name] < (share if name in self._filling else share / 2)
        }
        if not self._filling:
            rest.begin(key)
            return
        poorest = min(self._filling, key=lambda name: (counts[name], name))
        richest = max(members, key=lambda name: (counts[name], name))
        ready, nobody = self._standbys.ready(), frozenset[str]()
        served = [bundle for bundle in self._all if self._owner(bundle) == richest]
        *_, cost, bundle = min(
            (
                (self._failed_s.get(name, 0.0), poorest not in ready.get(name, nobody), cost, name)
                for name in served
                if (cost := self._costs.of(name)) < NOT_NOW
            ),
            default=(0.0, True, NOT_NOW, ""),
        )
        if counts[richest] > share and cost < NOT_NOW:
            try:
                await operations.move(bundle, poorest)
            except LoadManagerError:
                now_s = self._member.base.clock.monotonic_s()
                self._refused_s[poorest] = self._failed_s[bundle] = now_s

    def _owner(self, bundle: str) -> str | None:
        owner = self._member.ownership.cached_owner(bundle)
        return None if owner is None else owner.broker_id

    async def open_again(self) -> None:
        """Open what this member has claimed and does not serve, because for a moment it could not
        prove its session.
        """
        ownership, base = self._member.ownership, self._member.base
        me = (base.broker_id, base.store.session_id)
        rest, key = self._rests["open-again"], (self._version, me, len(ownership.owned()))
        if rest.goes_on(key):
            return
        idle = [
            bundle
            for bundle in self._all
            if ownership.state(bundle) is BundleState.FREE
            and (record := self._manager.claims.cache.record(bundle)) is not None
            and record.owner == me
        ]
        if not idle:
            rest.begin(key)
        await for_each(idle, self._open_again, AT_ONCE_MAX, "open-again")

    async def _open_again(self, bundle: str) -> None:
        with suppress(LoadManagerError):  # the next step tries again, or places it
            await self._member.ownership.acquire(bundle, "claimed by this session")

    async def stand_by(self) -> None:
        """Have copies made of all shards, and make those that are this member's to make."""
        await self._standbys.tend(self._holder)
        if self._member.cluster.leading.load_manager is not None:
            wishes = self._member.cluster.wishes.now()
            members, able = self._able("", wishes, strict=False), self._able("", wishes)
            rest = self._rests["stand-by"]
            key = (self._version, members, able, self._standbys.changes)
            if rest.goes_on(key):
                return
            rest.begin(key)
            owned = Owned(self._holder, lambda bundle: self._owner(bundle) is not None)
            await self._standbys.arrange(self._all, owned, members, {*members} - {*able})

    def _able(self, bundle: str, wishes: Wishes, *, strict: bool = True) -> list[str]:
        """The members that may get a shard; not `strict`: also those that have just failed with
        another one.
        """
        refuse = wishes.refuses if strict else wishes.refuses_it
        brokers = self._member.cluster.brokers
        return sorted(
            name
            for name in brokers.registered
            if name not in wishes.cordons and not refuse(name, bundle)
        )
