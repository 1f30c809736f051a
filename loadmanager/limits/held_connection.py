"""A connection that limits hold, as it is shown."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loadmanager.kit.model import Shape

SAME_MS = 1_000
"""What began within so much of a hold began with it."""


class HeldConnection(Shape):
    """A connection that limits hold now, or held for a moment again and again until now."""

    client: str
    """Its address and port."""
    held_ago_ms: float
    """When that began."""
    limits: list[str]
    """Those that hold it, or did in the last minute."""
    topics: list[str]
    """Of the producers whose publishes these limits hold."""
    others: list[str]
    """Other topics whose producers and consumers use it, and wait as well: the first ones."""
    others_total: int
    uses_topic: bool | None = None
    """Whether a producer or consumer of the topic that is asked about uses it; null: no topic is.
    """
    limits_held_ago_ms: dict[str, float] = msgspec.field(default_factory=dict)
    """Limit → when it began to hold the connection, again and again since; empty: of an earlier
    version.
    """

    @property
    def limits_text(self) -> str:
        """The limits that hold it, the first of them first; with a time those that began later
        than what is held began.
        """
        ago_ms = {name: self.limits_held_ago_ms.get(name, self.held_ago_ms) for name in self.limits}
        names = sorted(self.limits, key=lambda name: (-ago_ms[name], name))
        return " and ".join(
            f"{name} (for the last {ago_ms[name] / 1000:.0f} s)"
            if ago_ms[name] < self.held_ago_ms - SAME_MS
            else name
            for name in names
        )


def may_wait_text(connections: Sequence[HeldConnection]) -> str:
    """What it means for those who would attach; empty if no connection is held."""
    if not connections:
        return ""
    longest = max(connections, key=lambda it: it.held_ago_ms)
    many = "1 connection" if len(connections) == 1 else f"{len(connections)} connections"
    return (
        f"limits hold {many}, {longest.client} for {longest.held_ago_ms / 1000:.1f} s until now "
        f"({longest.limits_text}): a producer or consumer that is to attach through one of them "
        "waits until what was sent before it is read"
    )
