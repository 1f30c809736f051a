"""Tables on terminals of many widths, and in pipes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from loadmanager.cli.terminal import show

ROOT = Path(__file__).parents[2]
NAME = "acme/orders-of-the-last-century/0x00000000_0x10000000"
SCRIPT = f"""
from loadmanager.cli.terminal import show, table
text = "some words that say why, at length, as an outcome does"
rows = [({NAME!r}, "10.20.30.40:8080", 1.25, text), ("[x]\\x1b[2J", None, 0.0, "")]
show(table(("bundle", "owner", "MB/s in", "outcome"), rows))
"""


def on_a_terminal(columns: int, **environment: str) -> list[str]:
    """The script's lines on a terminal of that many columns."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=theirs,
        stdin=theirs,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm", "COLUMNS": str(columns), "LINES": "24", **environment},
    ) as process:
        os.close(theirs)
        read = b""
        while True:
            try:
                read += os.read(ours, 4096)
            except OSError:  # the other side is closed
                break
        os.close(ours)
    assert process.returncode == 0
    return read.decode().splitlines()


def test_in_a_pipe_a_row_is_a_line() -> None:
    """Names are whole, nothing is coloured, there is nothing else."""
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "40"},
    )
    header, first, second = result.stdout.splitlines()
    assert header.split() == ["BUNDLE", "OWNER", "MB/S", "IN", "OUTCOME"]
    assert first.split()[:5] == [NAME, "10.20.30.40:8080", "1.2", "some", "words"]
    assert second.split() == ["[x]\\x1b[2J", "-", "0.0"]
    assert result.stderr == ""


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_on_a_terminal_names_stay_whole(columns: int) -> None:
    """Texts are folded between words; a table that is too wide for the names is shown in blocks."""
    lines = on_a_terminal(columns, NO_COLOR="1", TERM="dumb")
    (row,) = (line for line in lines if line.startswith(NAME))
    words = " ".join(lines).split()
    assert "10.20.30.40:8080" in words
    assert "some words" in " ".join(words)
    assert max(map(len, lines)) <= max(columns, len(NAME))
    assert (len(lines) == 3) == (columns == 200)
    assert (row == NAME) == (columns < 200)


def test_units_keep_their_case() -> None:
    """In blocks only the first letter of a header becomes a capital."""
    lines = on_a_terminal(40, NO_COLOR="1", TERM="dumb")
    assert [line.split("  ")[1] for line in lines[1:4]] == ["Owner", "MB/s in", "Outcome"]


def test_control_characters_are_escaped() -> None:
    """A name that clients chose cannot drive the terminal."""
    (row,) = (line for line in on_a_terminal(80) if "[x]" in line)
    assert "\\x1b[2J" in row
    assert "\x1b[2J" not in row


def test_an_empty_part_leaves_no_blank_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """A command whose list of notes is empty ends with its table."""
    show("a", [], "", ["b"], [])
    assert capsys.readouterr().out == "a\n\nb\n"


def test_no_color() -> None:
    """The header is emphasised on a terminal, never in colour with NO_COLOR."""
    assert any("\x1b[" in line for line in on_a_terminal(200))
    assert not any("\x1b[3" in line for line in on_a_terminal(200, NO_COLOR="1"))
