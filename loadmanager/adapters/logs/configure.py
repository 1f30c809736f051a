"""Logs with structlog: readable on a terminal, JSON lines otherwise; what libraries log through the
standard module comes out the same way.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

LIBRARIES = {
    "kazoo": logging.WARNING,
    "aiohttp.access": logging.WARNING,
    # a traceback for each broken request of a client; our own failures are logged by adapters.admin
    "aiohttp.server": logging.CRITICAL,
    "asyncio": logging.WARNING,
    "py4j": logging.WARNING,
}
"""Libraries that say too much at our own level."""


def configure(level: str = "info", *, json: bool | None = None, **bound: Any) -> None:
    """Set up logging of the whole process on standard error; `bound` (the broker's id, say) is on
    every line.
    """
    as_json = json if json is not None else not sys.stderr.isatty()
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        _bind(bound),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(pad_event_to=32, colors=sys.stderr.isatty())
    )
    last = [structlog.processors.format_exc_info, renderer] if as_json else [_printable, renderer]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
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


def _bind(values: dict[str, Any]) -> Any:
    def add(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
        return {**values, **event}

    return add


def _printable(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Show control characters instead of obeying them: names come from clients, and must neither
    forge lines nor drive the terminal.
    """
    return {key: _shown(value) if isinstance(value, str) else value for key, value in event.items()}


def _shown(text: str) -> str:
    return (
        text
        if text.isprintable()
        else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    )
