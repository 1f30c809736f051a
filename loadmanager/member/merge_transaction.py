"""Replaces neighbouring bundles by one in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loadmanager.engine.bundles.ranges import BundleRange, NamespaceBundles, split_bundle_name
from loadmanager.engine.ownership.states import BundleLife, BundleState, LifeCause
from loadmanager.kit.errors import ConflictError, OperationalError
from loadmanager.kit.metadata.store import Operation
from loadmanager.kit.names import NamespaceName
from loadmanager.member.claims import Claims
from loadmanager.member.lives import Lives
from loadmanager.member.namespaces import Namespaces
from loadmanager.member.ports.hosting import Hosting
from loadmanager.member.replacing import LostError, Replacing


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
        self.hosting.merge_bundles({life.bundle: life.token for life in parts}, merged, token)
        life = BundleLife(merged, token, parts[0].session_id, LifeCause.MERGE)
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
        """Commit the merge; returns the token of the claim."""
        bundles, session_id = [life.bundle for life in parts], parts[0].session_id

        async def prepare(before: NamespaceBundles) -> tuple[list[str], list[Operation]]:
            writes = await self.namespaces.split_operations(before.merge(*spans))
            claims = await self.claims.merge_operations(bundles, merged, session_id)
            return [merged], [*writes, *claims]

        return (await self.replacing.commit(parts, name, prepare))[1]
