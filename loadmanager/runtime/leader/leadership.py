"""Terms of leadership: campaign, lead until the term is lost, again.

Everything that only a leader does lives inside a term's scope and ends with it; what a term decided is never carried out by a later one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import structlog

from loadmanager.core.errors import OperationalError
from loadmanager.ports.election import Election, Leader
from loadmanager.runtime.shared.leading import Desk, Leading
from loadmanager.runtime.tasks import Scope, retrying

log = structlog.get_logger("leadership")

StartTerm = Callable[[Leader, Scope], Awaitable[Desk]]
"""Begins the leader's work in the term's scope; returns the desk when it can place bundles."""


class Leadership:
    """Keeps `Leading` true, and runs the leader's loops while this broker leads."""

    def __init__(self, election: Election, leading: Leading, start_term: StartTerm) -> None:
        self._election = election
        self._leading = leading
        self._start_term = start_term
        self.terms = 0

    async def follow(self) -> None:
        """Record every change of leader, forever."""
        async for leader in self._election.leaders():
            if leader != self._leading.leader:
                log.info("leader changed", leader=leader.broker_id if leader else None, epoch=leader.epoch if leader else None)
            self._leading.leader = leader

    async def run(self) -> None:
        """Campaign and lead, forever."""
        while True:
            mine = await retrying(self._election.campaign, "campaign")
            self.terms += 1
            log.info("leading", epoch=mine.epoch, reason="elected")
            async with Scope(f"term-{mine.epoch}") as term:
                term.spawn(self._until_lost(term), "until-lost")
                try:
                    self._leading.desk = await self._start_term(mine, term)
                    self._leading.leader = mine
                except OperationalError as error:
                    log.warning("the term could not begin", epoch=mine.epoch, error=str(error))
                    with contextlib.suppress(OperationalError):  # if it stays ours, the term begins again
                        await self._election.resign(stand_again=True)
                    term.cancel()
            self._leading.desk = None
            log.info("no longer leading", epoch=mine.epoch)

    async def _until_lost(self, term: Scope) -> None:
        await self._election.lost()
        self._leading.desk = None
        term.cancel()
