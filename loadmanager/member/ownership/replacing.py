"""Replaces bundles of this broker by others in one transaction, and finds out what became of it:
a split, or a merge of neighbours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from loadmanager.engine.bundles.ranges import BundleRange, NamespaceBundles, split_bundle_name
from loadmanager.engine.ownership.states import BundleLife, BundleState, LifeCause
from loadmanager.kit.errors import (
    ConflictError,
    LoadManagerError,
    OperationalError,
)
from loadmanager.kit.metadata.store import Operation, Store, VersionConflictError
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.tasks import sleep
from loadmanager.member.namespaces import SPLIT_ATTEMPTS_MAX, Namespaces
from loadmanager.member.ownership.claims import RETRY_FIRST_S, RETRY_MAX_S, Claims
from loadmanager.member.ownership.lives import Lives
from loadmanager.member.ports.hosting import Hosting

T = TypeVar("T")
Reopen = Callable[[Sequence[BundleLife], Sequence[BundleLife], str], Awaitable[None]]
"""The lives that are replaced, and those that replace them, with the reason."""
Prepare = Callable[[NamespaceBundles], Awaitable[tuple[list[str], list[Operation]]]]
"""The present bundles in; the names of the new ones, and the operations, out."""


class LostError(Exception):
    """A claim that the step relies on is no longer ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacing:
    """Commits what replaces bundles by others."""

    store: Store
    namespaces: Namespaces
    claims: Claims

    async def commit(
        self, lives: Sequence[BundleLife], name: NamespaceName, prepare: Prepare
    ) -> tuple[list[str], int]:
        """Commit what `prepare` says, again if other writers changed the namespace meanwhile;
        returns the new bundles and the token of their claims.

        Raises `LostError` when a claim of the lives is no longer ours.
        """
        for attempt in range(SPLIT_ATTEMPTS_MAX):
            self.namespaces.forget(name)
            new, operations = await prepare(await self.namespaces.bundles(name))
            try:
                return new, await self.store.commit(operations)
            except VersionConflictError:
                if not await self._ours(lives):
                    raise LostError from None
                with suppress(LoadManagerError):
                    await self.claims.renew_session()
                if attempt == SPLIT_ATTEMPTS_MAX - 1:
                    raise
                await sleep(RETRY_FIRST_S)
            except OperationalError:
                token = await self._outcome(lives, new)
                if token is None:
                    raise
                return new, token
        raise AssertionError("unreachable")

    async def _ours(self, lives: Sequence[BundleLife]) -> bool:
        for life in lives:
            holds = partial(self.claims.holds, life.bundle, life.token)
            if not await self._read(lives, holds):
                return False
        return True

    async def _outcome(self, lives: Sequence[BundleLife], new: Sequence[str]) -> int | None:
        """Find out whether the transaction took effect, after its answer was lost.

        Returns the token of the new claims, or None if the old ones are still ours. Raises
        `LostError` when this session holds neither.
        """
        if await self._ours(lives):
            return None
        token = await self._read(lives, partial(self.claims.token_in_session, new[0]))
        if token is None:
            raise LostError
        return token

    async def _read(self, lives: Sequence[BundleLife], read: Callable[[], Awaitable[T]]) -> T:
        """Read until the store answers. Raises `LostError` when a life ends meanwhile."""
        wait_s = RETRY_FIRST_S
        while not any(life.over for life in lives):
            try:
                return await read()
            except LoadManagerError:
                await sleep(wait_s)
                wait_s = min(wait_s * 2, RETRY_MAX_S)
        raise LostError


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopening:
    """Closes what is replaced and opens what replaces it: if the host `closes` such bundles, or its
    hook, which lets them stay open, fails.
    """

    closes: Callable[[], bool]
    reopen: Reopen

    async def done(
        self,
        hook: Callable[[], None],
        before: Sequence[BundleLife],
        after: Sequence[BundleLife],
        reason: str,
    ) -> bool:
        """Whether that was done; else the bundles stay open."""
        if not self.closes():
            with suppress(OperationalError):  # the log says that the hook failed
                hook()
                return False
        await self.reopen(before, after, reason)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTransaction:
    """Writes the boundaries, gives up the claims of two neighbours and takes that of the bundle
    which replaces them. The lives of both end, and one begins.

    `verify` must verify the claims of lives in a task of its own.
    """

    replacing: Replacing
    namespaces: Namespaces
    hosting: Hosting
    claims: Claims
    lives: Lives
    verify: Callable[[list[BundleLife]], None]
    reopening: Reopening

    async def run(self, left: str, right: str, reason: str) -> str:
        """Merge two bundles of this broker, the lower one first; returns the name of the new one.

        Raises `ConflictError` if they are not owned here, or no neighbours.
        """
        parts = [self._owned(left), self._owned(right)]
        name = NamespaceName.parse(split_bundle_name(left)[0])
        spans = [BundleRange.parse(split_bundle_name(bundle)[1]) for bundle in (left, right)]
        merged = f"{name}/{BundleRange(spans[0].lower, spans[1].upper)}"
        if split_bundle_name(right)[0] != str(name) or self.lives.reserved(merged):
            raise ConflictError(f"{left} and {right} cannot be merged")
        for life in parts:
            life.cause = LifeCause.MERGE
            self.lives.become(life, BundleState.SPLITTING, reason)
        self.lives.split_children[merged] = parts[0]
        try:
            token = await self._commit(parts, name, spans, merged)
        except LostError:
            self._not_merged(parts)
            raise ConflictError(f"{left} or {right} was lost during the merge") from None
        except Exception:
            self._not_merged(parts)
            raise
        finally:
            self.namespaces.forget(name)
            del self.lives.split_children[merged]
        if any(life.over for life in parts):
            raise OperationalError(f"{merged}: the session was lost during the merge")
        life = BundleLife(merged, token, parts[0].session_id, LifeCause.MERGE)
        reason = f"merge of {spans[0]} and {spans[1]}"
        hook = partial(self.hosting.merge_bundles, {each.bundle: each.token for each in parts})
        if await self.reopening.done(partial(hook, merged, token), parts, [life], reason):
            return merged
        self.lives.become(life, BundleState.OWNED, reason)
        if changed := self.lives.take_changed([life]):
            self.verify(changed)
        for part in parts:
            self.lives.end(part, f"merged into {merged}")
        return merged

    def _owned(self, bundle: str) -> BundleLife:
        life = self.lives.get(bundle)
        if life is None or life.state is not BundleState.OWNED:
            raise ConflictError(f"{bundle} is not owned here, or is being moved")
        return life

    def _not_merged(self, parts: Sequence[BundleLife]) -> None:
        """Own the bundles as before, and verify their claims: a merge ignores notifications."""
        left = [life for life in parts if not life.over]
        for life in left:
            self.lives.become(life, BundleState.OWNED, "not merged")
        if left:
            self.verify(left)

    async def _commit(
        self,
        parts: Sequence[BundleLife],
        name: NamespaceName,
        spans: Sequence[BundleRange],
        merged: str,
    ) -> int:
        """Commit the merge; returns the token of the claim."""
        bundles, session_id = [life.bundle for life in parts], parts[0].session_id

        async def prepare(before: NamespaceBundles) -> tuple[list[str], list[Operation]]:
            writes = await self.namespaces.split_operations(before.merge(*spans))
            claims = await self.claims.merge_operations(bundles, merged, session_id)
            return [merged], [*writes, *claims]

        return (await self.replacing.commit(parts, name, prepare))[1]


class SplitTransaction:
    """Writes the boundaries, takes the children's claims and gives up the parent's.

    `verify` must verify the claims of lives in a task of its own.
    """

    def __init__(
        self,
        *,
        store: Store,
        namespaces: Namespaces,
        hosting: Hosting,
        claims: Claims,
        lives: Lives,
        verify: Callable[[list[BundleLife]], None],
        reopening: Reopening,
    ) -> None:
        self._replacing = Replacing(store=store, namespaces=namespaces, claims=claims)
        self._namespaces = namespaces
        self._hosting = hosting
        self._claims = claims
        self._lives = lives
        self._verify, self._reopening = verify, reopening
        self.merging = MergeTransaction(
            replacing=self._replacing,
            namespaces=namespaces,
            hosting=hosting,
            claims=claims,
            lives=lives,
            verify=verify,
            reopening=reopening,
        )
        self.splits = 0
        """Number of splits so far."""

    async def run(self, life: BundleLife, new_boundaries: list[int], reason: str) -> list[str]:
        """Replace the bundle by its children; returns their names. See `Ownership.split`."""
        if life.state is not BundleState.OWNED:
            raise ConflictError(f"{life.bundle} was lost meanwhile")
        namespace, bundle_range = split_bundle_name(life.bundle)
        name = NamespaceName.parse(namespace)
        life.cause = LifeCause.SPLIT
        self._lives.become(life, BundleState.SPLITTING, reason)
        try:
            children, token = await self._commit(
                life, name, BundleRange.parse(bundle_range), new_boundaries
            )
        except LostError:
            self._not_split(life)
            raise ConflictError(f"{life.bundle} was lost during the split") from None
        except Exception:
            self._not_split(life)
            raise
        finally:
            self._namespaces.forget(name)
            for child in [
                child for child, parent in self._lives.split_children.items() if parent is life
            ]:
                del self._lives.split_children[child]
        if life.over:
            raise OperationalError(f"{life.bundle}: the session was lost during the split")
        self.splits += 1
        lives = [
            BundleLife(child, token, life.session_id, LifeCause.SPLIT, life.bundle)
            for child in children
        ]
        reason = f"split of {bundle_range}"
        hook = partial(self._hosting.split_bundle, life.bundle, life.token, children, token)
        if await self._reopening.done(hook, [life], lives, reason):
            return children
        for child_life in lives:
            self._lives.become(child_life, BundleState.OWNED, reason)
        if changed := self._lives.take_changed(lives):
            self._verify(changed)
        self._lives.end(life, f"split into {len(children)}")
        return children

    def _not_split(self, life: BundleLife) -> None:
        """Own the bundle as before, and verify its claim: a split ignores notifications."""
        if not life.over:
            self._lives.become(life, BundleState.OWNED, "not split")
            self._verify([life])

    async def _commit(
        self,
        life: BundleLife,
        name: NamespaceName,
        parent: BundleRange,
        new_boundaries: list[int],
    ) -> tuple[list[str], int]:
        """Commit the split; returns the children and the token of their claims."""

        async def prepare(before: NamespaceBundles) -> tuple[list[str], list[Operation]]:
            after = before.split(parent, new_boundaries)
            children = [
                f"{name}/{child}"
                for child in after.ranges
                if child.lower >= parent.lower and child.upper <= parent.upper
            ]
            self._lives.split_children.update(dict.fromkeys(children, life))
            writes = await self._namespaces.split_operations(after)
            claims = await self._claims.split_operations(life.bundle, children, life.session_id)
            return children, [*writes, *claims]

        return await self._replacing.commit([life], name, prepare)
