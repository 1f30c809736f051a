"""Pins, cordons and the pause of a daemon without a metadata store; and notes."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadmanager.engine.load.wishes import Pause
from loadmanager.kit.errors import ConflictError, OperationalError
from loadmanager.kit.system.clock import SystemClock
from loadmanager.steer.files.note import FileNote
from loadmanager.steer.files.wishes_file import FILE_BYTES_MAX, WishesFile

CLOCK = SystemClock()


async def test_a_file_that_cannot_be_read_now_stays(tmp_path: Path) -> None:
    """It is no corrupt one: the next start finds the pause again."""
    path = tmp_path / "wishes.json"
    await WishesFile(path, CLOCK).set_pause(Pause(CLOCK.now_ms() + 60_000, "hands off"), ())
    kept = path.rename(tmp_path / "kept")
    path.mkdir()
    with pytest.raises(OperationalError, match="cannot be read"):
        WishesFile(path, CLOCK)
    with pytest.raises(OperationalError, match="cannot be read"):
        await FileNote(path).read()
    path.rmdir()
    kept.rename(path)
    pause = WishesFile(path, CLOCK).pause()
    assert pause is not None
    assert pause.note == "hands off"


@pytest.mark.parametrize("text", [b"", b"\xff", b'{"pins": 1}', b'{"x":' + b"[" * 100_000])
def test_a_file_that_makes_no_sense_is_set_aside(tmp_path: Path, text: bytes) -> None:
    """It is there for a person to look at."""
    path = tmp_path / "wishes.json"
    path.write_bytes(text)
    wishes = WishesFile(path, CLOCK)
    assert (wishes.pins, wishes.cordons, wishes.pause()) == ({}, {}, None)
    assert (tmp_path / "wishes.corrupt").read_bytes() == text
    assert not path.exists()


async def test_a_disk_that_takes_nothing(tmp_path: Path) -> None:
    """What was kept stays as it was."""
    path = tmp_path / "wishes.json"
    wishes = WishesFile(path, CLOCK)
    (tmp_path / "wishes.new").symlink_to("/dev/full")
    with pytest.raises(OperationalError, match="No space left"):
        await wishes.set_pause(Pause(CLOCK.now_ms() + 60_000, "x"), ())
    assert wishes.pause() is None
    assert not path.exists()


async def test_a_note_is_the_last_value(tmp_path: Path) -> None:
    """None before the first one."""
    note = FileNote(tmp_path / "a" / "note.json")
    assert await note.read() is None
    await note.write(b"1")
    await note.write(b"2")
    assert await note.read() == b"2"


async def test_more_than_is_read_again_is_not_kept(tmp_path: Path) -> None:
    """The file would be set aside at the next start."""
    path = tmp_path / "wishes.json"
    wishes = WishesFile(path, CLOCK)
    note = "\x01" * (FILE_BYTES_MAX // 6)
    with pytest.raises(ConflictError, match="end some first"):
        await wishes.set_pause(Pause(CLOCK.now_ms() + 60_000, note), ())
    assert not path.exists()
