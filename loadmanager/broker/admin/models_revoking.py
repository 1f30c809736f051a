"""The shapes of what takes rights back."""

from __future__ import annotations

from loadmanager.kit.http.model import Model


class Disconnected(Model):
    """How many connections ended on each broker; why others gave no answer."""

    brokers: dict[str, int]
    no_answer: dict[str, str]


class RefusedToken(Model):
    """A token that brokers refuse."""

    since: int
    until: int | None
    """When the token ends by itself; null: it stays refused until it is allowed again."""
    note: str


class TokenWanted(Model):
    """Until when a token is refused, milliseconds since the epoch, and why."""

    until: int | None = None
    note: str = ""
