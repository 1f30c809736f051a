"""Conditions of transactions on sessions: that this one lives, that another one is over."""

from __future__ import annotations

from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import Check, Create, Delete, Operation, Store


class SessionMark:
    """The ephemeral node that proves the session in transactions (`in_session`)."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._marked = 0
        """The session whose own node exists."""

    async def make(self) -> None:
        """Create the present session's own node, unless it exists."""
        session_id = self._store.session_id
        if self._marked != session_id:
            await self._store.create(paths.session(session_id), b"", ephemeral=True)
            self._marked = session_id

    def forget(self) -> None:
        """Let `make` create the node again: an operator may have deleted it."""
        self._marked = 0


def in_session(session_id: int) -> Check:
    """A check for transactions of an owner: they fail once that session is over.

    A client library may send a request of an expired session in the next session, when another
    broker may own the bundle.
    """
    return Check(paths.session(session_id))


def session_over(session_id: int) -> list[Operation]:
    """Operations that fail while a session lives, and change nothing."""
    return absent(paths.session(session_id))


def absent(path: str) -> list[Operation]:
    """Operations that fail if there is a node at a path, and change nothing."""
    return [Create(path, b""), Delete(path)]
