"""A connection that limits hold, as it is shown."""

from __future__ import annotations

from collections.abc import Sequence

from loadmanager.kit.model import Shape


class HeldConnection(Shape):
    """A connection that limits hold now, or held for a moment again and again until now."""

    client: str
    """Its address and port."""
    held_ago_ms: float
    """When that began."""
    limits: list[str]
    """Those that hold it."""
    topics: list[str]
    """Of the producers whose publishes these limits hold."""
    others: list[str]
    """Other topics whose producers and consumers use it, and wait as well: the first ones."""
    others_total: int
    uses_topic: bool | None = None
    """Whether a producer or consumer of the topic that is asked about uses it; null: no topic is.
    """


def may_wait_text(connections: Sequence[HeldConnection]) -> str:
    """What it means for those who would attach; empty if no connection is held."""
    if not connections:
        return ""
    longest = max(connections, key=lambda it: it.held_ago_ms)
    many = "1 connection" if len(connections) == 1 else f"{len(connections)} connections"
    return (
        f"limits hold {many}, {longest.client} since {longest.held_ago_ms / 1000:.0f}"
        f" s ({' and '.join(longest.limits)}): a producer or consumer that is to attach through "
        "one of them waits"
    )
