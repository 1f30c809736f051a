"""The loads of a moment, with the limits that were in force then, by what one archive has."""

from __future__ import annotations

from collections.abc import Sequence

from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import BundleLoad, OwnershipStep, Throttle
from loadmanager.kit.history.archive_answers import ArchivedMoment
from loadmanager.kit.history.archive_reader import NEAR_MS, ArchiveReader
from loadmanager.leader.owners_then import (
    PAUSE_MS_MAX,
    TOPIC,
    PastBundle,
    limits_then,
    owners_at,
)

STEPS_MAX = 1_000
"""Steps of owners that are looked at about a moment."""


def moment_of(file: ArchiveReader, at_ms: int, kinds: Sequence[str]) -> ArchivedMoment:
    """The loads of some kinds. Of limits of topics only those of topics that the broker owned then:
    a record is about a time, in which topics came and went.
    """
    answer = file.moment(at_ms, kinds)
    limits = [it for it in answer.loads if it.kind == Throttle.kind]
    of_topics = any(TOPIC.search(name) for it in limits for name in it.figures)
    bundles = _bundles_in(file, at_ms) if of_topics else []
    for it in limits:
        it.figures = limits_then(it, bundles, at_ms)
    return answer


def _bundles_in(file: ArchiveReader, at_ms: int) -> list[PastBundle]:
    """The bundles of about a moment that an archive knows of, with their owners of exactly then."""
    loads = file.moment(at_ms, (BundleLoad.kind,)).loads
    begin_ms = min((it.ts - it.span_ms for it in loads), default=at_ms)
    end_ms = max((it.ts for it in loads), default=at_ms)
    times = (max(0, min(begin_ms, at_ms - NEAR_MS)), max(end_ms, at_ms + PAUSE_MS_MAX))
    kinds = (OwnershipStep.kind, MemberChange.kind)
    events = file.events(kinds, None, *times, STEPS_MAX).events
    bundles = owners_at(loads, events, at_ms)
    steps = {it.record_as(OwnershipStep).bundle for it in events if it.kind == OwnershipStep.kind}
    later = steps - {it.bundle for it in bundles}  # the broker got them, or they were made
    return [*bundles, *(PastBundle(name, None) for name in sorted(later))]
