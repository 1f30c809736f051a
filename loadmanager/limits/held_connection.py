"""A connection that limits hold, as it is shown."""

from __future__ import annotations

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
