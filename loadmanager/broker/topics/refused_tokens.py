"""The tokens that operators refuse: one stored document, which every broker watches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from loadmanager.broker.ports.refused import RefusedToken
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import BadInputError, ConflictError, NotFoundError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt, update
from loadmanager.kit.metadata.store import Change, ChangeKind, Store

TOKENS_MAX = 1_000
ID_MAX = 100
NOTE_MAX = 500

log = get_logger("access")


class RefusedTokens:
    """Keeps the refused tokens. A watch on `paths.REFUSED` must call `on_change`."""

    def __init__(self, store: Store, clock: Clock, corrupt: Corrupt) -> None:
        self._store, self._clock, self._corrupt = store, clock, corrupt
        self._refused: dict[str, RefusedToken] = {}
        self.listeners: list[Callable[[], None]] = []
        """Called when the list has changed."""

    def __contains__(self, token_id: str) -> bool:
        return bool(token_id) and token_id in self._refused

    async def on_change(self, change: Change) -> None:
        """Read the list again. One that cannot be read leaves the last one in force."""
        if change.kind is not ChangeKind.RESYNC and change.path != paths.REFUSED_TOKENS:
            return
        node = await self._store.get(paths.REFUSED_TOKENS)
        with self._corrupt.left_out("refused", paths.REFUSED_TOKENS):
            before = self._refused
            self._refused = (
                {}
                if node is None
                else msgspec.json.decode(node.value or b"{}", type=dict[str, RefusedToken])
            )
            if self._refused != before:
                for listener in self.listeners:
                    listener()

    def shown(self) -> dict[str, RefusedToken]:
        """The refused tokens by their ids."""
        return dict(sorted(self._live(self._refused).items()))

    async def refuse(self, token_id: str, *, until_ms: int | None, note: str) -> None:
        """Refuse a token from now on. Of one that is refused already, what is not given stays.

        Raises `BadInputError`, and `ConflictError` when too many are refused.
        """
        if not token_id or len(token_id) > ID_MAX or not token_id.isprintable():
            raise BadInputError(f"the id of a token has 1 to {ID_MAX} printable characters")
        if len(note) > NOTE_MAX:
            raise BadInputError(f"a note has at most {NOTE_MAX} characters")
        now_ms = self._clock.now_ms()
        if until_ms is not None and until_ms <= now_ms:
            raise BadInputError("that time is over: the token has ended by itself")

        def change(stored: dict[str, Any]) -> dict[str, Any]:
            refused = self._live(msgspec.convert(stored, dict[str, RefusedToken]))
            if token_id not in refused and len(refused) >= TOKENS_MAX:
                raise ConflictError(
                    f"{TOKENS_MAX} tokens are refused; change the key instead, or allow some again"
                )
            earlier = refused.get(token_id, RefusedToken(since=now_ms))
            entry = RefusedToken(
                since=earlier.since,
                until=earlier.until if until_ms is None else until_ms,
                note=note or earlier.note,
            )
            return _plain({**refused, token_id: entry})

        await update(self._store, paths.REFUSED_TOKENS, change)
        log.info("a token is refused", id=token_id, note=note)

    async def allow(self, token_id: str) -> None:
        """Refuse a token no longer. Raises `NotFoundError`."""

        def change(stored: dict[str, Any]) -> dict[str, Any]:
            refused = self._live(msgspec.convert(stored, dict[str, RefusedToken]))
            if refused.pop(token_id, None) is None:
                raise NotFoundError(f"token {token_id} is not refused")
            return _plain(refused)

        await update(self._store, paths.REFUSED_TOKENS, change)
        log.info("a token is refused no longer", id=token_id)

    def _live(self, refused: dict[str, RefusedToken]) -> dict[str, RefusedToken]:
        """Without those whose token has ended by itself."""
        now_ms = self._clock.now_ms()
        return {
            name: entry
            for name, entry in refused.items()
            if entry.until is None or entry.until > now_ms
        }


def _plain(refused: dict[str, RefusedToken]) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(refused)
    return document
