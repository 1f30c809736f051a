"""Who waits because of another topic's limit is told so, by each command that looks for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from broker.admin.serving import ORDERS, serving
from broker.admin.test_admin_subscriptions import RECEIPT
from broker.admin.test_archive import in_folder
from cli.test_admin_command import Shell
from clusters.running import Client, eventually
from system.raw import a_send

from loadmanager.cli.admin.held_clients import elsewhere_text
from loadmanager.engine.bundles.ranges import topic_hash
from loadmanager.kit.names import TopicName
from loadmanager.limits.held_connection import HeldConnection


async def publish_beyond(client: Client, topic: TopicName) -> None:
    """Publish far more than a topic's limit lets through, until its broker has answered once."""
    await client.produce(topic)
    for number in range(200):
        await client.send(a_send(number))
    await client.take_of(RECEIPT)


async def test_a_connection_that_is_held_for_another_topic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A producer of one topic is at its limit. A consumer of its connection waits; a topic
    whose producer cannot attach is not open, and its owner says who may be waiting.
    """
    limited, beside, closed = (
        TopicName("persistent", ORDERS, name) for name in ("limited", "beside", "closed")
    )
    async with serving(brokers=1, values=in_folder(tmp_path)) as served:
        (broker,), shell = served.brokers, Shell(served, capsys)
        for topic in (limited, beside):
            await broker.serve(topic)
        await shell.run("topics", "create", str(closed))
        (done, _, err) = await shell.run(
            "limits", "set", str(limited), "publishRate", "--messages", "1"
        )
        assert done == 0, err
        client = await served.cluster.connect(await broker.listen())
        await client.subscribe(beside)
        await publish_beyond(client, limited)
        _, out, _ = await shell.run("limits", "why", str(beside))
        assert "connection 127.0.0.1:" in out
        assert f"by {limited} publish: its clients there wait as well" in out
        (line,) = [it for it in out.splitlines() if it.startswith("subscription ")]
        assert "no limit of its own holds it now, but limits hold the connection 127.0.0.1:" in line
        assert line.endswith("what they acknowledge and ask for is not read meanwhile")
        assert "to other brokers" not in out
        _, out, _ = await shell.run("limits", "why", str(limited))
        (line,) = [it for it in out.splitlines() if it.startswith("the connection 127.0.0.1:")]
        assert " waits again and again since 20" in line
        assert line.endswith(f": {limited} publish")
        (line,) = [it for it in out.splitlines() if it.startswith("publishRate is set on ")]
        assert line.startswith(f"publishRate is set on {limited}: publishThrottlingRateInMsg=1")
        assert ", by 127.0.0.1 at 20" in line
        assert line.endswith(f"; `limits set {limited} publishRate …` changes it")
        _, out, _ = await shell.run("status")
        assert "1 limit held somebody in the last ten seconds, who waited " in out
        line, victims = [it for it in out.splitlines() if it.startswith("    persistent://")]
        at = broker.address.broker_id
        held = f"    {limited} publish (1 msg/s) at {at}: 1 producer, again and again for "
        assert line.startswith(held)
        assert ": the connection 127.0.0.1:" in victims
        assert victims.endswith(f"meanwhile; 1 other topic of it must wait as well: {beside}")
        _, out, _ = await shell.run("limits", "list")
        assert victims.strip() in [it.strip() for it in out.splitlines()]
        _, out, _ = await shell.run("find", "127.0.0.1", "--json")
        consumer = next(it for it in json.loads(out)["clients"] if it["kind"] == "consumer")
        assert (consumer["heldBy"], consumer["heldFor"]) == (["topic publish rate"], [str(limited)])
        assert consumer["heldSince"]
        _, out, _ = await shell.run("find", "127.0.0.1")
        assert "is held is not read" in out
        _, out, _ = await shell.run("history", "127.0.0.1")
        assert "now: the connection 127.0.0.1:" in out
        assert f"by topic publish rate of {limited}" in out
        _, out, _ = await shell.run("limits", "why", str(closed))
        assert "limits hold 1 other connection to its broker, 127.0.0.1:" in out
        await shell.run("topics", "unload", str(closed))
        status, _, err = await shell.run("limits", "why", str(closed))
        assert (status, "limits hold 1 connection, 127.0.0.1:" in err) == (1, True)
        await shell.run("topics", "create", f"{closed}-parted", "--partitions", "3")
        part = TopicName.parse(f"{closed}-parted-partition-1")
        await broker.serve(part)
        status, out, err = await shell.run("limits", "why", f"{closed}-parted")
        assert (status, out.splitlines()[0]) == (0, f"{part}:"), err
        assert "limits hold 1 other connection to its broker, 127.0.0.1:" in out
        status, _, err = await shell.run("limits", "why", f"{closed}-that-nobody-made")
        assert "not found; limits hold 1 connection, 127.0.0.1:" in err


async def test_a_connection_to_another_broker_is_told_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A client looks topics up through the connection that it has, to whichever broker."""
    limited = TopicName("persistent", ORDERS, "limited")  # in the upper half
    names = (TopicName("persistent", ORDERS, f"other-{number}") for number in range(100))
    elsewhere = next(name for name in names if topic_hash(str(name)) < 0x80000000)
    async with serving() as served:
        shell, first = Shell(served, capsys), served.brokers[0]
        await first.serve(limited)
        await served.brokers[1].serve(elsewhere)
        await shell.run("limits", "set", str(limited), "publishRate", "--messages", "1")
        await publish_beyond(await served.cluster.connect(await first.listen()), limited)

        async def why() -> str:
            return (await shell.run("limits", "why", str(elsewhere)))[1]

        out = await eventually(why, lambda text: " since 20" in text)
        assert "limits hold 1 connection to other brokers, 127.0.0.1:" in out
        assert f" at {first.address.broker_id} since 20" in out
        waits = "a lookup of this topic through one waits until what was sent before it is read"
        assert f"{waits}, and may time out at its client" in out


@pytest.mark.parametrize(
    ("ago_ms", "times_out"), [(300.0, False), (999.0, False), (1_000.0, True), (90_000.0, True)]
)
def test_a_short_hold_lets_no_lookup_time_out(ago_ms: float, times_out: bool) -> None:
    """The longest counts."""
    holds = [
        HeldConnection(f"a:{ms:.0f}", ms, ["t publish"], [], [], 0) for ms in (ago_ms, 0.5 * ago_ms)
    ]
    text = elsewhere_text([(it, "b:1") for it in holds], 1_700_000_000_000)
    assert f"limits hold 2 connections to other brokers, a:{ago_ms:.0f} at b:1 " in text
    assert ("may time out" in text) is times_out
    assert (f"for {ago_ms:.0f} ms until now" in text) is not times_out
