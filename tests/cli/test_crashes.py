"""What is told of a time in which the whole cluster was down: nobody was left to record it."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from broker.admin.serving import serving
from broker.admin.test_archive import BUNDLE, in_folder, recorded_in, written
from cli.test_admin_command import Shell
from cli.test_past import UNUSED

from loadmanager.cli.admin.times import clock, span, time_of_day
from loadmanager.engine.history.clients import ClientStep
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import BrokerLoad
from loadmanager.kit.history.archive_answers import ArchivedEvent, ArchivedEvents, RecordedSpan
from loadmanager.kit.system.clock import SystemClock
from loadmanager.leader.interruptions import all_losses, downs_of

MINUTE = 60_000
SECOND = 1_000


def a_part(broker: str, runs: list[tuple[int, int]], *changes: MemberChange) -> ArchivedEvents:
    """The part of a broker."""
    events = [
        ArchivedEvent(
            id=it.ts, kind=it.kind, ts=it.ts, last=it.ts, times=1,
            record={"ts": it.ts, "of": it.of, "event": it.event, "how": it.how},
        )
        for it in sorted(changes, key=lambda it: -it.ts)
    ]  # fmt: skip
    spans = [RecordedSpan(begin=begin, end=end) for begin, end in runs]
    return ArchivedEvents(part=broker, recorded=spans, events=events)


def a_change(ts: int, of: str, event: str, by: str = "", **more: Any) -> MemberChange:
    """By the broker itself, unless another one recorded it."""
    return MemberChange(ts=ts, broker=by or of, of=of, event=event, **more)


def span_text(seconds: int) -> str:
    """A time as it is told."""
    return span(seconds * SECOND)


def first_ended(folder: Path, broker: str, at_ms: int) -> None:
    """Have the archive of a broker say that it had ended then the first time."""
    (path,) = (it for it in folder.rglob("*.sqlite") if broker.split(":")[1] in str(it))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE run SET ended = ? WHERE id = 1", (at_ms,))


def test_all_that_had_not_stopped_are_lost_when_the_whole_cluster_goes_down() -> None:
    """Each at its last sign, or so long after it as a broker may be silent; not one that had
    stopped, or of which another one had recorded that it was lost, or that was there no more.
    """
    lost = a_change(94_000, "early", "left", "b1", how="lost")
    parts = [
        a_part("b1", [(0, 100_000), (125_000, 200_000)], a_change(125_500, "b1", "starts"), lost),
        a_part("b2", [(0, 92_000)]),
        a_part("stops", [(0, 99_000)], a_change(98_000, "stops", "stops")),
        a_part("early", [(0, 80_000)]),
        a_part("before", [(0, 30_000)]),
    ]
    (down,) = downs_of(parts, 0)
    assert (down.begin, down.end, down.in_order) == (100_000, 125_000, False)
    assert down.ended == {"b1": 100_000, "b2": 92_000}
    late = [
        a_change(131_000, "b2", "left", "b1", how="lost"),
        a_change(94_000, "early", "left", "b1", how="lost"),
    ]
    told = {(it.broker, it.ts, it.unheard_ms) for it in all_losses(late, [down])}
    assert told == {("b1", 112_000, 12_000), ("b2", 104_000, 12_000), ("early", 94_000, 0)}


@pytest.mark.parametrize("event", ["stops", "proven"])
def test_a_short_time_counts_if_every_broker_starts_after_it(event: str) -> None:
    """Those that had not stopped in order are lost, at their last signs."""
    parts = [
        a_part(
            broker, [(0, 100_000), (104_000 + late, 200_000)],
            a_change(99_000, broker, event), a_change(104_100 + late, broker, "starts"),
        )
        for broker, late in (("b1", 0), ("b2", 9_000))
    ]  # fmt: skip
    (down,) = downs_of(parts, 0)
    assert (down.begin, down.end, down.in_order) == (100_000, 104_000, event == "stops")
    assert down.ended == ({} if down.in_order else {"b1": 100_000, "b2": 100_000})
    told = [(it.broker, it.ts, it.unheard_ms) for it in all_losses([], [down])]
    assert told == [(broker, 104_000, 4_000) for broker in down.ended]


def test_a_full_disk_and_the_crash_of_one_broker_are_no_crash_of_all() -> None:
    """No archive could be written; the brokers that lived go on without a start."""
    parts = [
        a_part("b1", [(0, 100_000), (190_000, 300_000)], a_change(190_100, "b1", "starts")),
        a_part("b2", [(0, 99_000), (180_000, 300_000)]),
        a_part("b3", [(0, 101_000), (179_000, 300_000)]),
    ]
    assert downs_of(parts, 0) == []


@pytest.mark.parametrize(
    ("other", "until_ms", "is_down"),
    [
        ([(0, 98_000), (104_000, 200_000)], 200_000, False),
        ([(0, 98_000)], 106_000, False),
        ([(0, 98_000)], 200_000, True),
    ],
)
def test_a_short_time_does_not_count_if_a_broker_may_have_lived_through_it(
    other: list[tuple[int, int]], until_ms: int, *, is_down: bool
) -> None:
    """Its archive was broken for a moment, as it does not start again; or its next sign is not
    due. One that gave none since had ended, too.
    """
    starts = a_change(104_100, "b1", "starts")
    parts = [a_part("b1", [(0, 100_000), (104_000, until_ms)], starts), a_part("b2", other)]
    assert len(downs_of(parts, 0)) == is_down


@pytest.mark.parametrize("seconds", [25, 6])
async def test_clients_of_brokers_that_all_ended_without_a_word_were_interrupted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seconds: int
) -> None:
    """They are named, counted, and back when that is recorded; and so are the lost brokers. The
    cluster is not said to have brokers while it is said to have been down. However short that was.
    """
    now = SystemClock().now_ms() // 1000 * 1000
    up = now - 15 * SECOND
    down = up - seconds * SECOND
    unheard = min(12, seconds)
    async with serving(2, values=in_folder(tmp_path)) as served:
        shell, ids = Shell(served, capsys), [served.broker_id(index) for index in range(2)]

        def step(ts: int, broker: str, event: str, name: str, reason: str = "") -> ClientStep:
            return ClientStep(
                ts=ts, broker=broker, event=event, client="10.0.3.7:4711", what="producer",
                name=name, topic="persistent://acme/orders/t", bundle=BUNDLE, reason=reason,
            )  # fmt: skip

        await written(
            served, 0,
            a_change(now - 3 * MINUTE, ids[0], "starts"),
            step(now - 2 * MINUTE, ids[0], "attached", "back"),
            step(now - 2 * MINUTE, ids[0], "attached", "ended"),
            step(down - SECOND, ids[0], "left", "ended", "its client closed it"),
            a_change(up, ids[0], "starts"),
            step(up + 2 * SECOND, ids[0], "attached", "back"),
        )  # fmt: skip
        await written(
            served, 1,
            a_change(now - 3 * MINUTE, ids[1], "starts"),
            step(now - 2 * MINUTE, ids[1], "attached", "away"),
            a_change(up, ids[1], "starts"),
        )  # fmt: skip
        recorded_in(tmp_path, [(1, now - 3 * MINUTE, down), (2, up, now)])
        told = {it["name"]: it for it in await shell.json("interrupted", "--since", clock(down))}
        assert told.keys() == {"back", "away"}
        back, away = told["back"], told["away"]
        assert (back["waitedMs"], back["unheardMs"]) == (
            (2 + seconds - unheard) * SECOND, unheard * SECOND,
        )  # fmt: skip
        between = f"from {clock(down)} at the earliest to {time_of_day(up)}"
        because = f"all brokers were down: {between} ({span_text(seconds)} at most)"
        assert (back["because"], away["backAt"]) == (because, None)
        out = (await shell.run("interrupted", "--since", clock(down)))[1]
        waited = f"{span_text(2 + seconds - unheard)} to {span_text(2 + seconds)}"
        assert waited in out
        out = (await shell.run("status"))[1]
        assert ": 0 moves, 2 brokers lost, " in out, out
        assert f"longest {waited} until attached again" in out
        (line,) = [line for line in out.splitlines() if line.startswith("the whole cluster was ")]
        assert re.search(rf"to {re.escape(clock(up))} \({span_text(seconds)} at most\)", line)
        assert line.endswith(" ago")
        kept = "all topics were in memory (loadManagerStorageDirectory is empty): what was not"
        assert f"as {served.url(0)} is set: {kept}" in out
        over = (await shell.run("status", "--over"))[1]
        assert over.count("the whole cluster was down") == 1
        out = (await shell.run("find", "away"))[1]
        assert f"(its broker {ids[1]} was lost)" in out
        out = (await shell.run("status", "--at", clock(down + 2 * SECOND)))[1]
        assert f"down from {clock(down)} at the earliest to {clock(up)} " in out
        assert f"({span_text(seconds)} at most)" in out


async def test_no_broker_is_said_to_be_there_while_the_whole_cluster_was_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also right after the last signs, of which one was a moment before the other."""
    now = SystemClock().now_ms() // 1000 * 1000
    down, up = now - 40 * SECOND, now - 15 * SECOND
    async with serving(2, values=in_folder(tmp_path)) as served:
        shell, ids = Shell(served, capsys), [served.broker_id(index) for index in range(2)]
        for index, name in enumerate(ids):
            load = BrokerLoad(
                ts=down - SECOND, broker=name, interval_ms=MINUTE, usage=0.5, **UNUSED
            )
            starts = [a_change(at, name, "starts") for at in (now - 3 * MINUTE, up)]
            await written(served, index, load, *starts)
        recorded_in(tmp_path, [(1, now - 3 * MINUTE, down), (2, up, now)])
        first_ended(tmp_path, ids[1], down - 3 * SECOND)
        out = (await shell.run("status", "--at", clock(down + 2 * SECOND)))[1]
        assert f"down from {clock(down)} at the earliest to {clock(up)} (25 s at most)" in out
        for name, sign in ((ids[0], down), (ids[1], down - 3 * SECOND)):
            assert f"{name} was not there: its last sign was at {clock(sign)}, and nobody" in out
        assert "0 brokers, 0 bundles with an owner" in out
        out = (await shell.run("status", "--at", clock(down - SECOND // 2)))[1]
        assert "2 brokers, " in out
        assert "the whole cluster" not in out
        out = (await shell.run("status", "--at", clock(up + 5 * SECOND)))[1]
        assert out.startswith(f"the whole cluster was down from {clock(down)} "), out
        assert f"anything, {span_text(5)} ago" in out.splitlines()[0]
