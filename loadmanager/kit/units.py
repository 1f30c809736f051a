"""Units of sizes and of time, in bytes and in milliseconds."""

from __future__ import annotations

MIB = 1024 * 1024
GIB = 1024 * MIB
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


def gibibytes(size: float) -> str:
    """A size in GiB, or in MiB where that would be 0.0 GiB."""
    text = f"{size / GIB:,.1f} GiB"
    return f"{size / MIB:,.1f} MiB" if text == "0.0 GiB" else text


def free_text(free: float, size: float) -> str:
    """How much of a disk is free."""
    text, of = gibibytes(free), gibibytes(size)
    return f"{text.removesuffix(of[-4:])} of {of} are free"
