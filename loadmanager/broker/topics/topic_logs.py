"""The records of stored topics' logs and cursors: changed by compare-and-set only.

The first opening of a topic gives its log a number, under which its record is. Each opening changes
the record, whose version is checked by whatever the opening writes later: by trims, and in the
transaction that saves cursors. So a broker that no longer owns the topic writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from loadmanager.broker.ports.log import LogRecord, Run
from loadmanager.kit.errors import BadInputError, ConflictError, CorruptDataError, LoadManagerError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import read_object, write_object
from loadmanager.kit.metadata.store import (
    Check,
    Create,
    Operation,
    Put,
    Store,
    VersionConflictError,
    delete_tree,
)
from loadmanager.kit.names import TopicName

CURSORS_AT_ONCE = 100
CURSOR_BYTES_AT_ONCE = 500_000
"""What one transaction saves; a cursor that is larger has one of its own."""


class TopicLogs:
    """The part of `broker.ports.directory.Directory` for stored topics."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def record(self, topic: TopicName) -> LogRecord | None:
        """The record of a topic's log, None before its first opening. Raises `CorruptDataError`."""
        log_id = await self._log_id(topic)
        if log_id is None:
            return None
        path = _path(topic, log_id)
        node = await self._store.get(path)
        if node is None:
            raise ConflictError(f"topic {topic} is being deleted")
        value = read_object(node.value, path)
        try:
            runs = tuple(
                Run(_number(run), _number(first), _name(writer))
                for run, first, writer in value["runs"]
            )
            life, first_id = _number(value["life"]), _number(value["firstId"])
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(f"{path} is not the record of a log: {error!r}") from None
        return LogRecord(log_id, life, first_id, runs, node.version)

    async def _log_id(self, topic: TopicName) -> int | None:
        node = await self._store.get(paths.log(topic))
        if node is None:
            return None
        try:
            return int(node.value, 16)
        except ValueError:
            raise CorruptDataError(f"{paths.log(topic)} is not the number of a log") from None

    async def save(self, topic: TopicName, record: LogRecord) -> LogRecord:
        path, value = _path(topic, record.log_id), _value(record)
        if record.version >= 0:
            return replace(
                record, version=await self._store.put(path, value, version=record.version)
            )
        await self._store.create(paths.log(topic).rpartition("/")[0], b"")
        number = Create(paths.log(topic), f"{record.log_id:x}".encode())
        await self._store.commit([number, Create(path, value)])
        return replace(record, version=0)

    async def cursors(self, topic: TopicName, names: Sequence[str]) -> list[bytes]:
        nodes = await self._store.get_many([paths.subscription(topic, name) for name in names])
        return [b"" if node is None else node.value for node in nodes]

    async def save_cursors(
        self, topic: TopicName, record: LogRecord, cursors: Mapping[str, bytes]
    ) -> None:
        check = Check(_path(topic, record.log_id), record.version)
        refused: LoadManagerError | None = None
        for some in _transactions(
            [Put(paths.subscription(topic, name), value) for name, value in cursors.items()]
        ):
            try:
                await self._store.commit([check, *some])
            except VersionConflictError:
                await self._save_one_by_one(topic, record, check, some)
            except ConflictError:
                raise
            except BadInputError as error:  # the others are saved
                refused = error
        if refused is not None:
            raise refused

    async def _save_one_by_one(
        self, topic: TopicName, record: LogRecord, check: Check, writes: Sequence[Operation]
    ) -> None:
        """A subscription was deleted meanwhile, or the log was opened again."""
        for write in writes:
            try:
                await self._store.commit([check, write])
            except VersionConflictError:
                node = await self._store.get(check.path)
                if node is None or node.version != record.version:
                    raise

    async def delete(self, topic: TopicName) -> int | None:
        """Delete the record of a topic's log; returns the log's number."""
        log_id = await self._log_id(topic)
        if log_id is not None:
            await delete_tree(self._store, paths.log(topic))
        return log_id


def _transactions(writes: Sequence[Put]) -> Iterator[list[Put]]:
    some, size = list[Put](), 0
    for write in writes:
        size += len(write.value)
        if some and (len(some) == CURSORS_AT_ONCE or size > CURSOR_BYTES_AT_ONCE):
            yield some
            some, size = [], len(write.value)
        some.append(write)
    if some:
        yield some


def _path(topic: TopicName, log_id: int) -> str:
    return f"{paths.log(topic)}/{log_id:x}"


def _value(record: LogRecord) -> bytes:
    runs = [[run.number, run.first_id, run.writer] for run in record.runs]
    return write_object({"life": record.life, "firstId": record.first_id, "runs": runs})


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{str(value)[:40]} is not a number")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.isalnum():
        raise ValueError(f"{str(value)[:40]} is not the name of a writer")
    return value
