"""A token that operators refuse, as it is stored and shown."""

from __future__ import annotations

from loadmanager.kit.model import Shape


class RefusedToken(Shape):
    """A token that brokers refuse."""

    since: int
    until: int | None = None
    """When the token ends by itself; null: it stays refused until it is allowed again."""
    note: str = ""
