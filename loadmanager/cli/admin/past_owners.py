"""Which broker owned which bundle at a moment, by the archives of all brokers."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from loadmanager.cli.admin.archives import LoadsOfAll, events_of, loads_at
from loadmanager.cli.admin.asking import count_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.downtimes import say_down
from loadmanager.cli.admin.standing import Standing, Stands, times_text
from loadmanager.cli.admin.times import time_of_day
from loadmanager.engine.bundles.ranges import (
    FULL_LOWER,
    FULL_UPPER,
    BundleRange,
    split_bundle_name,
)
from loadmanager.engine.history.archived import TRAFFIC
from loadmanager.engine.history.records import BundleLoad
from loadmanager.leader.owners_then import (
    PAUSE_MS_MAX,
    PastBundle,
    begin_of,
    figures,
    owners_at,
)

EVENTS_MAX = 1_000
BEFORE_MS = 300_000
"""Changes of owners are read from so long before a moment that has no earlier loads."""
MOVED_NAMED = 3
STEPS_MAX = 50
"""The last steps of one bundle, by which its owner is known."""


def doubt_text(it: PastBundle) -> str:
    """Why the figures of a bundle are not those of the moment; empty: they are, as far as it is
    known.
    """
    if it.in_part:
        came = f"it came at {time_of_day(it.since or 0)}"
        return f"in part: {came}" if it.by == it.owner else f"recorded by {it.by}: {came}"
    return f"a mean: its limits changed at {times_text(it.limited)}" if it.limited else ""


def take_figures(it: PastBundle, standing: Standing) -> None:
    """Have a bundle take the figures of the record that stands best for the moment, if its owner
    has one.
    """
    best = None if it.owner is None else standing.bundle(it.bundle, it.owner)
    if best is None:
        return
    loads = best.loads
    it.at, it.begin, it.by = loads.ts, begin_of(loads), loads.broker
    it.figures, it.limited = figures(loads, it.bundle), best.limited


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
        take_figures(it, standing)
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
    if count := sum(bool(doubt_text(it)) for it in bundles if it.owner == broker):
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
            take_figures(it, standing)
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
