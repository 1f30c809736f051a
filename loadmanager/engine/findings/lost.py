"""Brokers whose session was lost: those that are not back, and those that are lost often."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loadmanager.engine.findings import words
from loadmanager.engine.findings.finding import FindingShown, bounded, command
from loadmanager.kit.text import moment
from loadmanager.kit.units import HOUR_MS

SECONDS_MAX, MINUTES_MAX = 120, 10
"""Longer times are told in minutes, and in minutes without seconds."""
OFTEN_MIN = 3
"""So many losses, each within an hour of the one before, are a finding also of a broker that is
back.
"""


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
    """When it was lost before, the oldest first: each an hour before the next one at most; without
    losses for which the metadata store gave no answer.
    """
    back_ms: int | None = None
    """When it came back; None: it has not."""
    store_silent: bool = False
    """Whether the metadata store gave no answer when its session ended."""

    @property
    def losses(self) -> list[int]:
        """Those that may be its own fault."""
        return [*self.lost_before, *([] if self.store_silent else [self.since_ms])]


def lost(brokers: Iterable[LostBroker]) -> list[FindingShown]:
    """A finding for each that is gone, from the moment on at which it is known."""
    return bounded(_finding(it) for it in brokers if it.back_ms is None)


def lost_often(brokers: Iterable[LostBroker], now_ms: int) -> list[FindingShown]:
    """A finding for each that was lost again and again and is back, until it has been there for an
    hour.
    """
    return bounded(
        _often(it, it.back_ms)
        for it in brokers
        if it.back_ms is not None and now_ms - it.back_ms < HOUR_MS and len(it.losses) >= OFTEN_MIN
    )


def _often(lost: LostBroker, back_ms: int) -> FindingShown:
    return FindingShown(
        kind="lost often",
        about=lost.broker,
        since=lost.lost_before[0],
        title=words.lost_often(lost.broker, *_losses(lost)),
        text=f"It was lost last at {moment(lost.losses[-1])}, and is back since "
        f"{moment(back_ms)}. Each time its bundles go to other brokers, and its clients with "
        "them.",
        advice=words.LOST_OFTEN,
        command=command("loadmanager admin history", lost.broker),
    )


def _finding(lost: LostBroker) -> FindingShown:
    how = "while the metadata store gave no answer" if lost.store_silent else "without a word"
    asked = f" Asked then, it {lost.sign}." if lost.sign else ""
    what = "It owned no bundle."
    if lost.bundles:
        owned = "1 bundle" if lost.bundles == 1 else f"{lost.bundles:,} bundles"
        owner = f"no owner of {lost.unserved:,} of them is known yet"
        what = f"It owned {owned}: {owner if lost.unserved else 'all are served'}."
    return FindingShown(
        kind="lost",
        about=lost.broker,
        since=lost.since_ms,
        title=words.lost(lost.broker),
        text=f"Its session ended {how}.{asked} {what}{_again(lost)}",
        advice=words.START_AGAIN,
        command=command("loadmanager admin history", lost.broker),
    )


def _again(lost: LostBroker) -> str:
    """How often it was lost."""
    if len(lost.losses) < 2:
        return ""
    times, within = _losses(lost)
    return f" It was lost {times} times within {within}: its log says why."


def _losses(lost: LostBroker) -> tuple[int, str]:
    """How often it was lost, and within which time."""
    took_s = (lost.losses[-1] - lost.losses[0]) / 1000
    minutes, seconds = divmod(round(took_s), 60)
    exactly = f" {seconds} s" if seconds and minutes < MINUTES_MAX else ""
    within = f"{took_s:.0f} s" if took_s < SECONDS_MAX else f"{minutes} min{exactly}"
    return len(lost.losses), within
