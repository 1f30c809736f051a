"""Brokers that were lost, stopped, restarted or joined, and bundles that had no owner meanwhile.

A broker records its load at intervals, so a gap says that it was away. How it went is told by its
bundles: one that stops gives them up, one that crashes does not. One that was paused finds out that
it has lost them when it goes on: that record says nothing about when they had no owner.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
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
STOOD_MS = 5_000
"""One that recorded that it stood still does so within this time."""


@dataclass(frozen=True, slots=True)
class Silence:
    """A stretch in which a broker recorded nothing."""

    broker: str
    last_ms: int | None
    """Its last record before; None: it was not there before."""
    back_ms: int | None
    """Its first record afterwards; None: it did not come back."""
    began_ms: int | None = None
    """When the process began that fell silent; None: no record tells."""


@dataclass(frozen=True, slots=True)
class RecordedDeparture:
    """That a leader saw a broker leave, or that it stopped, by the clock of that broker."""

    broker: str
    lost: bool
    """False: it stopped in order."""
    sign_ms: int
    """Its last sign was then, or later."""
    at_ms: int
    """When its session was over."""
    back_ms: int | None
    """Its first sign afterwards; None: it did not come back."""
    restarted: bool
    """Whether that was of another process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What else is recorded of brokers that went, by their own clocks, each in order of time."""

    restarted: Sequence[Silence] = ()
    """Times between two processes, however short."""
    stalled: Sequence[Silence] = ()
    """From one record of a process to the next, where that took unusually long."""
    stood: Sequence[Silence] = ()
    """When a process had stood still, as it recorded itself."""
    signs: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Broker → when it gave a sign."""
    left: Sequence[RecordedDeparture] = ()


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
    late_ms: float | None = None
    """It may have gone so much later; None: not known."""


@dataclass(frozen=True, slots=True)
class _End:
    """When a tenure ended, and when its broker was back."""

    at_ms: float
    back_ms: float | None
    late_ms: float | None = None
    """It may have been so much later; None: not known."""


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
    evidence: Evidence | None = None,
) -> list[Outage]:
    """The outages of a day, by time: of brokers that fell silent, of those that lost bundles or
    gave them up without a silence (a session that expired, a restart between two records), and of
    those that a leader saw lost. One for each time that a broker went.
    """
    evidence = evidence or Evidence()
    taken: set[tuple[str, int]] = set()
    outage_list = []
    of_brokers = _of_brokers(of_bundles)
    for silence in sorted(silent, key=lambda it: (it.last_ms or 0, it.broker)):
        if silence.last_ms is None:
            continue
        ended = [
            place
            for place in _ended_near(silence, of_brokers.get(silence.broker, ()), of_bundles)
            if place[:2] not in taken
        ]
        outage_list.append(_of_silence(silence, ended, of_bundles, clocks, evidence))
        taken.update(place[:2] for place in ended if place[2].lost or place[2].stopped)
    outage_list += _without_silence(of_bundles, taken, clocks, evidence)
    for left in evidence.left:
        _add_departure(outage_list, left, clocks, evidence)
    return sorted(outage_list, key=lambda outage: (outage.at_ms, outage.broker))


def _of_silence(
    silence: Silence,
    ended: Sequence[_Place],
    of_bundles: Mapping[str, Sequence[Tenure]],
    clocks: Mapping[str, float],
    evidence: Evidence,
) -> Outage:
    """What a silence was; `ended`: the tenures of its broker that ended with it."""
    ahead = clocks.get(silence.broker, 0.0)
    outage = Outage(
        broker=silence.broker,
        how="silent",
        at_ms=(silence.last_ms or 0) - ahead,
        back_ms=None if silence.back_ms is None else silence.back_ms - ahead,
    )
    stopped = [place for place in ended if place[2].stopped]
    lost = [place for place in ended if place[2].lost and (place[2].until_ms or not stopped)]
    if stopped:
        outage.how, outage.late_ms = "stop", 0.0
    elif lost and all(_woke(silence, tenure) for _, _, tenure in lost):
        outage.how = "session lost"
        stood = _stood(lost[0][2], evidence.stood)
        if stood is not None and (stood.last_ms or 0) - ahead >= outage.at_ms:
            outage.at_ms, outage.late_ms = (stood.last_ms or 0) - ahead, 0.0
    elif lost:
        outage.how = "crash"
    for bundle, index, tenure in stopped or lost:
        late = _woke(silence, tenure)
        outage.bundles.append(
            _unowned(of_bundles[bundle], index, outage.at_ms, clocks, is_late=late)
        )
    return outage


def _add_departure(
    outage_list: list[Outage],
    left: RecordedDeparture,
    clocks: Mapping[str, float],
    evidence: Evidence,
) -> None:
    """Have the outage that a leader saw say how it was; add a loss that nothing else tells of."""
    ahead = clocks.get(left.broker, 0.0)
    sign_ms, over_ms = left.sign_ms - ahead, left.at_ms - ahead
    own = [it for it in outage_list if it.broker == left.broker and _matches(it, left, ahead)]
    outage = min(own, key=lambda it: (abs(it.at_ms - sign_ms), it.at_ms), default=None)
    if outage is not None:
        if not left.lost and outage.how in ("silent", "crash"):
            outage.how = "stop"
        elif left.lost and outage.how == "silent":
            outage.how = "crash" if left.restarted or left.back_ms is None else "session lost"
        if left.lost and outage.how != "stop" and outage.late_ms is None:
            outage.late_ms = max(0.0, over_ms - outage.at_ms)
    elif left.lost:
        outage_list.append(_of_departure(left, ahead, evidence))


def _of_departure(left: RecordedDeparture, ahead: float, evidence: Evidence) -> Outage:
    """The outage of a broker that a leader saw lost, if nothing else tells of it."""
    for stood in evidence.stood:
        begun_ms, back_ms = stood.last_ms or 0, stood.back_ms or 0
        if stood.broker == left.broker and begun_ms <= left.at_ms and left.sign_ms <= back_ms:
            return Outage(
                broker=left.broker,
                how="session lost",
                at_ms=begun_ms - ahead,
                back_ms=back_ms - ahead,
                late_ms=0.0,
            )
    return Outage(
        broker=left.broker,
        how="crash" if left.restarted or left.back_ms is None else "session lost",
        at_ms=_signed(evidence, left.broker, left.sign_ms, left.at_ms + 1) - ahead,
        back_ms=None if left.back_ms is None else left.back_ms - ahead,
        late_ms=float(left.at_ms - left.sign_ms),
    )


def _matches(outage: Outage, left: RecordedDeparture, ahead: float) -> bool:
    """Whether the outage was while a leader saw the broker leave, and no other process began
    between them.
    """
    begin_ms, end_ms = left.sign_ms - ahead, left.at_ms - ahead
    if left.restarted and left.back_ms is not None and left.back_ms - ahead <= outage.at_ms:
        return False
    until_ms = inf if outage.back_ms is None else outage.back_ms
    return outage.at_ms - WAKE_MS <= end_ms and begin_ms <= max(until_ms, outage.at_ms)


def _signed(evidence: Evidence, broker: str, last_ms: float, end_ms: float) -> float:
    """The last sign of a broker before `end_ms`; at least `last_ms`."""
    return last_sign(evidence.signs.get(broker, ()), last_ms, end_ms)


def last_sign(signs: Sequence[int], last_ms: float, end_ms: float) -> float:
    """The last of these, in order, before `end_ms`; at least `last_ms`."""
    place = bisect_left(signs, end_ms)
    return max(last_ms, signs[place - 1]) if place else last_ms


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
    back_ms = silence.back_ms if silence.back_ms is not None else inf
    began_ms = silence.began_ms or 0
    for bundle, index, tenure in tenures:
        if (tenure.since_ms or 0) > last_ms:
            continue
        ends_ms = tenure.since_ms or 0 if tenure.until_ms is None else tenure.until_ms
        if ends_ms < began_ms:
            continue  # that was another process
        if tenure.until_ms is not None:
            # Who lost its session before, and went on, was lost then.
            before_ms = WAKE_MS if tenure.lost else NEAR_MS
            near = last_ms - before_ms <= tenure.until_ms <= min(last_ms + NEAR_MS, back_ms)
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


def _stood(tenure: Tenure, stood: Iterable[Silence]) -> Silence | None:
    """When the owner stood still before it recorded that it had lost the bundle; None: it did not,
    or did not record that.
    """
    until_ms = tenure.until_ms or 0
    return next(
        (
            it
            for it in stood
            if it.broker == tenure.broker
            and (tenure.since_ms or 0) <= (it.last_ms or 0) <= until_ms
            and abs(until_ms - (it.back_ms or 0)) <= STOOD_MS
        ),
        None,
    )


def _later(of_bundle: Sequence[Tenure], index: int) -> bool:
    return index + 1 < len(of_bundle)


def _unowned(
    of_bundle: Sequence[Tenure],
    index: int,
    at_ms: float,
    clocks: Mapping[str, float],
    *,
    is_late: bool = False,
) -> Unowned:
    """`is_late`: its owner recorded the end when it woke up, and not at `at_ms`."""
    tenure = of_bundle[index]
    next_ms = _acquired_next(of_bundle, index, clocks)
    since_ms = at_ms
    if tenure.until_ms is not None and not is_late:
        since_ms = (tenure.freed_ms or tenure.until_ms) - clocks.get(tenure.broker, 0.0)
    if tenure.until_ms is not None and tenure.lost and next_ms is not None and next_ms < since_ms:
        since_ms = min(at_ms, next_ms)
    after = of_bundle[index + 1].broker if _later(of_bundle, index) else None
    return Unowned(bundle=tenure.bundle, since_ms=since_ms, until_ms=next_ms, next=after)


def _acquired_next(
    of_bundle: Sequence[Tenure], index: int, clocks: Mapping[str, float]
) -> float | None:
    """When the next owner had the bundle; None if no record tells."""
    if not _later(of_bundle, index):
        return None
    after = of_bundle[index + 1]
    return None if after.since_ms is None else after.since_ms - clocks.get(after.broker, 0.0)


@dataclass(frozen=True, slots=True)
class _Loss:
    """A bundle that a broker lost or gave up, and how that ended."""

    bundle: Unowned
    end: _End
    noticed_ms: float
    """When its broker recorded that, if it did."""


def _without_silence(
    of_bundles: Mapping[str, Sequence[Tenure]],
    taken: set[tuple[str, int]],
    clocks: Mapping[str, float],
    evidence: Evidence,
) -> list[Outage]:
    """Losses and stops that no silence explains, those of a broker at one time together."""
    losses: dict[tuple[str, str], list[_Loss]] = {}
    for bundle, of_bundle in of_bundles.items():
        for index, tenure in enumerate(of_bundle):
            if not (tenure.lost or tenure.stopped) or (bundle, index) in taken:
                continue
            end = _ended(of_bundle, index, clocks, evidence)
            if end is None:
                continue
            how = "stop" if tenure.stopped else "session lost"
            noticed_ms = (tenure.until_ms or 0) - clocks.get(tenure.broker, 0.0)
            if tenure.until_ms is None:
                how, noticed_ms = "crash", end.at_ms
            is_late = end.at_ms < noticed_ms
            loss = _unowned(of_bundle, index, end.at_ms, clocks, is_late=is_late)
            losses.setdefault((tenure.broker, how), []).append(_Loss(loss, end, noticed_ms))
    return [outage for of, lost in sorted(losses.items()) for outage in _by_time(*of, losses=lost)]


def _by_time(broker: str, how: str, losses: Iterable[_Loss]) -> list[Outage]:
    """The outages of a broker that these losses are of."""
    outage_list: list[Outage] = []
    last: _Loss | None = None
    for loss in sorted(losses, key=lambda it: (it.noticed_ms, it.bundle.bundle)):
        if last is None or not _at_once(how, last, loss):
            end = loss.end
            outage_list.append(
                Outage(broker=broker, how=how, at_ms=inf, back_ms=end.back_ms, late_ms=end.late_ms)
            )
        outage = outage_list[-1]
        outage.at_ms = min(outage.at_ms, loss.bundle.since_ms)
        outage.bundles.append(loss.bundle)
        last = loss
    for outage in outage_list:
        outage.bundles.sort(key=lambda it: (it.since_ms, it.bundle))
    return outage_list


def _at_once(how: str, before: _Loss, after: _Loss) -> bool:
    """Whether a broker that lost two bundles, one after the other, went once only: it loses all
    with its session, and what it gives up as it stops, or loses as it ends, is of one process.
    """
    if how == "session lost":
        return after.noticed_ms - before.noticed_ms <= WAKE_MS
    same = before.end.back_ms == after.end.back_ms
    return same and (how == "crash" or after.noticed_ms - before.noticed_ms <= NEAR_MS)


def _ended(
    of_bundle: Sequence[Tenure], index: int, clocks: Mapping[str, float], evidence: Evidence
) -> _End | None:
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
            return _End(recorded_ms, _back(tenure, evidence.restarted, ahead), 0.0)
        return _noticed(tenure, recorded_ms, next_ms, ahead, evidence)
    begun_ms = (tenure.since_ms or 0) - ahead
    for silence in _ends_of(tenure.broker, evidence):
        if next_ms is None and (silence.back_ms is not None or _later(of_bundle, index)):
            continue  # it may be owned still
        last_ms = (silence.last_ms or 0) - ahead
        back_ms = None if silence.back_ms is None else silence.back_ms - ahead
        if (back_ms is None or begun_ms < back_ms) and (next_ms is None or last_ms < next_ms):
            return _End(max(last_ms, begun_ms), back_ms)
    return None  # the broker was there all the time: a record of the release is missing


def _noticed(
    tenure: Tenure, recorded_ms: float, next_ms: float | None, ahead: float, evidence: Evidence
) -> _End:
    """When a tenure ended whose broker recorded that it had lost the bundle."""
    stood = _stood(tenure, evidence.stood)
    if stood is not None and stood.last_ms is not None:
        return _End(stood.last_ms - ahead, recorded_ms, 0.0)
    if next_ms is None or next_ms >= recorded_ms:
        return _End(recorded_ms, recorded_ms, 0.0)
    until_ms = min(tenure.until_ms or 0, next_ms + ahead)
    signs_ms = [
        silence.last_ms
        for silence in evidence.stalled
        if silence.broker == tenure.broker
        and silence.last_ms is not None
        and silence.last_ms < until_ms
        and _woke(silence, tenure)
    ][:1]
    signs_ms += [
        left.sign_ms
        for left in evidence.left
        if left.broker == tenure.broker
        and left.lost
        and (tenure.since_ms or 0) < left.at_ms <= (tenure.until_ms or 0)
    ]
    if not signs_ms:
        return _End(recorded_ms, recorded_ms, 0.0)
    at_ms = _signed(evidence, tenure.broker, max(signs_ms), until_ms) - ahead
    return _End(min(at_ms, next_ms), recorded_ms)


def _ends_of(broker: str, evidence: Evidence) -> list[Silence]:
    """The times between a broker's processes, in order: by its records, and as leaders saw."""
    ends = [it for it in evidence.restarted if it.broker == broker and it.back_ms is not None]
    for left in evidence.left:
        is_told = any(
            (it.last_ms or 0) <= left.at_ms and left.sign_ms <= (it.back_ms or 0) for it in ends
        )
        over = left.lost and (left.restarted or left.back_ms is None)
        if left.broker == broker and over and not is_told:
            last_ms = _signed(evidence, broker, left.sign_ms, left.at_ms)
            ends.append(Silence(broker, round(last_ms), left.back_ms))
    return sorted(ends, key=lambda it: it.last_ms or 0)


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
