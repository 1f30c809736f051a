"""Which broker owned which bundle at a moment: by what the brokers recorded of every change of an
owner, which is exact; else by the loads around it, which are averages.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadmanager.cli.admin.archives import LoadsOfAll, events_of, figures, loads_at
from loadmanager.cli.admin.asking import count_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.downtimes import say_down
from loadmanager.cli.admin.standing import (
    OwnerChange,
    Standing,
    Stands,
    begin_of,
    owner_change,
    times_text,
)
from loadmanager.cli.admin.times import time_of_day
from loadmanager.engine.bundles.ranges import (
    FULL_LOWER,
    FULL_UPPER,
    BundleRange,
    split_bundle_name,
)
from loadmanager.engine.history.archived import TRAFFIC
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import BundleLoad
from loadmanager.kit.history.archive_answers import ArchivedEvent, ArchivedLoads

EVENTS_MAX = 1_000
BEFORE_MS = 300_000
"""Changes of owners are read from so long before a moment that has no earlier loads."""
MOVED_NAMED = 3
STEPS_MAX = 50
"""The last steps of one bundle, by which its owner is known."""
PAUSE_MS_MAX = 60_000
"""A bundle that is on its way is recorded as given up within this time, once it has an owner."""


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

    @property
    def doubt(self) -> str:
        """Why the figures are not those of the moment; empty: they are, as far as it is known."""
        if self.in_part:
            came = f"it came at {time_of_day(self.since or 0)}"
            by = "" if self.by == self.owner else f"recorded by {self.by}: "
            return f"{by}{came}" if by else f"in part: {came}"
        if self.limited:
            return f"a mean: its limits changed at {times_text(self.limited)}"
        return ""

    def take_figures(self, standing: Standing) -> None:
        """Take the figures of the record that stands best for the moment, if its owner has one."""
        best = None if self.owner is None else standing.bundle(self.bundle, self.owner)
        if best is None:
            return
        loads = best.loads
        self.at, self.begin, self.by = loads.ts, begin_of(loads), loads.broker
        self.figures, self.limited = figures(loads, self.bundle), best.limited


def bundles_at(admin: AdminClient, at_ms: int) -> tuple[list[PastBundle], LoadsOfAll]:
    """All bundles that had an owner about then, with the owner of exactly then; and the loads, with
    what is missing of all of this.
    """
    past = loads_at(admin, at_ms, "bundle_load")
    say_down(admin, at_ms, past)
    earlier = [loads.ts - loads.span_ms for loads in past.loads if loads.ts <= at_ms]
    since = min(earlier, default=at_ms)
    if len(earlier) < len(past.loads) or not earlier:
        since = min(since, at_ms - BEFORE_MS)
    until = max((loads.ts for loads in past.loads), default=at_ms)
    events = events_of(
        admin,
        ("ownership", "member"),
        since_ms=since,
        until_ms=max(until, at_ms + PAUSE_MS_MAX),
        limit=EVENTS_MAX,
    )
    if len(events.events) == EVENTS_MAX:
        past.notes.append(f"owners changed more than {EVENTS_MAX:,} times: some may be wrong")
    past.missing |= events.missing
    bundles = _with_losses(owners_at(past.loads, events.events, at_ms), past)
    standing = Standing.of(admin, past, at_ms, BundleLoad.kind)
    for it in bundles:
        it.take_figures(standing)
    standing.say(past, BundleLoad.kind)
    past.notes += doubts_of(bundles)
    return bundles, past


def _with_losses(bundles: list[PastBundle], past: LoadsOfAll) -> list[PastBundle]:
    for it in bundles:
        it.lost = past.lost.get(it.owner or "", "")
        if past.down:
            it.owner, it.last, it.lost = None, it.owner or "", ""
    without_figures(bundles, past.unknown)
    return bundles


def without_figures(bundles: Iterable[PastBundle], unknown: Container[str]) -> None:
    """Take the figures away that brokers recorded of which no load of the moment is known."""
    for it in bundles:
        if it.by in unknown:
            it.figures, it.at, it.begin, it.by = {}, None, None, None


def carried_by(
    broker: str, best: Stands | None, bundles: Iterable[PastBundle]
) -> dict[str, float] | None:
    """The traffic of all bundles that a broker owned at a moment. None: that of some is not known;
    or it had none, and nothing came or went in the time of its own record, which says as much.
    """
    own = [it for it in bundles if it.owner == broker]
    if not all(it.figures for it in own) or not (own or (best is not None and best.moved)):
        return None
    return {name: sum(it.figures.get(name, 0.0) for it in own) for name in TRAFFIC}


def doubt_of(broker: str, best: Stands | None, bundles: Iterable[PastBundle]) -> str:
    """Why the load of a broker is not that of the moment; empty: it is, as far as it is known."""
    doubts = list[str]()
    if best is not None and best.moved:
        doubts.append(f"load %: bundles came or went at {times_text(best.moved)}")
    if count := sum(bool(it.doubt) for it in bundles if it.owner == broker):
        doubts.append(f"msg/s: not sure of {count_of(count, 'bundle')}")
    return "; ".join(doubts)


def doubts_of(bundles: Iterable[PastBundle]) -> list[str]:
    """That the figures of bundles are not all of their traffic, or of before and after a limit."""
    moved, limited = list[PastBundle](), list[PastBundle]()
    for it in bundles:
        if it.in_part:
            moved.append(it)
        elif it.limited and it.owner is not None:
            limited.append(it)
    lines = list[str]()
    if moved:
        text = f"{count_of(len(moved), 'bundle')} came to another owner about then"
        part = "the figures may have only a part of their traffic"
        lines.append(f"{text}: {part} ({_some_of(moved)})")
    if limited:
        text = f"limits of {count_of(len(limited), 'bundle')} were changed about then"
        lines.append(f"{text}: the figures are means of before and after ({_some_of(limited)})")
    return lines


def _some_of(bundles: Sequence[PastBundle]) -> str:
    some = ", ".join(it.bundle for it in bundles[:MOVED_NAMED])
    more = f" and {len(bundles) - MOVED_NAMED} more" if len(bundles) > MOVED_NAMED else ""
    return f"{some}{more}"


def bundle_at(admin: AdminClient, bundle: str, at_ms: int) -> tuple[PastBundle, LoadsOfAll]:
    """One bundle as it was then; also by changes of its owner that were long before."""
    past = loads_at(admin, at_ms, "bundle_load")
    say_down(admin, at_ms, past)
    steps = events_of(admin, ("ownership",), bundle, until_ms=at_ms + PAUSE_MS_MAX, limit=STEPS_MAX)
    since = min((at_ms, *(event.ts for event in steps.events)))
    left = events_of(admin, ("member",), since_ms=since, until_ms=at_ms, limit=EVENTS_MAX)
    past.missing |= steps.missing | left.missing
    bundles = _with_losses(owners_at(past.loads, [*steps.events, *left.events], at_ms), past)
    standing = Standing.of(admin, past, at_ms, BundleLoad.kind)
    for it in bundles:
        if it.bundle == bundle:
            it.take_figures(standing)
    return next((it for it in bundles if it.bundle == bundle), PastBundle(bundle, None)), past


def uncovered(bundles: Iterable[str]) -> list[str]:
    """The parts of a namespace's hash space that are in none of these bundles of it."""
    spans = sorted(
        (BundleRange.parse(split_bundle_name(each)[1]) for each in bundles),
        key=lambda span: span.lower,
    )
    parts, begin = list[str](), FULL_LOWER
    for span in spans:
        if span.lower > begin:
            parts.append(str(BundleRange(begin, span.lower)))
        begin = max(begin, span.upper)
    return [*parts, str(BundleRange(begin, FULL_UPPER))] if begin < FULL_UPPER else parts


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
            owner, since = after[0].broker, at_ms
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
