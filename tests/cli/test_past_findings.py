"""`loadmanager admin findings --at`: what leaders had found wrong, while one is lost."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from broker.admin.serving import Served, serving
from broker.admin.test_archive import MINUTE, a_decision, archive_of, in_folder, written
from broker.admin.test_findings_shown import flap
from cli.test_admin_command import Shell
from clusters.running import eventually, until

from loadmanager.cli.admin.times import time_of_day
from loadmanager.kit.system.clock import SystemClock
from loadmanager.leader.findings import TermFindings

HOLD = "loadBalancerSheddingGracePeriodMinutes"


def iso(at_ms: float) -> str:
    """A time of the command line, with its milliseconds."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


async def findings_of(served: Served, index: int) -> TermFindings:
    """The findings of a broker that leads."""
    leading = served.brokers[index].use.leading
    await until(lambda: leading.findings is not None, within_s=60)
    assert isinstance(leading.findings, TermFindings)
    return leading.findings


async def look(served: Served, index: int, findings: TermFindings) -> int:
    """Look, and wait until it is recorded; when that was."""
    archive = archive_of(served, index)
    await findings.step()
    await archive.settle(60.0)
    at = findings.shown().looked_at
    assert at is not None
    return at


async def test_findings_of_two_leaders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From when one is found until it ends, and what a lost leader had found; `status --at` and
    the stories of what they are about tell of them, too.
    """
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        first = await findings_of(served, 0)
        nothing = await look(served, 0, first)
        flap(first)
        began = await look(served, 0, first)
        (title,) = (it.title for it in first.shown().findings)
        answer = await shell.json("findings", "--at", iso(nothing))
        assert (answer["looked"], answer["findings"], answer["before"]) == (True, [], [])
        status, out, _ = await shell.run("findings", "--at", iso(nothing))
        assert (status, "found nothing wrong when it looked last before then" in out) == (0, True)
        status, out, err = await shell.run("findings", "--at", iso(began))
        assert (status, err) == (0, "")
        lines = out.splitlines()
        assert lines[0].startswith(f"{served.broker_id(0)} led, term ")
        assert lines[1] == f"{title} (as of {time_of_day(began)})"
        assert lines[3].startswith("    loadmanager admin decisions --bundle ")
        assert (await served.ask("POST", f"/admin/v2/brokers/configuration/{HOLD}/1")).status == 204
        strategies = first.load_manager.strategies
        await until(lambda: strategies.value.grace_period_minutes == 1)
        ended = await look(served, 0, first)
        assert (await shell.json("findings", "--at", iso(ended)))["findings"] == []
        assert (await shell.json("findings", "--at", iso(ended - 1)))["findings"] != []
        (finding,) = (await shell.json("findings", "--at", iso(began)))["findings"]
        story = (await shell.run("history", finding["about"]))[1]
        assert f"the leader finds: {title}" in story
        assert f"the leader no longer finds: {title}" in story


async def test_a_leader_that_is_lost_leaves_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another broker reads its archive, and tells it beside what the next leader finds."""
    async with serving(values=in_folder(tmp_path)) as served:
        lost = served.broker_id(0)
        first = await findings_of(served, 0)
        flap(first)
        began = await look(served, 0, first)
        (title,) = (it.title for it in first.shown().findings)
        await served.servers[0].stop()
        served.brokers[0].store.suspend()
        served.brokers[0].store.expire()
        second = await findings_of(served, 1)
        await until(lambda: bool(second.members.lost()))
        looked = await look(served, 1, second)
        shell = Shell(served, capsys)
        status, out, _ = await shell.run("findings", "--at", iso(looked + 1), at=1)
        assert status == 0
        assert out.splitlines()[0].startswith(f"{served.broker_id(1)} led, term ")
        assert f"{lost} had found before its term ended" in out
        assert "the leader found nothing wrong" not in out
        assert out.index(f"{lost} was lost, and is not back") < out.index(title)
        answer = await shell.json("findings", "--at", iso(began), at=1)
        assert [it["title"] for it in answer["findings"]] == [title]
        assert answer["before"] == []
        await _is_told_by_the_next(shell, lost, title)


async def _is_told_by_the_next(shell: Shell, lost: str, title: str) -> None:
    """While it cannot know whether that is over."""
    answer = await shell.json("findings", at=1)
    assert [(it["title"], it["foundBy"]) for it in answer["before"]] == [(title, lost)]
    said = f"{lost} had found before its term ended, and this is not known to be over"
    out = (await shell.run("findings", at=1))[1]
    assert out.index(f"{lost} was lost, and is not back") < out.index(said) < out.index(title)
    (line,) = (it for it in (await shell.run("status", at=1))[1].splitlines() if said in it)
    assert title in line


async def test_a_time_of_which_no_look_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not taken for one in which nothing was wrong."""
    async with serving(brokers=1, values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        await written(served, 0, a_decision(SystemClock().now_ms(), what="cluster"))
        early = SystemClock().now_ms() - 300 * MINUTE
        said = await eventually(
            lambda: shell.run("findings", "--at", iso(early)), lambda it: "no look" in it[1]
        )
        assert said[0] == 1
        assert "not all is here" in said[1]
