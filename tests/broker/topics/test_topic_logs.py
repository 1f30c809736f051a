"""Records of logs and cursors: whoever does not own a topic any more changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadmanager.broker.ports.log import LogRecord, Run
from loadmanager.broker.topics.topic_logs import TopicLogs
from loadmanager.kit.errors import BadInputError, ConflictError, CorruptDataError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.memory import MemoryTree
from loadmanager.kit.names import TopicName

T = TopicName.parse("persistent://public/default/a%2Fb.ü")


@pytest.mark.asyncio
async def test_each_opening_fences_the_ones_before() -> None:
    """After another opening neither the record nor a cursor can be written with the old version."""
    async with MemoryTree().session(timeout_s=60) as store:
        logs = TopicLogs(store)
        await store.create(paths.subscription(T, "s"), b"")
        assert await logs.record(T) is None
        first = await logs.save(T, LogRecord(7, 1, 0, (Run(1, 0, "w"),)))
        await logs.save_cursors(T, first, {"s": b"1"})
        assert await logs.record(T) == first
        second = await logs.save(T, replace(first, life=2, runs=(Run(1, 0, "w"), Run(2, 5, "w"))))
        with pytest.raises(ConflictError):
            await logs.save(T, replace(first, first_id=9))
        with pytest.raises(ConflictError):
            await logs.save_cursors(T, first, {"s": b"9"})
        assert await logs.record(T) == second
        assert await logs.cursors(T, ["s", "none"]) == [b"1", b""]


@pytest.mark.asyncio
async def test_a_deleted_subscription_does_not_keep_others_from_being_saved() -> None:
    """The cursors of those that exist are written."""
    async with MemoryTree().session(timeout_s=60) as store:
        logs = TopicLogs(store)
        record = await logs.save(T, LogRecord(7, 1))
        await store.create(paths.subscription(T, "s"), b"")
        await logs.save_cursors(T, record, {"gone": b"1", "s": b"2"})
        assert await logs.cursors(T, ["gone", "s"]) == [b"", b"2"]


@pytest.mark.asyncio
async def test_a_large_cursor_does_not_keep_others_from_being_saved() -> None:
    """Large ones have transactions of their own; one that no node can hold raises, at the end."""
    cursors = {"a": b"1" * 600_000, "b": b"2" * 600_000, "huge": b"3" * 2_000_000, "z": b"4"}
    async with MemoryTree().session(timeout_s=60) as store:
        logs = TopicLogs(store)
        record = await logs.save(T, LogRecord(7, 1))
        for name in cursors:
            await store.create(paths.subscription(T, name), b"")
        with pytest.raises(BadInputError, match="at most"):
            await logs.save_cursors(T, record, cursors)
        saved = await logs.cursors(T, list(cursors))
        assert saved == [cursors["a"], cursors["b"], b"", cursors["z"]]


@pytest.mark.asyncio
async def test_a_topic_that_is_created_again_has_another_log() -> None:
    """A broker that had the deleted topic open cannot write to the new one's records."""
    async with MemoryTree().session(timeout_s=60) as store:
        logs = TopicLogs(store)
        old = await logs.save(T, LogRecord(7, 1))
        assert await logs.delete(T) == 7
        new = await logs.save(T, LogRecord(8, 2))
        assert old.version == new.version
        for write in (logs.save(T, old), logs.save_cursors(T, old, {"s": b"1"})):
            with pytest.raises(ConflictError):
                await write


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "value", [b"", b"{", b'{"life":1,"firstId":0,"runs":[[1]]}', b'{"life":"x"}']
)
async def test_a_damaged_record_is_named(value: bytes) -> None:
    """What is no record raises an error that says where it is."""
    async with MemoryTree().session(timeout_s=60) as store:
        logs = TopicLogs(store)
        await logs.save(T, LogRecord(7, 1))
        await store.put(f"{paths.log(T)}/7", value)
        with pytest.raises(CorruptDataError, match="/loadmanager/logs/"):
            await logs.record(T)
