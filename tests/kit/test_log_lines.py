"""Log lines, written by a process of its own: logging is configured once a process."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest

from loadmanager.kit.logs import LINES_MAX

PROLOGUE = (
    "import logging, structlog; from loadmanager.kit.logs import "
    "configure; log = structlog.get_logger('leader');"
)


def _run(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROLOGUE + code],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def _json(code: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in _run(code)]


def test_json_lines() -> None:
    """One object a line, with event, level, logger, UTC time, the bound fields and those of the
    call; JSON is the default without a terminal.
    """
    (line,) = _json(
        "configure('info', broker='b:1'); log.info('bundle assigned', bundle='t/n/0', n=3)"
    )
    assert str(line.pop("timestamp")).endswith("Z")
    assert line == {
        "event": "bundle assigned",
        "level": "info",
        "logger": "leader",
        "broker": "b:1",
        "bundle": "t/n/0",
        "n": 3,
    }


def test_levels() -> None:
    """Lines below the level are not written; libraries that log a lot have a level of their own."""
    code = (
        "log.info('no'); log.warning('yes'); logging.getLogger('x').info('no'); "
        "logging.getLogger('x').error('also')"
    )
    assert [line["event"] for line in _json(f"configure('warning'); {code}")] == ["yes", "also"]
    chatter = (
        "[logging.getLogger(n).info('no') for n in ('kazoo.client', 'asyncio', "
        "'py4j.java_gateway')]; log.debug('yes')"
    )
    assert [line["event"] for line in _json(f"configure('debug'); {chatter}")] == ["yes"]


def test_libraries_come_out_the_same_way() -> None:
    """A line of the standard module has the same shape, its arguments filled in."""
    (line,) = _json(
        "configure('info', broker='b:1'); logging.getLogger('kazoo.client').warning('lost "
        "%s', 'zk:1')"
    )
    assert (line["event"], line["logger"], line["level"], line["broker"]) == (
        "lost zk:1",
        "kazoo.client",
        "warning",
        "b:1",
    )
    assert "timestamp" in line


def test_exceptions_stay_on_their_line() -> None:
    """A traceback is a field of the one JSON line, also that of a library."""
    code = (
        "configure('info')\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    "
        "log.exception('ours'); logging.getLogger('x').exception('theirs')"
    )
    lines = _json(code)
    assert [line["event"] for line in lines] == ["ours", "theirs"]
    assert all("ZeroDivisionError" in str(line["exception"]) for line in lines)


def test_a_value_that_json_does_not_know() -> None:
    """A value that JSON cannot hold is written as its repr; logging never fails the caller."""
    (line,) = _json("configure('info'); log.info('x', value=object, data=b'1')")
    assert line["value"] == "<class 'object'>"


def test_console_lines() -> None:
    """Readable, without colours where there is no terminal; texts from users cannot forge a line or
    drive the terminal.
    """
    lines = _run(
        r"configure('info', json=False, broker='b:1'); log.info('created', topic='a\nforged', "
        r"other='\x1b[31mred')"
    )
    assert len(lines) == 1
    assert "created" in lines[0]
    assert "broker=b:1" in lines[0]
    assert "\x1b" not in lines[0]


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colours_on_a_terminal(no_color: str, coloured: bool) -> None:
    """A terminal gets colours, unless NO_COLOR is set."""
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-c", PROLOGUE + "configure('info'); log.info('created')"],
            stderr=theirs,
            env={**os.environ, "NO_COLOR": no_color},
            check=True,
            timeout=120,
        )
        line = os.read(ours, 4096)
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"created" in line
    assert (b"\x1b[" in line) is coloured


def test_tracebacks_on_a_terminal() -> None:
    """Each in plain lines that are set in: no values of variables, which may be secret and huge,
    and no line that what failed could pass off as one of the log.
    """
    lines = _run(
        "configure('info', json=False)\n"
        "def read(token):\n    raise ValueError('bad\\n12:00:00 [info] all is well\\x1b[2J')\n"
        "try:\n    read('se' + 'cret')\n"
        "except ValueError:\n    log.exception('reading failed')"
    )
    first, *traceback = lines
    assert first.endswith("reading failed")
    assert all(line.startswith("    ") for line in traceback)
    assert traceback[0].strip() == "Traceback (most recent call last):"
    assert traceback[-2:] == ["    ValueError: bad", "    12:00:00 [info] all is well\\x1b[2J"]
    assert "secret" not in "".join(lines)


@contextlib.contextmanager
def _unread(code: str) -> Iterator[subprocess.Popen[str]]:
    """A process whose standard error nobody reads until the test does."""
    with subprocess.Popen(
        [sys.executable, "-c", PROLOGUE + code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_whoever_logs_does_not_wait_for_whoever_reads() -> None:
    """A stopped terminal, or a pipe that is full. What is too much is dropped and counted, at its
    place; nothing else is lost.
    """
    code = (
        "configure('info'); [log.info('line', number=n, more=100 * 'x') for n in range(30_000)]; "
        "print('all are logged', flush=True); __import__('sys').stdin.readline(); "
        "log.info('the last')"
    )
    with _unread(code) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "all are logged\n"
        lines = [json.loads(process.stderr.readline()) for _ in range(LINES_MAX)]
        process.stdin.write("go on\n")
        process.stdin.flush()
        lines += [json.loads(line) for line in process.stderr]
        assert process.wait(120) == 0
    numbers = [line["number"] for line in lines if line["event"] == "line"]
    assert numbers == sorted(numbers)
    notes = [line for line in lines if "dropped" in line["event"]]
    dropped = sum(int(line["event"].partition(" ")[0]) for line in notes)
    assert dropped > 0
    assert len(numbers) + dropped == 30_000
    assert lines[-1]["event"] == "the last"


def test_a_process_ends_though_nobody_reads_its_log() -> None:
    """Soon, as it ends otherwise."""
    code = "configure('info'); [log.info('line', more=100 * 'x') for n in range(5_000)]"
    with _unread(code) as process:
        assert process.wait(120) == 0


def test_a_critical_line_is_written_before_the_process_may_end() -> None:
    """With all lines before it."""
    code = "configure('info'); [log.info('line') for n in range(500)]; log.critical('it ends'); "
    lines = _json(code + "__import__('os')._exit(0)")
    assert [line["event"] for line in lines] == [*500 * ["line"], "it ends"]


@pytest.mark.parametrize(("other", "prefixes"), [("", ["<6>", "<4>", "<3>", "<7>"]), ("1", [""])])
def test_priorities_in_the_journal(other: str, prefixes: list[str]) -> None:
    """Each line begins with its own where systemd has connected standard error to the journal; not
    if somebody has redirected it since.
    """
    code = (
        "import os; at = os.fstat(2); os.environ['JOURNAL_STREAM'] = "
        f"f'{{at.st_dev}}:{{at.st_ino}}{other}'; configure('debug'); "
        "log.info('a'); log.warning('b'); log.error('c'); log.debug('d')"
    )
    lines = _run(code)
    found = [line.partition("{")[0] for line in lines]
    assert found == prefixes * (4 // len(prefixes))
