"""The life of a bundle on one broker: its states and the table of legal transitions.

Pulsar's modular manager has no explicit states, only a lock, which may have the flag "disabled".
The names are those of the extensible manager's `ServiceUnitState`. **Invariant:** a bundle is only
served in the states `OWNED` and `SPLITTING`.

A *life* is one acquisition of a bundle: it begins when this broker tries to take the claim, a lock
or a state record, and is over when the bundle is free again. Code that resumes for a life that is
over does nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from loadmanager.kit.errors import LoadManagerError

STORY_LENGTH = 16
OPERATORS_ORDER = "an operator's order"
"""A reason for people."""


class BundleState(Enum):
    """The state of a bundle on this broker."""

    FREE = "Free"
    """Not ours."""
    ASSIGNING = "Assigning"
    """The claim is being taken."""
    OPENING = "Opening"
    """The claim is ours; the bundle is served once the host has opened it."""
    OWNED = "Owned"
    """The claim is ours, and the topics of the bundle are served."""
    SPLITTING = "Splitting"
    """Still served by us; its children, or the bundle that it is merged into, are about to replace
    it.
    """
    RELEASING = "Releasing"
    """Fenced: nothing is served. The claim is being given up."""


class LifeCause(Enum):
    """Why a bundle takes a step; `reason` says more, for people."""

    LOOKUP = "lookup"
    """Somebody looked it up."""
    LEADER = "leader"
    """The leader moves the bundle away from its broker."""
    OPERATOR = "operator"
    """An operator unloads it, or deletes its namespace."""
    SPLIT = "split"
    """It is split, or was made by a split."""
    MERGE = "merge"
    """It is merged, or was made by a merge."""
    STOP = "stop"
    """Its broker stops."""
    LOSS = "loss"
    """The session of its broker, or the claim, is lost."""

    @classmethod
    def of_order(cls, epoch: int | None) -> LifeCause:
        """The cause of an order: a leader's order carries the epoch of its term."""
        return cls.OPERATOR if epoch is None else cls.LEADER


TRANSITIONS: dict[BundleState, tuple[BundleState, ...]] = {
    # OWNED at once: the child of a split or the bundle of a merge, whose claim was taken in the
    # transaction
    BundleState.FREE: (BundleState.ASSIGNING, BundleState.OWNED),
    BundleState.ASSIGNING: (BundleState.OPENING, BundleState.FREE),
    # RELEASING: the host cannot open it, so the claim is given up
    BundleState.OPENING: (BundleState.OWNED, BundleState.RELEASING, BundleState.FREE),
    # FREE at once: the session or the claim is lost
    BundleState.OWNED: (BundleState.SPLITTING, BundleState.RELEASING, BundleState.FREE),
    BundleState.SPLITTING: (BundleState.OWNED, BundleState.FREE),
    BundleState.RELEASING: (BundleState.FREE,),
}
"""From → the states that may follow."""


class IllegalTransitionError(LoadManagerError):
    """A bug: the table does not allow this transition. The text lists the last ones."""


@dataclass(slots=True, eq=False)
class BundleLife:
    """One acquisition of a bundle on this broker: its state, its token, and how it came there."""

    bundle: str
    token: int = 0
    """The id of the transaction that took the claim, once it is ours; grows from each life of a
    bundle to the next.
    """
    session_id: int = 0
    """The session that holds the claim, once it is ours."""
    cause: LifeCause = LifeCause.LOOKUP
    """Why the bundle takes its next step."""
    parent: str | None = None
    """The bundle whose split began this life."""
    state: BundleState = BundleState.FREE
    over: bool = False
    """Whether the life has ended, for good."""
    story: deque[str] = field(default_factory=lambda: deque(maxlen=STORY_LENGTH))

    def become(self, state: BundleState, reason: str) -> BundleState:
        """Go to `state`; returns the state before.

        Raises `IllegalTransitionError` if the table does not allow it.
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
        """True if clients of this bundle are served here."""
        return self.state in (BundleState.OWNED, BundleState.SPLITTING)


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of a bundle's life on this broker, for the history and the log."""

    bundle: str
    before: BundleState
    after: BundleState
    reason: str
    cause: LifeCause
    parent: str | None = None
    destination: str | None = None
    pause_ms: float | None = None
    life: int | None = None
    """The token of the life, once it has one."""
