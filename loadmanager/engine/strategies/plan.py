"""The decisions of strategies: every action and every refusal is a value with its reason and the
numbers behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from loadmanager.kit.reason import Reason, joined


class Unload(msgspec.Struct, frozen=True, gc=False):
    """Move a bundle away from its owner, to `destination` if one is chosen already. `reason` is one
    word; `why` has the numbers behind it.

    A `Struct`, as `Placement` and `Skip` are: a cycle over a large cluster makes thousands, and a
    frozen dataclass takes 1 µs to make.
    """

    bundle: str
    source: str
    destination: str | None
    reason: str
    why: Mapping[str, float | str] = {}
    swap: str | None = None
    """The swap that this move belongs to, named by the bundle that goes the other way.

    All moves of a swap are made, or none; they stand next to each other in a plan.
    """


class Placement(msgspec.Struct, frozen=True, gc=False):
    """The broker chosen for an unowned bundle.

    `candidates` are the equally good brokers; `broker` is one of them, picked at random, or None if
    there are no candidates. `rejected` says why each other broker is not a candidate.
    """

    bundle: str
    broker: str | None
    candidates: Sequence[str]
    rejected: Mapping[str, Reason]
    why: Mapping[str, float | str] = {}
    """The numbers behind the choice, of rules that say them."""


@dataclass(frozen=True, slots=True)
class SplitEnd:
    """The result of a split: the bundles that replaced the old one, or why it was not split."""

    children: tuple[str, ...]
    text: str
    sent: bool = True
    """False: the order to split it was not sent."""


@dataclass(frozen=True, slots=True)
class Split:
    """Split a bundle at `boundaries`; empty: the owner chooses the boundaries.

    `reason` is one word; `why` has the figure that is too high, and its limit; `end` is set
    afterwards.
    """

    bundle: str
    boundaries: tuple[int, ...]
    reason: str
    why: Mapping[str, float] = field(default_factory=dict)
    end: SplitEnd | None = None

    @property
    def state(self) -> str:
        """How far it is: running, done or failed."""
        if self.end is None:
            return "running"
        return "done" if self.end.children else "failed"


class Skip(msgspec.Struct, frozen=True, gc=False):
    """A refusal: `what` (a bundle, a broker or "cluster") stays as it is, and why. The code is one
    word, for programs; the text is for people; `why` has the numbers behind it, if there are any.
    """

    what: str
    code: str
    text: str = ""
    why: Mapping[str, float | str] = {}

    @property
    def reason(self) -> str:
        """Code and text, for people."""
        return joined(self.code, self.text)


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of one cycle."""

    strategy: str
    unloads: tuple[Unload, ...] = ()
    placements: tuple[Placement, ...] = ()
    splits: tuple[Split, ...] = ()
    skipped: tuple[Skip, ...] = ()
