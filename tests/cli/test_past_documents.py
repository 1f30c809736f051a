"""What tenants, policies, groups and other documents were at a moment, and who was attached."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from broker.admin.serving import serving
from broker.admin.test_archive import in_folder, written
from cli.test_admin_command import Shell
from cli.test_past import BUNDLE, UNUSED
from clusters.running import eventually

from loadmanager.cli.admin.past_documents import _partitions
from loadmanager.cli.admin.times import clock
from loadmanager.engine.history.clients import ClientStep
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import BrokerLoad, Throttle, TopicLoad
from loadmanager.engine.history.waits import Loss, attached_at
from loadmanager.engine.load.reports import ResourceUsage
from loadmanager.kit.system.clock import SystemClock
from loadmanager.kit.units import MINUTE_MS

ORDERED = (
    ("tenants", "create", "shop", "--admin-role", "ann"),
    ("groups", "set", "gold", "--publish-messages", "10"),
    ("isolation", "set", "apart", "--namespaces", "acme/.*", "--primary", ".*"),
    ("topics", "create", "acme/orders/parted", "--partitions", "3"),
    ("topics", "create", "persistent://acme/orders/p% ä", "--partitions", "2"),
    ("topics", "create", "acme/orders/gone"),
    ("limits", "set", "acme/orders", "publishRate", "--messages", "7"),
    ("limits", "set", "acme/orders/parted", "publishRate", "--messages", "4"),
)
CHANGED = (
    ("tenants", "update", "shop", "--admin-role", "bob"),
    ("groups", "set", "gold", "--publish-messages", "20"),
    ("isolation", "delete", "apart"),
    ("limits", "set", "acme/orders", "publishRate", "--messages", "9"),
    ("limits", "remove", "acme/orders/parted", "publishRate"),
    ("topics", "create", "acme/orders/plain"),
    ("topics", "delete", "acme/orders/gone"),
)


async def test_documents_of_a_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As they were between two changes, and before they were made."""
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)

        async def moment() -> str:
            at_ms = SystemClock().now_ms()
            await asyncio.sleep(1.1)  # moments are said by the second
            return clock(at_ms + 1_000).replace(" ", "T")

        async def told(count: int) -> None:
            async def audited() -> int:
                return len((await shell.run("audit", "--limit", "200"))[1].splitlines())

            await eventually(audited, lambda lines: lines > count, within_s=20)

        before = await moment()
        for words in ORDERED:
            status, _, err = await shell.run(*words)
            assert status == 0, (words, err)
        between = await moment()
        for words in CHANGED:
            status, _, err = await shell.run(*words)
            assert status == 0, (words, err)
        await told(len(ORDERED) + len(CHANGED))

        async def then(at: str, *words: str) -> Any:
            status, out, err = await shell.run(*words, "--at", at, "--json")
            assert err == ""
            return status, json.loads(out)

        _, tenants = await then(between, "tenants", "list")
        assert {it["name"]: it["fields"].get("adminRoles") for it in tenants}["shop"] == ["ann"]
        assert "shop" not in {it["name"] for it in (await then(before, "tenants", "list"))[1]}
        _, (group,) = await then(between, "groups", "list")
        assert group["fields"]["publishRateInMsgs"] == 10
        assert (await then(before, "groups", "list"))[1] == []
        assert "apart" in (await then(between, "isolation", "list"))[1]
        assert (await shell.json("isolation", "list"))["policies"] == {}
        parted = ("topics", "partitions", "acme/orders/parted")
        assert (await then(between, *parted)) == (0, {"partitions": 3})
        assert (await then(before, *parted))[0] == 1
        odd = ("topics", "partitions", "persistent://acme/orders/p% ä")
        assert (await then(between, *odd)) == (0, {"partitions": 2})
        assert (await then(before, *odd))[0] == 1
        policies = ("namespaces", "policies", "acme/orders")
        for at, rate in ((between, 7), (before, None)):
            limits = (await then(at, *policies))[1].get("publishMaxMessageRate") or {}
            assert [it["publishThrottlingRateInMsg"] for it in limits.values()] == (
                [] if rate is None else [rate]
            )
            limits = (await then(at, "limits", "show", "acme/orders"))[1]
            assert limits.get("publishRate", {}).get("publishThrottlingRateInMsg") == rate
            assert limits.keys() == ({"publishRate"} if rate else set())
        of_topic = ("limits", "show", "acme/orders/parted")
        assert (await then(between, *of_topic))[1]["publishRate"]["publishThrottlingRateInMsg"] == 4
        assert (await then(before, *of_topic))[0] == 1
        plain, gone = (f"persistent://acme/orders/{name}" for name in ("plain", "gone"))
        topics = ("topics", "list", "acme/orders")
        assert gone in (await then(between, *topics))[1]
        assert plain not in (await then(between, *topics))[1]
        assert (await then(before, *topics))[1] == []
        assert plain in await shell.json(*topics)
        _, out, _ = await shell.run("tenants", "list", "--at", between)
        assert "CHANGED" in out.splitlines()[0]


@pytest.mark.parametrize("count", [None, "x", -1, 10**12, 0])
def test_a_damaged_record_has_no_partitions(count: object) -> None:
    """So that nobody waits for a million million names."""
    assert _partitions("t", {"partitions": count}) == set()
    assert _partitions("t", {"partitions": 2}) == {"t-partition-0", "t-partition-1"}


def a_step(ts: int, broker: str, event: str, name: str = "p", **more: Any) -> ClientStep:
    """A record of a client."""
    usual = {"client": "10.0.0.1:5", "address": "10.0.0.1", "what": "producer", "topic": "t"}
    return ClientStep(ts=ts, broker=broker, event=event, name=name, **{**usual, **more})


def test_who_was_attached() -> None:
    """Until it left, or its broker was lost; one that came to another broker is there."""
    steps = [
        a_step(1, "a", "attached"),
        a_step(3, "b", "attached"),
        a_step(4, "a", "left"),
        a_step(2, "a", "attached", "q"),
        a_step(6, "a", "left", "q"),
        a_step(9, "a", "attached", "r"),
    ]

    def there(at_ms: int, *losses: Loss) -> set[tuple[str, str]]:
        return {(it.name, it.broker) for it in attached_at(steps, losses, at_ms)}

    assert there(0) == set()
    assert there(2) == {("p", "a"), ("q", "a")}
    assert there(5) == {("p", "b"), ("q", "a")}
    assert there(8) == {("p", "b")}
    assert there(8, Loss("b", 7)) == set()
    assert there(6, Loss("b", 7)) == {("p", "b")}
    assert there(9, Loss("a", 5)) == {("p", "b"), ("r", "a")}


async def test_clients_of_a_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By a part of a name or an address."""
    now = SystemClock().now_ms()
    async with serving(values=in_folder(tmp_path)) as served:
        shell, one = Shell(served, capsys), served.broker_id(0)
        steps = (
            a_step(now - 9 * MINUTE_MS, one, "attached", "writer"),
            a_step(now - 5 * MINUTE_MS, one, "left", "writer"),
        )
        await written(served, 0, *steps)
        status, out, _ = await shell.run("find", "WRIT", "--at", "7m")
        assert (status, "writer" in out, one in out, "10.0.0.1:5" in out) == (0, True, True, True)
        assert (await shell.run("find", "10.0.0.1", "--at", "7m"))[0] == 0
        status, out, _ = await shell.run("find", "writer", "--at", "4m")
        assert (status, "nobody of this name or address was attached at" in out) == (1, True)
        assert (await shell.run("find", "writer", "--at", "4m", "--since", "9m"))[0] == 2
        refused = a_step(now - 3 * MINUTE_MS, one, "refused", "intruder", reason="no token")
        await written(served, 0, refused)
        for at, there in (("4m", False), ("2m", True), ("now", True)):
            _, out, _ = await shell.run("find", "--refused", "--at", at)
            assert ("intruder" in out, "nobody was refused" in out) == (there, not there)


async def test_one_thing_of_a_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A topic's traffic and limits, a broker's load and a namespace's bundles, as they were."""
    now = SystemClock().now_ms()
    then = now - 60 * MINUTE_MS
    topic, other = (f"persistent://acme/orders/{name}" for name in ("much", "little"))
    async with serving(values=in_folder(tmp_path)) as served:
        shell, one = Shell(served, capsys), served.broker_id(0)
        head = {"ts": then, "broker": one, "interval_ms": MINUTE_MS}
        cpu = ResourceUsage(usage=50.0, limit=200.0)
        await written(
            served,
            0,
            BrokerLoad(**head, usage=0.25, bundles=3, **{**UNUSED, "cpu": cpu}),
            *(
                TopicLoad(**head, topic=name, bundle=BUNDLE, msg_rate_in=9.0)
                for name in (topic, other)
            ),
            *(
                Throttle(
                    **head, level="topic", limit=f"{name} publish", configured_messages_per_s=10,
                    configured_bytes_per_s=-1, delivered_messages_per_s=9.5,
                    delivered_bytes_per_s=100, held=3, waited_ms=7_000,
                )
                for name in (topic, other)
            ),
        )  # fmt: skip
        at = ("--at", clock(then - 1_000).replace(" ", "T"))
        (stats,) = await shell.json("topics", "stats", topic, *at)
        assert (stats["topic"], stats["msg_rate_in"]) == (topic, 9.0)
        why = await shell.json("limits", "why", "acme/orders/much", *at)
        (limit,) = why["limits"]
        assert (limit["limit"], limit["held"]) == (f"topic: {topic} publish", 3)
        held = ("limits", "why", "acme/orders/beside", *at)
        status, _, err = await shell.run(*held)
        unknown = "no topic persistent://acme/orders/beside is known, now or by what is recorded"
        assert (status, unknown in err) == (1, True)
        beside = "persistent://acme/orders/beside"
        came = a_step(then - 5 * MINUTE_MS, one, "attached", "victim", topic=beside)
        hold = {"held_ms": 3 * MINUTE_MS, "reason": f"{topic} publish"}
        freed = a_step(then + MINUTE_MS, one, "freed", "", **hold)
        await written(served, 0, came, freed)
        status, out, _ = await shell.run(*held)
        since = clock(then - 2 * MINUTE_MS)
        line = f"connection 10.0.0.1:5 to {one} was held since {since} by {topic} publish: 1 client"
        assert (status, line in out) == (0, True), out
        before = ("--at", clock(then - 3 * MINUTE_MS).replace(" ", "T"))
        assert "was held since" not in (await shell.run(*held[:3], *before))[1]
        killed = "persistent://acme/orders/killed"
        until = MemberChange(ts=then + 30_000, broker=one, of="b9:1", event="left", how="lost")
        came = a_step(then - 5 * MINUTE_MS, "b9:1", "attached", "victim", topic=killed)
        hold["held_ms"] = MINUTE_MS
        await written(served, 0, came, until, a_step(then - MINUTE_MS, "b9:1", "held", "", **hold))
        _, out, _ = await shell.run("limits", "why", killed, *at)
        assert f"connection 10.0.0.1:5 to b9:1 was held since {since}" in out, out
        (load,) = await shell.json("brokers", "report", one, *at)
        assert (load["cpu_usage"], load["bundles"]) == (50.0, 3)
        _, out, _ = await shell.run("brokers", "report", *at)
        assert out.splitlines()[1].split()[:2] == [one, "25.0"]
        status, _, err = await shell.run("topics", "stats", "acme/orders/none", *at)
        assert (status, "no topic persistent://acme/orders/none is known" in err) == (1, True)
        assert (await shell.run("namespaces", "bundles", "acme/orders", *at))[0] in (0, 1)
