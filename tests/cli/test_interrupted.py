"""`loadmanager admin interrupted`: clients that waited, by name."""

from __future__ import annotations

import re
from math import inf
from pathlib import Path
from typing import Any

import pytest
from broker.admin.serving import ORDERS, serving
from broker.admin.test_admin_subscriptions import RECEIPT
from broker.admin.test_archive import BUNDLE, in_folder, written
from cli.test_admin_command import Shell
from clusters.running import eventually
from system.raw import a_send

from loadmanager.cli.admin.causes import Causes
from loadmanager.cli.admin.client_steps import Waits
from loadmanager.cli.admin.downtimes import Downtime, Stood
from loadmanager.cli.admin.held_sums import sums_of
from loadmanager.cli.admin.held_then import ConnectionHold, longest_for
from loadmanager.cli.admin.interrupted import _row
from loadmanager.cli.admin.interruptions import between_text
from loadmanager.cli.admin.times import clock, time_of_day
from loadmanager.engine.history.clients import CLOSED_HERE, HUNG_UP, ClientStep
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import Decision, OwnershipStep
from loadmanager.engine.history.waits import Interrupted, key_of
from loadmanager.kit.names import TopicName
from loadmanager.kit.system.clock import SystemClock

TOPIC = "persistent://acme/orders/t"


def _step(ts: int, broker: str, event: str, name: str, **more: Any) -> ClientStep:
    usual = {"client": "10.0.3.7:4711", "address": "10.0.3.7", "what": "producer"}
    of = {**usual, "topic": TOPIC, "bundle": BUNDLE, **more}
    return ClientStep(ts=ts, broker=broker, event=event, name=name, **of)


async def test_clients_of_a_move_and_of_a_lost_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each with its address, name and topic, how long it waited, and who is not back; by the move,
    by the broker, and by a part of a name.
    """
    now = SystemClock().now_ms()
    async with serving(2, values=in_folder(tmp_path)) as served:
        shell, (one, two) = Shell(served, capsys), (served.broker_id(0), served.broker_id(1))
        status, out, _ = await shell.run("interrupted")
        assert (status, out.startswith("no client is recorded that was interrupted")) == (0, True)
        assert (await shell.run("interrupted", "--since", "1970-01-01"))[0] == 0
        move = Decision(
            ts=now - 20_000, broker=one, epoch=1, cycle=1, strategy="", action="move", move="1-m1",
            bundle=BUNDLE, source=one, destination=two, author="operator", state="done",
            started_at=now - 60_100, ended_at=now - 59_000, ids=["1-m1"],
            clients_closed=1, clients_back=0, clients_unserved=1,
        )  # fmt: skip
        left = MemberChange(
            ts=now - 25_000, broker=one, of=two, event="left", how="lost", unheard_ms=11_000,
            left_at=now - 30_000,
        )  # fmt: skip
        closed: dict[str, Any] = {"reason": CLOSED_HERE, "destination": two}
        await written(
            served, 0, move, left,
            _step(now - 90_000, one, "attached", "mover"),
            _step(now - 60_000, one, "left", "mover", **closed),
            _step(now - 18_000, one, "attached", "mover"),
        )  # fmt: skip
        await written(
            served, 1,
            _step(now - 59_600, two, "attached", "mover"),
            _step(now - 80_000, two, "attached", "sad"),
            ClientStep(ts=now - 10, broker=two, event="unrecorded", times=3),
        )  # fmt: skip
        told = await shell.json("interrupted")
        assert [(it["name"], it["waitedMs"], it["backAtBroker"]) for it in told][1:] == [
            ("mover", 12_000, one),
            ("mover", 400, two),
        ]
        assert (told[0]["name"], told[0]["backAt"], told[0]["unheardMs"]) == ("sad", None, 6_000)
        assert told[0]["waitedMs"] >= 30_000
        _, out, _ = await shell.run("interrupted")
        assert "3 interruptions of clients from " in out
        assert "that are back were attached again after 12 s to 18 s at most; 1 is not seen" in out
        assert "waited: until it was attached again, not until its first receipt" in out
        assert "NOT BACK" in out
        assert "a wait from … to …: a lost broker served its clients until some time between" in out
        assert re.search(r"\d+ s to \d+ s, NOT BACK", out)
        assert f"{two} recorded 3 steps of clients by their number only" in out
        (moved,) = await shell.json("interrupted", "1-m1")
        assert (moved["waitedMs"], moved["because"]) == (400, f"moved to {two}")
        _, out, _ = await shell.run("interrupted", "1-m1")
        assert (
            "NONE of 1 client back; 1 more connected and got nothing, as the leader counted" in out
        )
        _, out, _ = await shell.run("moves", "list", "--since", "5m")
        assert "back: with its first receipt or delivery, while the leader counted" in out
        assert [it["name"] for it in await shell.json("interrupted", two)] == ["sad", "mover"]
        assert [it["name"] for it in await shell.json("interrupted", "SAD")] == ["sad"]
        assert await shell.json("interrupted", "--until", "40s ago", "orders") == [moved]
        moment = clock(now - 22_000).replace(" ", "T")
        then = await shell.json("interrupted", "--at", moment)
        (missing,) = [it for it in then if it["name"] == "mover" and it["backAt"] is None]
        assert 7_000 <= missing["waitedMs"] <= 8_000
        lasted = await shell.json("interrupted", "--since", "25s")
        assert [it["name"] for it in lasted] == ["sad", "mover"]
        since = clock(now - 5_000).replace(" ", "T")
        assert [it["name"] for it in await shell.json("interrupted", "--since", since)] == ["sad"]
        _, out, _ = await shell.run("interrupted", "--limit", "1")
        assert "and 2 more: --limit shows them" in out
        status, out, _ = await shell.run("find", "sad")
        assert (status, "producer sad waits since " in out) == (1, True)
        assert f"(its broker {two} was lost), unless its client ended: see `loadmanager" in out
        assert f"admin interrupted sad` and `loadmanager admin limits why {TOPIC}`" in out
        assert "--refused" not in out
        assert "waits since" not in (await shell.run("find", "mover"))[1]
        status, _, err = await shell.run("interrupted", "7-m7")
        assert (status, "no move 7-m7 is recorded yet" in err) == (1, True)


async def test_a_name_that_nobody_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is an error, as for other commands; a part of a client that was not interrupted, and a
    broker that interrupted nobody, are none.
    """
    now = SystemClock().now_ms()
    async with serving(1, values=in_folder(tmp_path)) as served:
        shell, broker = Shell(served, capsys), served.broker_id(0)
        await written(served, 0, _step(now - 90_000, broker, "attached", "calm"))
        status, _, err = await shell.run("interrupted", "nonsense")
        assert (status, "no tenant nonsense is known" in err) == (1, True)
        assert "nothing that is recorded of a client has it in it" in err
        for name in ("calm", "10.0.3", broker, "acme"):
            status, out, err = await shell.run("interrupted", name)
            assert (status, out.startswith("no client is recorded")) == (0, True), (name, err)
        status, _, err = await shell.run("brokers", "list", "--at", "1900-01-01")
        assert (status, "1900-01-01 is before 1970: nothing is recorded of it" in err) == (2, True)
        status, _, err = await shell.run("what-if", "--without", "127.0.0.1:9")
        assert f"there is no broker 127.0.0.1:9; there are {broker}" in err
        assert status == 1


async def test_a_move_that_failed_is_the_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With who ordered it, and what became of it; not of another bundle or time."""
    now = SystemClock().now_ms()
    async with serving(2, values=in_folder(tmp_path)) as served:
        shell, (one, two) = Shell(served, capsys), (served.broker_id(0), served.broker_id(1))
        move = Decision(
            ts=now - 40_000, broker=one, epoch=3, cycle=1, strategy="", action="move", move="3-m21",
            bundle=BUNDLE, source=one, destination=two, author="operator", state="failed",
            outcome="it did not answer", started_at=now - 60_000, ended_at=now - 50_000,
            ids=["3-m21"], why={"orderedBy": "bob"},
        )  # fmt: skip
        await written(
            served, 0, move,
            _step(now - 90_000, one, "attached", "first"),
            _step(now - 55_000, one, "left", "first", reason=CLOSED_HERE),
            _step(now - 35_000, one, "attached", "first"),
            _step(now - 20_000, one, "left", "first", reason=CLOSED_HERE),
            _step(now - 18_000, one, "attached", "first"),
        )  # fmt: skip
        told = await shell.json("interrupted")
        assert [(it["waitedMs"], it["because"]) for it in told] == [
            (20_000, f"move 3-m21 to {two} by bob failed: it did not answer"),
            (2_000, CLOSED_HERE),
        ]
        _, out, _ = await shell.run("moves", "list", "--at", clock(now - 52_000).replace(" ", "T"))
        since = clock(now - 60_000)
        assert f"3-m21 was under way since {since} then: {BUNDLE} from {one} to {two}" in out
        assert f"(it failed at {clock(now - 50_000)})" in out


async def test_a_client_that_a_limit_may_keep_from_attaching(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of those not back it is said where a limit holds connections of their address; not of others,
    nor of earlier times.
    """
    now, lost = SystemClock().now_ms(), "127.0.0.1:1"
    limited = TopicName("persistent", ORDERS, "limited")
    async with serving(brokers=1, values=in_folder(tmp_path)) as served:
        (broker,), shell, own = served.brokers, Shell(served, capsys), served.broker_id(0)
        await broker.serve(limited)
        bundle = (await broker.use.namespaces.bundles(ORDERS)).bundle_of_topic(str(limited))
        left = MemberChange(
            ts=now - 1_000, broker=own, of=lost, event="left", how="lost", left_at=now - 2_000
        )
        clients = {"near": "127.0.0.1", "far": "10.0.3.7"}
        steps = [
            ClientStep(
                ts=now - 60_000, broker=lost, event="attached", client=f"{address}:4711",
                address=address, what="producer", name=name, topic=TOPIC, bundle=str(bundle),
            )
            for name, address in clients.items()
        ]  # fmt: skip
        await written(served, 0, left, *steps)
        held = f"it was lost; {own} holds connections from its host for a limit, maybe not its own"
        (done, _, err) = await shell.run(
            "limits", "set", str(limited), "publishRate", "--messages", "1"
        )
        assert done == 0, err
        client = await served.cluster.connect(await broker.listen())
        await client.produce(limited)
        for number in range(200):
            await client.send(a_send(number))
        await client.take_of(RECEIPT)
        waits = {it["name"]: it["heldAt"] for it in await shell.json("interrupted")}
        assert waits == {"near": own, "far": None}
        _, out, _ = await shell.run("interrupted")
        assert out.count(f"\n(1) {held}\n") == 1
        (line,) = [line for line in out.splitlines() if "127.0.0.1:4711" in line]
        assert " it was lost (1)" in line
        assert "which limit holds connections: `loadmanager admin limits why TOPIC`" in out


async def test_what_made_brokers_interrupt_their_clients(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An outage of the metadata store, and a process that stood still, with their times: whether a
    broker was lost by it, hung up, closed its topics or only paused. A loss without a cause that is
    recorded stays one.
    """
    now = SystemClock().now_ms()
    async with serving(2, values=in_folder(tmp_path)) as served:
        shell, (one, two) = Shell(served, capsys), (served.broker_id(0), served.broker_id(1))

        def change(ago_ms: int, of: str, event: str, **more: Any) -> MemberChange:
            return MemberChange(ts=now - ago_ms, broker=of, of=of, event=event, **more)

        await written(
            served, 0,
            _step(now - 900_000, one, "attached", "hung-up"),
            _step(now - 900_000, one, "attached", "paused"),
            _step(now - 201_000, one, "left", "hung-up", reason=HUNG_UP),
            _step(now - 200_000, one, "attached", "hung-up"),
            change(200_500, one, "proven", took_ms=57_000, unheard_ms=5_000),
            change(90_000, one, "stood", took_ms=8_000, clients=2),
            change(199_000, two, "left", how="lost", left_at=now - 201_000),
            change(50_000, two, "left", how="lost", left_at=now - 58_000),
            change(10_000, "b9:1", "left", how="lost"),
            _step(now - 900_000, "b9:1", "attached", "killed"),
        )  # fmt: skip
        await written(
            served, 1,
            _step(now - 900_000, two, "attached", "lost"),
            _step(now - 199_900, two, "left", "lost", reason=CLOSED_HERE),
            _step(now - 198_000, two, "attached", "lost"),
            change(200_000, two, "proven", took_ms=56_000, unheard_ms=6_000),
            change(5_000, two, "stood", took_ms=60_000, clients=1),
            change(4_900, two, "proven", took_ms=56_000, unheard_ms=4_000),
        )  # fmt: skip
        told = {(it["name"], it["since"]): it for it in await shell.json("interrupted")}
        because = {(name, now - since): it["because"] for (name, since), it in told.items()}
        outage = (
            f"the metadata store did not answer 2 brokers from {clock(now - 262_000)} to "
            f"{time_of_day(now - 200_000)}"
        )
        paused = f"it stood still from {clock(now - 98_000)} to {time_of_day(now - 90_000)}"
        frozen = f"it was lost: it stood still from {clock(now - 65_000)} to "
        assert because == {
            ("hung-up", 201_000): f"the broker ended the connection: {outage}",
            ("lost", 201_000): f"it was lost: {outage}",
            ("hung-up", 98_000): paused,
            ("paused", 98_000): paused,
            ("lost", 58_000): frozen + time_of_day(now - 4_900),
            ("killed", 10_000): "it was lost",
        }
        assert told["paused", now - 98_000]["waitedMs"] == 8_000
        _, out, _ = await shell.run("interrupted")
        line = next(line for line in out.splitlines() if line.startswith("1.0 s "))
        number = re.search(r" the broker ended the connection \((\d)\) ", line)
        assert number is not None, out
        assert f"({number[1]}) the broker ended the connection: {outage}" in out.splitlines()
        assert outage not in line


async def test_a_limit_stays_the_cause_once_the_client_is_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With how much of the wait it held a connection of the client's address, by the records: until
    it ended, or until its broker was lost. Not one of another address or of a moment, nor that of
    the broker that was lost itself.
    """
    now = SystemClock().now_ms()
    async with serving(2, values=in_folder(tmp_path)) as served:
        shell, (one, two) = Shell(served, capsys), (served.broker_id(0), served.broker_id(1))

        def hold(ago_ms: int, broker: str, event: str, port: int, held_ms: int) -> ClientStep:
            return ClientStep(
                ts=now - ago_ms, broker=broker, event=event, client=f"10.0.3.7:{port}",
                address="10.0.3.7", what="connection", reason="t4 publish", held_ms=held_ms,
            )  # fmt: skip

        def lost(ago_ms: int, broker: str) -> MemberChange:
            return MemberChange(ts=now - ago_ms, broker=one, of=broker, event="left", how="lost")

        other = hold(0, one, "freed", 9, 900_000)
        other.client, other.address = "10.0.3.8:9", "10.0.3.8"
        await written(
            served, 0, lost(400_000, "b9:1"), lost(50_000, "b8:1"), other,
            _step(now - 900_000, "b9:1", "attached", "long"),
            _step(now - 800_000, "b8:1", "attached", "dead"),
            _step(now - 220_000, two, "attached", "long", client="10.0.3.7:1"),
            hold(390_000, two, "held", 1, 5_000),
            hold(226_000, two, "freed", 1, 169_000),
            hold(399_000, two, "freed", 2, 9_000),
            hold(60_000, "b8:1", "held", 3, 5_000),
        )  # fmt: skip
        _, out, _ = await shell.run("interrupted", "b8:1")
        assert "refused it" not in out
        refusal = _step(now - 100, one, "refused", "dead")
        refusal.reason, refusal.times = "Topic reached max producers limit", 6
        await written(served, 0, refusal)
        _, out, _ = await shell.run("interrupted", "b8:1")
        assert f"it was lost; {one} refused it, 6 times: Topic reached max producers limit" in out
        waits = {it["name"]: it for it in await shell.json("interrupted")}
        assert [waits["long"][key] for key in ("waitedMs", "heldAt", "heldMs", "heldBy")] == [
            180_000, two, 169_000, "t4 publish"
        ]  # fmt: skip
        assert [waits["dead"][key] for key in ("heldAt", "heldMs", "heldBy")] == [None] * 3
        _, out, _ = await shell.run("interrupted")
        of_it = f"it was lost; for 2 min 49 s of it, {two} held"
        assert f"{of_it} its connection: t4 publish" in out
        await shell.run("topics", "create", TOPIC)
        _, out, _ = await shell.run("limits", "why", TOPIC)
        assert "the topic has neither producers nor consumers; 1 client of it is not seen" in out
        assert f"`loadmanager admin interrupted {TOPIC}` says since when, and why" in out
        _, out, _ = await shell.run("history", "10.0.3.7")
        until = f"connection 10.0.3.7:1 was held until then at {two}, for 2 min 49 s"
        assert f"{until}; at the last look by t4 publish" in out
        assert "connection 10.0.3.7:3 is held at b8:1, for 5.0 s; now by t4 publish" in out


async def test_clients_that_may_have_ended_before_are_said_to_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By how many these are, once."""
    now, lost = SystemClock().now_ms(), "127.0.0.1:1"
    async with serving(1, values=in_folder(tmp_path)) as served:
        shell, own = Shell(served, capsys), served.broker_id(0)
        await written(
            served, 0,
            *(_step(now - 90_000, lost, "attached", name) for name in ("a", "b", "c")),
            ClientStep(ts=now - 80_000, broker=lost, event="unrecorded", times=306),
            _step(now - 80_000, lost, "attached", "d"),
            MemberChange(
                ts=now - 50_000, broker=own, of=lost, event="left", how="lost", left_at=now - 50_000
            ),
            _step(now - 40_000, own, "attached", "c"),
        )  # fmt: skip
        assert {it["name"] for it in await shell.json("interrupted")} == {"c", "d"}
        _, out, _ = await shell.run("interrupted")
        assert "2 interruptions of clients from " in out
        assert out.count("2 clients not counted: steps of clients were recorded by their num") == 1


async def test_a_client_that_tries_again_and_again_is_not_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It waits on, with how often it tried; the limit that held its connection stays the one of
    then, when others hold it by now.
    """
    now = SystemClock().now_ms()
    async with serving(2, values=in_folder(tmp_path)) as served:
        shell, (one, two) = Shell(served, capsys), (served.broker_id(0), served.broker_id(1))
        far = {"client": "10.0.3.7:9"}

        def gave_up(ago_ms: int, name: str) -> ClientStep:
            more = {"reason": "its client closed it", "attached_ms": 30_000, "messages": 0, **far}
            return _step(now - ago_ms, two, "left", name, **more)

        def hold(ago_ms: int, event: str, held_ms: int, limits: str) -> ClientStep:
            return ClientStep(
                ts=now - ago_ms, broker=two, event=event, address="10.0.3.7", what="connection",
                reason=limits, held_ms=held_ms, **far,
            )  # fmt: skip

        await written(
            served, 0,
            MemberChange(ts=now - 600_000, broker=one, of="b9:1", event="left", how="lost"),
            *(_step(now - 900_000, "b9:1", "attached", name) for name in ("again", "away")),
            *(_step(now - 590_000, two, "attached", name, **far) for name in ("again", "away")),
            gave_up(560_000, "again"), gave_up(560_000, "away"),
            _step(now - 400_000, two, "attached", "again", **far),
            hold(570_000, "held", 5_000, "o-2 publish"),
            hold(9_000, "freed", 566_000, "o-0 publish"),
        )  # fmt: skip
        waits = {it["name"]: it for it in await shell.json("interrupted")}
        again, away = waits["again"], waits["away"]
        assert (again["waitedMs"], again["backAtBroker"], again["tries"]) == (200_000, two, 1)
        assert (away["backAt"], away["tries"]) == (None, 1)
        assert again["heldBy"] == "o-2 publish"
        _, out, _ = await shell.run("interrupted", "b9:1")
        tried = "it was lost; it tried once and got no message through; for "
        assert out.count(tried) == 2
        assert f"of it, {two} held its connection: o-2 publish" in out


def _causes(**given: Any) -> Causes:
    """What is known of 98 seconds, which is nothing but this."""
    none: dict[str, Any] = {"waits": [], "lapses": [], "steps": [], "notes": []}
    of = {**none, "changes": [], "downs": [], "missing": {}}
    by_name = Waits(**{key: given.pop(key, usual) for key, usual in of.items()})
    maps: dict[str, Any] = {"held_at": {}, "refusals": {}}
    return Causes(by_name=by_name, as_of_ms=98_000, **maps | given)


def test_a_broker_that_stopped_in_order_says_so() -> None:
    """It closes the topics that it served; one that goes on has closed this one alone."""
    step = _step(50_000, "b1:1", "left", "p", reason=CLOSED_HERE)
    closed = Interrupted(step, 50_000, lost=False, back_at=51_000, back="b2:1")

    def change(ts: int, event: str, of: str = "b1:1") -> MemberChange:
        return MemberChange(ts=ts, broker=of, of=of, event=event)

    stops, starts, other = change(49_800, "stops"), change(49_900, "starts"), "b2:1"
    for changes, why in (
        ([stops], "it stopped in order"),
        ([starts, stops], CLOSED_HERE),
        ([change(60_000, "stops")], CLOSED_HERE),
        ([change(49_800, "stops", of=other)], CLOSED_HERE),
    ):
        assert _causes(changes=changes).because(closed) == why


def test_why_the_client_of_a_lost_broker_waited_for_long() -> None:
    """When its session was over, when its bundle had an owner again, and when the client came; and
    that all brokers were down. A short wait needs no such words.
    """
    step = _step(20_000, "b1:1", "attached", "p")
    lost = Interrupted(step, 50_000, lost=True, back_at=81_000, back="b2:1")

    def owned(ts: int, broker: str) -> OwnershipStep:
        return OwnershipStep(
            ts=ts, broker=broker, bundle=BUNDLE, before="Assigning", after="Owned", reason=""
        )

    before, after = owned(49_000, "b1:1"), owned(79_000, "b2:1")
    causes = _causes(owned=[before, after])
    assert causes.because(lost) == "it was lost"
    assert causes.course(lost) == (
        "its session was over at 00:00:50Z, b2:1 had its bundle from 00:01:19Z on, the client came "
        "at 00:01:21Z"
    )
    assert causes.course(Interrupted(step, 50_000, lost=True, back_at=51_000, back="b2:1")) == ""
    down = Downtime(40_000, 75_000, ended={"b1:1": 38_000})
    causes = _causes(owned=[before, after], downs=[down])
    assert causes.because(lost) == (
        "all brokers were down: from 1970-01-01 00:00:40Z at the earliest to 00:01:15Z (35 s at "
        "most)"
    )
    assert causes.course(lost).startswith("b2:1 had its bundle from 00:01:19Z on, ")
    assert _causes(downs=[Downtime(40_000, 75_000)]).because(lost) == "it was lost"


def test_a_client_that_may_leave_again_is_not_said_to_be_away() -> None:
    """It says since when it is there, and that it may leave; no limit is to blame meanwhile."""
    step = _step(50_000, "b1:1", "left", "p")
    again = Interrupted(step, 50_000, lost=True, again_at=91_000, again="b2:1")
    away = Interrupted(step, 50_000, lost=True)
    causes = _causes(held_at={key_of(step): "b3:1"})
    waited, *_, why, now_at = _row(again, causes, [])
    assert (waited, why) == ("41 s; here again for 7.0 s, not sure to stay", "it was lost")
    assert now_at == "b2:1"
    assert _row(away, causes, [])[0] == "48 s, NOT BACK"
    text = between_text([again, away], 40_000, 60_000, 98_000)
    assert text.endswith(
        "; 1 is attached again, not sure to stay; 1 is not seen to be attached again"
    )


def test_the_limits_of_a_hold_are_those_of_then() -> None:
    """By the looks of then, or by those before and after it, if these agree; else not known."""
    at = ConnectionHold("b1", "10.0.3.7:9", 0, 900_000, ((5_000, "o-2"), (800_000, "o-0")))
    assert at.limits_between(1_000, 9_000) == "o-2"
    assert at.limits_between(790_000, 799_000) == "o-0"
    assert at.limits_between(60_000, 70_000) is None
    same = ConnectionHold("b1", "10.0.3.7:9", 0, 900_000, ((5_000, "o-2"), (800_000, "o-2")))
    assert same.limits_between(60_000, 70_000) == "o-2"
    assert same.limits_between(810_000, 820_000) is None


def _held(begin: int, end: int, limits: str, broker: str = "b2:1") -> ConnectionHold:
    client = f"10.0.3.7:{begin}"
    return ConnectionHold(broker, client, begin, end, ((begin, limits), (end, limits)))


def test_what_a_record_and_the_look_of_now_have_counts_once() -> None:
    """The look may begin some seconds later: the limit had let the connection go for a moment."""

    def hold(begin: int, end: float) -> ConnectionHold:
        return ConnectionHold("b1:1", "10.0.3.7:9", begin, end, ((begin, "t publish"),))

    for holds in (
        [hold(5_000, 28_000), hold(13_000, inf)],
        [hold(13_000, inf), hold(5_000, 9_000)],
    ):
        (of,) = sums_of(holds, 0, 30_000, Stood({}))
        assert of.held_ms == (25_000 if holds[0].begin == 5_000 else 21_000)
        (of,) = sums_of(holds, 0, 30_000, Stood({"b1:1": [(14_000, 15_000)]}))
        assert of.held_ms == (24_000 if holds[0].begin == 5_000 else 20_000)


def test_a_limit_that_held_the_connection_for_lookups() -> None:
    """A client that is back over another connection may have waited for one of its host that limits
    held for most of its wait: they are named, those of its namespace before others. Not if it was
    back soon, or they held it for less.
    """
    step = _step(50_000, "b1:1", "left", "p")
    wait = Interrupted(step, 50_000, lost=True, back_at=73_000, back="b3:1", over="10.0.3.7:1")
    near, other = "persistent://acme/orders/a publish", "persistent://beta/x/a publish"
    holds = [_held(30_000, 72_000, near), _held(20_000, 80_000, other), _held(70_000, 99_000, near)]
    assert longest_for(holds, wait, 100_000) is holds[0]
    assert longest_for(holds[1:], wait, 100_000) is holds[1]
    assert longest_for(holds[2:], wait, 100_000) is None
    assert longest_for([_held(30_000, 72_000, near, "b1:1")], wait, 100_000) is None
    assert longest_for(holds, wait, 100_000, still_ms=70_000) is None
    assert longest_for(holds, wait, 100_000, still_ms=55_000) is holds[0]
    own = ConnectionHold("b3:1", "10.0.3.7:1", 60_000, 62_000, ((61_000, other),))
    assert longest_for([*holds, own], wait, 100_000) is own
    soon = Interrupted(step, 50_000, lost=True, back_at=54_000, back="b3:1", over="10.0.3.7:1")
    assert longest_for(holds, soon, 100_000) is None


async def test_stories_tell_for_how_long_clients_waited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That of a client when its broker stood still and when limits held its connection; those of
    its topic, namespace and tenant the sums, and which commands have each.
    """
    now = SystemClock().now_ms()
    async with serving(1, values=in_folder(tmp_path)) as served:
        shell, own = Shell(served, capsys), served.broker_id(0)
        held: dict[str, Any] = {
            "client": "10.0.3.7:4711", "address": "10.0.3.7", "what": "connection",
            "reason": f"{TOPIC} publish",
        }  # fmt: skip
        await written(
            served, 0,
            _step(now - 300_000, own, "attached", "c"),
            _step(now - 290_000, own, "attached", "other", client="10.0.3.8:1", topic=f"{TOPIC}2"),
            ClientStep(ts=now - 240_000, broker=own, event="held", held_ms=5_000, **held),
            ClientStep(ts=now - 165_000, broker=own, event="freed", held_ms=80_000, **held),
            MemberChange(
                ts=now - 100_000, broker=own, of=own, event="stood", took_ms=4_100, clients=2
            ),
        )  # fmt: skip
        status, out, _ = await shell.run("history", "c")
        stood = f"producer c on {TOPIC} waited for 4.1 s, because of {own}: it stood still from "
        by = f"connection 10.0.3.7:4711 was held at {own} until {clock(now - 165_000)}, for 80 s in"
        assert status == 0
        assert f"{clock(now - 104_100)}  {stood}" in out
        assert f"{clock(now - 245_000)}  {by} all, by {TOPIC} publish" in out
        assert "other" not in out
        _, out, _ = await shell.run("history", "10.0.3.7")  # its records tell when it was held
        assert (stood in out, "was held at" in out) == (True, False)
        assert "was held until then at" in out
        since = ["--since", clock(now - 310_000).replace(" ", "T")]
        for name, about, count in (
            ("acme", "://acme/", 2),
            ("acme/orders", "://acme/orders/", 2),
            (TOPIC + "2", TOPIC + "2", 1),
        ):
            _, out, _ = await shell.run("history", name, *since)
            interruptions = "1 interruption" if count == 1 else f"{count} interruptions"
            told = name != TOPIC + "2"
            assert f"{interruptions} of clients from {clock(now - 310_000)} to " in out, name
            command = f"`loadmanager admin interrupted {about} {' '.join(since)}` names each"
            assert f"were attached again after 4.1 s at most: {command}" in out
            limits = f"`loadmanager admin limits list --clients {' '.join(since)}` names each"
            first = "limits held 1 connection of its clients then, for 80 s in all, "
            assert (f"{first}10.0.3.7:4711 for 80 s (by {TOPIC} publish): {limits}" in out) is told


async def test_a_loss_that_nobody_has_recorded_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whom it interrupted is not known before: a broker does not answer, or a process is young."""
    async with serving(2, values=in_folder(tmp_path)) as served:
        shell, (one, two) = Shell(served, capsys), (served.broker_id(0), served.broker_id(1))
        now = SystemClock().now_ms()
        ends = (
            MemberChange(ts=now, broker=one, of=of, event="left", how="lost", left_at=now)
            for of in (one, two)
        )
        await written(served, 0, *ends)  # so that no young process has replaced an unknown one
        said = "NOT ALL MAY BE RECORDED YET"
        await eventually(lambda: shell.run("interrupted"), lambda answer: said not in answer[1])
        await served.servers[1].stop()
        _, out, _ = await shell.run("interrupted", "--since", "1m")
        (line,) = (it for it in out.splitlines() if it.startswith(said))
        assert f"; {two} does not answer (" in line
        before = now - 60 * 60_000
        _, out, _ = await shell.run("interrupted", "--until", clock(before))
        assert said not in out
        for broker in served.brokers:
            broker.store.suspend()
            broker.store.expire()
        await eventually(
            lambda: shell.run("interrupted"), lambda answer: "no broker leads now" in answer[1]
        )
