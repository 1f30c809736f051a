"""Tenures: who owned which bundle when, from the brokers' ownership records; moves and clocks.

A *tenure* is one broker's ownership of one bundle. Each broker's records are in the order of its
own clock; tenures of several brokers are put in order by their lives, which the store numbered, and
without those by clocks that are corrected first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from loadmanager.engine.ownership.states import BundleState, LifeCause

OWNED, FREE = BundleState.OWNED.value, BundleState.FREE.value
RELEASING = BundleState.RELEASING.value
NEAR_MS = 600_000
"""A bundle that was handed over, and its acquisition, are at most so far apart, clocks included."""
IDLE_MS = 60_000
"""A bundle that nobody looks up for longer had no clients."""
CLOCKS_DIFFER_MS = 1_000
"""A smaller difference of clocks is not corrected, and not worth a word."""


class Step(NamedTuple):
    """One ownership record."""

    ts: int
    broker: str
    bundle: str
    before: str
    after: str
    reason: str = ""
    cause: str | None = None
    parent: str | None = None
    destination: str | None = None
    pause_ms: float | None = None
    life: int | None = None


@dataclass(slots=True, kw_only=True)
class Tenure:
    """One broker's ownership of one bundle. Times are on that broker's clock."""

    bundle: str
    broker: str
    since_ms: int | None = None
    """When it was acquired; None: before the first record."""
    parent: str | None = None
    """The bundle whose split began it."""
    until_ms: int | None = None
    """When it began to end; None: no record says that it ended."""
    freed_ms: int | None = None
    """When the bundle was given up, and the destination, if any was named, had acquired it."""
    cause: str | None = None
    reason: str | None = None
    destination: str | None = None
    pause_ms: float | None = None
    life: int | None = None

    @property
    def stopped(self) -> bool:
        """True if its broker stopped in good order."""
        return self.cause == LifeCause.STOP.value

    @property
    def lost(self) -> bool:
        """True if the broker lost the bundle: its session ended, or it recorded no end at all."""
        return self.until_ms is None or self.cause == LifeCause.LOSS.value


class Handover(NamedTuple):
    """Two tenures of a bundle, one after the other."""

    before: Tenure
    after: Tenure


def tenures_of(steps: Iterable[Step]) -> list[Tenure]:
    """The tenures that these records tell of; steps of a broker come in the order of its clock."""
    owned: dict[tuple[str, str], Tenure] = {}
    tenures: list[Tenure] = []
    for step in steps:
        key = (step.broker, step.bundle)
        if step.after == OWNED and step.before != BundleState.SPLITTING.value:
            tenure = Tenure(
                bundle=step.bundle,
                broker=step.broker,
                since_ms=step.ts,
                parent=step.parent,
                life=step.life,
            )
            owned[key] = tenure
            tenures.append(tenure)
        elif _ends(step):
            ended = owned.get(key)
            if ended is None:
                ended = owned[key] = Tenure(bundle=step.bundle, broker=step.broker)
                tenures.append(ended)
            _end(ended, step)
            if step.after == FREE:
                del owned[key]
    return tenures


def _ends(step: Step) -> bool:
    served = (OWNED, BundleState.SPLITTING.value)
    return (
        (step.before in served and step.after == FREE)
        or step.after == RELEASING
        or (step.before == RELEASING and step.after == FREE)
    ) and step.before != BundleState.OPENING.value


def _end(tenure: Tenure, step: Step) -> None:
    tenure.until_ms = step.ts if tenure.until_ms is None else tenure.until_ms
    tenure.cause = step.cause or tenure.cause
    tenure.reason = step.reason or tenure.reason
    tenure.destination = step.destination or tenure.destination
    tenure.life = step.life or tenure.life
    if step.after == FREE:
        tenure.freed_ms, tenure.pause_ms = step.ts, step.pause_ms
        if step.before == RELEASING:
            tenure.destination = step.destination


def add_owners(tenures: list[Tenure], first_seen: Mapping[str, tuple[str, int]]) -> list[Tenure]:
    """These tenures, and those of which only the load of the bundle tells: of brokers that owned a
    bundle since before the first record. `first_seen`: bundle → its first owner, and when.
    """
    first: dict[str, tuple[int, str]] = {}
    owners = set()
    for tenure in tenures:
        if tenure.since_ms is None:
            owners.add((tenure.bundle, tenure.broker))
        else:
            begun = tenure.since_ms, tenure.broker
            first[tenure.bundle] = min(begun, first.get(tenure.bundle, begun))
    with_owners = list(tenures)
    for bundle, (broker, ts) in first_seen.items():
        since, owner = first.get(bundle, (ts + 1, ""))
        # A load that is a little older than its own broker's acquisition is not an earlier tenure.
        early = since - ts > (NEAR_MS if owner == broker else 0)
        if early and (bundle, broker) not in owners:
            with_owners.append(Tenure(bundle=bundle, broker=broker))
    return with_owners


def ordered(tenures: Iterable[Tenure], clocks: Mapping[str, float]) -> dict[str, list[Tenure]]:
    """Bundle → its tenures, one after the other; `clocks`: broker → by how much it is ahead."""
    by_bundle: dict[str, list[Tenure]] = {}
    for tenure in tenures:
        by_bundle.setdefault(tenure.bundle, []).append(tenure)

    def begun(tenure: Tenure) -> tuple[float, float]:
        ahead = clocks.get(tenure.broker, 0.0)
        if tenure.since_ms is None:
            return float("-inf"), (tenure.until_ms or 0) - ahead
        return tenure.since_ms - ahead, 0.0

    for of_bundle in by_bundle.values():
        if all(tenure.life for tenure in of_bundle):
            of_bundle.sort(key=lambda tenure: tenure.life or 0)
        else:
            of_bundle.sort(key=lambda tenure: (begun(tenure), tenure.broker))
    return by_bundle


def changes(of_bundles: Mapping[str, Sequence[Tenure]]) -> list[Handover]:
    """Pairs of a tenure and the one before it."""
    return [
        Handover(before, after)
        for of_bundle in of_bundles.values()
        for before, after in pairwise(of_bundle)
    ]


def pause_ms(change: Handover, clocks: Mapping[str, float]) -> float | None:
    """How long the bundle had no owner, in ms; None if no record tells.

    A release that names its destination ends when that has acquired the bundle. Any other leaves it
    to the next lookup: one that comes late says that no client waited.
    """
    before, after = change
    if before.freed_ms is None or after.since_ms is None:
        return None
    paused = before.pause_ms or 0.0
    if before.destination == after.broker:
        return paused
    idle = after.since_ms - clocks.get(after.broker, 0.0)
    idle -= before.freed_ms - clocks.get(before.broker, 0.0)
    return paused + max(idle, 0.0) if idle <= IDLE_MS else None


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """By how much a broker's clock is ahead of the reference's."""

    ahead_ms: float
    uncertain_ms: float
    """It is ahead by so much more or less."""
    handovers: int
    """The number of bundles that were handed over with a neighbour in the comparison."""


def clocks_of(tenures: Iterable[Tenure]) -> dict[str, ClockOffset]:
    """Compare the clocks of brokers that handed bundles over to each other, with that of the broker
    that has most neighbours.

    The destination acquires a bundle after the source has begun to release it, and before the
    source ends the release. So each hand-over bounds the difference of two clocks.
    """
    bounds = _bounds(tenures)
    neighbours: dict[str, list[str]] = {}
    for source, destination in sorted(bounds):
        neighbours.setdefault(source, []).append(destination)
    offsets: dict[str, ClockOffset] = {}
    for start in sorted(neighbours, key=lambda name: (-len(neighbours[name]), name)):
        if start in offsets:
            continue
        offsets[start] = ClockOffset(0.0, 0.0, 0)
        waiting = [start]
        while waiting:
            broker = waiting.pop(0)
            for other in neighbours[broker]:
                if other not in offsets:
                    low, high, count = bounds[broker, other]
                    middle, half = (low + high) / 2, abs(high - low) / 2
                    offset = offsets[broker]
                    offsets[other] = ClockOffset(
                        offset.ahead_ms + middle, offset.uncertain_ms + half, count
                    )
                    waiting.append(other)
    return _centred(offsets)


def _bounds(tenures: Iterable[Tenure]) -> dict[tuple[str, str], tuple[float, float, int]]:
    """Source and destination → by how much the destination's clock is ahead at least and at most,
    and of how many hand-overs. Both directions.
    """
    listed = list(tenures)
    acquired: dict[tuple[str, str], list[Tenure]] = {}
    for tenure in listed:
        if tenure.since_ms is not None:
            acquired.setdefault((tenure.bundle, tenure.broker), []).append(tenure)
    bounds: dict[tuple[str, str], tuple[float, float, int]] = {}
    for tenure in listed:
        begun, ended = tenure.until_ms, tenure.freed_ms
        if tenure.destination is None or begun is None or ended is None or tenure.lost:
            continue
        since = _nearest(acquired.get((tenure.bundle, tenure.destination), []), ended)
        if since is None:
            continue
        low, high = since - ended, since - begun
        for key, least, most in (
            ((tenure.broker, tenure.destination), low, high),
            ((tenure.destination, tenure.broker), -high, -low),
        ):
            before = bounds.get(key, (float("-inf"), float("inf"), 0))
            bounds[key] = (max(before[0], least), min(before[1], most), before[2] + 1)
    return bounds


def _nearest(candidates: Sequence[Tenure], ended_ms: int) -> int | None:
    times = [tenure.since_ms for tenure in candidates if tenure.since_ms is not None]
    nearest = min(times, key=lambda ts: (abs(ts - ended_ms), ts), default=None)
    return nearest if nearest is not None and abs(nearest - ended_ms) <= NEAR_MS else None


def _centred(clocks: dict[str, ClockOffset]) -> dict[str, ClockOffset]:
    """The same, measured from the clock in the middle."""
    if not clocks:
        return {}
    ahead = sorted(clock.ahead_ms for clock in clocks.values())
    middle = ahead[len(ahead) // 2]
    return {
        broker: ClockOffset(clock.ahead_ms - middle, clock.uncertain_ms, clock.handovers)
        for broker, clock in sorted(clocks.items())
    }


def corrections(clocks: Mapping[str, ClockOffset]) -> dict[str, float]:
    """Broker → by how much it is ahead, for those that certainly are ahead or behind."""
    return {
        broker: clock.ahead_ms
        for broker, clock in clocks.items()
        if abs(clock.ahead_ms) - clock.uncertain_ms > CLOCKS_DIFFER_MS
    }
