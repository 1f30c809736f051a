"""The leader counts what namespaces have stored, whoever has their topics open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from clusters.running import NS, Running, a_cluster
from system.raw import a_send

from loadmanager.broker.ports.log import Storage
from loadmanager.broker.storage.disk import DirectoryDisk
from loadmanager.broker.storage.log_files import LogFiles
from loadmanager.broker.topics.stored_bytes import StoredBytes
from loadmanager.engine.history.stored import NamespaceStored
from loadmanager.kit.names import TopicName

ORDERS, BILLS = (TopicName("persistent", NS, name) for name in ("orders", "bills"))
COUNT = 100


async def inline(_thread: int, call: Callable[[], Any]) -> Any:
    return call()


async def counted(broker: Running, storage: Storage) -> list[tuple[str, int, int]]:
    """Namespaces with their topics and bytes, as a broker counts them when it begins to lead."""
    parts, before = broker.parts, len(broker.history.records)
    await StoredBytes(
        base=parts.member.base,
        leading=broker.use.leading,
        history=broker.history,
        sizes=storage.sizes,
    ).look()
    return [
        (each.namespace, each.topics, each.stored_bytes)
        for each in broker.history.records[before:]
        if isinstance(each, NamespaceStored)
    ]


def on_disk(folder: Path) -> int:
    """The bytes of all segments."""
    return sum(path.stat().st_size for path in folder.glob("*/*.log"))


async def test_closed_topics_count_deleted_ones_do_not_and_none_twice(tmp_path: Path) -> None:
    """Before and after an unload, and a move; only the leader counts."""
    storages: list[LogFiles] = []

    def storage() -> LogFiles:
        storages.append(LogFiles(DirectoryDisk(tmp_path), inline))
        return storages[-1]

    async with a_cluster(brokers=2, storage=storage) as cluster:
        leader, other = cluster.brokers
        assert "count-stored" in leader.parts.member.base.steps.failures
        assert await counted(leader, storages[0]) == []

        async def send(broker: Running, topic: TopicName) -> None:
            await broker.serve(topic)
            client = await cluster.connect(await broker.listen())
            await client.produce(topic)
            await client.send(*(a_send(number) for number in range(1, COUNT + 1)))
            for _ in range(COUNT):
                await client.take_of(7)
            client.close()
            for each in storages:
                await each.flush()  # as every second: what a journal has is in segments then

        await send(leader, ORDERS)
        await send(leader, BILLS)
        stored = on_disk(tmp_path)
        assert stored > 2 * COUNT
        assert await counted(leader, storages[0]) == [(str(NS), 2, stored)]
        assert await counted(other, storages[1]) == []

        bundle = await leader.use.namespaces.bundle_of(ORDERS)
        await leader.use.orders.release(bundle, None)
        assert leader.use.orders.served(bundle) == {}
        assert await counted(leader, storages[0]) == [(str(NS), 2, stored)]

        await other.serve(ORDERS)
        assert await counted(leader, storages[0]) == [(str(NS), 2, stored)]
        await send(other, ORDERS)
        more = on_disk(tmp_path)
        assert more > stored
        assert await counted(leader, storages[0]) == [(str(NS), 2, more)]

        await leader.use.deleting.topic(BILLS, force=True)
        left = on_disk(tmp_path)
        assert 0 < left < more
        assert await counted(leader, storages[0]) == [(str(NS), 1, left)]
