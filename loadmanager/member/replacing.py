"""Replaces bundles of this broker by others in one transaction, and finds out what became of it:
what a split and a merge have in common.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from loadmanager.engine.bundles.ranges import NamespaceBundles
from loadmanager.engine.ownership.states import BundleLife
from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.kit.metadata.store import Operation, Store, VersionConflictError
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.tasks import sleep
from loadmanager.member.claims import RETRY_FIRST_S, RETRY_MAX_S, Claims
from loadmanager.member.namespaces import SPLIT_ATTEMPTS_MAX, Namespaces

T = TypeVar("T")
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
