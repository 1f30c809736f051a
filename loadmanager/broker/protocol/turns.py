"""The event loop's turns of the parties that clients belong to (`limits.turns`), and what
else a party may take of what belongs to all.

A party is a role; before a client has said who it is, its address; without authentication, its
connection.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.kit.telemetry import Sample, counter
from loadmanager.limits.bucket import TokenBucket
from loadmanager.limits.turns import TURN_NS, Share, Turns

PARTIES_MAX = 10_000
"""Parties that are remembered; beyond that, the ones that came first are forgotten."""
REFUSALS_BURST_S = 10
"""A party may have as many refusals at once as in this time."""

GRANTS_MAX = 10
"""Waiters that go on in one turn of the loop: what they do may follow in the next one."""

WAITS = counter(
    "loadmanager_turn_waits",
    "How often work of a client waited, because its role had used its turn on the event loop",
)
SLOWED = counter(
    "loadmanager_slowed_connections",
    "Pauses of connections whose role was refused too often, each of a second",
)

Waiter = Callable[[], None]


@dataclass(slots=True, eq=False)
class Party:
    """What one party uses now."""

    share: Share[Waiter]
    refusals: TokenBucket
    connections: int = 0
    requests: int = 0
    """Its requests in progress."""
    full: dict[Any, Waiter] = field(default_factory=dict)
    """Connection → what lets it go on when a request has ended."""


class LoopTurns:
    """Runs what waits for its turn, a little in each turn of the loop. `failed` is told of errors
    of our own.
    """

    def __init__(
        self,
        settings: Live[MessagingSettings],
        clock: Clock,
        failed: Callable[[str, Exception], None],
        turn_ns: int = TURN_NS,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._failed = failed
        self._turns: Turns[Waiter] = Turns(turn_ns)
        self._parties: dict[Hashable, Party] = {}
        self._turn_ns = turn_ns
        self._scheduled = False
        self._waits = self._slowed = 0

    # Parties

    def party(self, key: Hashable) -> Party:
        """The party of that name; None: a new one, which nobody else belongs to."""
        party = None if key is None else self._parties.get(key)
        if party is None:
            rate = self._settings.value.refusals_per_s
            bucket = TokenBucket(
                max(rate, 1),
                now_ns=self._clock.monotonic_ns(),
                capacity=max(rate, 1) * REFUSALS_BURST_S,
                initial_tokens=max(rate, 1) * REFUSALS_BURST_S,
            )
            party = Party(Share(), bucket)
            if key is not None:
                while len(self._parties) >= PARTIES_MAX:
                    del self._parties[next(iter(self._parties))]
                self._parties[key] = party
        return party

    def may_ask(self, party: Party) -> bool:
        """True if a party has fewer requests in progress than it may have."""
        most = self._settings.value.requests_per_role_max
        return most <= 0 or party.requests < most

    def ended(self, party: Party) -> None:
        """A request of a party is no longer in progress."""
        party.requests -= 1
        if party.full:
            self.wait(party, party.full.pop(next(iter(party.full))))

    def refused(self, party: Party) -> bool:
        """A request of a party was refused; returns whether there were too many of late."""
        rate = self._settings.value.refusals_per_s
        if rate <= 0:
            return False
        bucket, now_ns = party.refusals, self._clock.monotonic_ns()
        if bucket.rate != rate:
            bucket.set_rate(rate, capacity=rate * REFUSALS_BURST_S, now_ns=now_ns)
        return not bucket.consume_and_check(1, now_ns)

    def samples(self) -> Iterator[Sample]:
        """How often something waited, and was slowed, since start."""
        yield WAITS.sample(self._waits)
        yield SLOWED.sample(self._slowed)

    # Turns

    def may_run(self, party: Party) -> bool:
        """True if work of a party may run now."""
        return self._turns.may_run(party.share)

    def until_ns(self, party: Party) -> int:
        """Until when a connection of a party that `may_run` may go on."""
        now_ns = self._clock.monotonic_ns()
        return now_ns + self._turns.allowance_ns(party.share, now_ns)

    def begin(self) -> tuple[int, int]:
        """Work begins: keep this for `end`."""
        return self._clock.monotonic_ns(), self._turns.used_ns

    def end(self, party: Party, begun: tuple[int, int]) -> None:
        """Work of a party has ended; work of others that it contained is not its own."""
        now_ns = self._clock.monotonic_ns()
        used_ns = now_ns - begun[0] - (self._turns.used_ns - begun[1])
        if self._turns.charge(party.share, used_ns, now_ns):
            self._schedule()

    def wait(self, party: Party, waiter: Waiter) -> None:
        """Call `waiter` when it is the party's turn."""
        self._waits += 1
        self._turns.wait(party.share, waiter)
        self._schedule()

    def later(self, delay_s: float, waiter: Waiter) -> None:
        """Call `waiter` after a pause, because its client was refused too often."""
        self._slowed += 1
        asyncio.get_running_loop().call_later(delay_s, self._call, waiter)

    async def in_turns(self, working: Coroutine[Any, Any, None], party: Party) -> None:
        """Run a coroutine, each of its steps in the party's turn and on its account."""
        await self._stepped(working, party)

    @types.coroutine
    def _stepped(
        self, working: Coroutine[Any, Any, None], party: Party
    ) -> Generator[Any, Any, None]:
        error: BaseException | None = None
        try:
            while True:
                if not self.may_run(party):
                    try:
                        yield from self._turn(party)
                    except asyncio.CancelledError as cancelled:
                        error = cancelled
                begun = self.begin()
                try:
                    awaited = working.send(None) if error is None else working.throw(error)
                except StopIteration:
                    return
                finally:
                    self.end(party, begun)
                error = None
                try:
                    yield awaited
                except BaseException as raised:  # noqa: BLE001 - the coroutine gets it
                    error = raised
        finally:
            working.close()

    def _turn(self, party: Party) -> asyncio.Future[None]:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.wait(party, lambda: None if turn.done() else turn.set_result(None))
        return turn

    def _schedule(self) -> None:
        """Go on after the sockets had their turn: the loop looks at them before it runs what was
        scheduled by what it runs now.
        """
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        """Let those go on whose turn it is, for about one turn."""
        self._scheduled = False
        began_ns = self._clock.monotonic_ns()
        for _ in range(GRANTS_MAX):
            waiter = self._turns.take()
            if waiter is None:
                self._turns.next_round()
                waiter = self._turns.take()
            if waiter is None:
                break
            self._call(waiter)
            if self._clock.monotonic_ns() - began_ns >= self._turn_ns:
                break
        if self._turns.waiting:
            self._schedule()

    def _call(self, waiter: Waiter) -> None:
        try:
            waiter()
        except Exception as error:  # noqa: BLE001 - contained: the others must go on
            self._failed("going on with a connection failed", error)
