"""Which broker owned which bundle at a moment, by the archives of all brokers."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from loadmanager.cli.admin.archives import LoadsOfAll, events_of, loads_at
from loadmanager.cli.admin.asking import count_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.downtimes import say_down
from loadmanager.cli.admin.nearer_loads import nearer_loads
from loadmanager.engine.bundles.ranges import (
    FULL_LOWER,
    FULL_UPPER,
    BundleRange,
    split_bundle_name,
)
from loadmanager.kit.history.archive_answers import ArchivedLoads
from loadmanager.leader.owners_then import (
    MEASURED_MS,
    PAUSE_MS_MAX,
    PastBundle,
    figures,
    owners_at,
)

EVENTS_MAX = 1_000
BEFORE_MS = 300_000
"""Changes of owners are read from so long before a moment that has no earlier loads."""
MOVED_NAMED = 3
STEPS_MAX = 50
"""The last steps of one bundle, by which its owner is known."""


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
    with_nearer_figures(bundles, nearer_loads(admin, past, at_ms, ("bundle_load",)))
    past.notes += moved_lately([it for it in bundles if it.in_part])
    return bundles, past


def _with_losses(bundles: list[PastBundle], past: LoadsOfAll) -> list[PastBundle]:
    for it in bundles:
        it.lost = past.lost.get(it.owner or "", "")
    without_figures(bundles, past.unknown)
    return bundles


def without_figures(bundles: Iterable[PastBundle], unknown: Container[str]) -> None:
    """Take the figures away that brokers recorded of which no load of the moment is known."""
    for it in bundles:
        if it.by in unknown:
            it.figures, it.at, it.by = {}, None, None


def with_nearer_figures(bundles: Iterable[PastBundle], nearer: Iterable[ArchivedLoads]) -> None:
    """Give bundles the figures that their owners recorded nearer to the moment; not of one that its
    owner had just got then.
    """
    of = {it.broker: it for it in nearer if it.kind == "bundle_load"}
    for it in bundles:
        loads = of.get(it.owner or "")
        if loads is None or it.by != it.owner or it.bundle not in loads.figures:
            continue
        if it.since is None or loads.ts - it.since >= MEASURED_MS:
            it.figures, it.at = figures(loads, it.bundle), loads.ts


def moved_lately(bundles: Sequence[PastBundle]) -> list[str]:
    """That the figures of bundles are not all of their traffic; none: nothing."""
    if not bundles:
        return []
    some = ", ".join(it.bundle for it in bundles[:MOVED_NAMED])
    more = f" and {len(bundles) - MOVED_NAMED} more" if len(bundles) > MOVED_NAMED else ""
    text = f"{count_of(len(bundles), 'bundle')} came to another owner about then"
    return [f"{text}: the figures may have only a part of their traffic ({some}{more})"]


def bundle_at(admin: AdminClient, bundle: str, at_ms: int) -> tuple[PastBundle, LoadsOfAll]:
    """One bundle as it was then; also by changes of its owner that were long before."""
    past = loads_at(admin, at_ms, "bundle_load")
    say_down(admin, at_ms, past)
    steps = events_of(admin, ("ownership",), bundle, until_ms=at_ms + PAUSE_MS_MAX, limit=STEPS_MAX)
    since = min((at_ms, *(event.ts for event in steps.events)))
    left = events_of(admin, ("member",), since_ms=since, until_ms=at_ms, limit=EVENTS_MAX)
    past.missing |= steps.missing | left.missing
    bundles = _with_losses(owners_at(past.loads, [*steps.events, *left.events], at_ms), past)
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
