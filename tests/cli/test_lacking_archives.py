"""Archives that cannot be written, or whose files others spoil: each command that asks them says
what is missing.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from broker.admin.serving import serving
from broker.admin.test_archive import archive_of, in_folder
from cli.test_admin_command import Shell
from clusters.running import until

from loadmanager.kit.history.archive_answers import ArchivedEvents, UnrecordedSpan
from loadmanager.leader.interruptions import AskedArchives, lacking

QUESTIONS = (
    ("interrupted",),
    ("compare", "--since", "10m"),
    ("limits", "list", "--clients", "--since", "1h"),
    ("history",),
    ("undo", "--since", "1h"),
    ("undo", "--moves", "--since", "1h"),
    ("audit", "--since", "1h"),
    ("brokers", "list", "--at", "1s ago"),
)


def file_of(folder: Path, broker: str) -> Path:
    """The archive's file of a broker."""
    (path,) = [it for it in folder.rglob("*.sqlite") if broker.split(":")[1] in it.name]
    return path


async def test_what_cannot_be_written_is_said_to_be_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In every answer that archives have a part in, with the reason, and not with status 0; no
    more once it was written.
    """
    async with serving(2, values=in_folder(tmp_path)) as served:
        shell, name, archive = Shell(served, capsys), served.broker_id(1), archive_of(served, 1)
        await until(lambda: archive.bytes_used > 0, within_s=20)
        missing = f"{name} has recorded nothing since 20"
        reason = "Z: its file cannot be written: database is locked"
        with closing(sqlite3.connect(file_of(tmp_path, name), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            await until(lambda: bool(archive.unrecorded_now()), within_s=60)
            for question in QUESTIONS:
                status, out, err = await shell.run(*question)
                assert f"not all is here: {missing}" in err, (question, out)
                assert reason in err
                assert status == 1, question
            status, out, _ = await shell.run("status")
            assert f"ARCHIVE: {missing}" in out
            assert status == 0
            (said,) = (await shell.json("status"))["lacking"]
            assert said.startswith(missing)
            assert f"NOT ALL IS RECORDED: the archives of {name} lack" in out
            _, out, _ = await shell.run("moves", "list")
            assert f"NOT ALL IS RECORDED: the archives of {name} lack" in out
            other.execute("ROLLBACK")
        await until(lambda: not archive.unrecorded_now(), within_s=60)
        for question in QUESTIONS:
            _, _, err = await shell.run(*question)
            assert missing not in err, question
        _, out, _ = await shell.run("status")
        assert "ARCHIVE" not in out


async def test_an_archive_that_began_anew_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its file was removed while the broker ran: that what was before is gone."""
    async with serving(2, values=in_folder(tmp_path)) as served:
        shell, name, archive = Shell(served, capsys), served.broker_id(1), archive_of(served, 1)
        await until(lambda: archive.bytes_used > 0, within_s=20)
        file_of(tmp_path, name).unlink()
        await until(lambda: archive.failures == 1 and not archive.unrecorded_now(), within_s=60)
        said = f"{name}: its archive began anew at 20"
        for question in QUESTIONS:
            _, out, err = await shell.run(*question)
            if question[0] != "brokers":  # it is asked of a moment after that
                assert f"not all is here: {said}" in err, (question, out)
                assert "Z, without what was before: its file was removed" in err
        _, out, _ = await shell.run("status")
        assert f"ARCHIVE: {said}" in out


async def test_an_archive_that_cannot_be_read_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No folder, so that no archive answers: `status` says so, and of whom."""
    async with serving(1, values=in_folder(tmp_path)) as served:
        shell, name, archive = Shell(served, capsys), served.broker_id(0), archive_of(served, 0)
        await until(lambda: archive.bytes_used > 0, within_s=20)
        folder = file_of(tmp_path, name).parent
        folder.rename(folder.with_name("elsewhere"))
        folder.write_text("no folder")
        await until(lambda: archive.failures >= 2, within_s=60)
        _, out, _ = await shell.run("status")
        assert f"ARCHIVE: {name}: " in out
        assert "cannot be read: its file is not there" in out
        assert f"NOT ALL IS RECORDED: the archives of {name} lack" in out


def test_who_lacks_records_of_today() -> None:
    """Those that do not answer, and those that say that they lack something of then."""
    parts = {
        name: ArchivedEvents(part=name, recorded=[], unrecorded=gaps, events=[])
        for name, gaps in (
            ("b1", [UnrecordedSpan(5, 9, "r")]),
            ("b2", [UnrecordedSpan(15, None, "r")]),
            ("b3", [UnrecordedSpan(0, 12, "r")]),
            ("b4", []),
        )
    }
    assert lacking(AskedArchives(parts, frozenset(("b5",))), 10, 20) == ["b2", "b3", "b5"]
