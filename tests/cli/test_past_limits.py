"""Limits of a past moment, in `loadmanager admin status --at` and `limits list --at`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from broker.admin.serving import serving
from broker.admin.test_archive import MINUTE, in_folder, written
from cli.test_admin_command import Shell
from cli.test_past import UNUSED
from msgspec import structs

from loadmanager.cli.admin.times import clock
from loadmanager.engine.history.archived import ARCHIVED, limit_words
from loadmanager.engine.history.clients import ClientStep
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import AuditedChange, BrokerLoad, Throttle
from loadmanager.kit.history.catalogue import FiguresOf
from loadmanager.kit.system.clock import SystemClock

TOPIC = "persistent://acme/orders/t"


async def test_who_was_held(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither limits for which nobody began to wait, nor those of a broker that was gone; the first
    ones by name, in which time, and how many more.
    """
    then = SystemClock().now_ms() - 60 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        ids = [served.broker_id(index) for index in range(2)]

        def limit(name: str, level: str = "topic", at: int = 0, **of: Any) -> Throttle:
            return Throttle(
                ts=then, broker=ids[at], interval_ms=MINUTE, level=level, limit=name,
                configured_messages_per_s=10, configured_bytes_per_s=-1,
                delivered_messages_per_s=9, delivered_bytes_per_s=100, **of,
            )  # fmt: skip

        for index, broker in enumerate(ids):
            load = {"ts": then, "broker": broker, "interval_ms": MINUTE, "usage": 0.1}
            await written(served, index, BrokerLoad(**load, **UNUSED))
        group = "resource group batch publish"
        held = [limit(f"t{n}", held=1, waited_ms=1_000.0 * n) for n in range(1, 7)]
        held.append(limit(group, "resource group", held=2, waited_ms=9_000))
        others = [limit("before", waited_ms=50_000), limit("free")]
        lost = MemberChange(ts=then - MINUTE, broker=ids[0], of=ids[1], event="left", how="lost")
        await written(served, 0, *held, *others, lost)
        await written(served, 1, limit("gone", at=1, held=3, waited_ms=70_000))
        out = (await shell.run("status", "--at", clock(then)))[1]
        names = ", ".join(
            f"{name} at {ids[0]}" for name in (group, "topic: t6", "topic: t5", "topic: t4")
        )
        (line,) = [line for line in out.splitlines() if "held" in line]
        between = f"7 limits held somebody from {clock(then - MINUTE)} to {clock(then)}"
        who = f"who waited 30 s in all: {names}, topic: t3 at {ids[0]} and 2 more"
        assert line == f"{between}, {who}"
        out = (await shell.run("limits", "list", "--at", clock(then)))[1]
        assert f" {group} " in out
        assert "resource group: " not in out
        early = then - 60 * MINUTE
        mean = structs.replace(held[0], ts=early, interval_ms=15 * MINUTE)
        load = {"ts": early, "broker": ids[0], "interval_ms": 15 * MINUTE, "usage": 0.1}
        await written(served, 0, mean, BrokerLoad(**load, **UNUSED))
        out = (await shell.run("status", "--at", clock(early)))[1]
        between = f"from {clock(early - 15 * MINUTE)} to {clock(early)}"
        waited = "who waited 1 s on the mean of the records of that time"
        assert f"1 limit held somebody {between}, {waited}: topic: t1 at {ids[0]}" in out


async def test_for_how_long_limits_had_somebody_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sums of a time, for each limit and broker, those with most of it first; without those
    that held nobody, and what was before and after.
    """
    begin = SystemClock().now_ms() // MINUTE * MINUTE - 60 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        ids = [served.broker_id(index) for index in range(2)]

        def limit(minute: int, name: str, at: int, held: int, waited_s: float) -> Throttle:
            return Throttle(
                ts=begin + minute * MINUTE, broker=ids[at], interval_ms=MINUTE, level="topic",
                limit=name, configured_messages_per_s=10, configured_bytes_per_s=-1,
                delivered_messages_per_s=9, delivered_bytes_per_s=100, held=held,
                waited_ms=waited_s * 1_000,
            )  # fmt: skip

        await written(
            served, 0, limit(0, "a", 0, 1, 50), limit(1, "a", 0, 2, 30), limit(2, "a", 0, 0, 0),
            limit(3, "a", 0, 1, 10), limit(3, "free", 0, 0, 0), limit(31, "a", 0, 9, 50),
        )  # fmt: skip
        await written(served, 1, limit(1, "a", 1, 1, 4), limit(2, "b", 1, 1, 60))
        words = ("limits", "list", "--since", clock(begin), "--until", clock(begin + 30 * MINUTE))
        rows = await shell.json(*words)
        names = ("limit", "broker", "held", "waited_ms", "lasted_ms")
        assert [tuple(row[name] for name in names) for row in rows] == [
            ("topic: b", ids[1], 1, 60_000, MINUTE),
            ("topic: a", ids[0], 3, 40_000, 2 * MINUTE),
            ("topic: a", ids[1], 1, 4_000, MINUTE),
        ]
        out = (await shell.run(*words))[1]
        between = f"from {clock(begin)} to {clock(begin + 30 * MINUTE)}"
        assert (
            f"{between} (30 min): 104 s in all; waited: the sum over all who waited for a limit"
            in out
        )
        of_one = await shell.json("limits", "list", ids[1], *words[2:])
        assert [row["limit"] for row in of_one] == ["topic: b", "topic: a"]
        quiet = ("--since", clock(begin + 10 * MINUTE), "--until", clock(begin + 20 * MINUTE))
        out = (await shell.run("limits", "list", *quiet))[1]
        assert "no limit had anybody wait then, as far as it is recorded" in out
        for wrong in (("--until", "1h"), ("--since", "1h", "--at", "1h")):
            assert (await shell.run("limits", "list", *wrong))[0] == 2
        status, _, err = await shell.run("limits", "list", "--since", clock(begin + 999 * MINUTE))
        assert (status, "is not before" in err) == (2, True), err


async def test_sums_have_what_is_not_recorded_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a limit did since the last record counts as well, also of one that has no record; not
    for a time that was over before.
    """
    async with serving(values=in_folder(tmp_path)) as served:
        shell, name = Shell(served, capsys), served.broker_id(0)
        now = SystemClock().now_ms()

        def limit(ts: int, span_ms: int, limit: str, waited_s: float) -> Throttle:
            return Throttle(
                ts=ts, broker=name, interval_ms=span_ms, level="topic", limit=limit,
                configured_messages_per_s=10, configured_bytes_per_s=-1,
                delivered_messages_per_s=9, delivered_bytes_per_s=100, held=1,
                waited_ms=waited_s * 1_000,
            )  # fmt: skip

        async def counted() -> list[Throttle]:
            return [limit(now, 30_000, "a", 12), limit(now, 30_000, "b", 3)]

        archive = served.brokers[0].archive
        assert archive is not None
        assert Throttle.kind in archive.present
        archive.present[Throttle.kind] = counted
        await written(served, 0, limit(now - 30_000, MINUTE, "a", 50))
        rows = await shell.json("limits", "list", "--since", "10m")
        assert [(it["limit"], it["held"], it["waited_ms"], it["lasted_ms"]) for it in rows] == [
            ("topic: a", 2, 62_000, MINUTE + 30_000),
            ("topic: b", 1, 3_000, 30_000),
        ]
        until = clock(now - 30_000 - 1_000)
        assert await shell.json("limits", "list", "--since", "10m", "--until", until) == []


async def test_a_standstill_of_the_broker_is_no_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What waited meanwhile was held by none: sums leave that time out, or are bounds, and a record
    over it says nothing of what a limit delivered.
    """
    begin = SystemClock().now_ms() // MINUTE * MINUTE - 60 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        shell, name = Shell(served, capsys), served.broker_id(0)
        of: dict[str, Any] = {"ts": begin + 2 * MINUTE, "broker": name}
        held = Throttle(
            **of, interval_ms=MINUTE, level="topic", limit="a publish",
            configured_messages_per_s=20, configured_bytes_per_s=-1, delivered_messages_per_s=11.9,
            delivered_bytes_per_s=100, held=9, waited_ms=55_000,
        )  # fmt: skip
        client = ClientStep(
            **of, event="freed", client="c:1", what="connection", held_ms=110_000, reason="a"
        )
        stood = MemberChange(**of, of=name, event="stood", took_ms=40_000)
        await written(served, 0, held, client, stood)
        words = ("limits", "list", "--since", clock(begin), "--until", clock(begin + 10 * MINUTE))
        (row,) = await shell.json(*words, "--clients")
        assert row["held_ms"] == 70_000
        out = (await shell.run(*words))[1]
        assert " ≤ 55.0 " in out
        assert "55 s at most in all" in out
        assert f"{name} stood still for 40 s: " in out
        at = ("limits", "list", "--at", clock(begin + 2 * MINUTE - 30_000))
        (row,) = await shell.json(*at)
        assert (row["configured_messages_per_s"], row["held"], row["waited_ms"]) == (20, None, None)
        assert row["delivered_messages_per_s"] is None
        assert "11.9" not in (await shell.run(*at))[1]


async def test_a_limit_that_was_set_for_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told by what was set then, also while nobody recorded it, and neither before it was set
    nor after its end, whatever the record has of its minute.
    """
    begin = SystemClock().now_ms() // MINUTE * MINUTE - 60 * MINUTE
    end, topic = begin + 3 * MINUTE - 20_000, "persistent://acme/orders/t"
    async with serving(values=in_folder(tmp_path)) as served:
        shell, name = Shell(served, capsys), served.broker_id(0)
        assert (await shell.run("topics", "create", topic))[0] == 0
        rate = {"publishThrottlingRateInMsg": 20, "publishThrottlingRateInByte": -1}
        text = json.dumps({"publishMaxMessageRate": {"standalone": rate}})
        path = "/admin/policies/acme/orders"

        def change(ts: int, what: str, before: str, after: str) -> AuditedChange:
            return AuditedChange(
                broker=name,
                ts=ts,
                role="",
                address="h",
                over="http",
                what=what,
                path=path,
                before=before,
                after=after,
            )

        held = Throttle(
            ts=begin + 3 * MINUTE, broker=name, interval_ms=MINUTE, level="topic",
            limit=f"{topic} publish", configured_messages_per_s=20, configured_bytes_per_s=-1,
            delivered_messages_per_s=19, delivered_bytes_per_s=100, held=9, waited_ms=55_000,
        )  # fmt: skip
        load = {"ts": begin + 3 * MINUTE, "broker": name, "interval_ms": MINUTE, "usage": 0.1}
        await written(
            served, 0, held, BrokerLoad(**load, **UNUSED),
            change(begin, "POST /publishRate", "{}", text), change(end, "DELETE /x", text, "{}"),
        )  # fmt: skip
        (status, out, err) = await shell.run("limits", "why", topic, "--at", clock(begin + MINUTE))
        assert status == 0, out + err
        assert (status, "no limit of its own was in use then" in out) == (0, True)
        assert "was set for acme/orders then: publishRate publishThrottlingRateInMsg=20" in out
        until = f"topic: {topic} publish at {name} was set until {clock(end)} only"
        during, after = (clock(end + by) for by in (-10_000, 10_000))
        for words in (("limits", "list"), ("status",)):
            assert until not in (await shell.run(*words, "--at", during))[1]
            assert until in (await shell.run(*words, "--at", after))[1]
        first = BrokerLoad(**{**load, "ts": begin + 30_000}, **UNUSED)
        await written(served, 0, structs.replace(held, ts=begin + 30_000), first)
        early, set_at = clock(begin - 10_000), f"publish at {name} was set at {clock(begin)}, after"
        out = (await shell.run("limits", "list", "--at", early))[1]
        assert (set_at in out, "no limit was in use then" in out) == (True, True)
        assert "held somebody" not in (await shell.run("status", "--at", early))[1]
        just_set = (await shell.run("limits", "list", "--at", clock(begin + 10_000)))[1]
        assert (set_at in just_set, f"{topic} publish" in just_set) == (False, True)
        assert "1 limit held somebody" in (await shell.run("status", "--at", during))[1]
        assert "held somebody" not in (await shell.run("status", "--at", after))[1]


def test_what_a_young_limit_delivered_is_the_mean_of_its_own_time() -> None:
    """A record of an earlier version does not say how long that was."""
    row = ARCHIVED[Throttle.kind]
    assert isinstance(row, FiguresOf)
    for stood_ms, delivered in ((None, 1.8), (60_000, 1.8), (10_800, 10.0)):
        record = Throttle(
            ts=0, broker="b", interval_ms=MINUTE, level="topic", limit="t",
            configured_messages_per_s=10, configured_bytes_per_s=-1, delivered_messages_per_s=1.8,
            delivered_bytes_per_s=0, held=7, stood_ms=stood_ms,
        )  # fmt: skip
        figures = dict(zip(row.columns, row.row(record)[1], strict=True))
        assert figures["delivered_messages_per_s"] == pytest.approx(delivered)
        assert figures["held"] == 7


async def test_whom_limits_had_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The connections with their producers, each with its own sum within the time, the longest
    first; the table has the greatest, and says how many more there are.
    """
    begin = SystemClock().now_ms() // MINUTE * MINUTE - 60 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        shell, name = Shell(served, capsys), served.broker_id(0)

        def step(minute: float, event: str, client: str, **more: Any) -> ClientStep:
            at = {"ts": begin + round(minute * MINUTE), "broker": name, "event": event}
            return ClientStep(**at, client=client, address=client.split(":", maxsplit=1)[0], **more)

        def freed(minute: float, client: str, held_s: float) -> ClientStep:
            more = {"what": "connection", "held_ms": round(1_000 * held_s), "reason": "t publish"}
            return step(minute, "freed", client, **more)

        await written(
            served, 0,
            step(-40, "attached", "c:1", what="producer", name="p1", topic=f"{TOPIC}1"),
            step(-40, "attached", "c:1", what="consumer", name="r1", topic=f"{TOPIC}1"),
            step(-39, "attached", "c:2", what="producer", name="p2", topic=f"{TOPIC}2"),
            step(-30, "held", "c:6", what="connection", held_ms=5_000, reason="t publish"),
            MemberChange(ts=begin - 29 * MINUTE, broker="b", of=name, event="left", how="lost",
                         unheard_ms=22_000),  # with all that it held; its next process stops
            freed(1, "c:1", 90),  # 60 s of it are of this time
            freed(5, "c:1", 20),
            freed(6, "c:2", 100),
            *(freed(7 + number, f"d:{number}", 6) for number in range(20)),
            freed(40, "c:9", 100),
            step(20, "held", "c:4", what="connection", held_ms=5_000, reason="t publish"),
            MemberChange(ts=begin + 21 * MINUTE, broker=name, of=name, event="stops"),
            step(25, "held", "c:5", what="connection", held_ms=1_000, reason="t publish"),
            MemberChange(ts=begin + 25 * MINUTE + 60_000, broker="b", of=name, event="left",
                         how="lost", unheard_ms=22_000),
        )  # fmt: skip
        times = ("--since", clock(begin), "--until", clock(begin + 30 * MINUTE))
        rows = await shell.json("limits", "list", "--clients", *times)
        *most, third, fourth = [(it["connection"], it["held_ms"], it["times"]) for it in rows[:4]]
        assert most == [("c:2", 100_000, 1), ("c:1", 80_000, 2)]
        assert third == ("c:4", 65_000, 1)  # its broker stopped
        assert fourth == ("c:5", 39_000, 1)  # its broker was lost, after its last sign
        others = rows[4:]
        assert len(others) == 20
        assert rows[1]["producers"] == [{"name": "p1", "topic": f"{TOPIC}1"}]
        assert rows[1]["limits"] == ["t publish"]
        out = (await shell.run("limits", "list", "--clients", *times))[1]
        assert f"p2 on {TOPIC}2" in out
        assert "24 connections held" in out
        assert "and 4 more, that were held for less: --json has them" in out
        out = (await shell.run("limits", "list", "127.0.0.1:1", "--clients", *times))[1]
        assert "limits held no connection for 5 s, as far as it is recorded" in out
        assert (await shell.run("limits", "list", "--clients", "--at", "1h"))[0] == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("broker: broker publish", "broker publish"),
        ("resource group: resource group batch dispatch", "resource group batch dispatch"),
        ("topic: persistent://a/b/c publish", "topic: persistent://a/b/c publish"),
        ("odd", "odd"),
    ],
)
def test_a_level_is_said_once(name: str, words: str) -> None:
    """Unless the limit's name is that of a topic."""
    assert limit_words(name) == words
