"""The last decisions of this broker with their reasons, for operators."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

from loadmanager.ports.clock import Clock

DECISIONS_KEPT = 1_000


class Decisions:
    """Remembers the last decisions; makes their documents when somebody asks for them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: deque[tuple[dict[str, Any], Callable[[], dict[str, Any]]]] = deque(
            maxlen=DECISIONS_KEPT
        )

    def remember(
        self, kind: str, document: Callable[[], dict[str, Any]], *, epoch: int, cycle: int
    ) -> None:
        """Remember a decision of a kind, made now."""
        head = {"ts": self._clock.now_ms(), "kind": kind, "epoch": epoch, "cycle": cycle}
        self._kept.appendleft((head, document))

    def last(self, limit: int) -> list[dict[str, Any]]:
        """The last decisions, newest first."""
        return [{**head, **document()} for head, document in islice(self._kept, limit)]
