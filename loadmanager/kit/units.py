"""Units of sizes and of time, in bytes and in milliseconds."""

from __future__ import annotations

MIB = 1024 * 1024
GIB = 1024 * MIB
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
