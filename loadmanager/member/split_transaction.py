"""Replaces a bundle by its children in one transaction."""

from __future__ import annotations

from collections.abc import Callable

from loadmanager.engine.bundles.ranges import BundleRange, NamespaceBundles, split_bundle_name
from loadmanager.engine.ownership.states import BundleLife, BundleState, LifeCause
from loadmanager.kit.errors import ConflictError, OperationalError
from loadmanager.kit.metadata.store import Operation, Store
from loadmanager.kit.names import NamespaceName
from loadmanager.member.claims import Claims
from loadmanager.member.lives import Lives
from loadmanager.member.merge_transaction import MergeTransaction
from loadmanager.member.namespaces import Namespaces
from loadmanager.member.ports.hosting import Hosting
from loadmanager.member.replacing import LostError, Replacing


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
    ) -> None:
        self._replacing = Replacing(store=store, namespaces=namespaces, claims=claims)
        self._namespaces = namespaces
        self._hosting = hosting
        self._claims = claims
        self._lives = lives
        self._verify = verify
        self.merging = MergeTransaction(
            replacing=self._replacing,
            namespaces=namespaces,
            hosting=hosting,
            claims=claims,
            lives=lives,
            verify=verify,
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
        self._hosting.split_bundle(life.bundle, life.token, children, token)
        lives = [
            BundleLife(child, token, life.session_id, LifeCause.SPLIT, life.bundle)
            for child in children
        ]
        for child_life in lives:
            self._lives.become(child_life, BundleState.OWNED, f"split of {bundle_range}")
        if changed := self._lives.take_changed(lives):
            self._verify(changed)
        self._lives.end(life, f"split into {len(children)}")
        self.splits += 1
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
