"""The shapes of the audit log."""

from __future__ import annotations

from loadmanager.kit.http.model import Model


class ChangeShown(Model):
    """A change that somebody was allowed to make."""

    ts: int
    broker: str
    """Where it was made."""
    role: str
    """Empty without authentication."""
    proxied: str | None
    """The role for which a proxy asked."""
    address: str
    over: str
    """`http`, `binary` (Pulsar's protocol) or `fleet`."""
    what: str
    """Method and path, or the command with its topic."""
    path: str | None
    """The stored document that was changed."""
    before: str | None
    """The fields that were changed, as JSON; cut off after 2,000 characters."""
    after: str | None
    """Without a stored document, what was asked for."""
    note: str | None


class ChangesShown(Model):
    """The last changes of all brokers, the newest first; why some brokers gave no answer."""

    changes: list[ChangeShown]
    not_asked: int
    no_answer: dict[str, str]
