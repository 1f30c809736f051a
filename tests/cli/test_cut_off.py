"""What was, asked across a network that lets nothing through: the answer comes, and says what is
missing; the broker that is cut off goes on to serve and to record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from broker.admin.serving import Served, serving
from broker.admin.test_archive import BUNDLE, archive_of, in_folder, written
from cli.test_admin_command import Shell
from clusters.running import a_client

from loadmanager.cli.admin.client import VERSION
from loadmanager.engine.history.records import OwnershipStep
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.kit.system.clock import SystemClock

TOPIC = TopicName("persistent", NamespaceName("acme", "orders"), "t")


@asynccontextmanager
async def cut_off(served: Served, index: int) -> AsyncIterator[list[str]]:
    """Nothing that is sent to the HTTP port of a broker is answered, as if packets were dropped.
    Yields the first lines of the requests.
    """
    await served.servers[index].stop()
    host, _, port = served.broker_id(index).rpartition(":")
    over, knocks = asyncio.Event(), list[str]()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        knocks.append((await reader.readline()).decode())
        await over.wait()
        writer.close()

    hole = await asyncio.start_server(swallow, host, int(port))
    try:
        yield knocks
    finally:
        over.set()
        hole.close()
        await hole.wait_closed()


def forget(folder: Path, broker: str) -> None:
    """Delete the archive of a broker."""
    for path in folder.rglob(f"*{broker.rpartition(':')[2]}.sqlite*"):
        path.unlink()


def a_step(broker: str) -> OwnershipStep:
    now = SystemClock().now_ms()
    return OwnershipStep(
        ts=now, broker=broker, bundle=BUNDLE, before="Opening", after="Owned", reason="told"
    )


async def test_a_part_that_is_cut_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its file is read if it lies beside; else it is named. Clients of both are served meanwhile,
    and what it records then is there afterwards.
    """
    async with serving(values=in_folder(tmp_path)) as served:
        shell, cut = Shell(served, capsys), served.broker_id(1)
        await written(served, 1, a_step(cut))
        async with cut_off(served, 1) as knocks:
            status, out, err = await shell.run("history", BUNDLE)
            assert (status, cut in out, err) == (0, True, "")
            archive = archive_of(served, 1)
            await written(served, 1, a_step(cut))  # it goes on to record
            await served.brokers[1].serve(TOPIC)
            async with a_client(await served.brokers[1].listen()) as client:
                asked = asyncio.create_task(shell.run("history", BUNDLE))
                await client.produce(TOPIC)  # and to serve
                await asked
            await archive.close()
            forget(tmp_path, cut)
            status, out, err = await shell.run("history", BUNDLE)
            assert status == 1
            assert cut in err
            assert "did not answer" in err
            asked_for = [line for line in knocks if VERSION not in line]  # asked for a moment only
            assert len(asked_for) == 3  # each command waited for it once


async def test_a_broker_without_the_metadata_store_answers(tmp_path: Path) -> None:
    """What it recorded, and what it records meanwhile: nothing of it asks the store."""
    async with serving(values=in_folder(tmp_path)) as served:
        await written(served, 1, a_step("before"))
        served.brokers[1].store.suspend()
        await written(served, 1, a_step("meanwhile"))
        answer = await served.get(f"/loadmanager/v1/archive/events?about={BUNDLE}", at=1)
        assert {it["record"]["broker"] for it in answer["events"]} == {"before", "meanwhile"}
