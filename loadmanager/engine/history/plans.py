"""Records of sealed plans: when one is made, and when it is carried out."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from loadmanager.engine.history.records import Record

MOVES_MAX = 100
"""Moves of a plan that a record has, those that come first; refusals and lines, too."""


class PlanStep(Record, kw_only=True):
    """A plan was sealed, by a dry run or by the daemon beside a cluster, or it was carried out."""

    kind: ClassVar[str] = "plan"
    epoch: int
    """The leader's term, with which the plan ends."""
    plan: str
    """Its id."""
    event: str
    """`made` or `executed`."""
    shedder: str = ""
    """Empty for `executed`, as all that follows up to `lines`."""
    placement: str = ""
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    """Keys of broker.conf with other values than those in force."""
    expires_at: int = 0
    """Until when it can be carried out, milliseconds since the epoch."""
    unload_count: int = 0
    moves: list[list[str | None]] = msgspec.field(default_factory=list)
    """Bundle, source and destination of each, the first hundred."""
    lines: list[str] = msgspec.field(default_factory=list)
    """Its moves, splits and refusals with their reasons, for people: the first hundred."""
    orders: list[str] = msgspec.field(default_factory=list)
    """Of `executed`: the ids of its moves in the queue, the first hundred."""


PLAN_KINDS: dict[str, type[Record]] = {PlanStep.kind: PlanStep}
