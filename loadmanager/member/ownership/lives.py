"""The lives of this broker's bundles, and their transitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loadmanager.engine.ownership.states import BundleLife, BundleState, Transition


class Lives:
    """Bundle → its life on this broker; only bundles in transit or owned have one.

    `observe` is called with every transition.
    """

    def __init__(self, observe: Callable[[Transition], None]) -> None:
        self._observe = observe
        self._lives: dict[str, BundleLife] = {}
        self.split_children: dict[str, BundleLife] = {}
        """Child of a split in progress → the parent's life. The split creates the child's lock, so
        `Ownership.acquire` must not.
        """
        self._changed_locks: set[str] = set()

    def get(self, bundle: str) -> BundleLife | None:
        return self._lives.get(bundle)

    def all(self) -> list[BundleLife]:
        return list(self._lives.values())

    def settled(self, session_id: int) -> dict[str, int]:
        """Bundle → token of the lives of a session that are owned, and not being moved or split."""
        return {
            life.bundle: life.token
            for life in self._lives.values()
            if life.state is BundleState.OWNED and life.session_id == session_id
        }

    def reserved(self, bundle: str) -> bool:
        """True if the bundle has a life here, or a split in progress creates it."""
        return bundle in self._lives or bundle in self.split_children

    def lock_changed(self, bundle: str) -> None:
        """Remember that the claim changed, perhaps before the answer that it is ours arrives."""
        if self.reserved(bundle):
            self._changed_locks.add(bundle)

    def take_changed(self, lives: Sequence[BundleLife]) -> list[BundleLife]:
        """Return those of the lives whose claim changed, and forget these changes."""
        changed = [life for life in lives if life.bundle in self._changed_locks]
        self._changed_locks.difference_update(life.bundle for life in lives)
        return changed

    def become(
        self,
        life: BundleLife,
        state: BundleState,
        reason: str,
        *,
        destination: str | None = None,
        pause_ms: float | None = None,
    ) -> None:
        """Make a transition. Raises `IllegalTransitionError`."""
        before = life.become(state, reason)
        if life.over:
            if self._lives.get(life.bundle) is life:
                del self._lives[life.bundle]
                self._changed_locks.discard(life.bundle)
        else:
            self._lives[life.bundle] = life
        self._observe(
            Transition(
                life.bundle,
                before,
                state,
                reason,
                cause=life.cause,
                parent=life.parent,
                destination=destination,
                pause_ms=pause_ms,
                life=life.token or None,
            )
        )

    def end(
        self,
        life: BundleLife,
        reason: str,
        *,
        destination: str | None = None,
        pause_ms: float | None = None,
    ) -> None:
        """End a life, unless it is over already."""
        if not life.over:
            self.become(life, BundleState.FREE, reason, destination=destination, pause_ms=pause_ms)
