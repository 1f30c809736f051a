"""Proof that this broker still holds its session with the metadata store.

**At most one owner.** ZooKeeper deletes the locks of a session one session timeout after it last
heard from the client, and then other brokers may take them. So a broker may serve its bundles only
while it can prove, *by its own monotonic clock*, that the server heard from it less than a session
timeout ago. The server of a bundle checks `Lease.held` right before it processes bytes: a process
that was paused (SIGSTOP, a stalled host) finds that its lease has run out before it serves
anything.
"""

from __future__ import annotations

from dataclasses import dataclass

CANNOT = "this broker cannot prove its session"
UNPROVEN = f"{CANNOT}: the metadata store (ZooKeeper) does not answer it"
STOOD_STILL = f"{CANNOT}: it stood still a moment ago, and the metadata store has not answered yet"
BEATS_MIN = 3
"""A process that runs sends more heartbeats than this before its lease ends."""


@dataclass(slots=True)
class Lease:
    """The time for which this process may act as owner, in seconds of the monotonic clock."""

    valid_until_s: float = 0.0
    proven_until_s: float = 0.0
    """The end of the last proof, even if it was revoked: nothing was served after it."""

    answered_s: float = 0.0
    """When the store gave its last answer to a heartbeat; 0: it gave none."""

    unanswered: bool = False
    """The connection is lost, or two heartbeats in a row have no answer yet."""

    beats: int = 0
    """Heartbeats that were due since the last answer: few, if this process stood still."""

    silence: tuple[float, float] | None = None
    """The last time in which this process ran, and the store gave no answer for several heartbeats:
    from the last answer before to the first one after it.
    """

    def held(self, now_s: float) -> bool:
        """True if the session is proven at `now_s`."""
        return now_s < self.valid_until_s

    def prove(self, sent_at_s: float, session_timeout_s: float) -> None:
        """Extend the lease: the server answered a request that was sent at `sent_at_s`."""
        self.valid_until_s = max(self.valid_until_s, sent_at_s + session_timeout_s)
        self.proven_until_s = max(self.proven_until_s, self.valid_until_s)
        self.answered(max(self.answered_s, sent_at_s))

    def answered(self, at_s: float) -> None:
        """The store answered a heartbeat, whatever that proves."""
        if self.answered_s and self.beats >= BEATS_MIN:
            self.silence = self.answered_s, at_s
        self.answered_s = at_s
        self.unanswered, self.beats = False, 0

    @property
    def stood_still(self) -> bool:
        """If the session is not proven: whether that is because this process was not there."""
        return bool(self.answered_s) and self.beats < BEATS_MIN

    @property
    def why_not_held(self) -> str:
        """Why the session is not proven: the store is silent, or this process was not there."""
        return STOOD_STILL if self.stood_still else UNPROVEN

    def revoke(self) -> None:
        """End the lease at once, because the session is lost or unknown."""
        self.valid_until_s = 0.0
