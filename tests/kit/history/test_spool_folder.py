"""What others may put where the spools are: it neither blocks a start, nor ends the process, nor is
read.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from loadmanager.kit.history import spool as spools
from loadmanager.kit.history.spool import HALF_BYTES, HEADER_BYTES, SPOOL_BYTES, Spool

NOBODY = 65534
LINE = ("ownership", "2026-11-20", b'{"bundle":"t/n/1"}')
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


def a_spool(place: Path) -> Spool:
    """The spool of a history; earlier versions kept theirs in a folder beside it."""
    earlier = place.parent / "earlier"
    earlier.mkdir(exist_ok=True)
    return Spool(place, "b", earlier_place=earlier)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a history whose spool is below a runtime directory of its own."""
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "run"))
    return tmp_path / "history"


@pytest.fixture
def elsewhere(place: Path) -> Iterator[Path]:
    """The place of this spool in an earlier version."""
    name = a_spool(place)
    name.close()
    path = place.parent / "earlier" / f"loadmanager-{os.getuid()}-{name.path.name}"
    yield path
    path.unlink(missing_ok=True)
    path.with_suffix(".second").unlink(missing_ok=True)


def content(place: Path) -> bytes:
    """A spool with one line."""
    kind, day, line = LINE
    entry = b"%s %s %s\n" % (kind.encode(), day.encode(), line)
    return (str(place).encode().ljust(HEADER_BYTES, b"\0") + entry).ljust(SPOOL_BYTES, b"\0")


def start(place: Path) -> tuple[list[tuple[str, str, bytes]], list[str]]:
    """What a start finds, and what it logs; the spool is closed again."""
    with capture_logs() as lines:
        spool = a_spool(place)
        found = spool.left_behind()
        spool.append(*LINE)
        spool.switch()
        spool.written()
        spool.forget()
        spool.close()
    return found, [f"{line['event']} {line.get('file')} {line.get('error')}" for line in lines]


def make_fifo(path: Path, _place: Path) -> None:
    """A pipe that nobody writes into."""
    os.mkfifo(path, 0o600)


def make_link(path: Path, place: Path) -> None:
    """A symbolic link to a spool that is fine."""
    target = place.parent / "target"
    target.write_bytes(content(place))
    path.symlink_to(target)


def make_second_name(path: Path, place: Path) -> None:
    """A file that has another name, too."""
    target = path.with_suffix(".second")
    target.write_bytes(content(place))
    path.hardlink_to(target)


def make_truncated(path: Path, place: Path) -> None:
    """A file that ends within the first half."""
    path.write_bytes(content(place)[: HEADER_BYTES + 100])


def make_large(path: Path, place: Path) -> None:
    """A file that is larger than a spool."""
    path.write_bytes(content(place) + b"\0")


def make_foreign(path: Path, place: Path) -> None:
    """A file of another user."""
    path.write_bytes(content(place))
    os.chown(path, NOBODY, NOBODY)


def make_folder(path: Path, _place: Path) -> None:
    """A folder."""
    path.mkdir()


ODD = (
    make_fifo, make_link, make_second_name, make_truncated, make_large, make_folder,
    pytest.param(make_foreign, marks=as_root),
)  # fmt: skip


@pytest.mark.parametrize("make", ODD)
@pytest.mark.parametrize("name", ["own", "other"])
def test_what_is_no_spool_is_left_alone(
    place: Path, make: Callable[[Path, Path], None], name: str
) -> None:
    """In the folder of spools: it is told of, not read, and still there; without its own file, a
    broker keeps no lines.
    """
    first = a_spool(place)
    path = first.path if name == "own" else first.path.with_name("other.spool")
    first.close()
    make(path, place)
    found, lines = start(place)
    assert found == []
    assert [str(path) in line for line in lines if "left alone" in line] == [True]
    assert len(lines) == (2 if name == "own" else 1)
    assert os.path.lexists(path)


@pytest.mark.parametrize("make", ODD)
def test_what_is_no_spool_of_an_earlier_version_is_left_alone(
    place: Path, elsewhere: Path, make: Callable[[Path, Path], None]
) -> None:
    """At the place that everybody may write to, too; the broker's own spool works."""
    make(elsewhere, place)
    found, lines = start(place)
    assert found == []
    assert len(lines) == 1
    assert str(elsewhere) in lines[0]
    assert os.path.lexists(elsewhere)
    if elsewhere.is_dir():
        elsewhere.rmdir()


def test_a_spool_of_an_earlier_version_is_taken_in(place: Path, elsewhere: Path) -> None:
    """Its lines are found once; the file goes when they are on the disk."""
    place.mkdir(exist_ok=True)
    elsewhere.write_bytes(content(place))
    elsewhere.chmod(0o600)
    spool = a_spool(place)
    assert spool.left_behind() == [LINE]
    assert elsewhere.exists()
    spool.forget()
    assert not elsewhere.exists()
    spool.close()
    assert start(place) == ([], [])


def test_a_file_without_content_is_used(place: Path) -> None:
    """A process that was killed as it made its file leaves an empty one."""
    first = a_spool(place)
    first.close()
    first.path.touch(0o600)
    assert start(place) == ([], [])


def test_a_spool_is_for_its_user_alone(place: Path) -> None:
    """Whatever the umask is."""
    before = os.umask(0)
    try:
        spool = a_spool(place)
        assert spool.path.stat().st_mode & 0o777 == 0o600
        assert spool.path.parent.stat().st_mode & 0o777 == 0o700
        spool.close()
    finally:
        os.umask(before)


def test_a_folder_for_others_is_not_used(place: Path) -> None:
    """One line says why, and what to do; nothing is kept."""
    folder = spools.folder_of_spools()
    folder.mkdir()
    folder.chmod(0o750)
    with capture_logs() as lines:
        spool = a_spool(place)
        spool.append(*LINE)
    assert len(lines) == 1
    assert "its mode is 0750, not 0700" in lines[0]["error"]
    assert str(folder) in lines[0]["do"]
    assert list(folder.iterdir()) == []
    spool.close()


@as_root
def test_not_even_root_uses_a_folder_of_another_user(place: Path) -> None:
    """Though it could: its owner may put there what he likes."""
    folder = spools.folder_of_spools()
    folder.mkdir(0o700)
    os.chown(folder, NOBODY, NOBODY)
    with capture_logs() as lines:
        spool = a_spool(place)
        spool.append(*LINE)
    assert [f"it belongs to user {NOBODY}" in line["error"] for line in lines] == [True]
    assert list(folder.iterdir()) == []
    spool.close()


def test_a_link_to_a_folder_is_not_followed(place: Path) -> None:
    """Even if the folder behind it is fine."""
    target = place.parent / "target"
    target.mkdir(0o700)
    spools.folder_of_spools().symlink_to(target)
    found, lines = start(place)
    assert (found, len(lines), list(target.iterdir())) == ([], 1, [])


def test_a_missing_runtime_directory_is_told_of(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spool is off, and the broker starts."""
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(place / "nowhere"))
    found, lines = start(place)
    assert (found, len(lines)) == ([], 1)


OTHER_USER = """
import os, sys, structlog  # while this user may read it
from pathlib import Path
from loadmanager.kit.history.spool import Spool
os.setuid(65534)
spool = Spool(Path(sys.argv[1]), "b")
spool.append("ownership", "2026-11-20", b"{}")
print(spool.errors, len(spool.left_behind()))
spool.close()
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that others may enter; those of pytest are closed by each run of it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@as_root
@pytest.mark.parametrize("owner", [0, NOBODY])
def test_a_folder_of_another_user_is_not_used(open_folder: Path, owner: int) -> None:
    """A process of another user uses only what belongs to it."""
    run, place = open_folder / "run", open_folder / "history"
    for folder in (run, place, run / f"loadmanager-{NOBODY}"):
        folder.mkdir()
        os.chown(folder, NOBODY, NOBODY)
    (run / f"loadmanager-{NOBODY}").chmod(0o700)
    os.chown(run / f"loadmanager-{NOBODY}", owner, owner)
    done = subprocess.run(
        [sys.executable, "-c", OTHER_USER, str(place)],
        env={**os.environ, "RUNTIME_DIRECTORY": str(run)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = done.stdout.strip().splitlines()
    assert done.returncode == 0, done.stderr
    assert said[-1] == ("1 0" if owner == 0 else "0 0"), done.stdout
    assert ("Permission denied" in done.stdout) == (owner == 0)


def test_a_folder_that_is_swept(place: Path) -> None:
    """The spool of a history that no longer exists is removed; that of another one stays."""
    first = a_spool(place)
    first.close()
    gone, kept = (first.path.with_name(f"{name}.spool") for name in ("gone", "kept"))
    gone.write_bytes(content(place / "nowhere"))
    kept.write_bytes(content(place))
    assert start(place) == ([], [])
    assert (gone.exists(), kept.exists()) == (False, True)
    assert HALF_BYTES * 2 + HEADER_BYTES == SPOOL_BYTES
