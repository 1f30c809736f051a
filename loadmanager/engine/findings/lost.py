"""Brokers whose session was lost, and that are not back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loadmanager.engine.findings import words
from loadmanager.engine.findings.finding import FindingShown, bounded, command

SECONDS_MAX = 120
"""Longer times are told in minutes."""


@dataclass(frozen=True, slots=True)
class LostBroker:
    """One that is gone."""

    broker: str
    since_ms: int
    """When its session was over."""
    sign: str
    """What it did when it was asked then; empty: it was not asked."""
    bundles: int
    """Those that it had owned."""
    unserved: int
    """Those of them that nobody serves."""
    lost_before: Sequence[int] = ()
    """When it was lost before, the oldest first: each shortly before the next one."""


def lost(brokers: Iterable[LostBroker]) -> list[FindingShown]:
    """A finding for each, from the moment on at which it is known."""
    return bounded(map(_finding, brokers))


def _finding(lost: LostBroker) -> FindingShown:
    asked = f" Asked then, it {lost.sign}." if lost.sign else ""
    what = "It owned no bundle."
    if lost.bundles:
        owned = "1 bundle" if lost.bundles == 1 else f"{lost.bundles:,} bundles"
        owner = f"{lost.unserved:,} of them have no owner" if lost.unserved else "all are served"
        what = f"It owned {owned}: {owner}."
    return FindingShown(
        kind="lost",
        about=lost.broker,
        since=lost.since_ms,
        title=words.lost(lost.broker),
        text=f"Its session ended without a word.{asked} {what}{_again(lost)}",
        advice=words.START_AGAIN,
        command=command("loadmanager admin history", lost.broker),
    )


def _again(lost: LostBroker) -> str:
    """How often it was lost."""
    if not lost.lost_before:
        return ""
    took_s = (lost.since_ms - lost.lost_before[0]) / 1000
    within = f"{took_s:.0f} s" if took_s < SECONDS_MAX else f"{took_s / 60:.0f} min"
    return f" It was lost {1 + len(lost.lost_before)} times within {within}: its log says why."
