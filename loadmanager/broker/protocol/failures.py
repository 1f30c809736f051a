"""Errors of our own that are contained: each costs one connection or one turn, not the broker."""

from __future__ import annotations

from loadmanager.kit.logger import get_logger

log = get_logger("protocol")


class Failures:
    """Counts and logs contained errors."""

    def __init__(self) -> None:
        self.count = 0
        """Errors since start."""
        self._logged_places: set[tuple[str, int]] = set()

    def report(self, event: str, error: Exception, **details: object) -> None:
        """Log an error, with its traceback the first time that it comes from its line of code."""
        self.count += 1
        place = _place_of(error)
        if place in self._logged_places:
            log.error(event, error=repr(error), **details)
        else:
            self._logged_places.add(place)
            log.error(event, exc_info=error, **details)


def _place_of(error: Exception) -> tuple[str, int]:
    """The line of code that raised an error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return ("", 0) if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
