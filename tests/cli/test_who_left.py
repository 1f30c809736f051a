"""Brokers that left, as several commands tell of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from broker.admin.serving import ORDERS, serving
from broker.admin.test_archive import in_folder, written
from broker.admin.test_members import HALF, OTHER, absent
from cli.test_admin_command import Shell
from clusters.running import a_client, until

from loadmanager.cli.admin.absences import bundles_text
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.who_left import who_left
from loadmanager.cli.doctor import cluster
from loadmanager.cli.doctor.asking import read
from loadmanager.engine.history.clients import ClientStep
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import OwnershipStep
from loadmanager.kit.names import TopicName
from loadmanager.kit.system.clock import SystemClock
from loadmanager.leader.documents.members import AbsentBroker

TOPIC = TopicName("persistent", ORDERS, "t")
WAITED = ": 2.0 s since it was lost, and up to "


async def test_all_commands_count_the_same_clients_of_a_lost_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By their own records, where the leader has not counted them yet."""
    async with serving(2, values=in_folder(tmp_path)) as served:
        shell, (one, name) = Shell(served, capsys), (served.broker_id(0), served.broker_id(1))
        lost = served.brokers[1]
        await lost.serve(TOPIC)
        async with a_client(await lost.listen()) as client:
            await client.produce(TOPIC)
            reports = served.brokers[0].use.brokers.reports
            await until(lambda: reports[name].num_producers == 1)
            lost.store.suspend()
            lost.store.expire()
            left_at = (await absent(served, name, how="lost", clients=1, clientsBack=0))["leftAt"]
        await written(
            served, 0,
            MemberChange(ts=left_at, broker=one, of=name, event="left", how="lost"),
            *(
                ClientStep(
                    ts=ts, broker=broker, event="attached", client="10.0.3.7:4711", what="producer",
                    name="p", topic=str(TOPIC),
                )
                for ts, broker in ((left_at - 9_000, name), (left_at + 2_000, one))
            ),
        )  # fmt: skip
        for command in (("status",), ("brokers", "list"), ("brokers", "health")):
            _, out, _ = await shell.run(*command)
            assert WAITED in out, command
        seen = await asyncio.to_thread(read, AdminClient(served.url(0), timeout_s=60))
        texts = [it.text for it in cluster.check(seen) if it.subject == name]
        assert any(WAITED in text for text in texts), texts


async def test_when_bundles_had_an_owner_again_by_the_owners_records(tmp_path: Path) -> None:
    """The leader sees it later, by the next reports; without all records it was so at most."""
    left_at = SystemClock().now_ms() - 600_000

    def absence() -> AbsentBroker:
        return AbsentBroker(
            broker="b9:1", left_at=left_at, how="lost", bundles=2, placed=2, unheard_ms=6_000,
            placed_at=left_at + 1_041, back_at=left_at + 9_000,
        )  # fmt: skip

    def step(after_ms: int, broker: str, bundle: str, after: str) -> OwnershipStep:
        return OwnershipStep(
            ts=left_at + after_ms, broker=broker, bundle=bundle, before="Opening", after=after,
            reason="r",
        )  # fmt: skip

    async with serving(2, values=in_folder(tmp_path)) as served:
        one, admin = served.broker_id(0), AdminClient(served.url(0), timeout_s=60)
        await written(
            served, 0,
            step(-90_000, "b9:1", HALF, "Owned"), step(-80_000, "b9:1", "a/b/c", "Owned"),
            step(-70_000, "b9:1", "a/b/c", "Free"), step(-60_000, "b9:1", OTHER, "Owned"),
            step(263, one, HALF, "Owned"),
        )  # fmt: skip

        async def told() -> str:
            its, _, _ = await asyncio.to_thread(who_left, admin, [absence()], left_at + 60_000)
            return bundles_text(its[0])

        assert await told() == "2 bundles placed after 1.0 s at most"
        await written(served, 0, step(327, one, OTHER, "Owned"))
        assert await told() == "2 bundles placed after 327 ms"


async def test_bundles_that_nobody_asks_for_are_no_outage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Once their broker and all of its clients are back; before that, they are one."""
    async with serving(2) as served:
        shell, name, lost = Shell(served, capsys), served.broker_id(1), served.brokers[1]
        bundle = (await lost.use.namespaces.bundles(ORDERS)).bundle_of_topic(str(TOPIC))
        empty = OTHER if str(bundle) == HALF else HALF
        await lost.serve(TOPIC)
        await served.own(empty, at=1)
        reports = served.brokers[0].use.brokers.reports
        async with a_client(await lost.listen()) as client:
            await client.produce(TOPIC)
            await until(lambda: reports[name].num_producers == 1)
            await until(lambda: len(reports[name].bundles) == 2)
            lost.store.suspend()
            lost.store.expire()
            await absent(served, name, how="lost", clients=1, clientsBack=0, bundles=2)
        status, _, err = await shell.run("topics", "backlogs")
        left_out = f"{name} is left out: lost, and 2 of its bundles without an owner"
        assert (status, left_out in err) == (1, True)
        await served.brokers[0].serve(TOPIC)
        async with a_client(await served.brokers[0].listen()) as client:
            await client.produce(TOPIC)
            await absent(served, name, clientsBack=1, placed=1)
        lost.store.resume()
        await until(lambda: name in served.brokers[0].use.brokers.registered)
        await absent(served, name, sameProcess=True)
        status, out, err = await shell.run("topics", "backlogs")
        assert status == 0, err
        assert f"not counted, because nobody asks for them: the topics of {empty}" in out
        _, out, _ = await shell.run("status")
        assert not out.startswith(f"{name} lost")
        assert f"{name} lost" in out
