"""Replaces neighbouring bundles by one in one transaction, and finds out what became of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from loadmanager.core.bundles.names import NamespaceName
from loadmanager.core.bundles.ranges import BundleRange, split_bundle_name
from loadmanager.core.errors import ConflictError, LoadManagerError, OperationalError
from loadmanager.core.ownership.states import BundleLife, BundleState, Cause
from loadmanager.ports.hosting import Hosting
from loadmanager.ports.store import Store, VersionConflictError
from loadmanager.runtime.broker.claims import RETRY_FIRST_S, RETRY_MAX_S, Claims
from loadmanager.runtime.broker.lives import Lives
from loadmanager.runtime.broker.namespaces import SPLIT_ATTEMPTS_MAX, Namespaces
from loadmanager.runtime.tasks import sleep

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTransaction:
    """Writes the boundaries, gives up the claims of two neighbours and takes that of the bundle
    which replaces them. The lives of both end, and one begins.

    `verify` must verify the claims of lives in a task of its own.
    """

    store: Store
    namespaces: Namespaces
    hosting: Hosting
    claims: Claims
    lives: Lives
    verify: Callable[[list[BundleLife]], None]

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
            life.cause = Cause.MERGE
            self.lives.become(life, BundleState.SPLITTING, reason)
        self.lives.split_children[merged] = parts[0]
        try:
            token = await self._commit(parts, name, spans, merged)
        except _LostError:
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
        self.hosting.merge_bundles({life.bundle: life.token for life in parts}, merged, token)
        life = BundleLife(merged, token, parts[0].session_id, Cause.MERGE)
        self.lives.become(life, BundleState.OWNED, f"merge of {spans[0]} and {spans[1]}")
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
        """Commit the merge; returns the token of the claim.

        Raises `_LostError` when a part is no longer ours.
        """
        bundles, session_id = [life.bundle for life in parts], parts[0].session_id
        for attempt in range(SPLIT_ATTEMPTS_MAX):
            self.namespaces.forget(name)
            after = (await self.namespaces.bundles(name)).merge(*spans)
            writes = await self.namespaces.split_operations(after)
            claims = await self.claims.merge_operations(bundles, merged, session_id)
            try:
                return await self.store.commit([*writes, *claims])
            except VersionConflictError:
                if not await self._ours(parts):
                    raise _LostError from None
                with suppress(LoadManagerError):
                    await self.claims.renew_session()
                if attempt == SPLIT_ATTEMPTS_MAX - 1:
                    raise
                await sleep(RETRY_FIRST_S)
            except OperationalError:
                token = await self._outcome(parts, merged)
                if token is None:
                    raise
                return token
        raise AssertionError("unreachable")

    async def _ours(self, parts: Sequence[BundleLife]) -> bool:
        for life in parts:
            held = await self._read(parts, lambda it=life: self.claims.holds(it.bundle, it.token))  # type: ignore[misc]
            if not held:
                return False
        return True

    async def _outcome(self, parts: Sequence[BundleLife], merged: str) -> int | None:
        """Find out whether a merge took effect, after its answer was lost.

        Returns the token of the new claim, or None if the parts are still ours. Raises `_LostError`
        when this session holds neither.
        """
        if await self._ours(parts):
            return None
        token = await self._read(parts, lambda: self.claims.held_in_session(merged))
        if token is None:
            raise _LostError
        return token

    async def _read(self, parts: Sequence[BundleLife], read: Callable[[], Awaitable[T]]) -> T:
        """Read until the store answers. Raises `_LostError` when a life ends meanwhile."""
        wait_s = RETRY_FIRST_S
        while not any(life.over for life in parts):
            try:
                return await read()
            except LoadManagerError:
                await sleep(wait_s)
                wait_s = min(wait_s * 2, RETRY_MAX_S)
        raise _LostError


class _LostError(Exception):
    """A claim that the merge relies on is no longer ours."""
