"""Terms of leadership: campaign, lead until the term is lost, and campaign again.

A term is a scope. Everything that only a leader does runs in a task of that scope, including the
beginning of the term. The next campaign begins when all these tasks have ended. A leader's
decisions are optional: a failure costs a cycle, repeated failures cost the leadership, and none
costs the broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata.election import StoreElection
from loadmanager.kit.metadata.leader import Term
from loadmanager.kit.tasks import Scope, Steps, retrying, sleep
from loadmanager.leader.present_leader import PresentLeader

FAILURES_IN_A_ROW_MAX = 5
"""A leader resigns when a step fails this often in a row: another broker may do better."""

STEPS = (
    "drain",
    "findings",
    "goal",
    "lead",
    "members",
    "merge",
    "monitor",
    "move",
    "observe",
    "orphans",
    "place",
    "save",
    "shed",
    "split",
)
"""What may fail in a term."""

TERM_INTERVAL_MIN_S = 1.0
"""Terms begin at most this often, whatever ends them."""

log = get_logger("leadership")

Lead = Callable[[Term, Scope, Steps], Awaitable[None]]
"""The leader's work, until cancelled."""


class Leadership:
    """Keeps `PresentLeader` up to date, and runs the leader's work while this broker leads."""

    def __init__(
        self, election: StoreElection, leading: PresentLeader, lead: Lead, clock: Clock
    ) -> None:
        self._clock = clock
        self._election = election
        self._leading = leading
        self._lead = lead
        self.terms = 0
        self._in_a_row: Counter[str] = Counter()
        """Step → failures since it last succeeded, in whichever term: a step that ends its own term
        must count, too.
        """
        self.failures: Counter[str] = Counter(dict.fromkeys(STEPS, 0))
        """Step of the leader → its failures since this broker started."""

    async def follow(self) -> None:
        """Record every change of leader, forever."""
        async for leader in self._election.leaders():
            if leader != self._leading.leader:
                log.info(
                    "leader changed",
                    leader=leader.broker_id if leader else None,
                    epoch=leader.epoch if leader else None,
                )
            self._leading.follow(leader)

    async def run(self) -> None:
        """Campaign and lead, forever."""
        while True:
            term = await retrying(self._election.campaign, "campaign")
            self.terms += 1
            log.info("leading", epoch=term.epoch, reason="elected")
            try:
                began_s = self._clock.monotonic_s()
                async with Scope(f"term-{term.epoch}") as scope:
                    scope.spawn(self._until_lost(term, scope), "until-lost")
                    scope.spawn(self._work(term, scope), "work")
            finally:
                self._leading.end()
            log.info("no longer leading", epoch=term.epoch)
            wait_s = began_s + TERM_INTERVAL_MIN_S - self._clock.monotonic_s()
            if wait_s > 0:
                await sleep(wait_s)

    async def _until_lost(self, term: Term, scope: Scope) -> None:
        try:
            await self._election.lost(term)
        finally:
            self._leading.end()
            scope.cancel()

    async def _work(self, term: Term, scope: Scope) -> None:
        steps = Steps(
            lambda name, error: self._on_failure(name, error, steps, scope), self._in_a_row
        )
        self._leading.follow(term.leader)
        if not await steps.run("lead", lambda: self._lead(term, scope, steps)):
            await self._resign(scope, "the term could not begin")

    def _on_failure(self, name: str, error: Exception, steps: Steps, scope: Scope) -> None:
        self.failures[name] += 1
        if self._leading.load_manager is not None:
            self._leading.load_manager.failed(name, error)
        if steps.in_a_row[name] % FAILURES_IN_A_ROW_MAX == 0:
            scope.spawn(
                self._resign(scope, f"{name} failed {FAILURES_IN_A_ROW_MAX} times in a row"),
                "resign",
            )

    async def _resign(self, scope: Scope, reason: str) -> None:
        log.error("resigning leadership", reason=reason)
        try:
            await self._election.resign(campaign_again=True)
        except LoadManagerError as error:  # the next campaign replaces a node that stays ours
            log.warning("the leader's node was not deleted", error=str(error))
        scope.cancel()
