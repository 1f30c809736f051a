"""Brokers that are not there, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadmanager.cli.admin.asking import count_of
from loadmanager.cli.admin.times import clock, span
from loadmanager.leader.documents.members import AbsentBroker

HOW = {"stopped": "stopped in order", "drained": "drained and stopped", "lost": "lost"}


def absence_text(absence: AbsentBroker, now_ms: int) -> str:
    """When and how a broker left, and what became of its bundles; without its name."""
    ago = span(now_ms - absence.left_at)
    text = f"{HOW.get(absence.how, absence.how)} {ago} ago ({clock(absence.left_at)})"
    if absence.how == "lost":
        text += ", its session ended without a word"
        if absence.sign:
            text += f"; asked then, it {absence.sign}{_meaning(absence.sign)}"
    return f"{text}; {bundles_text(absence)}{_back(absence)}"


def _meaning(sign: str) -> str:
    if sign.startswith("did not answer"):
        return " (frozen, or cut off)"
    return " (its process has ended, or its host is away)" if "reached" in sign else ""


def bundles_text(absence: AbsentBroker) -> str:
    """What became of its bundles."""
    count, left = absence.bundles, absence.bundles - absence.placed
    if not count:
        return "it owned no bundle"
    owned = count_of(count, "bundle")
    if left:
        named = f": {', '.join(absence.waiting[:3])}" if absence.waiting else ""
        return f"{owned}, {left} without an owner until the next lookup{named}"
    return f"{owned} placed after {span((absence.placed_at or 0) - absence.left_at)}"


def _back(absence: AbsentBroker) -> str:
    if absence.back_at is None:
        return ""
    away = span(absence.back_at - absence.left_at)
    how = "the same process" if absence.same_process else "restarted"
    return f"; back after {away}, {how}"


def missing_text(present: int, expected: int) -> str:
    """How many brokers are fewer than expected; empty if none."""
    fewer = expected - present
    if fewer <= 0:
        return ""
    verb = "is" if fewer == 1 else "are"
    return f"{fewer} of {count_of(expected, 'expected broker')} {verb} not there"


def news(absent: Sequence[AbsentBroker], now_ms: int, within_ms: int) -> Iterator[str]:
    """Those that are gone, and those that left or came back lately."""
    for absence in absent:
        if absence.gone or now_ms - absence.left_at <= within_ms:
            yield f"{absence.broker} {absence_text(absence, now_ms)}"
