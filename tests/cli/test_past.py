"""`loadmanager admin` about what was: answers of all archives, merged; what is missing is said."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any

import pytest
from broker.admin.serving import serving
from broker.admin.test_archive import (
    BUNDLE,
    MINUTE,
    a_decision,
    ended_in,
    in_folder,
    recorded_in,
    written,
)
from cli.test_admin_command import Shell
from clusters.running import eventually, until
from msgspec import structs

from loadmanager.cli import main
from loadmanager.cli.admin.archives import records_since
from loadmanager.cli.admin.leaders import terms_text
from loadmanager.cli.admin.times import clock, parse_moment, said_of_yesterday, time_of_day
from loadmanager.engine.bundles.ranges import topic_hash
from loadmanager.engine.history.archived import RESOURCES
from loadmanager.engine.history.clients import REFUSED, ClientStep
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import (
    AuditedChange,
    BrokerLoad,
    BundleLoad,
    Decision,
    OwnershipStep,
    Throttle,
    TopicLoad,
    recorded_move,
)
from loadmanager.engine.load.reports import ResourceUsage
from loadmanager.kit.metadata import paths
from loadmanager.kit.system.clock import SystemClock
from loadmanager.leader.documents.cluster import LeaderShown

UNUSED = {name: ResourceUsage() for name in RESOURCES}
NOW = datetime(2026, 11, 27, 3, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("now", "2026-11-27T03:30:00+00:00"),
        ("2h", "2026-11-27T01:30:00+00:00"),
        ("2h ago", "2026-11-27T01:30:00+00:00"),
        ("90 s ago", "2026-11-27T03:28:30+00:00"),
        ("10 min ago", "2026-11-27T03:20:00+00:00"),
        ("2 hours ago", "2026-11-27T01:30:00+00:00"),
        ("1 day", "2026-11-26T03:30:00+00:00"),
        ("3 months ago", None),
        ("03:12", "2026-11-27T03:12:00+00:00"),
        ("3:12", "2026-11-27T03:12:00+00:00"),
        ("04:12", "2026-11-26T04:12:00+00:00"),
        ("04:12+02:00", "2026-11-27T04:12:00+02:00"),
        ("03:12:10Z", "2026-11-27T03:12:10+00:00"),
        ("yesterday", "2026-11-26T00:00:00+00:00"),
        ("yesterday 03:12", "2026-11-26T03:12:00+00:00"),
        ("today 01:00", "2026-11-27T01:00:00+00:00"),
        ("2026-11-20", "2026-11-20T00:00:00+00:00"),
        ("2026-11-20T14:00Z", "2026-11-20T14:00:00+00:00"),
        ("2026-11-20 14:00+01:00", "2026-11-20T14:00:00+01:00"),
        ("25:12", None),
        ("soon", None),
        ("yesterday noon", None),
        ("", None),
        ("99999999d", None),
    ],
)
def test_times(text: str, wanted: str | None) -> None:
    """As people write them; a time of the day is the last such time."""
    moment = parse_moment(text, NOW)
    assert (None if moment is None else moment.isoformat()) == wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("04:12", "04:12 is still to come today: 2026-11-26 04:12:00Z is taken"),
        ("05:31+02:00", "05:31+02:00 is still to come today: 2026-11-26 03:31:00Z is taken"),
        ("05:29+02:00", ""),
        ("03:12", ""),
        ("yesterday 04:12", ""),
        ("10m", ""),
        ("2026-11-20", ""),
    ],
)
def test_that_a_time_of_yesterday_is_taken_is_said(text: str, said: str) -> None:
    """Of a time of the day that is still to come; not of one that was, or that names its day."""
    moment = parse_moment(text, NOW)
    assert moment is not None
    assert said_of_yesterday(text, moment, NOW) == said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("decisions", "--since", "1h", "--until", "2h"), "--since is after --until"),
        (("what-if", "--since", "1h", "--until", "2h"), "--since is after --until"),
        (("limits", "list", "--at", "2199-01-01"), "2199-01-01 is in the future"),
    ],
)
def test_times_that_cannot_be_meant(
    words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are refused, before a broker is asked."""
    assert main(["admin", *words, "--url", "http://127.0.0.1:1"]) == 2
    assert why in capsys.readouterr().err


async def test_decisions_go_on_into_earlier_terms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the archives of all brokers, in sentences; --at shows the last ones before."""
    now = SystemClock().now_ms() // 1000 * 1000 + 500
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        assert (await shell.run("decisions"))[:2] == (1, "no decision yet")
        source, destination = served.broker_id(0), served.broker_id(1)
        early, late = now - 120 * MINUTE, now - 30 * MINUTE
        why = {"gain": "0.25", "clients": "4"}
        ends = {"source": source, "destination": destination, "reason": "Balance"}
        await written(
            served,
            0,
            a_decision(early, "unload", bundle=BUNDLE, why=why, **ends),
            a_decision(early, what="cluster", code="NotWorthIt", reason="the rest is even"),
            a_decision(late, what=BUNDLE, code="GracePeriod", reason="it moved a moment ago"),
        )
        move = a_decision(
            early + 1_000,
            "move",
            bundle=BUNDLE,
            move="1-1",
            author="cycle",
            state="done",
            outcome="moved",
            owner=destination,
            clients_closed=4,
            clients_back=1,
            pause_ms=230.0,
            **ends,
        )
        await written(served, 1, move)
        status, out, err = await shell.run("decisions")
        assert (status, err) == (0, "")
        assert out.splitlines() == [
            f"{clock(late)}  BalancedShedder moved nothing",
            f"    {BUNDLE}: it moved a moment ago",
            f"{clock(early + 1_000)}  {BUNDLE} moved from {source} to {destination}, paused 230 ms",
            "    Balance",
            "    ONLY 1 of 4 clients back",
            f"{clock(early)}  BalancedShedder moves 1 bundle",
            f"    {BUNDLE} from {source} to {destination}: Balance: gain 0.25, clients 4",
            "    the rest is even",
        ]
        at = ["decisions", "--at", clock(early + 1_000).replace(" ", "T"), "--bundle", BUNDLE]
        filtered = (await shell.run(*at))[1].splitlines()
        assert filtered[0].endswith("BalancedShedder moves 1 bundle, perhaps others, too")
        assert len((await shell.json("decisions", "--since", "1h"))["decisions"]) == 1
        status, _, err = await shell.run("decisions", "--broker", "nosuch:1")
        assert (status, "nosuch:1 is not active, and no record names it" in err) == (1, True)
        (row,) = (await shell.run("moves", "list", "--since", "3h"))[1].splitlines()[1:2]
        assert "1 of 4 clients back" in row
        assert "no move ended then" in (await shell.run("moves", "list", "--since", "1h"))[1]


async def test_moves_are_dated_when_they_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And not when their clients had been counted, which takes up to minutes and is out of order;
    records of earlier versions have that time only.
    """
    now = SystemClock().now_ms()
    ends = {"source": "b1:8080", "destination": "b2:8080", "author": "cycle", "state": "done"}

    def a_move(ended_ms: int, counted_ms: int, name: str, **more: Any) -> Decision:
        return a_decision(counted_ms, "move", bundle=BUNDLE, move=name, **ends, **more)

    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        first, second, old = (now - minutes * MINUTE for minutes in (30, 29, 28))
        times = {"started_at": first - 500, "ended_at": first, "waited_ms": 2_000}
        await written(
            served,
            0,
            a_move(second, second + 1_000, "1-m2", ended_at=second),
            a_move(first, first + 3 * MINUTE, "1-m1", **times),
            a_move(old, old, "1-m3"),
        )

        async def listed(*words: str) -> list[list[str]]:
            rows = (await shell.run("moves", "list", *words))[1].splitlines()[1:]
            return [row.split()[1:3] for row in rows if " 1-m" in row]

        assert await listed("--since", "1h") == [
            [time_of_day(at), name]
            for at, name in ((old, "1-m3"), (second, "1-m2"), (first, "1-m1"))
        ]
        until = ("--until", f"{clock(first + 1_000).replace(' ', 'T')}")
        assert await listed("--since", "1h", *until) == [[time_of_day(first), "1-m1"]]
        assert (await shell.json("moves", "list", *until, "--since", "1h"))[0]["ts"] > first
        decided = await shell.json("decisions", "--since", "1h")
        assert [(it["ts"], it["endedAt"]) for it in decided["decisions"]] == [
            (at, at) for at in (old, second, first)
        ]
    move = recorded_move(a_move(first, first + 3 * MINUTE, "1-m1", **times))
    assert (move.created_at, move.started_at, move.ended_at) == (first - 2_500, first - 500, first)


async def test_reasons_are_counted_and_not_cycles_without_moves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Archives fold a reason that is repeated, also over cycles that moved something. Who asks for
    a bundle is not told that nothing moved: other bundles' moves were not asked for.
    """
    now = SystemClock().now_ms() // 1000 * 1000
    late, early = now - 30 * MINUTE, now - 60 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        grace = {"what": BUNDLE, "code": "GracePeriod", "reason": "it moved a moment ago"}
        await written(
            served,
            0,
            a_decision(early, **grace),
            a_decision(early + 1, "unload", bundle="t/b/0x00000000_0xffffffff", source="b:1"),
            a_decision(late, **grace),
        )
        again = f"    {BUNDLE}: it moved a moment ago (2 times since {time_of_day(early)})"
        lines = (await shell.run("decisions", "--bundle", BUNDLE))[1].splitlines()
        assert lines == [f"{clock(late)}  BalancedShedder decided", again]
        lines = (await shell.run("decisions"))[1].splitlines()
        assert lines[:2] == [f"{clock(late)}  BalancedShedder moved nothing", again]
        assert lines[2].endswith("BalancedShedder moves 1 bundle")


def forget_file(folder: Path, broker: str) -> None:
    """Have a broker's archive be away, and begin no new one, which would answer."""
    (path,) = folder.rglob(f"*{broker.rpartition(':')[2]}.sqlite")
    path.rename(path.with_suffix(".away"))
    path.mkdir()


async def test_a_broker_that_does_not_answer_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless its file is beside that of another; and what the others recorded nothing of. The exit
    status says that not all is here.
    """
    now = SystemClock().now_ms()
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        await written(served, 0, a_decision(now, what=BUNDLE, code="Pinned", reason="pinned"))
        await written(served, 1, a_decision(now, what=BUNDLE, code="Held", reason="it is held"))
        await served.servers[1].stop()
        status, out, err = await shell.run("decisions", "--since", "2h")
        assert (status, err) == (0, "")
        assert "it is held" in out
        forget_file(tmp_path, served.broker_id(1))
        status, out, err = await shell.run("decisions", "--since", "2h")
        assert status == 1
        assert "it is held" not in out
        assert "pinned" in out
        assert f"{served.broker_id(0)} recorded nothing from " in out
        assert f"{served.broker_id(1)} is left out" in err


async def test_lists_of_a_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bundles, limits and settings as they were."""
    now = SystemClock().now_ms()
    then = now - 60 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        for index in range(2):
            broker = served.broker_id(index)
            bundle = f"acme/n{index}/0x00000000_0x80000000"
            load = BundleLoad(
                ts=then, broker=broker, interval_ms=MINUTE, bundle=bundle, msg_rate_in=index + 1.5
            )
            limit = Throttle(
                ts=then,
                broker=broker,
                interval_ms=MINUTE,
                level="topic",
                limit=f"t{index}",
                configured_messages_per_s=10,
                configured_bytes_per_s=-1,
                delivered_messages_per_s=9.5,
                delivered_bytes_per_s=100,
                held=3,
            )
            await written(served, index, load, limit)
        at = ("--at", clock(then - 1_000).replace(" ", "T"))
        status, out, _ = await shell.run("bundles", "list", *at)
        rows = [line.split() for line in out.splitlines()]
        assert status == 0
        assert rows[1][:4] == ["acme/n0/0x00000000_0x80000000", served.broker_id(0), "0", "1.5"]
        assert f": averages of times between {clock(then - MINUTE)} and {clock(then)}" in out
        assert len(await shell.json("bundles", "list", "acme/n1", *at)) == 1
        listed = await shell.json("namespaces", "list", *at)
        assert listed[:2] == ["acme/n0", "acme/n1"]
        assert "public/default" in listed  # of now, and nothing says that it was made since
        assert (await shell.run("namespaces", "list", "other", *at))[0] == 1
        status, out, _ = await shell.run("limits", "list", *at)
        assert "topic: t1" in out
        await written(served, 0, a_decision(SystemClock().now_ms(), what=BUNDLE))
        recorded = clock(SystemClock().now_ms() + 1_000).replace(" ", "T")  # after both began
        await written(served, 0, a_decision(SystemClock().now_ms() + 1_000, what=BUNDLE))
        await eventually(
            lambda: shell.run("limits", "list", "--at", recorded),
            lambda answer: f"{served.broker_id(0)} recorded no limit in use at" in answer[1],
            within_s=30,
        )
        for words in (("bundles", "list"), ("status",), ("topics", "busiest")):
            status, out, _ = await shell.run(*words, "--at", "1d ago")
            assert (status, "recorded of then" in out or "nothing is recorded" in out) == (1, True)
        before = clock(SystemClock().now_ms()).replace(" ", "T")
        await shell.run("settings", "set", "loadBalancerSheddingEnabled", "false")
        await eventually(
            lambda: shell.json("settings", "list", "--at", before), lambda rows: rows == []
        )
        after = clock(SystemClock().now_ms() + 1_000).replace(" ", "T")
        off = "BALANCING WAS OFF since 20"
        for moment, is_off in ((after, True), (before, False)):
            _, out, _ = await shell.run("status", "--at", moment)
            assert (off in out) is is_off, out
        await shell.run("settings", "set", "loadBalancerSheddingEnabled", "true")
        (row,) = await shell.json("settings", "list", "--at", before) or await eventually(
            lambda: shell.json("settings", "list", "--at", after), bool
        )
        assert row["changed"] < after.replace("T", " ")
        assert "by 127.0.0.1" in row["changed"]
        client = {"role": "", "address": "10.0.0.9", "over": "binary", "path": None}
        made = AuditedChange(ts=now, broker=served.broker_id(0), what="PRODUCER made", **client)
        peer = structs.replace(made, over="http", what="POST /loadmanager/v1/peers/bundles/b/take")
        await written(served, 0, made, peer)
        status, out, _ = await shell.run("audit", "--since", "1h", "--all")
        assert all(it in out for it in ("loadBalancerSheddingEnabled", made.what, peer.what))
        status, out, _ = await shell.run("audit", "--since", "1h")
        assert "set loadBalancerSheddingEnabled to false" in out
        assert made.what not in out
        assert peer.what not in out


async def test_the_cluster_of_a_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who was missing, load, leader, waits and the last cycle; the leader alone; and topics."""
    now = SystemClock().now_ms() // 1000 * 1000
    then = now - 60 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        ids = [served.broker_id(index) for index in range(2)]
        topics = [f"persistent://acme/orders/{name}" for name in ("much", "little")]
        for broker, topic, rate in zip(ids, topics, (90.0, 9.0), strict=True):
            load = {"ts": then, "broker": broker, "interval_ms": MINUTE, "msg_rate_in": rate}
            traffic = {"msg_throughput_in": rate * 1024, "backlog_messages": int(rate)}
            await written(
                served,
                ids.index(broker),
                BrokerLoad(**load, usage=rate / 100, bundles=3, **UNUSED),
                TopicLoad(**load, **traffic, topic=topic, bundle=BUNDLE),
            )
        limit = Throttle(
            ts=then, broker=ids[0], interval_ms=MINUTE, level="topic", limit="much",
            configured_messages_per_s=10, configured_bytes_per_s=-1,
            delivered_messages_per_s=9.5, delivered_bytes_per_s=100, held=3, waited_ms=7_000,
        )  # fmt: skip
        leads = MemberChange(
            ts=then - 9 * MINUTE, broker=ids[0], of=ids[0], event="leads", epoch=7, before="b9:1"
        )
        lost = MemberChange(ts=then - MINUTE, broker=ids[0], of=ids[1], event="left", how="lost")
        await written(served, 0, limit, leads, lost, a_decision(then - 2 * MINUTE, what=BUNDLE))
        at = ("--at", clock(then - 1_000).replace(" ", "T"))
        status, out, _ = await shell.run("status", *at)
        assert status == 0
        assert f"{ids[1]} was not there: lost since {clock(then - MINUTE)}" in out
        assert "1 broker, 3 bundles with an owner, load 90% to 90%, 90 messages/s" in out
        later = {"ts": then + 20 * MINUTE, "broker": ids[0], "interval_ms": MINUTE, "usage": 0.5}
        await written(served, 0, BrokerLoad(**later, **UNUSED))
        long_after = ("--at", clock(then + 20 * MINUTE - 1_000).replace(" ", "T"))
        assert f"{ids[1]} was not there: lost since" in (await shell.run("status", *long_after))[1]
        (_, row) = await shell.json("brokers", "list", *long_after)
        assert (row["broker"], row["at"], row["usage"]) == (ids[1], None, None)
        took = "8 min 59 s"
        led = f"{ids[0]} led, term 7, since {clock(then - 9 * MINUTE)} ({took}); before it b9:1 did"
        assert led in out
        between = f"from {clock(then - MINUTE)} to {clock(then)}"
        waited = f"1 limit held somebody {between}, who waited 7 s in all: topic: much at {ids[0]}"
        assert waited in out.splitlines()
        cycle = f"last cycle before: {clock(then - 2 * MINUTE)}  BalancedShedder moved nothing"
        assert cycle in out
        assert (await shell.run("brokers", "leader", *at))[:2] == (0, led)
        status, out, _ = await shell.run("brokers", "leader", "--at", clock(then - 10 * MINUTE))
        assert (status, out) == (1, "nobody led, as far as it is recorded")
        listed = [each["topic"] for each in await shell.json("topics", "busiest", *at)]
        assert listed == topics
        listed = [
            each["topic"] for each in await shell.json("topics", "backlogs", "--least", "10", *at)
        ]
        assert listed == topics[:1]
        out = (await shell.run("topics", "backlogs", *at))[1]
        assert "of each topic, the sum of its subscriptions" in out


async def test_a_broker_that_was_dead_is_not_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also when nobody was left to record that it was lost: its archive has no sign of it then."""
    now = SystemClock().now_ms() // 1000 * 1000
    at = now - 20 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        ids = [served.broker_id(index) for index in range(2)]
        for index, broker in enumerate(ids):
            load = {"ts": at - MINUTE, "broker": broker, "interval_ms": MINUTE}
            await written(served, index, BrokerLoad(**load, usage=0.5, bundles=3, **UNUSED))
        signs = (at - 5 * MINUTE, at - MINUTE // 2)
        recorded_in(tmp_path, [(1, signs[0], now)])
        ended_in(tmp_path, ids[1], signs[1])
        status, out, _ = await shell.run("status", "--at", clock(at))
        assert status == 0
        assert "1 broker, 3 bundles with an owner" in out
        assert f"{ids[1]} was not there: its last sign was at {clock(signs[1])}, and nobody" in out
        assert "2 brokers, " in (await shell.run("status", "--at", clock(at - MINUTE)))[1]


async def test_a_broker_whose_loss_was_noticed_after_the_moment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its session ended later than it did: both are told; and its story says what it did when it
    was asked.
    """
    now = SystemClock().now_ms() // 1000 * 1000
    at = now - 20 * MINUTE
    sign, left_at = at - MINUTE // 2, at + 10_000
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        ids = [served.broker_id(index) for index in range(2)]
        for index, broker in enumerate(ids):
            load = {"ts": at - MINUTE, "broker": broker, "interval_ms": MINUTE}
            await written(served, index, BrokerLoad(**load, usage=0.5, bundles=3, **UNUSED))
        of: dict[str, Any] = {"broker": ids[0], "of": ids[1]}
        unheard_ms = left_at + 1_000 - sign
        left = {"event": "left", "how": "lost", "left_at": left_at, "unheard_ms": unheard_ms}
        await written(
            served, 0,
            MemberChange(ts=left_at + 1_000, **of, **left),
            MemberChange(ts=left_at + 1_100, **of, event="sign", how="cannot be reached"),
        )  # fmt: skip
        recorded_in(tmp_path, [(1, at - 5 * MINUTE, now)])
        ended_in(tmp_path, ids[1], sign)
        text = f"{clock(sign)}; it was lost, its session ended at {clock(left_at)}"
        out = (await shell.run("status", "--at", clock(at)))[1]
        assert f"{ids[1]} was not there: its last sign was at {text}" in out
        assert "nobody recorded" not in out
        out = (await shell.run("history", ids[1]))[1]
        assert f"{ids[1]}, asked after it was lost: it cannot be reached (its process has" in out


async def test_an_outage_of_the_store_in_which_a_broker_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It recorded that the outage began, and nobody that it ended: it lasted at least until its
    last sign.
    """
    now = SystemClock().now_ms() // 1000 * 1000
    at = now - 20 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        ids = [served.broker_id(index) for index in range(2)]
        for index, broker in enumerate(ids):
            load = {"ts": at - MINUTE, "broker": broker, "interval_ms": MINUTE}
            await written(served, index, BrokerLoad(**load, usage=0.5, bundles=3, **UNUSED))
        own: dict[str, Any] = {"broker": ids[1], "of": ids[1]}
        silent = {"event": "unanswered", "unheard_ms": 4_000}
        await written(served, 1, MemberChange(ts=at - 10_000, **own, **silent))
        recorded_in(tmp_path, [(1, at - 5 * MINUTE, now)])
        ended_in(tmp_path, ids[1], at + 2_000)
        text = (
            f"from {clock(at - 14_000)} until {clock(at + 2_000)} at least {ids[1]} had no answer "
            "of the metadata store: no record tells how that ended"
        )
        assert text in (await shell.run("status", "--at", clock(at)))[1]
        assert text in (await shell.run("status", "--at", clock(at - 12_000)))[1]
        assert text in (await shell.run("status", "--at", clock(at + 10_000)))[1]  # it lives or not
        assert text not in (await shell.run("status", "--at", clock(at + MINUTE)))[1]
        assert text not in (await shell.run("status", "--at", clock(at - MINUTE)))[1]
        out = (await shell.run("history", ids[1]))[1]
        assert f"{ids[1]} has had no answer of the metadata store for 4.0 s" in out


async def test_a_time_in_which_no_broker_recorded_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said from when until when, also while no broker has recorded that it started since: the
    one that answers may still wait to register.
    """
    now = SystemClock().now_ms() // 1000 * 1000
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        for index in range(2):
            of = served.broker_id(index)
            start = MemberChange(ts=now - 90 * MINUTE, broker=of, of=of, event="starts")
            await written(served, index, start)
        first, last = now - 60 * MINUTE, now - 20 * MINUTE
        recorded_in(tmp_path, [(1, now - 90 * MINUTE, first), (2, now - 40 * MINUTE, last)])
        out = (await shell.run("status", "--at", clock(now - 10 * MINUTE)))[1]
        assert f"no broker has recorded anything since {clock(last)}: all had ended, or " in out
        out = (await shell.run("status", "--at", clock(now - 50 * MINUTE)))[1]
        until = clock(now - 40 * MINUTE)
        assert f"no broker recorded anything from {clock(first)} to {until}: all had" in out
        for index in range(2):
            of = served.broker_id(index)
            start = MemberChange(ts=now - 40 * MINUTE + 500, broker=of, of=of, event="starts")
            await written(served, index, start)
        recorded_in(tmp_path, [(1, now - 90 * MINUTE, first), (2, now - 40 * MINUTE, last)])
        out = (await shell.run("status", "--at", clock(now - 50 * MINUTE)))[1]
        down = f"the whole cluster was down from {clock(first)} at the earliest to {until}"
        assert down in out


async def test_nobody_led_while_the_whole_cluster_was_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody was left to record that the last leader had gone."""
    now = SystemClock().now_ms() // 1000 * 1000
    async with serving(values=in_folder(tmp_path)) as served:
        shell, name = Shell(served, capsys), served.broker_id(0)
        leads = {"broker": name, "of": name, "event": "leads"}
        starts = {"broker": name, "of": name, "event": "starts"}
        down, up = now - 40 * MINUTE, now - 20 * MINUTE
        await written(
            served,
            0,
            MemberChange(ts=now - 60 * MINUTE, epoch=801, **leads),
            MemberChange(ts=up, **starts),
            MemberChange(ts=up + 2_000, epoch=802, **leads),
        )
        recorded_in(tmp_path, [(1, now - 60 * MINUTE, down), (2, up, now)])
        for at_ms, status, said in (
            (down - MINUTE, 0, f"{name} led, term 801"),
            (down + MINUTE, 1, f"nobody led: the whole cluster was down from {clock(down)}"),
            (up + MINUTE, 0, f"{name} led, term 802"),
        ):
            answer = await shell.run("brokers", "leader", "--at", clock(at_ms))
            assert (answer[0], answer[1].startswith(said)) == (status, True), answer


async def test_who_led_and_how_often_that_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A leader that records how its own earlier session had ended leads all the same. A term whose
    begin is not recorded is known by what was decided in it.
    """
    now = SystemClock().now_ms() // 1000 * 1000
    hours = 60 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        first, second = served.broker_id(0), served.broker_id(1)
        leads, lost = {"event": "leads"}, {"event": "left", "how": "lost"}
        third = now - 3 * hours
        await written(
            served,
            0,
            MemberChange(ts=now - 8 * hours, broker=second, of=second, epoch=901, **leads),
            MemberChange(
                ts=now - 5 * hours, broker=first, of=first, epoch=902, before=second, **leads
            ),
            MemberChange(ts=now - 5 * hours, broker=first, of=first, **lost),
            structs.replace(a_decision(third, what=BUNDLE), broker="b9:1", epoch=903),
            MemberChange(
                ts=now - 2 * hours, broker=second, of=second, epoch=904, before="b9:1", **leads
            ),
            structs.replace(  # of a move that had ended before, whose clients it had to count
                a_decision(now - 2 * hours + MINUTE, "move", bundle=BUNDLE, move="903-m1"),
                broker=second, epoch=904, ended_at=third + 2 * MINUTE,
            ),
        )  # fmt: skip

        async def led(at_ms: int) -> tuple[int, str, str]:
            return await shell.run("brokers", "leader", "--at", clock(at_ms))

        status, out, _ = await led(now - 4 * hours)
        assert (status, out.partition(", since ")[0]) == (0, f"{first} led, term 902")
        assert out.endswith(f"; before it {second} did")
        status, out, _ = await led(third + MINUTE)
        assert (status, out) == (
            0,
            f"b9:1 led, term 903, at the latest since {clock(third)} (60 s)",
        )
        assert (await led(third + 5 * MINUTE))[1].startswith("b9:1 led, term 903, at the latest")
        times = (await shell.run("brokers", "leader"))[1].splitlines()[-1]
        assert times == "the leader changed once in the last hour, 4 times in the last day"


def test_the_change_that_just_happened_counts() -> None:
    """Also before the record of the new term is written; once it is, it is one change."""
    now = SystemClock().now_ms()
    first = MemberChange(ts=now - 5 * MINUTE, broker="b1:1", of="b1:1", event="leads", epoch=1)
    second = MemberChange(ts=now, broker="b2:1", of="b2:1", event="leads", epoch=2, before="b1:1")
    shown = LeaderShown(broker="b2:1", url="", epoch=2, since=now)
    once = [
        f"before it b1:1 led, term 1, since {clock(first.ts)}",
        "the leader changed once in the last hour, once in the last day",
    ]
    assert [*terms_text([first], shown, now + 1)] == once
    assert [*terms_text([second, first], shown, now + 1)] == once
    assert [*terms_text([], shown, now + 1)] == once[1:]
    none = ["the leader did not change in the last day"]
    assert [*terms_text([first], structs.replace(shown, epoch=1), now)] == none
    later = [*terms_text([second, first], shown, now + 61 * MINUTE)]
    assert later[1:] == ["the leader changed once in the last day, not in the last hour"]


async def test_nobody_led_until_the_term_after_a_loss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the last sign of a leader that was lost, by its archive or by who noted the loss."""
    now = SystemClock().now_ms() // 1000 * 1000
    begun, following = now - 60 * MINUTE, now - 30 * MINUTE
    heard, sign = following - 20_000, following - 15_000
    async with serving(values=in_folder(tmp_path)) as served:
        shell, ids = Shell(served, capsys), [served.broker_id(index) for index in range(2)]
        leads, lost = {"event": "leads"}, {"event": "left", "how": "lost"}
        noted = following + 1_000
        await written(
            served,
            0,
            MemberChange(ts=begun, broker=ids[1], of=ids[1], epoch=901, **leads),
            MemberChange(ts=following, broker=ids[0], of=ids[0], epoch=902, before=ids[1], **leads),
            MemberChange(
                ts=noted, broker=ids[0], of=ids[1], unheard_ms=noted - heard, bundles=2, **lost
            ),
        )
        await written(served, 1, a_decision(begun - MINUTE, what=BUNDLE))
        recorded_in(tmp_path, [(1, begun - MINUTE, now)])

        async def led(at_ms: int) -> tuple[int, str]:
            return (await shell.run("brokers", "leader", "--at", clock(at_ms)))[:2]

        after = f"began at {clock(following)}"
        for last, moment in ((sign, sign + 1_000), (sign, following - 1_000)):
            ended_in(tmp_path, ids[1], last)
            nobody = (
                f"{ids[1]} led, term 901, until it was lost after {clock(last)}; nobody is known "
                f"to have led then: term 902 of {ids[0]} {after}"
            )
            assert await led(moment) == (1, nobody)
        status, out = await led(sign)
        assert (status, out.startswith(f"{ids[1]} led, term 901, since ")) == (0, True)
        status, out = await led(following)
        assert (status, out.startswith(f"{ids[0]} led, term 902, since ")) == (0, True)
        ended_in(tmp_path, ids[1], begun)
        assert "until it was lost after " + clock(heard) in (await led(heard + 1_000))[1]
        assert (await led(heard))[0] == 0


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (
            [(-5, "stops", {})],
            "nobody is known to have led: {term}, and had stopped in order since {-5}",
        ),
        (
            [(-5, "stops", {}), (-2, "starts", {})],
            "nobody is known to have led: {term}, and had sto",
        ),
        (
            [(8, "proven", {"took_ms": 20_000, "unheard_ms": 5_000})],
            "nobody led: {term}, and could not prove its session from {-12} to {8}",
        ),
        (
            [(-5, "unanswered", {"unheard_ms": 4_000})],
            "{term}, until the metadata store did not answer it any more, the last time at {-9}; n",
        ),
        ([(-5, "unanswered", {}), (8, "proven", {"took_ms": 0})], "{term}, since "),
        (
            [(8, "proven", {"took_ms": 7_000}), (-90, "proven", {"took_ms": 9_000})],
            "{term}, since ",
        ),
        ([], "{term}, since "),
        (
            [(-13, "silent", {})],
            "{term}, until its last sign at {-13}; nobody is known to have led",
        ),
        ([(-11, "silent", {})], "{term}, since "),
    ],
)
async def test_a_leader_whose_term_had_ended_did_not_lead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], own: list[Any], said: str
) -> None:
    """Nobody recorded how: it had stopped in order, could not prove its session, or gave no sign
    any more. All commands say the same.
    """
    at = SystemClock().now_ms() // 1000 * 1000 - 30 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        shell, ids = Shell(served, capsys), [served.broker_id(index) for index in range(2)]
        of: dict[str, Any] = {"broker": ids[1], "of": ids[1]}
        changes = [
            MemberChange(ts=at + 1_000 * s, event=event, **of, **more)
            for s, event, more in own
            if event != "silent"
        ]
        for index, name in enumerate(ids):
            load = {"ts": at - MINUTE, "broker": name, "interval_ms": MINUTE}
            await written(served, index, BrokerLoad(**load, usage=0.5, **UNUSED))
        leads = MemberChange(ts=at - 9 * MINUTE, epoch=901, event="leads", **of)
        await written(served, 1, leads, *changes)
        recorded_in(tmp_path, [(1, at - 10 * MINUTE, at + 9 * MINUTE)])
        for s, event, _ in own:
            if event == "silent":
                ended_in(tmp_path, ids[1], at + 1_000 * s)
        text = said.replace("{term}", f"{ids[1]} led, term 901")
        text = re.sub(r"\{(-?\d+)\}", lambda it: clock(at + 1_000 * int(it[1])), text)
        leading = ", since " in said
        status, out, _ = await shell.run("brokers", "leader", "--at", clock(at))
        assert (status, out.startswith(text)) == (0 if leading else 1, True), out
        out = (await shell.run("status", "--at", clock(at)))[1]
        assert f"\n{text}" in out
        rows = await shell.json("brokers", "list", "--at", clock(at))
        assert [row["leader"] for row in rows if row["broker"] == ids[1]] == [leading]


async def test_a_lost_leader_is_not_listed_as_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between its last sign and the next term nobody leads; and every command tells the second in
    which its session was over, and not the one in which that was written down.
    """
    now = SystemClock().now_ms() // 1000 * 1000
    begun, following = now - 60 * MINUTE, now - 30 * MINUTE
    sign, over = following - 15_000, following - 5_000
    async with serving(values=in_folder(tmp_path)) as served:
        shell, ids = Shell(served, capsys), [served.broker_id(index) for index in range(2)]
        loads = [
            BrokerLoad(ts=sign, broker=name, interval_ms=MINUTE, usage=0.5, **UNUSED)
            for name in ids
        ]
        leads, noted = {"event": "leads"}, following + 4_000
        await written(
            served,
            0,
            loads[0],
            MemberChange(ts=begun, broker=ids[1], of=ids[1], epoch=901, **leads),
            MemberChange(ts=following, broker=ids[0], of=ids[0], epoch=902, before=ids[1], **leads),
            MemberChange(
                ts=noted, broker=ids[0], of=ids[1], unheard_ms=noted - sign, left_at=over,
                event="left", how="lost",
            ),
        )  # fmt: skip
        await written(served, 1, loads[1])
        recorded_in(tmp_path, [(1, begun - MINUTE, now)])
        ended_in(tmp_path, ids[1], sign)

        async def listed(at_ms: int) -> dict[str, dict[str, Any]]:
            rows = await shell.json("brokers", "list", "--at", clock(at_ms))
            return {row["broker"]: row for row in rows}

        assert (await listed(sign - 1_000))[ids[1]]["leader"] is True
        status, out, _ = await shell.run("brokers", "health", "--json", "--at", clock(sign + 1_000))
        times = f"its last sign was at {clock(sign)} and its session ended at {clock(over)}"
        doubt = f"it had led, and was lost about then: {times}"
        assert (status, json.loads(out)) == (1, {ids[0]: "ok", ids[1]: doubt})
        between = await listed(following - 2_000)
        assert [row["leader"] for row in between.values()] == [False, False]
        assert between[ids[1]]["state"].startswith(f"its last sign was at {clock(sign)}")
        _, out, _ = await shell.run("brokers", "list", "--at", clock(following - 2_000))
        assert "leader" not in out.splitlines()[2]
        assert f"{ids[1]} led, term 901, until it was lost after {clock(sign)}" in out
        after = await listed(noted + 1_000)
        assert [name for name, row in after.items() if row["leader"]] == [ids[0]]
        assert after[ids[1]]["state"] == f"lost since {clock(over)}"
        told = (await shell.run("history", ids[1]))[1]
        assert f"{clock(over)}  {ids[1]} left: lost, its last sign 10 s before at most" in told


async def test_refusals_that_a_lost_broker_took_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What of them is not recorded is said; not of a broker whose process went on, and not of one
    that was lost before the time that is asked for.
    """
    now = SystemClock().now_ms()
    async with serving(values=in_folder(tmp_path)) as served:
        shell, head = Shell(served, capsys), {"broker": "b0", "event": "left", "how": "lost"}
        await written(
            served,
            0,
            MemberChange(ts=now - 100 * MINUTE, of="long:1", **head),
            MemberChange(
                ts=now - 20_000, of="killed:1", unheard_ms=8_000, left_at=now - 22_000, **head
            ),
            MemberChange(ts=now - 30_000, of="frozen:1", **head),
            MemberChange(
                ts=now - 25_000, broker="b0", of="frozen:1", event="back", same_process=True
            ),
        )
        _, out, _ = await shell.run("find", "--refused")
        assert (
            f"not all is here: killed:1 was lost at {clock(now - 22_000)}, up to 6.0 s after its "
            "last sign: whom it refused in its last 2 s may not be recorded, nor how often it "
            "refused the same in its last 75 s"
        ) in out
        assert "frozen:1" not in out
        assert "long:1" not in out
        assert "long:1" in (await shell.run("find", "--refused", "--since", "2h"))[1]
        at = clock(now - 50 * MINUTE).replace(" ", "T")
        _, out, _ = await shell.run("find", "--refused", "--since", "2h", "--at", at)
        assert ("long:1" in out, "killed:1" in out) == (True, False)


async def test_the_time_is_told_of_which_there_are_means(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Minutes, and of a day ago quarters of an hour."""
    then = SystemClock().now_ms() // 1000 * 1000 - 60 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        for index, span_ms in ((0, MINUTE), (1, 15 * MINUTE)):
            head: dict[str, Any] = {"broker": served.broker_id(index), "interval_ms": span_ms}
            limit = Throttle(
                ts=then, **head, level="topic", limit="t", configured_messages_per_s=1,
                configured_bytes_per_s=-1, delivered_messages_per_s=1, delivered_bytes_per_s=9,
                held=1,
            )  # fmt: skip
            load = BrokerLoad(ts=then, **head, usage=0.5, **UNUSED)
            await written(served, index, load, *([] if index else [limit]))
        out = (await shell.run("brokers", "list", "--at", clock(then)))[1]
        assert f": averages of times between {clock(then - 15 * MINUTE)} and {clock(then)}" in out
        out = (await shell.run("limits", "list", "--at", clock(then)))[1]
        assert f": averages of times between {clock(then - MINUTE)} and {clock(then)}" in out


def topic_of_bundle() -> str:
    """One that is in `BUNDLE`."""
    topics = (f"persistent://acme/orders/{number}" for number in range(100))
    return next(topic for topic in topics if topic_hash(topic) < 0x40000000)


async def test_owners_of_a_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To the second, though loads are averages of minutes: between a loss and the next owner there
    is none. Who led is known, too, and that nobody did whose session was not proven.
    """
    now = SystemClock().now_ms() // 1000 * 1000
    then = now - 60 * MINUTE
    topic = topic_of_bundle()
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        lost, other = served.broker_id(0), served.broker_id(1)
        load = BundleLoad(ts=then, broker=lost, interval_ms=MINUTE, bundle=BUNDLE, topics=3)
        members = [
            MemberChange(ts=then - MINUTE, broker=lost, of=lost, event="leads", epoch=1),
            MemberChange(
                ts=then + 10_000, broker=other, of=lost, event="left", how="lost", bundles=1
            ),
            MemberChange(
                ts=then + 11_000, broker=other, of=other, event="leads", epoch=2, before=lost
            ),
        ]
        loads = [
            BrokerLoad(ts=then, broker=broker, interval_ms=MINUTE, usage=0.5, **UNUSED)
            for broker in (lost, other)
        ]
        owned = {"bundle": BUNDLE, "before": "Opening", "after": "Owned", "reason": "lookup"}
        first = OwnershipStep(ts=then - MINUTE, broker=lost, **owned)
        step = OwnershipStep(ts=then + 20_000, broker=other, **owned)
        lapse = MemberChange(
            ts=then + 30_000, broker=other, of=other, event="proven", took_ms=8_000
        )
        cordon = AuditedChange(
            ts=then + 18_000, broker=other, role="jane", address="10.0.0.7", over="http", what="",
            path=paths.cordon(other), after="{}",
        )  # fmt: skip
        limits = [
            Throttle(
                ts=then, broker=broker, interval_ms=MINUTE, level="topic", limit=f"{topic} publish",
                configured_messages_per_s=10, configured_bytes_per_s=-1,
                delivered_messages_per_s=9.5, delivered_bytes_per_s=0,
            )
            for broker in (lost, other)
        ]  # fmt: skip
        await written(served, 0, load, first, loads[0], limits[0], members[0])
        await written(served, 1, step, loads[1], limits[1], *members[1:], lapse, cordon)
        moments = ((5, lost, lost), (15, None, other), (25, other, None), (31, other, other))
        for seconds, owner, leader in moments:
            at = ("--at", clock(then + 1000 * seconds).replace(" ", "T"))
            (row,) = await shell.json("bundles", "list", *at)
            assert (row["bundle"], row["owner"]) == (BUNDLE, owner)
            # It was killed before it recorded the minute that the moment is of.
            assert row.get("topics") == (None if owner == lost else 3)
            (row,) = await shell.json("topics", "lookup", topic, *at)
            assert (row["bundle"], row["broker"]) == (BUNDLE.rpartition("/")[2], owner)
            rows = await shell.json("brokers", "list", *at)
            assert next((row["broker"] for row in rows if row["leader"]), None) == leader
            status, out, _ = await shell.run("limits", "list", *at)
            limited_at = [it for it in (lost, other) if out.splitlines()[1].startswith(it)]
            assert (status, limited_at) == ((0, [owner]) if owner else (1, []))
            assert out.count("topic: ") == (1 if owner else 0)
            states = {row["broker"]: row["state"].partition(" since")[0] for row in rows}
            assert states[lost] == ("lost" if seconds > 10 else "")
            assert states[other] == ("cordoned" if seconds > 18 else "")
            for command in (("brokers", "list"), ("limits", "list")):
                out = (await shell.run(*command, *at))[1]
                assert (f"{other} could not prove its session" in out) == (22 < seconds < 31)
        out = (await shell.run("history", BUNDLE))[1]
        assert f"{lost} left: lost; it owned 1 bundle" in out


async def test_figures_that_are_not_of_the_moment_are_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of a broker that was killed before it recorded the next, as one whose session was over
    38 s after the moment; and those that a broker recorded once an outage was over: with what came
    then at once, or with nothing.
    """
    start = SystemClock().now_ms() // 1000 * 1000 - 60 * MINUTE
    moment, outage = start + 20_000, start + 5 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        killed, other = served.broker_id(0), served.broker_id(1)
        load = {"interval_ms": MINUTE, "usage": 0.5, **UNUSED}
        bundle = {"interval_ms": MINUTE, "bundle": BUNDLE}
        owned = {"bundle": BUNDLE, "before": "Opening", "after": "Owned", "reason": "lookup"}
        left = {"event": "left", "how": "lost", "left_at": moment + 38_790, "bundles": 1}
        proven = {"of": other, "event": "proven", "took_ms": 47_094, "unheard_ms": 5_023}
        await written(
            served, 0,
            BrokerLoad(ts=start, broker=killed, **load),
            OwnershipStep(ts=start + 8_000, broker=killed, **owned),
        )  # fmt: skip
        await written(
            served, 1,
            *(it for at, rate in ((MINUTE, 299.6), (outage - start, 331.0),
                                  (outage - start + MINUTE, 2_774.9))
              for it in (BrokerLoad(ts=start + at, broker=other, msg_rate_in=rate, **load),
                         BundleLoad(ts=start + at, broker=other, interval_ms=MINUTE,
                                    bundle="acme/stays/0x00000000_0x80000000", msg_rate_in=rate))),
            MemberChange(ts=moment + 38_980, broker=other, of=killed, unheard_ms=6_190, **left),
            OwnershipStep(ts=moment + 39_322, broker=other, **owned),
            BundleLoad(ts=start + MINUTE, broker=other, **bundle),
            MemberChange(ts=outage + 57_000, broker=other, **proven),
        )  # fmt: skip

        async def out(*words: str, at: int) -> str:
            return (await shell.run(*words, "--at", clock(at)))[1]

        shown = await out("brokers", "list", at=moment)
        rows = {line.split()[0]: line.split() for line in reversed(shown.splitlines()) if line}
        assert rows[killed][1:] == ["-", "1", "-", "-"]
        assert "299.6" in rows[other]
        assert f"what it recorded after {clock(start)} was lost with it" in shown
        shown = await out("bundles", "list", at=moment)
        row = next(line for line in shown.splitlines() if line.startswith(BUNDLE))
        assert row.split()[1:] == [killed, *5 * ["-"]]
        assert "owned no bundle" not in shown
        shown = await out("status", at=moment)
        assert "300 messages/s" in shown
        assert "without what 1 broker carried, which is not known" in shown
        within = outage + 30_000
        shown = await out("brokers", "list", at=within)
        assert "2774.9" not in shown
        assert f"the next record, of {clock(outage + MINUTE)}" in shown
        assert "what they carried is not known" in await out("status", at=within)
        since, until = (clock(it).replace(" ", "T") for it in (start + MINUTE, within))
        shown = (await shell.run("compare", "--since", since, "--until", until))[1]
        assert "299.6 → -" in shown
        assert "no traffic" not in shown


async def test_the_owner_that_was_lost_about_a_moment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between its last sign and the end of its session nobody knows whether it still served: every
    view of an owner says so, and none before or after.
    """
    now = SystemClock().now_ms() // 1000 * 1000
    sign, over = now - 30 * MINUTE, now - 30 * MINUTE + 8_000
    topic = topic_of_bundle()
    async with serving(values=in_folder(tmp_path)) as served:
        shell, ids = Shell(served, capsys), [served.broker_id(index) for index in range(2)]
        owned = {"bundle": BUNDLE, "before": "Opening", "after": "Owned", "reason": "lookup"}
        first = OwnershipStep(ts=sign - MINUTE, broker=ids[1], **owned)
        loads = [
            BrokerLoad(ts=sign, broker=name, interval_ms=MINUTE, usage=0.5, **UNUSED)
            for name in ids
        ]
        noted = over + 1_000
        left = MemberChange(
            ts=noted, broker=ids[0], of=ids[1], unheard_ms=noted - sign + 2_000, left_at=over,
            event="left", how="lost",
        )  # fmt: skip
        load = BundleLoad(ts=sign, broker=ids[1], interval_ms=MINUTE, bundle=BUNDLE, topics=3)
        await written(served, 0, loads[0], left)
        await written(served, 1, loads[1], first, load)
        recorded_in(tmp_path, [(1, sign - 10 * MINUTE, now)])
        ended_in(tmp_path, ids[1], sign)
        times = f"its last sign was at {clock(sign)} and its session ended at {clock(over)}"
        doubt = f"{ids[1]} was lost about then: {times}"
        for at_ms, doubtful in ((sign, False), (over - 1_000, True), (noted + 1_000, False)):
            at = ("--at", clock(at_ms))
            for words in (("bundles", "list"), ("topics", "lookup", topic)):
                out = (await shell.run(*words, *at))[1]
                (row,) = await shell.json(*words, *at)
                assert (f"{ids[1]}, lost about then" in out, doubt in out) == (doubtful, doubtful)
                assert row.get("ownerLost") == (times if doubtful else None)
            out = (await shell.run("bundles", "show", BUNDLE, *at))[1]
            assert out.count(times) == int(doubtful)
            assert (f"by {ids[1]}, which was lost about then: {times}" in out) == doubtful
            rows = await shell.json("brokers", "list", *at)
            states = {row["broker"]: row["state"] for row in rows}
            assert (states[ids[1]] == f"lost about then: {times}") == doubtful
            out = (await shell.run("status", *at))[1]
            assert out.count(times) == int(doubtful)
            assert (f"{ids[1]}, owner of 1 bundle, was lost about then" in out) == doubtful


async def test_nothing_of_after_a_moment_is_shown_as_of_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Owners are of then: what moved later in that minute had not moved, and a bundle that came
    later was not there. Loads are those of the minute before, if a move lies between the moment and
    the end of its own; a lost broker owns nothing. The times of the loads are told, and when they
    had ended long before.
    """
    now = SystemClock().now_ms() // 1000 * 1000
    then = now - 60 * MINUTE
    topic = topic_of_bundle()
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        first, second = served.broker_id(0), served.broker_id(1)
        owned = {"bundle": BUNDLE, "before": "Opening", "after": "Owned", "reason": "lookup"}
        freed = {"bundle": BUNDLE, "before": "Releasing", "after": "Free", "reason": "order"}
        for index, broker in enumerate((first, second)):
            steps = [OwnershipStep(ts=then + 20_000, broker=second, **owned)] if index else [
                OwnershipStep(ts=then - 90_000, broker=first, **owned),
                OwnershipStep(ts=then + 20_100, broker=first, **freed),
            ]  # fmt: skip
            for minute in (0, 1):
                head = {"ts": then + minute * MINUTE, "broker": broker, "interval_ms": MINUTE}
                rate = 10.0 + minute
                has = minute == index
                await written(
                    served,
                    index,
                    BrokerLoad(**head, usage=0.5, bundles=int(has), msg_rate_in=rate * has,
                               **UNUSED),
                    *([BundleLoad(**head, bundle=BUNDLE, msg_rate_in=rate)] if has else []),
                    *([TopicLoad(**head, topic=topic, bundle=BUNDLE, msg_throughput_in=rate)]
                      if has else []),
                )  # fmt: skip
            await written(served, index, *steps)
        later = {"broker": second, "bundle": "acme/later/0x00000000_0x80000000"}
        await written(
            served,
            1,
            OwnershipStep(ts=then + 55_000, **{**owned, **later}),
            BundleLoad(ts=then + MINUTE, interval_ms=MINUTE, **later),
        )
        lost = MemberChange(ts=then + 40_000, broker=first, of=second, event="left", how="lost")
        await written(served, 0, lost)
        for seconds, owner in ((10, first), (30, second), (50, None)):
            at = ("--at", clock(then + 1000 * seconds).replace(" ", "T"))
            rows = await shell.json("brokers", "list", *at)
            counts = {row["broker"]: row["bundles"] for row in rows}
            assert counts == {first: int(owner == first), second: int(owner == second)}
            end = then if seconds < 30 else then + MINUTE
            rate = 10.0 if owner == first else 11.0
            assert {row["broker"]: (row["msg_rate_in"], row["at"]) for row in rows} == {
                it: (rate if owner == it else 0.0, end) for it in (first, second)
            }
            out = (await shell.run("brokers", "list", *at))[1]
            assert f"averages of times between {clock(end - MINUTE)} and {clock(end)}" in out
            assert ("load %: bundles came or went" in out) == (seconds > 10)
            assert f", {1 if owner else 0} bundle" in (await shell.run("status", *at))[1]
            (row,) = await shell.json("bundles", "list", *at)
            assert (row["owner"], row["msg_rate_in"]) == (owner, rate)
            (row,) = await shell.json("topics", "busiest", *at)
            assert (row["broker"], row["msg_throughput_in"]) == (owner, rate)
            assert (row["countedAt"], bool(row["doubt"])) == (end, seconds > 10)
            (row,) = await shell.json("topics", "lookup", topic, *at)
            assert row["broker"] == owner
        at = ("--at", clock(then - MINUTE // 2).replace(" ", "T"))
        (row,) = await shell.json("topics", "lookup", topic, *at)  # by a step before any load
        assert row["broker"] == first
        until = f"averages of times between {clock(then - MINUTE)} and {clock(then)}"
        assert until in (await shell.run("brokers", "list", *at))[1]
        at = ("--at", clock(then + 5 * MINUTE).replace(" ", "T"))
        out = (await shell.run("brokers", "list", *at))[1]
        assert f"what is shown of {first} was recorded 4 min before" in out


async def test_a_backlog_of_a_moment_is_that_which_its_owner_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the record before an outage, if the next is of after it; that of another broker only if
    the owner has none, which the row says. Both have the time at which they were counted.
    """
    then = SystemClock().now_ms() // 1000 * 1000 - 60 * MINUTE
    topic = topic_of_bundle()
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        owner, other = served.broker_id(0), served.broker_id(1)

        def counted(ts: int, broker: str, backlog: int) -> list[Any]:
            head = {"ts": ts, "broker": broker, "interval_ms": MINUTE}
            of = {"topic": topic, "bundle": BUNDLE, "msg_rate_in": 30.0}
            return [
                BrokerLoad(**head, usage=0.5, **UNUSED),
                BundleLoad(**head, bundle=BUNDLE, msg_rate_in=30.0),
                TopicLoad(**head, backlog_messages=backlog, **of),
            ]

        step = {"bundle": BUNDLE, "reason": "lookup"}
        await written(
            served, 1, *counted(then - 170_000, other, 7_903),
            OwnershipStep(
                ts=then - 150_000, broker=other, before="Releasing", after="Free", **step
            ),
        )  # fmt: skip
        await written(
            served, 0,
            OwnershipStep(ts=then - 149_000, broker=owner, before="Opening", after="Owned", **step),
            *counted(then - 52_000, owner, 11_402), *counted(then + 8_000, owner, 13_300),
            MemberChange(ts=then + 7_000, broker=owner, of=owner, event="proven", took_ms=5_000,
                         unheard_ms=5_000),
        )  # fmt: skip
        for at_ms, backlog, counted_ms, doubt in (
            (then, 11_402, then - 52_000, "messages/s are those until"),
            (then - 70_000, 11_402, then - 52_000, ""),
            (then - 140_000, 7_903, then - 170_000, f"recorded by {other}, not by its owner"),
            (then - 172_000, 7_903, then - 170_000, ""),
        ):
            (row,) = await shell.json("topics", "backlogs", "--at", clock(at_ms))
            assert (row["backlog_messages"], row["countedAt"]) == (backlog, counted_ms)
            assert (row["broker"] == owner, doubt in row["doubt"]) == (at_ms > then - 149_000, True)
            assert bool(row["doubt"]) == bool(doubt)
        out = (await shell.run("topics", "backlogs", "--at", clock(then)))[1]
        assert time_of_day(then - 52_000) in out


async def test_status_and_lists_tell_of_brokers_that_are_gone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the same words; `top` has the brokers by load."""
    async with serving(values={"loadManagerExpectedBrokers": "3"}) as served:
        shell = Shell(served, capsys)
        name = served.broker_id(1)
        await served.own(BUNDLE, at=1)
        await until(lambda: bool(served.brokers[0].use.brokers.reports[name].bundles))
        await served.servers[1].stop()
        served.brokers[1].store.suspend()
        served.brokers[1].store.expire()

        async def read() -> str:
            return (await shell.run("status"))[1]

        said = await eventually(read, lambda text: "cannot be reached" in text, within_s=20)
        lines = said.splitlines()
        assert lines[0] == "2 of 3 expected brokers are not there"
        assert lines[1].startswith(f"{name} lost ")
        assert f"1 bundle, 1 without an owner until the next lookup: {BUNDLE}" in lines[1]
        assert any(line.startswith(f"{served.broker_id(0)} leads, term ") for line in lines)
        table = (await shell.run("brokers", "list"))[1]
        (row,) = [line for line in table.splitlines() if line.startswith(name)]
        assert row.split()[1] == "gone"
        assert "lost" in row
        rows = await shell.json("brokers", "list")
        assert [row["active"] for row in rows] == [True, False]
        status, table, _ = await shell.run("brokers", "health")
        assert (status, f"{name}  lost " in table) == (1, True)
        status, out, _ = await shell.run("top", "--count", "1")
        assert (status, "MSG/S" in out) == (0, True)
        assert (await shell.run("brokers", "forget", name))[0] == 0
        assert name not in (await shell.run("status"))[1]


async def test_status_says_who_gets_no_new_bundles(capsys: pytest.CaptureFixture[str]) -> None:
    """And of a report that is older than a minute nothing: brokers report when the load changes."""
    async with serving() as served:
        shell = Shell(served, capsys)
        name, reports = served.broker_id(1), served.brokers[0].use.brokers.reports
        await until(lambda: name in reports)
        reports[name].last_update -= 5 * MINUTE
        said = (await shell.run("status"))[1]
        assert "late with the report" not in said
        assert "no new bundles" not in said
        reports[name].last_update -= 15 * MINUTE
        assert f"late with the report: {name}" in (await shell.run("status"))[1]
        assert (await shell.run("brokers", "cordon", name, "--note", "bad disk"))[0] == 0
        said = (await shell.run("status"))[1]
        assert f"no new bundles: {name} is cordoned (bad disk; by 127.0.0.1)" in said.splitlines()


async def test_status_says_at_once_that_the_store_does_not_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """While the sessions are not known to be over, and a broker leads."""
    async with serving() as served:
        shell = Shell(served, capsys)
        assert "METADATA STORE" not in (await shell.run("status"))[1]
        for broker in served.brokers:
            broker.store.suspend()
        first = (await shell.run("status"))[1].splitlines()[0]
        assert first.startswith("THE METADATA STORE HAS NOT ANSWERED THE LEADER FOR "), first
        for broker in served.brokers:
            broker.store.resume()
        assert "METADATA STORE" not in (await shell.run("status"))[1]


async def test_status_without_a_leader(capsys: pytest.CaptureFixture[str]) -> None:
    """Why there is none, and what each broker says of itself."""
    async with serving() as served:
        for broker in served.brokers:
            broker.store.suspend()
            broker.store.expire()
        shell = Shell(served, capsys)
        status, out, _ = await eventually(
            lambda: shell.run("status"),
            lambda answer: answer[1].startswith("THE METADATA STORE DOES NOT ANSWER, "),
            within_s=20,
        )
        first, goes_on, *lines = out.splitlines()
        assert (status, len(lines)) == (1, 3)
        assert "the metadata store (ZooKeeper) does not answer it, for " in first
        lease = served.brokers[0].store.lease  # told from the last answer, not the lease's end
        least_s = time.monotonic() - lease.answered_s
        _, again, _ = await shell.run("status")
        told_s = float(again.partition("does not answer it, for ")[2].partition(" s now")[0])
        assert least_s - 0.5 <= told_s <= time.monotonic() - lease.answered_s + 0.5
        assert goes_on.startswith("stored topics that are open go on")
        assert {line.partition(": ")[0] for line in lines[:2]} == {
            served.broker_id(0),
            served.broker_id(1),
        }
        assert all("the metadata store" in line for line in lines[:2])
        for line in lines[:2]:  # each broker gave its answer itself, and is named once
            assert line.count(served.broker_id(0)) == line.startswith(served.broker_id(0)), line
        status, out, _ = await shell.run("brokers", "list")
        assert (status, "the metadata store (ZooKeeper) does not answer it" in out) == (1, True)
        for words in (("topics", "lookup", "persistent://acme/orders/x"), ("status",)):
            status, *said = await shell.run(*words)
            assert (status, "the metadata store" in "".join(said)) == (1, True)
        await served.servers[1].stop()  # one that is down besides says nothing of the store
        status, out, _ = await shell.run("status")
        head, goes_on, *_ = out.splitlines()
        away = "THE METADATA STORE DOES NOT ANSWER, "
        assert (status, head.startswith(away)) == (1, True), out
        assert goes_on.startswith("stored topics that are open go on")


async def test_status_by_a_broker_that_knows_no_leader(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Another one leads, which it was not told: that is asked."""
    async with serving() as served:
        first, second = served.brokers
        first.store.suspend()
        first.store.expire()
        await until(lambda: second.use.leading.members is not None, within_s=20)
        shell = Shell(served, capsys)
        _, out, _ = await eventually(
            lambda: shell.run("status"), lambda answer: "leads, term" in answer[1], within_s=20
        )
        assert f"{served.broker_id(1)} leads, term 2" in out
        assert "NO BROKER LEADS" not in out


async def test_who_led_last_while_the_store_does_not_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And that it does not: a broker knows no leader then. Without archives, only that."""
    away = "THE METADATA STORE DOES NOT ANSWER, "
    async with serving(values=in_folder(tmp_path)) as served:
        for broker in served.brokers:
            broker.store.suspend()
            broker.store.expire()
        shell = Shell(served, capsys)
        last = f"\n{served.broker_id(0)} led last, term 1, since "
        status, out, _ = await eventually(
            lambda: shell.run("brokers", "leader"),
            lambda answer: answer[1].startswith(away) and last in answer[1],
            within_s=20,
        )
        assert (status, "(ZooKeeper) does not answer it, for " in out.splitlines()[0]) == (1, True)
        status, out, _ = await shell.run("brokers", "leader", "--json")
        assert (status, json.loads(out)["last"]["term"]) == (1, 1)
    async with serving() as served:
        for broker in served.brokers:
            broker.store.suspend()
            broker.store.expire()
        shell = Shell(served, capsys)
        _, out, _ = await eventually(
            lambda: shell.run("brokers", "leader"),
            lambda answer: answer[1].startswith(away),
            within_s=20,
        )
        assert out.splitlines()[-1] == "who led last is not recorded"


async def test_each_time_that_brokers_could_not_prove_their_sessions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each has its line with its brokers: who stood still alone is not said to be all of them."""
    async with serving(values=in_folder(tmp_path)) as served:
        now = SystemClock().now_ms()
        first, second = served.broker_id(0), served.broker_id(1)
        outage_ms, freeze_ms = now - 300_000, now - 60_000
        for index, at_ms, took_ms in (
            (0, outage_ms, 30_000),
            (1, outage_ms + 2_000, 27_000),  # its lease ended later, and it is connected later
            (1, freeze_ms, 21_000),
        ):
            name = served.broker_id(index)
            record = MemberChange(ts=at_ms, broker=name, of=name, event="proven", took_ms=took_ms)
            await written(served, index, record)
        short = (await Shell(served, capsys).run("status"))[1]
        (line,) = [line for line in short.splitlines() if " over, " in line]
        assert line.startswith("2 losses, freezes and outages are over, the last one since ")
        assert f"since {clock(freeze_ms)}: `loadmanager admin status --over`" in line
        assert "could not prove" not in short
        out = (await Shell(served, capsys).run("status", "--over"))[1]
        outage, freeze = [line for line in out.splitlines() if "could not prove" in line]
        both, begin = ", ".join(sorted((first, second))), clock(outage_ms - 30_000)
        between = f"from {begin} to {clock(outage_ms + 2_000)} (32 s)"
        assert outage.startswith(f"{between} {both} could not prove their sessions: the metadata")
        between = f"from {clock(freeze_ms - 21_000)} to {clock(freeze_ms)} (21 s)"
        assert freeze.startswith(f"{between} {second} could not prove its session: it stood still")


async def test_an_outage_of_the_store_is_told_first_of_a_moment_within_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the last answer of the store on; and not of a moment before that."""
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        end_ms = SystemClock().now_ms() // 1000 * 1000 - 5 * MINUTE
        for index in range(2):
            name = served.broker_id(index)
            load = {"ts": end_ms - 2 * MINUTE, "broker": name, "interval_ms": MINUTE}
            answers = {"event": "proven", "took_ms": 40_000, "unheard_ms": 22_000}
            proven = MemberChange(ts=end_ms, broker=name, of=name, **answers)
            await written(served, index, BrokerLoad(**load, usage=0.5, **UNUSED), proven)
        away = "THE METADATA STORE DID NOT ANSWER 2 BROKERS THEN: from "
        for words in (("status",), ("findings",)):
            out = (await shell.run(*words, "--at", clock(end_ms - 60_000)))[1]
            assert out.startswith(f"{away}{clock(end_ms - 62_000)} to {clock(end_ms)} (62 s)"), out
            assert out.count("METADATA STORE") == 1
            out = (await shell.run(*words, "--at", clock(end_ms - 63_000)))[1]
            assert "METADATA STORE" not in out
        story = (await shell.run("history", served.broker_id(0)))[1]
        assert f"its last answer before was of {clock(end_ms - 62_000)}" in story


async def test_one_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a bundle, with the one that it was split from, its decisions and its load."""
    now = SystemClock().now_ms()
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        broker = served.broker_id(0)
        parent = "acme/orders/0x00000000_0x80000000"
        steps = {"broker": broker, "before": "Free", "after": "Owned"}
        await written(
            served,
            0,
            OwnershipStep(ts=now - 9_000, bundle=parent, reason="lookup", **steps),
            OwnershipStep(ts=now - 8_000, bundle=BUNDLE, reason="split", parent=parent, **steps),
            a_decision(now - 7_000, what=BUNDLE, code="Pinned", reason="Pinned: to b"),
            BundleLoad(ts=now, broker=broker, interval_ms=MINUTE, bundle=BUNDLE, msg_rate_in=12.0),
        )
        status, out, _ = await shell.run("history", BUNDLE)
        assert status == 0
        told = [line[22:] for line in out.splitlines() if line.startswith("20")]
        assert told == [
            f"{parent} is served by {broker} (lookup)",
            f"{BUNDLE} is served by {broker} (split)",
            "BalancedShedder decided",
        ]
        loads = [line for line in out.splitlines() if line.endswith(": 12.0 messages/s")]
        assert [line[:8] for line in loads] == ["load at "]
        _, of_topic, _ = await shell.run("history", topic_of_bundle())
        assert f"\n{loads[0]}".replace("load", f"load of its bundle {BUNDLE}") in of_topic
        assert "records since" in out
        assert "records since" not in (await shell.run("history", BUNDLE, "--since", "1h"))[1]
        assert "the newest 1 are shown" in (await shell.run("history", BUNDLE, "--limit", "1"))[1]
        status, out, _ = await shell.run("history", "nobody")
        assert (status, out.splitlines()[0]) == (1, "nothing is recorded of nobody")
        assert "records since" in out


async def test_a_story_names_who_ordered_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a bundle that an operator moved, moved back by an undo, and unloaded as pulsar-admin
    does.
    """
    async with serving(values=in_folder(tmp_path)) as served:
        shell, who = Shell(served, capsys), "127.0.0.1 (no role: authentication is off)"
        first, second = served.broker_id(0), served.broker_id(1)
        await served.own(BUNDLE, at=0)
        await shell.run("bundles", "move", BUNDLE, "--to", second, "--note", "look")
        assert (await shell.run("undo", "1-m1", "--yes"))[0] == 0
        await eventually(
            lambda: shell.json("moves", "list"),
            lambda answer: [move["state"] for move in answer["moves"]] == ["done", "done"],
        )
        await served.ask("PUT", f"/admin/v2/namespaces/{BUNDLE}/unload", at=0)
        order = f"{who} unloaded the bundle {BUNDLE}"
        steps = [order, f"no longer served by {first}", f"no longer served by {second}"]
        _, out, _ = await eventually(
            lambda: shell.run("history", BUNDLE),
            lambda answer: all(step in answer[1] for step in steps),
        )
        assert "Operator: note look, ordered by 127.0.0.1" in out
        assert f"{who} ordered the move of {BUNDLE} to " in out
        by = "an operator's order, ordered by 127.0.0.1"
        assert f"no longer served by {second} ({by}, for {first}, paused" in out
        assert f"no longer served by {first} ({by} (no role: authentication is off), paused" in out
        assert "/peers/" not in out


async def test_a_story_says_why_a_session_was_not_proven(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of its broker and of its bundle: that the process stood still, or that the metadata store did
    not answer, where that is recorded; else what it may have been.
    """
    now = SystemClock().now_ms()
    async with serving(values=in_folder(tmp_path)) as served:
        shell, (one, two) = Shell(served, capsys), (served.broker_id(0), served.broker_id(1))

        def freed(at: int, broker: str) -> OwnershipStep:
            return OwnershipStep(
                ts=now - at, broker=broker, bundle=BUNDLE, before="Owned", after="Free",
                reason="it may be this, or that", cause="loss",
            )  # fmt: skip

        def member(at: int, broker: str, event: str, **more: int) -> MemberChange:
            return MemberChange(ts=now - at, broker=broker, of=broker, event=event, **more)

        await written(
            served, 0, freed(200_000, one),
            member(200_100, one, "stood", took_ms=60_000),
            member(200_000, one, "proven", took_ms=56_000, unheard_ms=4_000),
            member(100_000, one, "proven", took_ms=57_000, unheard_ms=5_000),
            member(50_000, one, "proven", took_ms=8_000),
        )  # fmt: skip
        await written(
            served, 1, freed(98_000, two),
            member(98_000, two, "proven", took_ms=59_000, unheard_ms=5_000),
        )  # fmt: skip
        _, out, _ = await shell.run("history", BUNDLE)
        ended = f"{BUNDLE} is no longer served by"
        stood = f"it stood still from {clock(now - 260_100)} to {time_of_day(now - 200_000)}"
        outage = (
            f"the metadata store did not answer 2 brokers from {clock(now - 162_000)} to "
            f"{time_of_day(now - 98_000)}"
        )
        for why in (
            f"{one} ({stood})", f"{two} ({outage})"
        ):  # fmt: skip
            assert f"{ended} {why}" in out
        _, out, _ = await shell.run("history", BUNDLE, "--since", clock(now - 99_000))
        assert f"{ended} {two} ({outage})" in out  # the other broker's record was before
        await written(served, 0, freed(900_000, one))
        _, out, _ = await shell.run("history", BUNDLE)
        assert f"{ended} {one} (it may be this, or that)" in out
        _, out, _ = await shell.run("history", one)
        again = f"{one} proves its session again, which was not proven for"
        assert f"{again} 56 s: its process stood still for 60 s\n" in out
        silent = "the metadata store did not answer it for most of the session timeout"
        assert f"{again} 57 s: {silent}; its last answer before was of " in out
        assert f"{again} 8.0 s: {silent}, or its process stood still\n" in out


async def test_a_story_says_that_another_process_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the place of one that was killed; and `compare` dates the loss as the story does."""
    now = SystemClock().now_ms() // 1000 * 1000
    lost_ms = now - 60 * MINUTE + 295
    async with serving(values=in_folder(tmp_path)) as served:
        shell, other, name = Shell(served, capsys), served.broker_id(0), served.broker_id(1)
        of = {"broker": other, "of": name, "started_at": lost_ms - 220_000}
        left = {"event": "left", "how": "lost", "left_at": lost_ms}
        sign = {"event": "sign", "how": "answers, without a session"}
        second = lost_ms + 10 * MINUTE  # it lost its session only
        began_ms, later = lost_ms - 1_576, lost_ms + 1_000
        load = {"interval_ms": MINUTE, "usage": 0.5, **UNUSED}
        await written(
            served, 0,
            MemberChange(ts=later, **of, **left),
            MemberChange(ts=later + 5, **of, **sign),
            MemberChange(ts=later + 30, broker=name, of=name, event="starts", started_at=began_ms),
            MemberChange(ts=later + 990, **of, event="back", took_ms=1_990),
            MemberChange(ts=second, **{**of, "started_at": began_ms}, event="left", how="lost"),
            MemberChange(ts=second + 5, **{**of, "started_at": began_ms}, **sign),
            MemberChange(
                ts=second + 90, **{**of, "started_at": began_ms}, event="back", same_process=True
            ),
            *(BrokerLoad(ts=lost_ms + at, broker=name, **load) for at in (-MINUTE, 2 * MINUTE)),
        )  # fmt: skip
        out = (await shell.run("history", name))[1]
        asked = f"{name}, asked after it was lost: it"
        assert f"{asked} had ended: another process answered in its place" in out
        assert f"{clock(second + 5)}  {asked} answers, without a session" in out
        times = (lost_ms - MINUTE, lost_ms + 2 * MINUTE)
        since, until = (clock(it).replace(" ", "T") for it in times)
        out = (await shell.run("compare", "--since", since, "--until", until))[1]
        assert f"between, it was lost at {clock(lost_ms)}" in out


async def test_a_broker_that_had_stopped_lacks_no_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between its stop in order and its next start: what others changed meanwhile they recorded.
    Of one that ended otherwise nobody knows what it had recorded last.
    """
    now = SystemClock().now_ms() // 1000 * 1000
    begun, ended, again = now - 20 * MINUTE, now - 15 * MINUTE, now - 12 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        stopped, killed = served.broker_id(0), served.broker_id(1)
        for index, name in enumerate((stopped, killed)):
            own: dict[str, Any] = {"broker": name, "of": name}
            starts = (MemberChange(ts=it, **own, event="starts") for it in (begun, again))
            await written(served, index, *starts)
        stop = MemberChange(ts=ended - 100, broker=stopped, of=stopped, event="stops")
        await written(served, 0, stop)
        recorded_in(tmp_path, [(1, begun, ended), (2, again, now + MINUTE)])
        out = (await shell.run("settings", "list", "--at", clock(begun + MINUTE)))[1]
        assert f"{killed} recorded nothing from {clock(ended)} to {clock(again)}" in out
        assert f"{stopped} recorded nothing" not in out


def test_from_when_on_there_are_records() -> None:
    """Those whose records begin later are named, the latest first; silence is no record."""
    begins = {"a": 10 * MINUTE, "b": 12 * MINUTE, "c": 10 * MINUTE + 1, "d": 11 * MINUTE}
    assert records_since(begins) == (
        f"records since {clock(10 * MINUTE)}; of b since {clock(12 * MINUTE)}, "
        f"d since {clock(11 * MINUTE)}: what was before is not recorded"
    )
    assert records_since({}) == "no archive that answers has records of this time"


async def test_the_story_of_a_client(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its address or name: where it was served, what it was refused, and that its broker died;
    found when it is away, and among those that were refused.
    """
    now = SystemClock().now_ms()
    async with serving(values=in_folder(tmp_path)) as served:
        shell, topic = Shell(served, capsys), "persistent://acme/orders/t"
        here = {"client": "10.0.0.7:5000", "address": "10.0.0.7", "name": "till-3"}
        there = {"what": "producer", "topic": topic, "bundle": BUNDLE, **here}
        first, dead = served.broker_id(0), "dead:1"
        refused = {"reason": "Producer with name 'till-3' is busy", "code": "ProducerBusy"}
        await written(
            served,
            0,
            ClientStep(ts=now - 9 * MINUTE, broker=dead, event="attached", **there),
            MemberChange(ts=now - 8 * MINUTE, broker=first, of=dead, event="left", how="lost"),
            ClientStep(
                ts=now - 7 * MINUTE, broker=first, event="refused", times=3, **there, **refused
            ),
            ClientStep(ts=now - 6 * MINUTE, broker=first, event="attached", **there),
            ClientStep(ts=now - 5 * MINUTE, broker=first, event="unrecorded", times=40),
        )
        left = {"reason": "its topic was closed here", "destination": served.broker_id(1)}
        await written(
            served,
            1,
            ClientStep(
                ts=now,
                broker=first,
                event="left",
                attached_ms=6 * MINUTE,
                messages=12,
                **left,
                **there,
            ),
        )
        for name in ("till-3", "10.0.0.7", "10.0.0.7:5000"):
            status, out, _ = await shell.run("history", name)
            lines = [line.partition("  ")[2] for line in out.splitlines()]
            who = f"producer till-3 from 10.0.0.7:5000 on {topic}"
            busy = "Producer with name 'till-3' is busy (ProducerBusy, 3 times)"
            why = f"its topic was closed here; it was sent to {served.broker_id(1)}"
            assert lines[:6] == [
                f"{who} is served by {dead}",
                f"{dead} left: lost; it owned 0 bundles",
                f"producer till-3 on {topic} waited for 2 min, because of {dead}: it was lost",
                f"{who} was refused by {first}: {busy}",
                f"{who} is served by {first}",
                f"{who} left {first} after 6 min and 12 messages: {why}",
            ], name
            assert "recorded 40 steps of clients before" in out.splitlines()[-1]
        status, out, _ = await shell.run("history", "acme/orders/t")
        assert (status, f"was refused by {first}" in out) == (0, True)
        status, out, _ = await shell.run("find", "till-3")
        assert (status, "nobody who is connected" in out, "it was sent to" in out) == (
            1,
            True,
            True,
        )
        assert "find --refused" not in out
        assert "nobody was refused" in (await shell.run("find", "--refused", "no-such"))[1]
        for text in (("till-3",), ("ILL-3",), ("10.0.0.7",), ("is busy",), (topic,), ()):
            _, out, _ = await shell.run("find", *text, "--refused")
            assert "10.0.0.7:5000" in out
            assert "is busy" in out
        assert "nobody was refused" in (await shell.run("find", "--refused", "--since", "3m"))[1]
        one = ClientStep(
            ts=now - 7 * MINUTE, broker=first, event="refused", client="10.0.0.8:5000",
            address="10.0.0.8", what="producer", name="only refused", topic=topic, reason="no role",
        )  # fmt: skip
        await written(served, 0, one)
        for text in ("only refused", "10.0.0.8"):
            _, out, _ = await shell.run("find", text)
            assert f"why: `loadmanager admin find --refused {quote(text)}`" in out
        assert "admin find --refused 'nly r'`" in (await shell.run("find", "nly r"))[1]
        again = ClientStep(
            ts=now, broker=first, event="refused", times=19, **there, **refused, roles=["till"]
        )
        once = structs.replace(again, ts=now - 8 * MINUTE, times=1)
        await written(served, 0, once)
        archive = served.brokers[0].use.archive
        assert archive is not None
        archive.unrecorded[REFUSED] = lambda: [again]  # as a broker counts what goes on
        _, out, _ = await shell.run("find", "till", "--refused")
        (line,) = [line for line in out.splitlines() if "10.0.0.7:5000  till " in line]
        assert line.startswith(clock(now))
        assert " 20 " in line
        _, out, _ = await shell.run("history", "till")
        assert "from 10.0.0.7:5000 as till on" in out
        await written(served, 0, structs.replace(once, reason="its epoch is over"))
        _, out, _ = await shell.run("find", "till", "--refused")  # each reason by itself
        assert out.count("10.0.0.7:5000  till ") == out.count("is busy") == 2
        assert "its epoch is over" in out
        assert "nobody was refused" in (await shell.run("find", "till-4", "--refused"))[1]
        unnamed = [
            structs.replace(once, what="consumer", name=f"c-{number}", reason="it is exclusive")
            for number in range(30)
        ]
        await written(served, 0, *unnamed)
        _, out, _ = await shell.run("find", "exclusive", "--refused")  # a new name each time
        (line,) = [line for line in out.splitlines() if "it is exclusive" in line]
        assert "consumer of 30 names" in line
        assert " 30 " in line.replace("consumer of 30 names", "")
        assert (await shell.run("find"))[0] == 2


async def test_later_figures_are_not_of_the_moment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a reason that came again after the moment, its record has the last figures: the status,
    and a story until then, say the code and since when.
    """
    now = SystemClock().now_ms()
    then = now - 60 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        first = served.broker_id(0)
        load = BrokerLoad(ts=then, broker=first, interval_ms=MINUTE, usage=0.5, bundles=3, **UNUSED)
        skips = [
            a_decision(
                then + minutes * MINUTE,
                what=BUNDLE,
                code="NotEnough",
                reason=f"the threshold is {minutes}",
                why={"threshold": f"{minutes}"},
            )
            for minutes in (-5, 9)
        ]
        await written(served, 0, load, *skips)
        began, at = clock(then - 5 * MINUTE), clock(then).replace(" ", "T")
        said = f"NotEnough since {time_of_day(then - 5 * MINUTE)}, with figures that are not"
        again = f"the first since {began}: NotEnough ("
        for words, text in (
            (("status", "--at", at), f"{again}{BUNDLE})"),
            (("history", BUNDLE, "--until", at), said),
        ):
            status, out, _ = await shell.run(*words)
            assert (status, began in out, text in out, "threshold is" in out) == (
                0, True, True, False,
            ), out  # fmt: skip
        status, out, err = await shell.run("history", BUNDLE)
        assert (status, "the threshold is 9 (2 times since" in out) == (0, True), err


async def test_that_the_whole_cluster_was_down_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By --at, a story, the status and the doctor; a gap after which nobody started is none."""
    now = SystemClock().now_ms()
    begin, end = now - 30 * MINUTE, now - 20 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        shell, first = Shell(served, capsys), served.broker_id(0)
        step = OwnershipStep(
            ts=begin - MINUTE, broker=first, bundle=BUNDLE, before="Free", after="Owned", reason="r"
        )
        await written(served, 0, step)
        recorded_in(tmp_path, [(101, begin - MINUTE, begin), (102, end, now)])
        at = ("bundles", "list", "--at", clock(now - 25 * MINUTE).replace(" ", "T"))
        assert "the whole cluster was down" not in (await shell.run(*at))[1]
        start = MemberChange(ts=end + 500, broker=first, of=first, event="starts")
        await written(served, 0, start)
        between = f"from {clock(begin)} at the earliest to {clock(end)} (10 min at most)"
        down = f"the whole cluster was down {between}"
        for command in (at, ("brokers", "list", *at[2:]), ("history", BUNDLE), ("status",)):
            assert down in (await shell.run(*command))[1], command
        assert (
            "the whole cluster was down"
            not in (
                await shell.run(
                    "bundles", "list", "--at", clock(begin - MINUTE // 2).replace(" ", "T")
                )
            )[1]
        )
        own: dict[str, Any] = {"broker": served.broker_id(1), "of": served.broker_id(1)}
        await written(served, 1, MemberChange(ts=begin, event="starts", **own))
        recorded_in(tmp_path, [(101, begin, end - 14_000), (102, end, now)])
        assert "was down" not in (await shell.run("status"))[1]  # the other may have lived on
        await written(served, 1, MemberChange(ts=end + 500, event="starts", **own))
        assert "the whole cluster was down" in (await shell.run("status"))[1]


@pytest.mark.parametrize("in_order", [True, False])
async def test_a_cluster_that_was_stopped_in_order_is_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, in_order: bool
) -> None:
    """As its broker recorded; of one that recorded no farewell nobody knows how it went."""
    now = SystemClock().now_ms()
    begin, end = now - 30 * MINUTE, now - 20 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        shell, first = Shell(served, capsys), served.broker_id(0)
        own: dict[str, Any] = {"broker": first, "of": first}
        load = BrokerLoad(
            ts=begin - MINUTE // 4,
            broker=first,
            interval_ms=MINUTE,
            usage=0.5,
            bundles=1,
            msg_rate_in=1.0,
            msg_rate_out=1.0,
            msg_throughput_in=1.0,
            msg_throughput_out=1.0,
            **UNUSED,
        )
        await written(
            served,
            0,
            load,
            MemberChange(ts=begin - 10 * MINUTE, event="starts", **own),
            *([MemberChange(ts=begin - 1_000, event="stops", **own)] if in_order else []),
            MemberChange(ts=end + 500, event="starts", **own),
        )
        recorded_in(tmp_path, [(101, begin - 10 * MINUTE, begin), (102, end, now)])
        at = ("--at", clock(begin + MINUTE).replace(" ", "T"))
        why = "all brokers had stopped in order" if in_order else "no broker recorded anything"
        for command in (("status",), ("brokers", "list", *at)):
            out = (await shell.run(*command))[1]
            assert f"the whole cluster was down from {clock(begin)}" in out, command
            assert f"(10 min{'' if in_order else ' at most'}): {why}" in out, command
        listed = (await shell.run("brokers", "list", *at))[1]
        assert ("stopped in order since" in listed) == in_order
        assert ("nobody recorded how it left" in listed) != in_order


async def test_a_move_is_one_line_of_a_brokers_story(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At its source and at its destination; the bundle's own story has every step."""
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        first, second = served.broker_id(0), served.broker_id(1)
        await served.own(BUNDLE, at=0)
        assert (await shell.run("bundles", "move", BUNDLE, "--to", second))[0] == 0
        moved = f"{BUNDLE} moved from {first} to {second}"
        for broker in (first, second):
            _, out, _ = await eventually(
                lambda broker=broker: shell.run("history", broker),
                lambda answer: moved in answer[1],
            )
            ways = ("no longer served by", f"is served by {second}")
            assert not [line for line in out.splitlines() if any(way in line for way in ways)]
        steps = [f"no longer served by {first}", f"is served by {second}", moved]
        await eventually(
            lambda: shell.run("history", BUNDLE),
            lambda answer: all(step in answer[1] for step in steps),
        )


async def test_status_counts_apart_what_nobody_took_up(capsys: pytest.CaptureFixture[str]) -> None:
    """A lookup that is sent on, and not repeated there: the bundle is placed, and has no owner."""
    async with serving() as served:
        shell = Shell(served, capsys)
        await until(lambda: served.broker_id(1) in served.brokers[0].use.brokers.reports)
        for number in range(20):
            path = f"/lookup/v2/topic/persistent/acme/orders/t{number}?authoritative=false"
            if (await served.ask("GET", path)).status == 307:
                break
        owned = len(served.owners())
        cluster = await eventually(
            lambda: shell.json("status"), lambda told: told["bundles"] == owned, within_s=30
        )
        assert cluster["awaited"] == 1
        said = (await shell.run("status"))[1]
        assert f"{owned} bundle" in said
        assert "with an owner (1 more placed, not yet served)" in said
