"""Which broker owned which bundle at a moment: by what the brokers recorded of every change of an
owner, which is exact; else by the loads around it, which are averages. And which limits of topics
were in force at a broker then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from loadmanager.engine.bundles.ranges import BundleRange, split_bundle_name, topic_hash
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import OwnershipStep
from loadmanager.engine.ownership.states import BundleState
from loadmanager.kit.history.archive_answers import ArchivedEvent, ArchivedLoads
from loadmanager.kit.names import TopicName

OLD_MS = 120_000
"""Loads whose time ended longer before a moment than this, and than it took, are old."""
PAUSE_MS_MAX = 60_000
"""A bundle that is on its way is recorded as given up within this time, once it has an owner."""
NOT_YET_OWNED = (BundleState.ASSIGNING.value, BundleState.OPENING.value)
TOPIC = re.compile(r"(non-)?persistent://\S+")


def figures(loads: ArchivedLoads, name: str) -> dict[str, float]:
    """The figures of one thing by name."""
    return dict(zip(loads.columns, loads.figures[name], strict=False))


def begin_of(loads: ArchivedLoads) -> int:
    """When the time began of which loads are the means."""
    return loads.ts - loads.span_ms


@dataclass(slots=True)
class PastBundle:
    """A bundle at a moment."""

    bundle: str
    owner: str | None
    """None: nobody owned it."""
    at: int | None = None
    """When the time ended that the figures are averages of; None: no figures are recorded."""
    figures: dict[str, float] = field(default_factory=dict)
    by: str | None = None
    """The broker that recorded the figures: the one before, if the owner has recorded none yet."""
    begin: int | None = None
    """When that time began."""
    since: int | None = None
    """When the owner got it; None: that is not recorded of lately."""
    limited: Sequence[int] = field(default=(), init=False)
    """When limits changed in that time, or between it and the moment."""
    lost: str = field(default="", init=False)
    """When the owner's last sign was and when its session ended, if it was lost about then."""
    last: str = field(default="", init=False)
    """Who had owned it before the whole cluster was down, at that moment."""

    @property
    def owner_text(self) -> str | None:
        """The owner for a table, with the doubt of one that was lost about then."""
        if self.last:
            return f"none: {self.last} was down"
        return f"{self.owner}, lost about then" if self.lost else self.owner

    @property
    def owner_fields(self) -> dict[str, Any]:
        """The same for a document."""
        fields = {"owner": self.owner, "ownerLost": self.lost, "lastOwner": self.last}
        return {name: it for name, it in fields.items() if it or name == "owner"}

    @property
    def in_part(self) -> bool:
        """Whether the figures are of a time in which the owner had it only in part, or not yet."""
        if self.owner is None or self.since is None or self.begin is None:
            return False
        return self.by != self.owner or self.begin < self.since


def in_bundle(topic: TopicName, bundle: str) -> bool:
    """Whether a bundle has a topic."""
    namespace, span = split_bundle_name(bundle)
    return namespace == str(topic.namespace) and topic_hash(str(topic)) in BundleRange.parse(span)


def owners_at(
    loads: Sequence[ArchivedLoads], events: Iterable[ArchivedEvent], at_ms: int
) -> list[PastBundle]:
    """The bundles of the loads and events around a moment, by name."""
    samples: dict[str, list[ArchivedLoads]] = {}
    for sample in sorted(loads, key=lambda it: (it.ts, it.broker)):
        for bundle in sample.figures:
            samples.setdefault(bundle, []).append(sample)
    changes = _Changes()
    for event in sorted(events, key=lambda event: (event.ts, event.id)):
        changes.add(event)
    bundles = []
    for bundle in sorted({*samples, *changes.of_bundle}):
        around = samples.get(bundle, [])
        of = [it for it in around if it.ts <= at_ms] or around
        owner, since = changes.owner(bundle, of, at_ms)
        if owner is None and changes.came_later(bundle, of, at_ms):
            continue
        until_then = [it for it in around if not changes.took_later(bundle, it, at_ms)]
        owns = (it for it in until_then if it.broker == owner)
        shown = next(owns, until_then[-1] if until_then else None)
        if shown is not None:
            shown_of = figures(shown, bundle)
            bundles.append(
                PastBundle(bundle, owner, shown.ts, shown_of, shown.broker, begin_of(shown), since)
            )
        elif owner is not None or around:
            bundles.append(PastBundle(bundle, owner, since=since))
    return bundles


class OwnerChange(NamedTuple):
    """That a broker serves a bundle from then on, or no longer."""

    ts: int
    bundle: str
    broker: str
    owns: bool


def owner_change(event: ArchivedEvent) -> OwnerChange | None:
    """What a step of ownership means for who serves the bundle; None: nothing."""
    step = event.record_as(OwnershipStep)
    owns = step.after == BundleState.OWNED.value
    if not owns and (step.after != BundleState.FREE.value or step.before in NOT_YET_OWNED):
        return None
    fenced_ms = event.ts if owns else event.ts - round(step.pause_ms or 0)
    return OwnerChange(fenced_ms, step.bundle, step.broker, owns)


@dataclass(slots=True)
class _Changes:
    """Changes of owners, the oldest first."""

    of_bundle: dict[str, list[OwnerChange]] = field(default_factory=dict)
    left: list[tuple[int, str]] = field(default_factory=list)
    """When which broker left."""
    started: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Broker → when it recorded its last start, and when that process began."""

    def add(self, event: ArchivedEvent) -> None:
        if event.kind == MemberChange.kind:
            member = event.record_as(MemberChange)
            if member.event == "starts":
                self.started[member.of] = event.ts, member.started_at or 0
            if member.event == "left":
                # A leader may record a loss once the next process has taken bundles already.
                started_ms, began_ms = self.started.get(member.of, (event.ts, 0))
                is_before = member.started_at is not None and began_ms > member.started_at
                self.left.append((started_ms if is_before else event.ts, member.of))
            return
        change = owner_change(event)
        if change is not None:
            changes = self.of_bundle.setdefault(change.bundle, [])
            changes.append(change)
            changes.sort(key=lambda it: it.ts)

    def came_later(self, bundle: str, samples: Sequence[ArchivedLoads], at_ms: int) -> bool:
        """Whether nothing is recorded of a bundle until a moment, and the first after it is that
        a broker got it: it was made of others, say. The samples are over times that the moment
        lies in, and have what was there at their ends.
        """
        changes = self.of_bundle.get(bundle, [])
        later = all(it.ts > at_ms for it in samples)
        return later and bool(changes) and changes[0].owns and changes[0].ts > at_ms

    def took_later(self, bundle: str, sample: ArchivedLoads, at_ms: int) -> bool:
        """Whether a sample is of after its broker got a bundle, which was only after a moment: it
        is not of then. An earlier sample is: a lost broker had the bundle that its next process
        took again.
        """
        own = [it for it in self.of_bundle.get(bundle, ()) if it.broker == sample.broker]
        return bool(own) and own[0].owns and at_ms < own[0].ts <= sample.ts

    def owner(
        self, bundle: str, samples: Sequence[ArchivedLoads], at_ms: int
    ) -> tuple[str | None, int | None]:
        """Who owned a bundle at a moment, of which there are these samples, and since when, if that
        is recorded.
        """
        changes = self.of_bundle.get(bundle, [])
        before = [change for change in changes if change.ts <= at_ms]
        after = [change for change in changes if change.ts > at_ms]
        gained = next((change for change in reversed(before) if change.owns), None)
        if gained is not None:
            owner, since = gained.broker, gained.ts
        elif after and not after[0].owns:
            owner = after[0].broker
            own = (it.ts for it in samples if it.broker == owner and it.ts <= at_ms)
            since = max(own, default=0)  # it had the bundle from before all that is known here
        else:
            of = [it for it in samples if not self.took_later(bundle, it, at_ms)]
            if not of:
                return None, None
            owner, since = of[-1].broker, of[-1].ts
        ended = [change.ts for change in before if change.broker == owner and not change.owns]
        ended += [ts for ts, broker in self.left if broker == owner and ts <= at_ms]
        if any(ts >= since for ts in ended):
            return None, None
        return owner, None if gained is None else gained.ts


def in_force(limit: str, broker: str, bundles: Sequence[PastBundle]) -> bool:
    """False for the limit of a topic whose bundle another broker owned then, or nobody: averages
    have it of all that owned it within their time.
    """
    topic = TOPIC.search(limit)
    if topic is None:
        return True
    name = TopicName.parse(topic[0])
    there = [it.owner for it in bundles if in_bundle(name, it.bundle)]
    owners = set(filter(None, there))  # others were split or merged about then
    return broker in owners if owners else not there


def limits_then(
    limits: ArchivedLoads, bundles: Sequence[PastBundle], at_ms: int
) -> dict[str, list[float]]:
    """The figures of the limits that were in force at a moment; see `in_force`. None of loads that
    had ended long before it: a limit is recorded while it is in use.
    """
    if at_ms - limits.ts > max(limits.span_ms, OLD_MS):
        return {}
    return {
        name: row for name, row in limits.figures.items() if in_force(name, limits.broker, bundles)
    }
