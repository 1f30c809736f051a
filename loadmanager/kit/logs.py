"""Logs with structlog: for people on a terminal, as JSON lines otherwise.

Libraries log through the standard module; their lines look the same.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sys
import threading
import time
import traceback
from logging.handlers import QueueHandler
from queue import Full, Queue
from typing import Any, TextIO

import structlog

from loadmanager.kit.text import printable

LIBRARIES = {
    "kazoo": logging.WARNING,
    "aiohttp.access": logging.WARNING,
    # It logs a traceback for each broken request; adapters.admin logs our own failures.
    "aiohttp.server": logging.CRITICAL,
    "asyncio": logging.WARNING,
    "py4j": logging.WARNING,
}
"""Libraries that log too much at the level of the broker → their least level."""

PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
"""Least level → the journal's number; 7 is for what is below all."""
LINES_MAX = 10_000
"""Lines that wait to be written."""
WRITTEN_S = 1.5
"""Whoever ends waits so long for lines that are not written yet."""
FOR_PROGRAMS = ("logger", "monotonic_s", "scope", "session", "state_before")
"""Fields that lines on a terminal leave out."""


def configure(level: str = "info", *, json: bool | None = None, **bound: Any) -> None:
    """Log on standard error; every line of the process has the fields `bound`, such as the broker.

    `json`: None stands for JSON unless standard error is a terminal. Terminals get colours, unless
    `NO_COLOR` is set (no-color.org). Their lines have the local time, and no field for programs.
    """
    as_json = json if json is not None else not sys.stderr.isatty()
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        _bind(bound),
        structlog.processors.TimeStamper(fmt="iso" if as_json else "%H:%M:%S", utc=as_json),
    ]
    colors = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(
            pad_event_to=0, pad_level=False, colors=colors, exception_formatter=_traceback
        )
    )
    last = [structlog.processors.format_exc_info, renderer] if as_json else [_short, renderer]
    handler = _handler_of(sys.stderr)
    formatter = _Prioritised if _goes_to_the_journal() else structlog.stdlib.ProcessorFormatter
    handler.setFormatter(
        formatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    before, root.handlers[:] = root.handlers[:], [handler]
    for each in before:
        each.close()
    root.setLevel(level.upper())
    for name, least in LIBRARIES.items():
        logging.getLogger(name).setLevel(max(least, root.level))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _handler_of(stream: TextIO) -> logging.Handler:
    try:
        return LineWriter(stream.fileno(), stream.encoding)
    except OSError:  # a stream of a test has no file
        return logging.StreamHandler(stream)


def say(text: str) -> None:
    """Write lines to standard output, as those of the log: who does it waits for no terminal."""
    try:
        writer = LineWriter(sys.stdout.fileno(), sys.stdout.encoding)
    except OSError:  # a stream of a test has no file
        sys.stdout.write(f"{text}\n")
        return
    writer.enqueue(f"{text}\n".encode(sys.stdout.encoding, "backslashreplace"))


class LineWriter(QueueHandler):
    """Writes lines in a thread of its own: a terminal that is stopped (Ctrl-S), or a pipe that
    nobody reads, stops nobody who logs.

    What is too much meanwhile is dropped, and counted by a line. `flush`, at the end of the process
    too, waits for what is not written yet, and so does a critical line, after which a process may
    end at once; each waits for `WRITTEN_S` at most.
    """

    def __init__(self, fd: int, encoding: str, lines_max: int = LINES_MAX) -> None:
        self._lines = Queue[bytes](lines_max)
        super().__init__(self._lines)
        self._fd = fd
        self._encoding = encoding
        self._dropped = 0
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line, whose text is made here: what it says may change."""
        super().emit(record)
        if record.levelno >= logging.CRITICAL:
            self.flush()

    def prepare(self, record: logging.LogRecord) -> bytes:
        """The line."""
        return f"{self.format(record)}\n".encode(self._encoding, "backslashreplace")

    def enqueue(self, record: Any) -> None:
        """Have a line written, after one that says how many were dropped before it."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
            self._thread.start()
        try:
            self._say_dropped()
            self._lines.put_nowait(record)
        except Full:
            self._dropped += 1

    def flush(self) -> None:
        """Wait until all is written, for a moment at most."""
        with contextlib.suppress(Full):
            self._say_dropped()
        until_s = time.monotonic() + WRITTEN_S
        with self._lines.all_tasks_done:
            while self._lines.unfinished_tasks and (left_s := until_s - time.monotonic()) > 0:
                self._lines.all_tasks_done.wait(left_s)

    def close(self) -> None:
        """Write nothing more than what has come so far."""
        if self._thread is not None:
            self.flush()
            with contextlib.suppress(Full):
                self._lines.put_nowait(b"")
            self._thread = None
        super().close()

    def _say_dropped(self) -> None:
        if self._dropped:
            text = f"{self._dropped} lines of the log were dropped: nothing took them"
            note = logging.LogRecord("log", logging.WARNING, "", 0, text, None, None)
            self._lines.put_nowait(self.prepare(note))
            self._dropped = 0

    def _write_all(self) -> None:
        while line := self._lines.get():
            self._write(line)
            self._lines.task_done()
        self._lines.task_done()

    def _write(self, line: bytes) -> None:
        """Not through the stream, whose lock a line that waits would hold to the end."""
        while line:
            try:
                line = line[os.write(self._fd, line) :]
            except BlockingIOError:  # a program that shares the terminal has set this
                select.select([], [self._fd], [])
            except OSError:
                return  # nobody is there to read it


class _Prioritised(structlog.stdlib.ProcessorFormatter):
    """Begins each line with its priority, which the journal takes off (sd-daemon(3))."""

    def format(self, record: logging.LogRecord) -> str:
        number = next((it for least, it in PRIORITIES if record.levelno >= least), 7)
        return "\n".join(f"<{number}>{line}" for line in super().format(record).splitlines())


def _goes_to_the_journal() -> bool:
    """Whether systemd has connected standard error to the journal, and nobody has changed that."""
    try:
        there = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):  # a stream of a test has no file
        return False
    return os.environ.get("JOURNAL_STREAM", "") == f"{there.st_dev}:{there.st_ino}"


def _bind(values: dict[str, Any]) -> Any:
    def add(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
        return {**values, **event}

    return add


def _traceback(out: TextIO, failure: Any) -> None:
    """A plain traceback, set in: names from clients must not forge lines. structlog's own shows the
    values of all variables, secret ones included, and may take seconds.
    """
    lines = "".join(traceback.format_exception(*failure)).splitlines()
    out.writelines(f"\n    {printable(line)}" for line in lines)


def _short(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is for programs, and escape control characters: names from clients must not
    forge lines or drive the terminal.
    """
    return {
        key: printable(value) if isinstance(value, str) else value
        for key, value in event.items()
        if value is not None and key not in FOR_PROGRAMS
    }
