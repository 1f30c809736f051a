"""Asks the archives of all brokers, also those that brokers left beside this one's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from loadmanager.broker.admin.everybody import BROKERS_ASKED_MAX, Everybody
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.history.archive import Archive
from loadmanager.kit.history.archive_answers import ArchivedEvents, ArchivedMoment, ArchivePart
from loadmanager.leader.http.archive import ROOT
from loadmanager.leader.interruptions import AskedArchives, AskedLoads
from loadmanager.leader.limits_then import moment_of

Part = TypeVar("Part", bound=ArchivePart)
OF_A_MOMENT = 1_000
"""Brokers that are asked what was at a moment: the page shows no more."""


class ArchivesOfAll:
    """Implements `leader.interruptions.Archives`; this broker has an archive.

    `most`: of more brokers others are asked each time.
    """

    def __init__(self, use: UseCases, everybody: Everybody, most: int = BROKERS_ASKED_MAX) -> None:
        self._use, self._everybody, self._most = use, everybody, most

    async def events(
        self,
        kinds: Sequence[str],
        since_ms: int,
        until_ms: int,
        limit: int,
        *,
        about: str | None = None,
    ) -> AskedArchives:
        """See `Archives.events`; `about`: only what is about this."""
        times = (since_ms, until_ms)

        async def ask(archive: Archive, part: str | None) -> ArchivedEvents:
            return await archive.events(kinds, about, times, limit, part)

        query = [("kind", kind) for kind in kinds] + ([] if about is None else [("about", about)])
        query += [("since", f"{since_ms}"), ("until", f"{until_ms}"), ("limit", f"{limit}")]
        nothing = ArchivedEvents(part=self._use.self_address.broker_id, recorded=[], events=[])
        return AskedArchives(*await self._asked("events", query, nothing, ask))

    async def loads(self, at_ms: int, kinds: Sequence[str]) -> AskedLoads:
        """See `Archives.loads`."""

        async def ask(archive: Archive, part: str | None) -> ArchivedMoment:
            return await archive.ask(lambda file: moment_of(file, at_ms, kinds), part)

        query = [("at", f"{at_ms}"), *(("kind", kind) for kind in kinds)]
        me = self._use.self_address.broker_id
        nothing = ArchivedMoment(part=me, recorded=[], at=at_ms, loads=[])
        return AskedLoads(*await self._asked("loads", query, nothing, ask))

    async def _asked(
        self,
        what: str,
        query: Sequence[tuple[str, str]],
        nothing: Part,
        ask: Callable[[Archive, str | None], Awaitable[Part]],
    ) -> tuple[dict[str, Part], frozenset[str]]:
        """The parts of all brokers, and those of which there is none: `nothing` is of this broker
        then. `ask`: one of the parts that this broker can read; None: its own.
        """
        archive = self._use.archive
        assert archive is not None, "the caller knows that there is one"
        own, silent = nothing, set[str]()
        try:
            own = await ask(archive, None)
        except OperationalError:
            silent.add(nothing.part)
        answers = await self._everybody.ask(
            "GET", f"{ROOT}/{what}", type(nothing), lambda: own, query, most=self._most
        )
        for name in await archive.beside():
            if name not in answers.brokers:
                try:
                    answers.brokers[name] = await ask(archive, name)
                    answers.no_answer.pop(name, None)
                except OperationalError:
                    answers.no_answer.setdefault(name, "its archive cannot be read")
        return answers.brokers, frozenset(silent | answers.no_answer.keys())
