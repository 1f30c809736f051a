"""`loadmanager admin bundles pins --at` and cordons of a past moment: as changes tell them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from broker.admin.serving import ORDERS, serving
from broker.admin.test_archive import archive_of, in_folder, written
from cli.test_admin_command import Shell
from cli.test_past import UNUSED
from cli.test_past_findings import iso
from clusters.running import eventually, until

from loadmanager.cli.admin.archives import EventsOfAll
from loadmanager.cli.admin.past_goals import of_record
from loadmanager.cli.admin.past_wishes import DocumentThen, rebuilt
from loadmanager.cli.admin.times import clock
from loadmanager.engine.history.records import AuditedChange, BrokerLoad
from loadmanager.engine.plans.goals import Even
from loadmanager.kit.history.archive_answers import ArchivedEvent
from loadmanager.kit.metadata import paths
from loadmanager.kit.system.clock import SystemClock

FIRST = f"{ORDERS}/0x00000000_0x40000000"


async def now_of(archive_ms: int) -> int:
    """A moment that is later than all that happened, by the clock of the records."""
    clock = SystemClock()
    await until(lambda: clock.now_ms() > archive_ms + 1)
    return clock.now_ms()


async def test_pins_and_cordons_of_a_moment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before they are ordered, while they hold, and after they were lifted, whoever is asked."""
    async with serving(brokers=3, values=in_folder(tmp_path)) as served:
        shell, other = Shell(served, capsys), served.broker_id(1)
        await served.own(FIRST, at=0)
        before = await now_of(SystemClock().now_ms())
        await now_of(before)
        words = ("bundles", "move", FIRST, "--to", other, "--pin", "2h", "--note", "for the test")
        status, _, err = await shell.run(*words)
        assert status == 0, err
        assert (await shell.run("brokers", "cordon", other))[0] == 0
        during = await now_of(SystemClock().now_ms())
        await now_of(during)
        assert (await shell.run("bundles", "unpin", FIRST, at=2))[0] == 0
        assert (await shell.run("brokers", "uncordon", other, at=2))[0] == 0
        after = await now_of(SystemClock().now_ms())
        for index in range(3):
            await archive_of(served, index).settle(60.0)
        for moment in (before, after):
            assert await shell.json("bundles", "pins", "--at", iso(moment)) == []
        status, out, _ = await shell.run("bundles", "pins", "--at", iso(before))
        assert "no bundle was pinned, as far as it is recorded" in out
        (pin,) = await shell.json("bundles", "pins", "--at", iso(during), at=1)
        assert (pin["bundle"], pin["broker"], pin["note"]) == (FIRST, other, "for the test")
        assert FIRST in (await shell.run("bundles", "pins", "--at", iso(during)))[1]
        head = {"ts": before, "broker": other, "interval_ms": 60_000, "usage": 0.1}
        await written(served, 1, BrokerLoad(**head, **UNUSED))
        for moment, cordon in ((before, ""), (during, "cordoned since "), (after, "")):
            rows = await shell.json("brokers", "list", "--at", iso(moment))
            (row,) = (it for it in rows if it["broker"] == other)
            assert (row["cordon"] != "", row["cordon"].startswith(cordon)) == (bool(cordon), True)


async def test_a_pause_of_a_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While it is in force, whoever is asked; not after it was ended, or ran out."""
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        before = await now_of(SystemClock().now_ms())
        await now_of(before)
        words = ("moves", "pause", "2h", "--note", "release", "--json")
        pause = json.loads((await shell.run(*words))[1])
        during = await now_of(SystemClock().now_ms())
        await now_of(during)
        assert (await shell.run("moves", "resume", at=1))[0] == 0
        after = await now_of(SystemClock().now_ms())
        for index in range(2):
            await archive_of(served, index).settle(60.0)
        head = {"ts": before, "broker": served.broker_id(0), "interval_ms": 60_000, "usage": 0.1}
        over = AuditedChange(
            ts=before - 9_000, broker="b0", role="", address="c", over="http", what="",
            path=paths.PAUSE, after=json.dumps({"untilMs": before - 1_000}),
        )  # fmt: skip
        await written(served, 0, BrokerLoad(**head, **UNUSED), over)
        told = (
            f"moves were paused until {clock(pause['until'])} (release; by 127.0.0.1), "
            f"since {clock(pause['since'])}"
        )
        for moment, paused in ((before, []), (during, [told]), (after, [])):
            for of in (("status",), ("moves", "list")):
                lines = (await shell.run(*of, "--at", iso(moment), at=1))[1].splitlines()
                assert [line for line in lines if "paused" in line] == paused


def a_change(ts: int, name: str, before: str | None, after: str | None) -> ArchivedEvent:
    """A change of a pin, as archives have it."""
    record = AuditedChange(
        ts=ts,
        broker="b1",
        role="deploy",
        address="c",
        over="http",
        what="",
        path=paths.pin(name),
        before=before,
        after=after,
    )
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    return ArchivedEvent(id=ts, kind="change", ts=ts, last=ts, times=1, record=fields)


def test_documents_are_rebuilt_from_what_changes_tell() -> None:
    """Forwards from the one that made it; backwards from the present, where that is not recorded;
    one that nobody knows to have been there was not.
    """
    changes = [
        a_change(10, "t/n/made", None, '{"broker":"b1","note":"a"}'),
        a_change(20, "t/n/made", '{"broker":"b1"}', '{"broker":"b2"}'),
        a_change(40, "t/n/made", '{"broker":"b2","note":"a"}', None),
        a_change(30, "t/n/older", '{"broker":"b1"}', '{"broker":"b3"}'),
        a_change(30, "t/n/gone", '{"broker":"b4"}', None),
        a_change(30, "t/n/later", None, '{"broker":"b5"}'),
    ]
    events = EventsOfAll(changes, {}, [], {})
    present = {
        "t/n/older": {"broker": "b3", "note": "o"},
        "t/n/later": {"broker": "b5"},
        "t/n/untouched": {"broker": "b6"},
    }

    def at(ts: int) -> dict[str, object]:
        then = rebuilt(events, present, ts).documents
        return {name.removeprefix("t/n/"): it.fields for name, it in then.items()}

    old = {"broker": "b1", "note": "o"}
    untouched = {"broker": "b6"}
    assert at(9) == {"older": old, "gone": {"broker": "b4"}, "untouched": untouched}
    assert at(10)["made"] == {"broker": "b1", "note": "a"}
    assert at(20)["made"] == {"broker": "b2", "note": "a"}
    now = {"older": {"broker": "b3", "note": "o"}, "later": {"broker": "b5"}}
    assert at(40) == {**now, "untouched": untouched}


async def test_goals_of_a_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was ordered, approved and stopped by then, whoever is asked."""
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        before = await now_of(SystemClock().now_ms())
        await now_of(before)
        lost = served.broker_id(1)
        await served.own(FIRST, at=1)
        words = ("goals", "propose", "--empty", lost, "--json")
        _, answer, _ = await eventually(  # once the bundle is reported
            lambda: shell.run(*words), lambda answer: answer[0] == 0
        )
        order = json.loads(answer)
        proposed = await now_of(order["madeMs"])
        await now_of(proposed)
        stopped = (await shell.json("goals", "stop", order["id"]))["endedMs"]
        ended = await now_of(stopped)
        other = AuditedChange(
            ts=proposed, broker=lost, role="", address="c", over="http", what="",
            path=paths.goal("9-g9"), after='{"state":…',
        )  # fmt: skip
        await written(served, 1, other)
        for index in range(2):
            await archive_of(served, index).settle(60.0)
        assert await shell.json("goals", "list", "--at", iso(before)) == {"goals": []}
        out = (await shell.run("goals", "list", "--at", iso(before)))[1]
        assert "no goal was ordered by then, as far as is recorded" in out
        for moment, state in ((proposed, "proposed"), (ended, "ended")):
            goals = (await shell.json("goals", "list", "--at", iso(moment), at=1))["goals"]
            (goal,) = (it for it in goals if it["id"] == order["id"])
            assert (goal["state"], goal["madeMs"]) == (state, order["madeMs"])
            assert goal["endedMs"] == (stopped if state == "ended" else None)
            assert {"approvedMs", "goal", "note"} <= goal.keys() & order.keys()
            assert "by 127.0.0.1" in goal["changed"]
            _, out, _ = await shell.run("goals", "show", order["id"], "--at", iso(moment))
            assert out.startswith(f"goal {order['id']} ({lost} emptied) was {state} at ")
            assert "9-g9" not in out
        status, _, err = await shell.run("goals", "show", order["id"], "--at", iso(before))
        assert (status, f"no goal {order['id']} was ordered by" in err) == (1, True)


def test_a_goal_that_is_forgotten_is_told_by_its_records() -> None:
    """Its orders; a record that was cut off has no goal."""
    fields = {"goal": {"kind": "even", "withinPoints": 3.0}, "state": "approved", "madeMs": 7}
    then = of_record("6-g1", DocumentThen(fields, "then by jane"))
    assert (then.goal, then.state, then.made_ms) == (Even(3.0), "approved", 7)
    assert of_record("6-g2", DocumentThen({}, "")).goal is None
