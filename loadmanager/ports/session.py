"""Proof that this broker still holds its metadata session.

**At most one owner.** ZooKeeper gives the locks of a dead session to others one session timeout
after it last heard from it. A broker may therefore serve its bundles only while it can prove that
the server heard from it less than a session timeout ago *by its own monotonic clock*. Whoever
serves looks at `Lease.valid_until_s` right before: a process that was paused (SIGSTOP, a stalled
host) finds the lease run out before it has served a single byte.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Lease:
    """Until when this process may act as owner, in seconds of the monotonic clock
    (`time.monotonic`).
    """

    valid_until_s: float = 0.0
    proven_until_s: float = 0.0
    """How far the last proof reached, revoked or not: nothing was served after it."""

    def held(self, now_s: float) -> bool:
        """Whether the session is proven at `now_s`."""
        return now_s < self.valid_until_s

    def prove(self, sent_at_s: float, session_timeout_s: float) -> None:
        """The server answered a request that was sent at `sent_at_s`: the session lives at least
        that much longer.
        """
        self.valid_until_s = max(self.valid_until_s, sent_at_s + session_timeout_s)
        self.proven_until_s = max(self.proven_until_s, self.valid_until_s)

    def revoke(self) -> None:
        """The session is lost or unknown: nothing may be served from now on."""
        self.valid_until_s = 0.0
