"""`loadmanager admin bundles pins --at` and cordons of a past moment: as changes tell them."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker.admin.serving import ORDERS, serving
from broker.admin.test_archive import archive_of, in_folder, written
from cli.test_admin_command import Shell
from cli.test_past import UNUSED
from cli.test_past_findings import iso
from clusters.running import until

from loadmanager.cli.admin.archives import EventsOfAll
from loadmanager.cli.admin.past_wishes import rebuilt
from loadmanager.engine.history.records import AuditedChange, BrokerLoad
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
