"""Log lines of a member go where those of its author's program go."""

from __future__ import annotations

import logging
from typing import Any

import structlog


def use_standard_logging() -> None:
    """Log to `logging.getLogger("loadmanager.…")`, unless the program has configured structlog."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            _line,
        ],
        logger_factory=_logger,
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _line(_logger: object, _method: str, fields: structlog.typing.EventDict) -> str:
    text = str(fields.pop("event", ""))
    trace = fields.pop("exception", None)
    line = " ".join((text, *(f"{name}={value!r}" for name, value in fields.items())))
    return line if trace is None else f"{line}\n{trace}"


def _logger(*names: Any) -> logging.Logger:
    return logging.getLogger(".".join(("loadmanager", *map(str, names))))
