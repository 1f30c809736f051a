"""Whose turn it is on the event loop: deficit round robin over parties, by the time that their work
took.

A party is a role, or what stands for one. In each round, each party may use `turn_ns` of the loop's
time. Whoever has used more owes it, and waits for as many rounds as that takes. Work that cannot be
divided may take longer than its turn; the party pays afterwards.

    may_run(share)            it has time left in this round, and nobody of its own waits before it
    wait(share, waiter)       else: `take` hands the waiter out when it is its party's turn
    allowance_ns(share, now)  for how long a connection may go on without a pause
    charge(share, used, now)  what the work took
    take()                    the next waiter; None: nobody may run in this round
    next_round()              everybody's time is renewed; called when `take` has returned None

Nobody waits for a party that has nothing to do: rounds follow each other as fast as they are used
up, so a party that is alone has the whole loop. While no other party has done anything for
`ALONE_NS`, its pauses are further apart, too: each costs a system call.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

TURN_NS = 1_000_000
"""The loop's time of one party in one round, in nanoseconds."""
LONG_TURN_NS = 4_000_000
"""The same for a party that has been alone for `ALONE_NS`."""
ALONE_NS = 100_000_000
STEP_NS = 100_000
"""What a waiter is taken to cost when it is handed out; `charge` tells the rest."""

W = TypeVar("W")


class Share(Generic[W]):
    """One party's time. `credit_ns`: what it may still use in this round; negative: what it
    owes.
    """

    __slots__ = ("credit_ns", "round", "waiting")

    def __init__(self) -> None:
        self.credit_ns = 0
        self.round = -1
        self.waiting: deque[W] = deque()


class Turns(Generic[W]):
    """The parties that wait, and their time."""

    def __init__(self, turn_ns: int = TURN_NS, long_turn_ns: int = LONG_TURN_NS) -> None:
        self._turn_ns = turn_ns
        self._long_turn_ns = long_turn_ns
        self.used_ns = 0
        """The time of all work since start."""
        self._round = 0
        self._queue: deque[Share[W]] = deque()
        """Parties with waiters, in the order of their turns."""
        self._last: Share[W] | None = None
        self._changed_ns = 0
        """Since when `_last` has been the only one that did something."""

    @property
    def waiting(self) -> bool:
        return bool(self._queue)

    def may_run(self, share: Share[W]) -> bool:
        """True if a party's work may run now."""
        if share.round != self._round:
            self._renew(share)
        return share.credit_ns > 0 and not share.waiting

    def allowance_ns(self, share: Share[W], now_ns: int) -> int:
        """For how long a connection of a party that `may_run` may go on."""
        if self._alone(share, now_ns):
            return max(self._long_turn_ns, share.credit_ns)
        return share.credit_ns

    def charge(self, share: Share[W], used_ns: int, now_ns: int) -> bool:
        """A party's work took so long; returns whether it has used up its time of this round. One
        that is alone owes nothing to anybody.
        """
        self.used_ns += used_ns
        if not self._alone(share, now_ns):
            share.credit_ns -= used_ns
        if share is not self._last:
            self._last, self._changed_ns = share, now_ns
        return share.credit_ns <= 0

    def _alone(self, share: Share[W], now_ns: int) -> bool:
        return share is self._last and now_ns - self._changed_ns > ALONE_NS

    def wait(self, share: Share[W], waiter: W) -> None:
        """Queue work of a party."""
        if not share.waiting:
            self._queue.append(share)
        share.waiting.append(waiter)

    def take(self) -> W | None:
        """The next waiter of a party that has time left; it is charged `STEP_NS` for it."""
        for _ in range(len(self._queue)):
            share = self._queue[0]
            if share.round != self._round:
                self._renew(share)
            if share.credit_ns > 0:
                share.credit_ns -= STEP_NS
                waiter = share.waiting.popleft()
                if not share.waiting:
                    self._queue.popleft()
                return waiter
            self._queue.rotate(-1)
        return None

    def next_round(self) -> None:
        """Begin the next round; if everybody who waits owes more than a turn, the first one in
        which somebody does not.
        """
        rounds = 1
        if self._queue:
            most = max(
                share.credit_ns + (self._round - share.round) * self._turn_ns
                for share in self._queue
            )
            # credit must be above 0 afterwards: (least + rounds * turn) >= 1
            rounds = max(1, -(-(1 - most) // self._turn_ns))
        self._round += rounds

    def _renew(self, share: Share[W]) -> None:
        rounds, share.round = self._round - share.round, self._round
        share.credit_ns = min(share.credit_ns + rounds * self._turn_ns, self._turn_ns)
