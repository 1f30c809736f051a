"""Texts of others in logs, messages and terminals, and times for people."""

from __future__ import annotations

from datetime import UTC, datetime

MOMENT_MS_MAX = 253_402_300_799_999
"""The end of the year 9999."""


def printable(text: str) -> str:
    """The text with its control characters escaped: it must not forge lines or drive a terminal."""
    return (
        text
        if text.isprintable()
        else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    )


def count_of(count: int, noun: str) -> str:
    """The number with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def moment(at_ms: int) -> str:
    """A time (ms since the epoch) as UTC to the second, for people; one out of bounds is the bound.

    Examples: `2026-11-23T22:55:59Z`; `1970-01-01T00:00:00Z` for 0 and before.
    """
    at = datetime.fromtimestamp(min(max(at_ms, 0), MOMENT_MS_MAX) // 1000, UTC)
    return f"{at.replace(tzinfo=None).isoformat()}Z"
