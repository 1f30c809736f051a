"""How long a bundle, or the bundles that a topic was in one after the other, had no owner that
served it, by what brokers recorded of owners and of each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import OwnershipStep
from loadmanager.engine.history.tenures import Step, Tenure, tenures_of
from loadmanager.engine.ownership.states import LifeCause

REPLACED = (LifeCause.SPLIT.value, LifeCause.MERGE.value)
"""Causes of an end after which it is no bundle any more."""
TAKEN_MS = 10_000
"""A leader records that an owner left at most so long after another one has its bundles."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A time without an owner that served it."""

    begin: int
    """At the latest."""
    end: int
    earlier_ms: int = 0
    """It may have begun so much earlier: so long before, a lost broker gave its last sign."""
    lasts: bool = False
    """Whether it had not ended."""

    @property
    def least_ms(self) -> int:
        """How long it was at least."""
        return self.end - self.begin

    @property
    def most_ms(self) -> int:
        """How long it was at most."""
        return self.least_ms + self.earlier_ms


@dataclass(slots=True)
class Away:
    """All such times within a time."""

    since_ms: int | None
    """From when on owners are recorded; None: not at all."""
    gaps: list[Gap] = field(default_factory=list)
    unknown: int = 0
    """How often another owner came, and no record says when the one before had ended."""
    replaced_ms: int | None = None
    """When it was split or merged, so that it was no bundle any more; None: it was not."""
    replaced_by: str = ""
    """`split` or `merge`."""


def away_of(
    steps: Iterable[OwnershipStep],
    members: Sequence[MemberChange],
    downs: Sequence[tuple[int, int]],
    between: tuple[int, int],
    lost: Iterable[tuple[str, int, int]] = (),
) -> Away:
    """`steps`: of a bundle and those that it was split from, `members`: of all brokers, the oldest
    first. `downs`: when the whole cluster was down; `lost`: the brokers that were lost with it,
    each with when it had ended at the latest, and for how long it had given no sign by then.
    `between`: the time.
    """
    since_ms, until_ms = between
    tenures = tenures_of(_step(step) for step in sorted(steps, key=lambda it: it.ts))
    tenures.sort(key=lambda it: (it.since_ms or 0, it.life or 0, it.broker))
    if not tenures:
        return Away(None)
    losses = _losses(members)
    for broker, ended_ms, unheard_ms in lost:
        losses.setdefault(broker, []).append((ended_ms, unheard_ms))
    away = Away(max(since_ms, tenures[0].since_ms or since_ms))
    gaps = list[Gap]()
    for before, after in pairwise(tenures):
        if after.parent is not None and after.parent == before.bundle:
            continue
        next_ms = after.since_ms or 0
        gap = _ended(before, next_ms, losses, downs)
        if gap is None:
            away.unknown += 1 if next_ms >= since_ms else 0
            continue
        end_ms = max(next_ms, gap.begin)
        if before.destination == after.broker and before.pause_ms is not None:
            end_ms = gap.begin + round(before.pause_ms)  # by one clock
        gaps.append(replace(gap, end=end_ms))
    last = tenures[-1]
    gap = _ended(last, until_ms, losses, downs)
    if last.cause in REPLACED and last.until_ms is not None and last.until_ms <= until_ms:
        away.replaced_ms, away.replaced_by = last.until_ms, str(last.cause)
        until_ms, gap = last.until_ms, None
    if gap is not None and gap.begin <= until_ms:
        gaps.append(replace(gap, end=until_ms, lasts=True))
    gaps += _frozen(tenures, members, until_ms)
    away.gaps = list(_joined(gaps, since_ms, until_ms))
    return away


def _step(step: OwnershipStep) -> Step:
    return Step(
        ts=step.ts,
        broker=step.broker,
        bundle=step.bundle,
        before=step.before,
        after=step.after,
        reason=step.reason,
        cause=step.cause,
        parent=step.parent,
        destination=step.destination,
        pause_ms=step.pause_ms,
        life=step.life,
    )


def _losses(members: Sequence[MemberChange]) -> dict[str, list[tuple[int, int]]]:
    """Broker → when it left, and for how long it had given no sign."""
    losses = dict[str, list[tuple[int, int]]]()
    for change in members:
        of = losses.setdefault(change.of, [])
        if change.event == "left":
            of.append((change.ts, change.unheard_ms or 0 if change.how == "lost" else 0))
        elif change.event == "back" and of and change.took_ms is not None:
            # It may have been recorded together with that it left, which was before.
            left_ms, unheard_ms = of[-1]
            of[-1] = min(left_ms, change.ts - change.took_ms), unheard_ms
    return losses


def _ended(
    tenure: Tenure,
    next_ms: int,
    losses: dict[str, list[tuple[int, int]]],
    downs: Sequence[tuple[int, int]],
) -> Gap | None:
    """When a tenure ended before another one began, as a gap without its end; None: no record says
    it.
    """
    since_ms = tenure.since_ms or 0
    ends = [
        Gap(min(left_ms, next_ms), 0, unheard_ms)
        for left_ms, unheard_ms in losses.get(tenure.broker, ())
        if since_ms < left_ms <= next_ms + TAKEN_MS
    ]
    # Who wakes up records a loss too late; any other end was before, whatever two clocks say.
    is_late = tenure.lost and (tenure.until_ms or 0) > next_ms
    if tenure.until_ms is not None and not is_late:
        ends.append(Gap(tenure.until_ms, 0))
    left = [it.begin for it in ends]
    ends += [
        Gap(begin, 0)
        for begin, over_ms in downs
        if since_ms < begin <= next_ms and not any(begin <= it <= over_ms for it in left)
    ]
    return min(ends, key=lambda it: (it.begin, it.earlier_ms), default=None)


def _frozen(
    tenures: Sequence[Tenure], members: Sequence[MemberChange], until_ms: int
) -> Iterable[Gap]:
    """The times in which an owner stood still."""
    for change in members:
        if change.event != "stood" or not change.took_ms:
            continue
        begin_ms = change.ts - change.took_ms
        for tenure, after in zip(tenures, [*tenures[1:], None], strict=True):
            over_ms = until_ms if after is None else after.since_ms or 0
            if tenure.broker == change.of and (tenure.since_ms or 0) <= begin_ms < over_ms:
                yield Gap(begin_ms, min(change.ts, over_ms))


def _joined(gaps: Iterable[Gap], since_ms: int, until_ms: int) -> Iterable[Gap]:
    """Those that overlap as one, within a time."""
    last: Gap | None = None
    for gap in sorted(gaps, key=lambda it: (it.begin, it.end)):
        if gap.end <= max(gap.begin - gap.earlier_ms, since_ms) or gap.begin >= until_ms:
            continue
        begin_ms = max(gap.begin, since_ms)
        earlier_ms = min(gap.earlier_ms, begin_ms - since_ms)
        cut = replace(gap, begin=begin_ms, earlier_ms=earlier_ms, end=min(gap.end, until_ms))
        if last is None or cut.begin > last.end:
            if last is not None:
                yield last
            last = cut
        else:
            earliest_ms = min(last.begin - last.earlier_ms, cut.begin - cut.earlier_ms)
            if last.earlier_ms == 0:  # when it stood still is exact
                earliest_ms = last.begin
            end_ms = max(last.end, cut.end)
            lasts = last.lasts or cut.lasts
            last = Gap(last.begin, end_ms, last.begin - earliest_ms, lasts)
    if last is not None:
        yield last
