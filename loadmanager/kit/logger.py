"""Lines of the log. A broker's go to structlog (`kit.logs`); those of a member inside a program of
somebody else go to the loggers of `logging`, unless that program has configured structlog.

Nothing is configured here, and structlog is imported with the first line that goes there.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

ROOT = "loadmanager"

Words = Callable[[str, Mapping[str, object]], tuple[str, Mapping[str, object]]]
"""Event and fields → the same in other words."""


_SPOKEN: list[Words] = []
"""How a program calls what we call brokers and bundles; the last one is in use."""


class Logger:
    """Logs what one part does: an event in plain words, and fields."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._structured: Any = None

    def debug(self, event: str, **fields: Any) -> None:
        """For whoever looks for a fault."""
        self._log("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """What happens."""
        self._log("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """What may need somebody's attention."""
        self._log("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """What does."""
        self._log("error", event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """An error, with the traceback of the exception that is being handled."""
        self._log("error", event, {"exc_info": True, **fields})

    def critical(self, event: str, **fields: Any) -> None:
        """The process ends."""
        self._log("critical", event, fields)

    def _log(self, level: str, event: str, fields: Mapping[str, object]) -> None:
        if _SPOKEN:
            event, fields = _SPOKEN[-1](event, fields)
            configurable = sys.modules.get("structlog")
            if configurable is None or not configurable.is_configured():
                _log_plainly(self.name, level, event, fields)
                return
        if self._structured is None:
            import structlog

            self._structured = structlog.get_logger(self.name)
        getattr(self._structured, level)(event, **fields)


def _log_plainly(name: str, level: str, event: str, fields: Mapping[str, Any]) -> None:
    logger, number = logging.getLogger(f"{ROOT}.{name}"), getattr(logging, level.upper())
    if logger.isEnabledFor(number):
        shown = (f"{key}={value!r}" for key, value in fields.items() if key != "exc_info")
        line, failure = " ".join((event, *shown)), fields.get("exc_info")
        logger.log(number, "%s", line, exc_info=failure, stacklevel=4)


def get_logger(name: str) -> Logger:
    return Logger(name)


def speak(words: Words) -> Callable[[], None]:
    """From now on, lines are in these words, and go where those of any library go, until what this
    returns is called.
    """
    _SPOKEN.append(words)
    return lambda: _SPOKEN.remove(words)
