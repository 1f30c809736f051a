"""Logs with structlog: for people on a terminal, as JSON lines otherwise.

Libraries log through the standard module; their lines look the same.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
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
    handler = logging.StreamHandler(sys.stderr)
    formatter = _Prioritised if _goes_to_the_journal() else structlog.stdlib.ProcessorFormatter
    handler.setFormatter(
        formatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
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
