"""The life of a bundle on one broker: states, the table of legal transitions, and the story that an
illegal one raises with.

Pulsar's modular manager has no explicit states (a bundle is locked or it is not, plus a "disabled"
flag in the lock); the names are those of the extensible manager's `ServiceUnitState`, so that both
substrates speak alike. **Architecture invariant:** a bundle is served in state `OWNED` (and, by the
same owner, `SPLITTING`) and in no other.

A *life* is one acquisition of a bundle: it begins when this broker reaches for the lock and is over
when the bundle is free again. Whatever resumes on behalf of a life that is over does nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from loadmanager.core.errors import LoadManagerError

STORY_LENGTH = 16


class BundleState(Enum):
    """Where a bundle stands on this broker."""

    FREE = "Free"
    """Not ours."""
    ASSIGNING = "Assigning"
    """We are taking the lock."""
    OPENING = "Opening"
    """The lock is ours; the bundle is served once the host has opened it."""
    OWNED = "Owned"
    """The lock is ours and its topics are served."""
    SPLITTING = "Splitting"
    """Still served by us; its children are about to replace it."""
    RELEASING = "Releasing"
    """Fenced: nothing is served; the lock is being given back."""


TRANSITIONS: dict[BundleState, tuple[BundleState, ...]] = {
    # OWNED at once: the child of a split, whose lock came with the parent's transaction
    BundleState.FREE: (BundleState.ASSIGNING, BundleState.OWNED),
    BundleState.ASSIGNING: (BundleState.OPENING, BundleState.FREE),
    # RELEASING: the host cannot open it, so the lock is given back
    BundleState.OPENING: (BundleState.OWNED, BundleState.RELEASING, BundleState.FREE),
    # FREE at once: the session or the lock is lost
    BundleState.OWNED: (BundleState.SPLITTING, BundleState.RELEASING, BundleState.FREE),
    BundleState.SPLITTING: (BundleState.OWNED, BundleState.FREE),
    BundleState.RELEASING: (BundleState.FREE,),
}
"""From → the states that may follow."""


class IllegalTransitionError(LoadManagerError):
    """A bug: the bundle's story does not allow this step. The text tells the story."""


@dataclass(slots=True, eq=False)
class BundleLife:
    """One acquisition of a bundle on this broker: its state, its token, and how it came there."""

    bundle: str
    token: int = 0
    """The id of the transaction that created the lock, once it is ours; grows from each life of a
    bundle to the next.
    """
    session_id: int = 0
    """The session that holds the lock, once it is ours."""
    state: BundleState = BundleState.FREE
    over: bool = False
    """Whether the life has ended: it never begins again."""
    story: deque[str] = field(default_factory=lambda: deque(maxlen=STORY_LENGTH))

    def become(self, state: BundleState, reason: str) -> BundleState:
        """Go to `state`; returns the state before.

        Raises `IllegalTransitionError` when the table does not have the step.
        """
        before = self.state
        if self.over or state not in TRANSITIONS[before]:
            story = " | ".join(self.story) or "no step yet"
            raise IllegalTransitionError(
                f"{self.bundle}: {before.value} -> {state.value} ({reason}) is not legal; its "
                f"story: {story}"
            )
        self.story.append(f"{before.value} -> {state.value} ({reason})")
        self.state = state
        self.over = state is BundleState.FREE
        return before

    @property
    def served(self) -> bool:
        """Whether clients of this bundle are served here."""
        return self.state in (BundleState.OWNED, BundleState.SPLITTING)


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of a bundle's life on this broker, for the history and the log."""

    bundle: str
    before: BundleState
    after: BundleState
    reason: str
    destination: str | None = None
    pause_ms: float | None = None
