"""Brokers that were lost, stopped, restarted or joined, and bundles that had no owner meanwhile.

A broker records its load at intervals, so a gap says that it was away. How it went is told by its
bundles: one that stops gives them up, one that crashes does not. One that was paused finds out that
it has lost them when it goes on: that record says nothing about when they had no owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from loadmanager.engine.history.tenures import Tenure

GAP_INTERVALS = 3.0
"""A broker that is silent for this many of its intervals was away."""
GAP_MS_MIN = 120_000
RESTART_MS_MIN = 1_000
"""A shorter time between two samples may be the timer's."""
NEAR_MS = 300_000
"""A bundle that its broker gave up, or lost, so near to the broker's end belongs to it."""
WAKE_MS = 30_000
"""A broker that was paused notices within this time that it has lost its session."""


@dataclass(frozen=True, slots=True)
class Silence:
    """A stretch in which a broker recorded nothing."""

    broker: str
    last_ms: int | None
    """Its last record before; None: it was not there before."""
    back_ms: int | None
    """Its first record afterwards; None: it did not come back."""


@dataclass(slots=True, kw_only=True)
class Unowned:
    """A bundle that lost its owner."""

    bundle: str
    since_ms: float
    until_ms: float | None
    """None: nobody acquired it afterwards, because nobody asked for it or nobody could."""
    next: str | None = None

    @property
    def lasted_ms(self) -> float | None:
        """For how long it had none."""
        return None if self.until_ms is None else max(self.until_ms - self.since_ms, 0.0)


@dataclass(slots=True, kw_only=True)
class Outage:
    """A broker that went."""

    broker: str
    how: str
    """`crash`, `session lost`, `stop`, or `silent`: it recorded nothing, and lost no bundle."""
    at_ms: float
    """The time at which it was last known to be there."""
    back_ms: float | None
    bundles: list[Unowned] = field(default_factory=list)


_Place = tuple[str, int, Tenure]
"""Bundle, and which one of its tenures."""


def silences(
    spans: Mapping[str, Sequence[tuple[int, int, int]]], first_ms: int, last_ms: int
) -> list[Silence]:
    """Broker → its records as (first, last, mean interval in ms), in order → its silences.

    Between `first_ms` and `last_ms`, when anything was recorded at all.
    """
    gaps = []
    for broker, of_broker in sorted(spans.items()):
        if not of_broker:
            continue
        limit_ms = max(GAP_MS_MIN, GAP_INTERVALS * median(span[2] for span in of_broker))
        if of_broker[0][0] - first_ms > limit_ms:
            gaps.append(Silence(broker, None, of_broker[0][0]))
        for before, after in zip(of_broker, of_broker[1:], strict=False):
            if after[0] - before[1] > limit_ms:
                gaps.append(Silence(broker, before[1], after[0]))
        if last_ms - of_broker[-1][1] > limit_ms:
            gaps.append(Silence(broker, of_broker[-1][1], None))
    return gaps


def outages(
    silent: Iterable[Silence],
    of_bundles: Mapping[str, Sequence[Tenure]],
    clocks: Mapping[str, float],
    restarted: Iterable[Silence] = (),
    stalled: Iterable[Silence] = (),
) -> list[Outage]:
    """The outages of a day, by time: of brokers that fell silent, and of those that lost bundles or
    gave them up without a silence (a session that expired, a restart between two records).
    `stalled`: from one record of a process to the next, where that took unusually long.
    """
    taken: set[tuple[str, int]] = set()
    outage_list = []
    of_brokers = _of_brokers(of_bundles)
    for silence in silent:
        if silence.last_ms is None:
            continue
        ahead = clocks.get(silence.broker, 0.0)
        outage = Outage(
            broker=silence.broker,
            how="silent",
            at_ms=silence.last_ms - ahead,
            back_ms=None if silence.back_ms is None else silence.back_ms - ahead,
        )
        ended = list(_ended_near(silence, of_brokers.get(silence.broker, ()), of_bundles))
        stopped = [part for part in ended if part[2].stopped]
        lost = [part for part in ended if part[2].lost and (part[2].until_ms or not stopped)]
        taken.update((bundle, index) for bundle, index, _ in (*lost, *stopped))
        for bundle, index, _ in stopped or lost:
            outage.bundles.append(_unowned(of_bundles[bundle], index, outage.at_ms, clocks))
        if stopped:
            outage.how = "stop"
        elif lost and all(_woke(silence, tenure) for _, _, tenure in lost):
            outage.how = "session lost"
        elif lost:
            outage.how = "crash"
        outage_list.append(outage)
    outage_list += _without_silence(of_bundles, taken, clocks, list(restarted), list(stalled))
    return sorted(outage_list, key=lambda outage: (outage.at_ms, outage.broker))


def _of_brokers(of_bundles: Mapping[str, Sequence[Tenure]]) -> dict[str, list[_Place]]:
    """Broker → its tenures, with their places: there may be many silences, each of one broker."""
    places: dict[str, list[_Place]] = {}
    for bundle, of_bundle in of_bundles.items():
        for index, tenure in enumerate(of_bundle):
            places.setdefault(tenure.broker, []).append((bundle, index, tenure))
    return places


def _ended_near(
    silence: Silence, tenures: Iterable[_Place], of_bundles: Mapping[str, Sequence[Tenure]]
) -> Iterable[_Place]:
    """Of the broker's tenures those that ended when it fell silent."""
    last_ms = silence.last_ms or 0
    back_ms = silence.back_ms if silence.back_ms is not None else float("inf")
    for bundle, index, tenure in tenures:
        if (tenure.since_ms or 0) > last_ms:
            continue
        if tenure.until_ms is not None:
            near = last_ms - NEAR_MS <= tenure.until_ms <= min(last_ms + NEAR_MS, back_ms)
            if near or _woke(silence, tenure):
                yield bundle, index, tenure
        elif not _later(of_bundles[bundle], index):
            if silence.back_ms is None:
                yield bundle, index, tenure
        elif (of_bundles[bundle][index + 1].since_ms or 0) > last_ms - NEAR_MS:
            yield bundle, index, tenure


def _woke(silence: Silence, tenure: Tenure) -> bool:
    """Whether a broker found out after a silence that it had lost a bundle: it was paused."""
    if not tenure.lost or tenure.until_ms is None or silence.back_ms is None:
        return False
    return abs(tenure.until_ms - silence.back_ms) <= WAKE_MS


def _later(of_bundle: Sequence[Tenure], index: int) -> bool:
    return index + 1 < len(of_bundle)


def _unowned(
    of_bundle: Sequence[Tenure], index: int, at_ms: float, clocks: Mapping[str, float]
) -> Unowned:
    tenure = of_bundle[index]
    since_ms = at_ms
    if tenure.until_ms is not None:
        since_ms = (tenure.freed_ms or tenure.until_ms) - clocks.get(tenure.broker, 0.0)
        next_ms = _acquired_next(of_bundle, index, clocks)
        if tenure.lost and next_ms is not None and next_ms < since_ms:
            since_ms = min(at_ms, next_ms)
    if not _later(of_bundle, index):
        return Unowned(bundle=tenure.bundle, since_ms=since_ms, until_ms=None)
    until_ms = _acquired_next(of_bundle, index, clocks)
    after = of_bundle[index + 1].broker
    return Unowned(bundle=tenure.bundle, since_ms=since_ms, until_ms=until_ms, next=after)


def _acquired_next(
    of_bundle: Sequence[Tenure], index: int, clocks: Mapping[str, float]
) -> float | None:
    """When the next owner had the bundle; None if no record tells."""
    if not _later(of_bundle, index):
        return None
    after = of_bundle[index + 1]
    return None if after.since_ms is None else after.since_ms - clocks.get(after.broker, 0.0)


def _without_silence(
    of_bundles: Mapping[str, Sequence[Tenure]],
    taken: set[tuple[str, int]],
    clocks: Mapping[str, float],
    restarted: Sequence[Silence],
    stalled: Sequence[Silence],
) -> list[Outage]:
    """Losses and stops that no silence explains, those of a broker at about one time together."""
    losses: dict[tuple[str, str], list[tuple[Unowned, float | None]]] = {}
    for bundle, of_bundle in of_bundles.items():
        for index, tenure in enumerate(of_bundle):
            if not (tenure.lost or tenure.stopped) or (bundle, index) in taken:
                continue
            if tenure.until_ms is None and not _later(of_bundle, index):
                continue  # it is owned still
            ended = _ended(of_bundle, index, clocks, restarted, stalled)
            if ended is None:
                continue
            at_ms, back_ms = ended
            how = "stop" if tenure.stopped else "session lost"
            if tenure.until_ms is None:
                how = "crash"
            loss = _unowned(of_bundle, index, at_ms, clocks)
            losses.setdefault((tenure.broker, how), []).append((loss, back_ms))
    unexplained: list[Outage] = []
    for (broker, how), lost in sorted(losses.items()):
        last = None
        for loss, back_ms in sorted(lost, key=lambda loss: (loss[0].since_ms, loss[0].bundle)):
            if last is None or loss.since_ms - last.at_ms > NEAR_MS:
                last = Outage(broker=broker, how=how, at_ms=loss.since_ms, back_ms=back_ms)
                unexplained.append(last)
            last.bundles.append(loss)
    return unexplained


def _ended(
    of_bundle: Sequence[Tenure],
    index: int,
    clocks: Mapping[str, float],
    restarted: Sequence[Silence],
    stalled: Sequence[Silence],
) -> tuple[float, float | None] | None:
    """When a lost tenure ended, and when its broker was back; None if no record tells.

    A broker that crashed did not record the end: it was before the restart after which somebody
    acquired the bundle, and after the last that the broker recorded before. One that was paused
    recorded it too late: it was after the last record before the pause.
    """
    tenure = of_bundle[index]
    ahead = clocks.get(tenure.broker, 0.0)
    next_ms = _acquired_next(of_bundle, index, clocks)
    if tenure.until_ms is not None:
        recorded_ms = tenure.until_ms - ahead
        if tenure.stopped:
            return recorded_ms, _back(tenure, restarted, ahead)
        if next_ms is not None and next_ms < recorded_ms:
            for silence in stalled:
                if (
                    silence.broker == tenure.broker
                    and silence.last_ms is not None
                    and _woke(silence, tenure)
                ):
                    return min(silence.last_ms - ahead, next_ms), recorded_ms
        return recorded_ms, recorded_ms
    if next_ms is None:
        return None  # nobody has it
    begun_ms = (tenure.since_ms or 0) - ahead
    for silence in reversed(restarted):
        if (
            silence.broker == tenure.broker
            and silence.last_ms is not None
            and silence.back_ms is not None
        ):
            last_ms, back_ms = silence.last_ms - ahead, silence.back_ms - ahead
            if begun_ms < back_ms and last_ms < next_ms:
                return max(last_ms, begun_ms), back_ms
    return None  # the broker was there all the time: a record of the release is missing


def _back(tenure: Tenure, restarted: Sequence[Silence], ahead: float) -> float | None:
    """When a broker that stopped was there again; None: not that day."""
    until_ms = tenure.until_ms or 0
    for silence in restarted:
        if (
            silence.broker == tenure.broker
            and silence.back_ms is not None
            and silence.back_ms > until_ms
        ):
            return silence.back_ms - ahead
    return None
