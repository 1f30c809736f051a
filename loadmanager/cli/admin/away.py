"""For how long a bundle, or a topic, had no owner that served it, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from loadmanager.cli.admin.archives import events_of, now_ms
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.downtimes import downtimes
from loadmanager.cli.admin.times import clock, span, span_between
from loadmanager.engine.history.away import Away, Gap, away_of
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import OwnershipStep
from loadmanager.engine.ownership.states import LifeCause
from loadmanager.leader.interruptions import losses_in

STEPS_MAX = 1_000
"""Records of each sort that are looked through, the last ones."""


def away_lines(
    admin: AdminClient, names: Sequence[str], since: int | None, until: int | None
) -> list[str]:
    """Of the bundles among these names, which are one after the other; none without a bundle."""
    bundles = [name for name in names if "_0x" in name]
    if not bundles:
        return []
    until_ms, steps, begun = until or now_ms(), list[OwnershipStep](), [since or 0]
    for bundle in bundles:
        events = events_of(
            admin, (OwnershipStep.kind,), bundle, until_ms=until_ms, limit=STEPS_MAX
        ).events
        of = [it.record_as(OwnershipStep) for it in events if it.kind == OwnershipStep.kind]
        steps += [step for step in of if step.bundle == bundle]
        begun += [events[-1].ts] if len(events) == STEPS_MAX else []
    members = events_of(admin, (MemberChange.kind,), until_ms=until_ms, limit=STEPS_MAX).events
    begun += [members[-1].ts] if len(members) == STEPS_MAX else []
    changes = [it.record_as(MemberChange) for it in members if it.kind == MemberChange.kind]
    changes.sort(key=lambda it: it.ts)
    since_ms = max(begun)
    downs = downtimes(admin, since_ms)
    lost = [(it.broker, it.ts, it.unheard_ms) for it in losses_in(downs)]
    spans = [(it.begin, it.end) for it in downs]
    away = away_of(steps, changes, spans, (since_ms, until_ms), lost)
    return [] if away.since_ms is None else [away_text(away, since or 0, until_ms)]


def away_text(away: Away, since_ms: int, until_ms: int) -> str:
    """For how long, of a time that was asked for."""
    begin_ms = away.since_ms or 0
    until_ms = until_ms if away.replaced_ms is None else away.replaced_ms
    text = f"from {clock(begin_ms)} to {clock(until_ms)} ({span(until_ms - begin_ms)}) "
    if not away.gaps:
        always = "" if away.unknown else "always "
        text += f"it {always}had an owner that served it"
    else:
        total = sum(it.least_ms for it in away.gaps), sum(it.most_ms for it in away.gaps)
        text += f"it had no owner that served it for {span_between(*total)} in all, {_times(away)}"
        if away.gaps[-1].lasts:
            text += f"; it still had none at {clock(until_ms)}"
        if total[1] > total[0]:
            text += "; since when a lost broker served nobody is known to within its last signs"
    if away.unknown:
        often = "once" if away.unknown == 1 else f"{away.unknown} times"
        text += f"; {often} no record says when the owner before had ended, which is not counted"
    if away.replaced_ms is not None:
        how = "split" if away.replaced_by == LifeCause.SPLIT.value else "merged"
        text += f"; then it was {how}"
    if begin_ms > since_ms:
        text += ". Of before, no owner is recorded"
    return text


def _times(away: Away) -> str:
    longest = max(away.gaps, key=lambda it: (it.most_ms, it.begin))
    if len(away.gaps) == 1:
        return f"once, {_begin(longest)}"
    lasted = span_between(longest.least_ms, longest.most_ms)
    return f"{len(away.gaps)} times, longest {lasted} {_begin(longest)}"


def _begin(gap: Gap) -> str:
    """When it began: of a lost broker, its session ended so long after its last sign."""
    if not gap.earlier_ms:
        return f"at {clock(gap.begin)}"
    return f"from {clock(gap.begin)} on, or from up to {span(gap.earlier_ms)} before"
