"""Asks the archives of all brokers, also those that brokers left beside this one's."""

from __future__ import annotations

from collections.abc import Sequence

from loadmanager.broker.admin.everybody import Everybody
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.history.archive_answers import ArchivedEvents
from loadmanager.leader.http.archive import ROOT
from loadmanager.leader.interruptions import AskedArchives


class ArchivesOfAll:
    """Implements `leader.interruptions.Archives`; this broker has an archive."""

    def __init__(self, use: UseCases, everybody: Everybody) -> None:
        self._use, self._everybody = use, everybody

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
        archive = self._use.archive
        assert archive is not None, "the caller knows that there is one"
        times, silent = (since_ms, until_ms), set[str]()
        me = self._use.self_address.broker_id
        own = ArchivedEvents(part=me, recorded=[], events=[])
        try:
            own = await archive.events(kinds, about, times, limit)
        except OperationalError:
            silent.add(me)
        query = [("kind", kind) for kind in kinds] + ([] if about is None else [("about", about)])
        query += [("since", f"{since_ms}"), ("until", f"{until_ms}"), ("limit", f"{limit}")]
        answers = await self._everybody.ask(
            "GET", f"{ROOT}/events", ArchivedEvents, lambda: own, query
        )
        for name in await archive.beside():
            if name not in answers.brokers:
                try:
                    answers.brokers[name] = await archive.events(kinds, about, times, limit, name)
                    answers.no_answer.pop(name, None)
                except OperationalError:
                    answers.no_answer.setdefault(name, "its archive cannot be read")
        return AskedArchives(answers.brokers, frozenset(silent | answers.no_answer.keys()))
