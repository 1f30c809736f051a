"""The total of what clients went through today, by `loadmanager admin status` and `moves list`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from broker.admin.serving import serving
from broker.admin.test_archive import BUNDLE, MINUTE, in_folder, written
from cli.test_admin_command import Shell
from clusters.running import until
from msgspec.structs import replace

from loadmanager.cli.admin.interruptions import sentence
from loadmanager.cli.admin.times import clock
from loadmanager.engine.history.clients import CLOSED_HERE, HUNG_UP, ClientStep
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import Decision
from loadmanager.engine.history.waits import Interrupted, interruptions_of
from loadmanager.kit.history.archive_answers import ArchivedEvent
from loadmanager.kit.system.clock import SystemClock
from loadmanager.leader.documents.members import AbsentBroker
from loadmanager.leader.interruptions import (
    Interruptions,
    interruptions,
    returned,
    uncounted_losses,
)


def test_in_words() -> None:
    """Only what there was; clients that were not seen again are named."""
    at = 13 * 3_600_000
    nobody = "today since 13:00:00Z: 1 move, 0 interruptions of clients"
    assert sentence(Interruptions(at, moves=1).shown()) == nobody
    total = Interruptions(at, 12, 1, 34, 33, longest_ms=1_200, sum_ms=14_000)
    assert sentence(total.shown()) == (
        "today since 13:00:00Z: 12 moves, 1 broker lost, 34 interruptions of clients, "
        "longest 1.2 s until attached again, in all 14 s, 1 of them not seen to be back"
    )


def test_bounds_and_those_that_may_not_stay() -> None:
    """The sum of what each waited at least and at most; not those that are only attached again."""
    step = ClientStep(
        ts=1, broker="b1", event="left", client="h:1", what="producer", name="p", topic="t"
    )
    waits = [
        Interrupted(step, 0, lost=True, unheard_ms=6_000, back_at=10_000),
        Interrupted(step, 0, lost=True, unheard_ms=6_000, back_at=20_000),
        Interrupted(step, 0, lost=True, unheard_ms=6_000, again_at=40_000),
    ]
    total = Interruptions(0)
    total.take(waits, whole=True)
    assert sentence(total.shown()).endswith(
        ": 0 moves, 3 interruptions of clients, longest 20 s to 26 s until attached again, in all "
        "30 s to 42 s, 1 of them attached again, not sure to stay"
    )


async def test_moves_and_lost_brokers_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From all archives; so does a move that failed, if it closed clients."""
    now = SystemClock().now_ms()
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        assert "interrupted" not in (await shell.run("status"))[1]

        def moved(
            state: str, clients: int | None, waited_ms: float | None, mean_ms: float | None
        ) -> Decision:
            return Decision(
                ts=now, broker="b0", epoch=1, cycle=1, strategy="moves", action="move",
                bundle=BUNDLE, author="cycle", state=state, clients_closed=clients,
                clients_back=clients, clients_waited_ms=waited_ms, clients_waited_mean_ms=mean_ms,
            )  # fmt: skip

        lost = [
            MemberChange(ts=now, broker="b0", of="b9:8080", event="left", how="lost"),
            MemberChange(
                ts=now, broker="b0", of="b9:8080", event="clients", clients=3, clients_back=2,
                clients_waited_ms=5_000, clients_waited_mean_ms=4_000, unheard_ms=6_000,
            ),
        ]  # fmt: skip
        failed = [moved("failed", 1, 2_000, None), moved("failed", None, None, None)]
        await written(served, 0, moved("done", 4, 1_000, 500), *failed)
        await written(served, 1, moved("done", 2, 3_000, None), *lost)
        total = (
            ": 2 moves, 2 moves failed, 1 broker lost, 10 interruptions of clients (as leaders "
            "counted, and not by the records of each client), longest 5.0 s, in all 18 s at least, "
            "up to 6.0 s more before a broker counted as lost, 1 of them not seen to be back: "
        )
        for words in (("status",), ("moves", "list")):
            _, out, _ = await shell.run(*words)
            assert total in out


def test_those_of_whom_nobody_knows_are_said_to_be_unsure() -> None:
    """They are not counted, and not left out without a word; leaders count them."""
    at = 13 * 3_600_000
    step = ClientStep(ts=at, broker="b0", event="left", name="p", reason=HUNG_UP)
    waits = [Interrupted(step, at, lost=True, back_at=at + 2_000, back="b1")]
    total = Interruptions(at, lost=1)
    total.take(waits, unsure=3)
    assert sentence(total.shown()).endswith(
        ", 1 interruption of clients, longest 2.0 s until attached again, in all 2.0 s, 3 unsure: "
        "nobody knows whether these were still there"
    )
    total = Interruptions(at, lost=1, clients=4, back=4)
    total.take(waits, unsure=3)
    assert "unsure" not in sentence(total.shown())


def test_leaders_count_where_records_of_clients_do_not() -> None:
    """Where they were not asked for, or are not all there and tell of fewer; not if they tell of
    more.
    """
    at = 13 * 3_600_000
    step = ClientStep(ts=at, broker="b0", event="left", name="p", reason=HUNG_UP)
    waits = [Interrupted(step, at, lost=False, back_at=at + 2_000, back="b1")] * 2
    for by_name in ([], waits):
        total = Interruptions(at, clients=3, back=3, longest_ms=1_000, sum_ms=3_000)
        total.take(by_name)
        assert sentence(total.shown()) == (
            "today since 13:00:00Z: 0 moves, 3 interruptions of clients (as leaders counted, and "
            "not by the records of each client), longest 1.0 s, in all 3.0 s"
        )
    for whole, clients in ((False, 1), (True, 3)):
        total = Interruptions(at, clients=clients, back=clients, longest_ms=1_000, sum_ms=3_000)
        total.take(waits, whole=whole)
        assert sentence(total.shown()) == (
            "today since 13:00:00Z: 0 moves, 2 interruptions of clients, longest 2.0 s until "
            "attached again, in all 4.0 s"
        )


async def test_the_day_has_those_that_interrupted_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever leaders counted: they know nothing of clients on whom a broker hung up, and see some
    as back that were not. The command that is named shows as many.
    """
    async with serving(values=in_folder(tmp_path)) as served:
        shell, (one, two) = Shell(served, capsys), (served.broker_id(0), served.broker_id(1))
        for index in (0, 1):  # so that both archives have begun
            await written(served, index, MemberChange(ts=1, broker=one, of=one, event="starts"))
        now = SystemClock().now_ms()

        def step(ts: int, broker: str, event: str, name: str, reason: str = "") -> ClientStep:
            return ClientStep(
                ts=now + ts, broker=broker, event=event, client="10.0.3.7:4711", what="producer",
                name=name, topic="persistent://acme/orders/t", bundle=BUNDLE, reason=reason,
            )  # fmt: skip

        await written(
            served, 0,
            step(0, one, "attached", "a"), step(0, one, "attached", "b"),
            step(1, one, "left", "a", HUNG_UP), step(6, one, "attached", "a"),
            step(3, one, "attached", "c"),
            MemberChange(ts=now + 1, broker=one, of=one, event="proven", took_ms=500),
            MemberChange(
                ts=now + 2, broker=one, of=two, event="left", how="lost", left_at=now + 2,
                unheard_ms=6_000,
            ),
            MemberChange(
                ts=now + 3, broker=one, of=two, event="clients", clients=7, clients_back=6,
                clients_waited_ms=40_000, clients_waited_mean_ms=4_000, unheard_ms=6_000,
            ),
        )  # fmt: skip
        await written(served, 1, step(0, two, "attached", "c"), step(0, two, "attached", "d"))
        await until(lambda: SystemClock().now_ms() > now + 6)
        line = next(
            line for line in (await shell.run("status"))[1].splitlines() if "today since" in line
        )
        assert (
            "1 broker lost, 3 interruptions of clients, longest 0.0 s to 6.0 s until attached "
            "again, in all 0.0 s to 6.0 s, 1 of them not seen to be back" in line
        )
        command = line.rpartition("`loadmanager admin ")[2].partition("`")[0]
        assert len(await shell.json(*command.split())) == 3


def test_a_broker_that_stood_still_interrupted_its_clients() -> None:
    """Unless it was lost meanwhile: then they are those of a lost broker."""

    def change(event: str, ts: int, of: str, **more: Any) -> ArchivedEvent:
        record = MemberChange(ts=ts, broker=of, of=of, event=event, **more)
        fields = msgspec.to_builtins(record)
        return ArchivedEvent(id=1, ts=ts, last=ts, times=1, kind=record.kind, record=fields)

    total = interruptions(
        13 * 3_600_000,
        [
            change("stood", 9_000, "b1", took_ms=5_000, clients=3),
            change("stood", 60_000, "b2", took_ms=40_000, clients=7),
            change("left", 55_000, "b2", how="lost"),
            change("clients", 66_000, "b2", clients=7, clients_back=7, clients_waited_ms=6_000),
            change("stood", 90_000, "b2", took_ms=2_000, clients=1),
        ],
    )
    assert sentence(total.shown()) == (
        "today since 13:00:00Z: 0 moves, 1 broker lost, 3 standstills of brokers, 11 interruptions "
        "of clients, longest 6.0 s until attached again, in all 59 s"
    )


def test_clients_of_a_move_that_came_back_later_are_back() -> None:
    """The leader had counted one of two when it no longer waited; a move of which the records do
    not say more than the leader is not told.
    """
    begun = 1_796_053_431_700
    move = Decision(
        ts=begun + 800, broker="b1", epoch=4, cycle=0, strategy="", action="move", bundle="t/n/0x0",
        source="b0", destination="b1", move="4-m1", author="operator", state="done",
        started_at=begun, ended_at=begun + 750, clients_closed=2, clients_back=1,
    )  # fmt: skip

    def step(at_ms: int, broker: str, event: str, name: str, **more: Any) -> ClientStep:
        return ClientStep(
            ts=begun + at_ms, broker=broker, event=event, what="producer", name=name,
            client="10.0.0.1:5", address="10.0.0.1", topic="persistent://t/n/a", bundle="t/n/0x0",
            **more,
        )  # fmt: skip

    steps = [
        step(-9_000, "b0", "attached", "p1"), step(-9_000, "b0", "attached", "p2"),
        step(60, "b0", "left", "p1", reason=CLOSED_HERE, messages=5),
        step(60, "b0", "left", "p2", reason=CLOSED_HERE, messages=5),
        step(300, "b1", "attached", "p1"), step(25_060, "b1", "attached", "p2"),
    ]  # fmt: skip
    waits = interruptions_of(steps, [])
    (back,) = returned([move], waits)
    assert (back.move, back.clients, back.back, back.longest_ms) == ("4-m1", 2, 2, 25_000)
    early = [it.until(begun + 20_000) for it in waits]
    assert returned([move], early) == []
    later = replace(move, started_at=begun + 9_000, ended_at=begun + 9_500)
    assert returned([later], waits) == []


async def test_moves_and_decisions_tell_who_is_back_by_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The leader had counted one of two when it no longer waited; the day, and `interrupted`, have
    both.
    """
    async with serving(values=in_folder(tmp_path)) as served:
        shell, (one, two) = Shell(served, capsys), (served.broker_id(0), served.broker_id(1))
        begun = SystemClock().now_ms() - 5 * MINUTE
        for index in (0, 1):
            start = MemberChange(ts=begun - MINUTE, broker=one, of=one, event="starts")
            await written(served, index, start)

        def step(at_ms: int, broker: str, event: str, name: str, reason: str = "") -> ClientStep:
            return ClientStep(
                ts=begun + at_ms, broker=broker, event=event, client="10.0.3.7:4711",
                what="producer", name=name, topic="persistent://acme/orders/t", bundle=BUNDLE,
                reason=reason, messages=5,
            )  # fmt: skip

        await written(
            served, 0,
            step(-9_000, one, "attached", "a"), step(-9_000, one, "attached", "b"),
            step(60, one, "left", "a", CLOSED_HERE), step(60, one, "left", "b", CLOSED_HERE),
            Decision(
                ts=begun + 800, broker="b0", epoch=1, cycle=1, strategy="moves", action="move",
                bundle=BUNDLE, source=one, destination=two, move="1-m7", author="operator",
                state="done", outcome="moved", started_at=begun, ended_at=begun + 750,
                clients_closed=2, clients_back=1, clients_waited_ms=240.0, clients_within_ms=10_000,
                pause_ms=90.0,
            ),
        )  # fmt: skip
        back = [step(300, two, "attached", "a"), step(25_060, two, "attached", "b")]
        await written(served, 1, *back)
        since = ("--since", clock(begun - MINUTE).replace(" ", "T"))
        for words in (("moves", "list", *since), ("decisions",), ("history", BUNDLE)):
            out = (await shell.run(*words))[1]
            assert "2 clients waited 25 s" in out, out
            assert "ONLY 1" not in out
        (decision,) = (await shell.json("decisions"))["decisions"]
        assert decision["outcome"]["clientsBack"] == 2
        at = ("--at", clock(begun + 5_000).replace(" ", "T"))
        assert "ONLY 1 of 2 clients back" in (await shell.run("decisions", *at))[1]


def test_clients_of_a_lost_broker_count_while_they_come_back() -> None:
    """What the leader knows of them, until a record has it; not those of brokers that stopped."""
    lost = AbsentBroker(
        broker="b9", left_at=2_000, how="lost", clients=5, clients_back=2, unheard_ms=6_000,
        clients_waited_ms=4_000, clients_waited_mean_ms=3_000,
    )  # fmt: skip
    absent = [lost, replace(lost, how="stopped"), replace(lost, left_at=500)]
    change = MemberChange(ts=9_000, broker="b0", of="b9", event="clients", clients=5)
    event = ArchivedEvent(
        id=1, ts=9_000, last=9_000, times=1, kind=change.kind, record=msgspec.to_builtins(change)
    )
    assert uncounted_losses(absent, [event], 1_000) == []
    assert uncounted_losses(absent, [], 1_000) == [lost]
    total = Interruptions(1_000)
    total.add_absent(lost)
    assert (total.clients, total.back, total.longest_ms, total.sum_ms, total.unheard_ms) == (
        5,
        2,
        4_000,
        6_000,
        6_000,
    )


async def test_all_losses_of_today_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also those of a broker that was lost again: the leader knows its last absence only."""
    now = SystemClock().now_ms()
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        lost = [
            MemberChange(ts=now + at, broker="b0", of=of, event="left", how="lost", bundles=at)
            for at, of in enumerate(("b8", "b9", "b8", "b9", "b7"), start=1)
        ]
        await written(served, 0, *lost)
        out = (await shell.run("status", "--over"))[1]
        told = [line for line in out.splitlines() if " lost " in line]
        assert [(line.partition(" lost ")[0], line.partition("it owned ")[2]) for line in told] == [
            ("b8", "1 bundle"), ("b9", "2 bundles"), ("b8", "3 bundles"), ("b9", "4 bundles"),
            ("b7", "5 bundles"),
        ]  # fmt: skip
        short = (await shell.run("status"))[1]
        assert ": 0 moves, 5 losses of 3 brokers, 0 interruptions of clients" in short
        assert " lost " not in short
