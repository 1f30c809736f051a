"""Sessions: who has one, and until when."""

from __future__ import annotations

import heapq
import hmac
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

PASSWORD_BYTES = 16
TIMEOUT_MS_MIN, TIMEOUT_MS_MAX = 500, 600_000
"""What a client asks for is put between these."""
SESSIONS_MAX = 10_000
ROOM_SESSIONS = SESSIONS_MAX // 100
"""So many idle sessions end at once when there is no room: to look for them costs time."""
_SERVER = 1 << 56
"""The highest byte of an id is the number of the server; there is only one."""


@dataclass(slots=True)
class TreeSession:
    """A session. It ends at `deadline_s` if nothing is heard of it."""

    id: int
    password: bytes
    timeout_ms: int
    deadline_s: float = 0.0

    @property
    def heard_s(self) -> float:
        """When something was heard of it, on the monotonic clock."""
        return self.deadline_s - self.timeout_ms / 1000

    def touch(self, now_s: float) -> None:
        """Something was heard of it."""
        self.deadline_s = now_s + self.timeout_ms / 1000


class TreeSessions:
    """All sessions. What has changed since `take_changes` is remembered for the file."""

    def __init__(self, sessions: Iterable[TreeSession], now_s: float, time_ms: int) -> None:
        """Those that were there before: each has its whole timeout to be heard of. `time_ms` is the
        time of day: ids of later servers are greater.
        """
        self._sessions = {session.id: session for session in sessions}
        for session in self._sessions.values():
            session.touch(now_s)
        self._changed: set[int] = set()
        begun = _SERVER | ((time_ms & ((1 << 40) - 1)) << 16)
        self._last_id = max(begun, *self._sessions, begun)

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def full(self) -> bool:
        """True if there are too many for another one."""
        return len(self._sessions) >= SESSIONS_MAX

    def begin(self, timeout_ms: int, now_s: float) -> TreeSession | None:
        """A new session; None if there are too many."""
        if self.full:
            return None
        self._last_id += 1
        password = secrets.token_bytes(PASSWORD_BYTES)
        session = TreeSession(self._last_id, password, granted_ms(timeout_ms))
        session.touch(now_s)
        self._sessions[session.id] = session
        self._changed.add(session.id)
        return session

    def resume(
        self, session_id: int, password: bytes, timeout_ms: int, now_s: float
    ) -> TreeSession | None:
        """The session, if it lives and that is its password."""
        session = self._sessions.get(session_id)
        if session is None or not hmac.compare_digest(session.password, password):
            return None
        if session.timeout_ms != granted_ms(timeout_ms):
            session.timeout_ms = granted_ms(timeout_ms)
            self._changed.add(session_id)
        session.touch(now_s)
        return session

    def get(self, session_id: int) -> TreeSession | None:
        """The session, if it lives."""
        return self._sessions.get(session_id)

    def end(self, session_id: int) -> None:
        """Forget a session."""
        if self._sessions.pop(session_id, None) is not None:
            self._changed.add(session_id)

    def idlest(self, idle: Callable[[int], bool]) -> list[int]:
        """The ids of those, among the idle ones, of whom nothing was heard for longest."""
        sessions = (each for each in self._sessions.values() if idle(each.id))
        return [each.id for each in heapq.nsmallest(ROOM_SESSIONS, sessions, key=_heard_s)]

    def overdue(self, now_s: float) -> list[int]:
        """The ids of those of whom nothing was heard in time."""
        return [each.id for each in self._sessions.values() if each.deadline_s <= now_s]

    def postpone(self, seconds: float) -> None:
        """Nobody could be heard for so long."""
        for session in self._sessions.values():
            session.deadline_s += seconds

    def take_changes(self) -> Iterator[tuple[int, TreeSession | None]]:
        """The ids of those that have begun, changed or ended since the last call."""
        changed, self._changed = self._changed, set()
        for session_id in changed:
            yield session_id, self._sessions.get(session_id)


def _heard_s(session: TreeSession) -> float:
    return session.heard_s


def granted_ms(timeout_ms: int) -> int:
    """The session timeout for a client that asks for one."""
    return min(max(timeout_ms, TIMEOUT_MS_MIN), TIMEOUT_MS_MAX)
