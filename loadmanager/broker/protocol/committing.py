"""Commits what was sent to stored topics: everything that arrived for all of them while the last
commit was under way, or in one turn of the loop, goes to the storage together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from loadmanager.broker.messaging.stored_log import Piece, StoredLog
from loadmanager.broker.ports.log import FencedError, LogRecord, Storage
from loadmanager.broker.protocol.failures import Failures
from loadmanager.kit.errors import LoadManagerError

Taken = tuple[list[Piece], int, int]


class Committed(Protocol):
    """A topic whose messages are committed; see `storing.StoredTopic`."""

    log: StoredLog
    record: LogRecord
    closed: bool

    def committed(self, end_id: int, size_bytes: int) -> None:
        """The entries below `end_id` are stored, of so many bytes more: send their receipts."""
        ...

    def failed(self, error: LoadManagerError) -> None:
        """It must be closed: nothing more is stored."""
        ...


class Committer:
    """Commits topics, one commit at a time. `done` is called after each that went well."""

    def __init__(
        self,
        storage: Storage,
        *,
        spawn: Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]],
        failures: Failures,
        done: Callable[[], None],
    ) -> None:
        self._storage = storage
        self._spawn = spawn
        self._failures = failures
        self._done = done
        self._due: dict[Committed, None] = {}
        self._running = False

    def add(self, topic: Committed) -> None:
        """Commit a topic to whose log something was appended."""
        self._due[topic] = None
        if not self._running:
            running = self._run()
            try:
                self._spawn(running, "commit")
                self._running = True
            except RuntimeError:  # the broker is stopping: no task is started any more
                running.close()

    async def _run(self) -> None:
        try:
            while self._due:
                due, self._due = self._due, {}
                await self._commit({topic: topic.log.take() for topic in due if not topic.closed})
        finally:
            self._running = False

    async def _commit(self, taken: dict[Committed, Taken]) -> None:
        """Store what was taken, and answer; a bug costs these topics only."""
        try:
            batch = {topic.record.log_id: pieces for topic, (pieces, _, _) in taken.items()}
            fenced = await self._storage.append(
                {log_id: pieces for log_id, pieces in batch.items() if pieces}
            )
            for topic, (_, end_id, size_bytes) in taken.items():
                if topic.closed:
                    continue
                if topic.record.log_id in fenced:
                    topic.failed(
                        FencedError("another opening of its log has begun, or it has lost files")
                    )
                else:
                    topic.committed(end_id, size_bytes)
            self._done()
        except LoadManagerError as error:
            self._fail(list(taken), error)
        except Exception as error:  # noqa: BLE001 - contained: a bug costs these topics only
            self._failures.report("storing messages failed; their topics are closed", error)
            self._fail(list(taken), LoadManagerError("internal error"))

    @staticmethod
    def _fail(topics: Sequence[Committed], error: LoadManagerError) -> None:
        for topic in topics:
            topic.failed(error)
