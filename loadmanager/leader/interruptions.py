"""How many clients were interrupted today, as the archives have it: by their own records, as those
that `admin interrupted` names. Where these are not all there, or are those of too many brokers to
be asked for each time, by what leaders counted. Command line and page show these figures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol, TypeVar

from msgspec.structs import replace

from loadmanager.engine.history.clients import ClientStep
from loadmanager.engine.history.lapses import SIGN_MS
from loadmanager.engine.history.members import MemberChange, left_at_of, unheard_of
from loadmanager.engine.history.records import Decision, decided_ms
from loadmanager.engine.history.waits import (
    BY_BROKER,
    Interrupted,
    Key,
    Loss,
    Standstill,
    interruptions_of,
    key_of,
)
from loadmanager.engine.moves.move import MoveState
from loadmanager.kit.history.archive_answers import (
    ArchivedEvent,
    ArchivedEvents,
    ArchivedMoment,
    RecordedSpan,
)
from loadmanager.kit.units import DAY_MS, HOUR_MS
from loadmanager.leader.documents.interruptions import InterruptionsShown, MoveReturn
from loadmanager.leader.documents.members import AbsentBroker

EVENTS_MAX = 1_000
BROKERS_MAX = 20
"""Each may have two thousand records of clients: those of more brokers take seconds."""
STEPS_MAX = 2_000
"""Records of clients that are asked of one broker."""
CHANGES_MAX = 1_000
AGO_MS = 24 * HOUR_MS
"""Records of clients are looked at from so long before the time that is asked for."""
AFTER_MS = 10 * 60_000
"""So long after the time that is asked for, clients may have come back, and what interrupted them
may have ended.
"""
SEEN_MS = 10_000
"""A leader sees that a session has ended at most this long after its broker goes on."""
NEXT_SEEN_MS = 60_000
"""The next leader sees at most this long after all are back whose sessions had ended."""
CLOCKS_MS = 1_000
"""The clocks of two brokers may be so far apart."""
DOWN_MS = 15_000
"""So long no broker is silent that lives: each gives a sign every ten seconds."""
ONE_LOSS_MS = 15_000
"""Times of one loss differ by no more, whoever has recorded it."""
START_MS = 60_000
"""A broker records its start within this time of its archive's."""
KINDS = ("decision.move", MemberChange.kind)
STEPS = tuple(f"{ClientStep.kind}.{it}" for it in ("attached", "left", "unrecorded"))


D = TypeVar("D", bound="ClusterDown")


@dataclass(frozen=True, slots=True)
class ClusterDown:
    """A time in which no broker recorded anything, after which one started."""

    begin: int
    end: int
    in_order: bool = False
    """Whether all brokers that were there when it began had recorded that they stop in order."""
    ended: Mapping[str, int] = field(default_factory=dict)
    """Broker → its last sign, of those that were there until then and had not stopped in order:
    they were lost, and nobody was left to record that.
    """


@dataclass(frozen=True, slots=True)
class AskedArchives:
    """What the archives of a cluster answered."""

    parts: Mapping[str, ArchivedEvents]
    silent: frozenset[str] = frozenset()
    """The brokers whose parts are not there."""


@dataclass(frozen=True, slots=True)
class AskedLoads:
    """The loads of a moment that the archives of a cluster answered."""

    parts: Mapping[str, ArchivedMoment]
    silent: frozenset[str] = frozenset()
    """The brokers whose parts are not there."""


class Archives(Protocol):
    """The archives of all brokers of a cluster."""

    async def events(
        self, kinds: Sequence[str], since_ms: int, until_ms: int, limit: int
    ) -> AskedArchives:
        """Events of some kinds, of each broker the newest."""
        ...

    async def loads(self, at_ms: int, kinds: Sequence[str]) -> AskedLoads:
        """The loads of some kinds at a moment."""
        ...


@dataclass(frozen=True, slots=True)
class StepsOfClients:
    """The steps of clients that archives have, and what is not among them."""

    steps: list[ClientStep]
    """With those that say how many were recorded by their number only."""
    since: dict[str, int]
    """Broker → when the first was that is looked at, of those that have more than may be asked."""
    unrecorded: dict[str, int]
    """Broker → how many it recorded by their number only."""


def steps_of(parts: Mapping[str, ArchivedEvents], begin_ms: int) -> StepsOfClients:
    """Those of archives that were asked for `STEPS`, about a time from `begin_ms` on."""
    answer = StepsOfClients([], {}, {})
    for broker, part in sorted(parts.items()):
        events = [it for it in part.events if it.kind.startswith(f"{ClientStep.kind}.")]
        its = [event.record_as(ClientStep) for event in events]
        if len(its) >= STEPS_MAX and (first := min(it.ts for it in its)) > begin_ms - AGO_MS:
            answer.since[broker] = first
        lost = sum(it.times for it in its if it.event == "unrecorded" and it.ts >= begin_ms)
        if lost:
            answer.unrecorded[broker] = lost
        answer.steps.extend(its)
    return answer


def downs_of(parts: Iterable[ArchivedEvents], since_ms: int) -> list[ClusterDown]:
    """The times that ended later than this, the oldest first, by what is recorded of brokers: each
    had stopped in order, starts again after it, or gave no sign since. Others may have lived
    through it, and could not write their archives, as on a full disk.
    """
    of_all, downs = list(parts), list[ClusterDown]()
    last_ms = max((run.end for part in of_all for run in part.recorded), default=0)
    starts = [it.ts for part in of_all for it in part.events if it.record.get("event") == "starts"]
    for begin, end in between([run for part in of_all for run in part.recorded], 0):
        if end < since_ms or not any(begin < ts <= end + START_MS for ts in starts):
            continue
        there = _last_signs(of_all, begin)
        in_order = all(_stopped(part, begin, end) for part, _ in there)
        if in_order or all(_ended(*each, last_ms) for each in there):
            ended = {
                part.part: sign
                for part, sign in there
                if not (_stopped(part, begin, end) or _had_left(part.part, of_all, sign, begin))
            }
            downs.append(ClusterDown(begin, end, in_order, ended))
    return downs


def _last_signs(parts: Iterable[ArchivedEvents], begin_ms: int) -> list[tuple[ArchivedEvents, int]]:
    """The parts of the brokers that were there until the whole cluster was down, each with the last
    sign of its broker.
    """
    ends = ((part, [run.end for run in part.recorded if run.end <= begin_ms]) for part in parts)
    last = [(part, max(its)) for part, its in ends if its]
    return [(part, sign) for part, sign in last if begin_ms - sign <= START_MS]


def _ended(part: ArchivedEvents, sign_ms: int, last_ms: int) -> bool:
    """Whether the process of a broker had ended with its last sign before a time: the next that is
    recorded of it is that it starts, or it has been silent for longer since than one that lives;
    `last_ms`: the last sign of any.
    """
    again = min((run.begin for run in part.recorded if run.begin > sign_ms), default=None)
    if again is None:
        return last_ms - sign_ms > DOWN_MS
    return any(
        again - CLOCKS_MS <= it.ts <= again + START_MS
        and it.record.get("event") == "starts"
        and it.record.get("of") == part.part
        for it in part.events
    )


def _stopped(part: ArchivedEvents, begin_ms: int, end_ms: int) -> bool:
    """Whether the last that a broker recorded of itself before the whole cluster was down was that
    it stops in order.
    """
    until_ms = {"starts": begin_ms, "stops": min(begin_ms + DOWN_MS, end_ms)}
    own = (
        event
        for it in part.events
        if (event := it.record.get("event")) in until_ms
        and it.ts <= until_ms[event]
        and it.record.get("of") == part.part
    )
    return next(own, None) == "stops"


def _had_left(broker: str, parts: Iterable[ArchivedEvents], sign_ms: int, begin_ms: int) -> bool:
    """Whether another one had recorded by then that a broker had left after its last sign."""
    return any(
        sign_ms <= it.ts <= begin_ms
        and it.record.get("event") == "left"
        and it.record.get("of") == broker
        for part in parts
        for it in part.events
    )


def between(runs: Iterable[RecordedSpan], least_ms: int) -> Sequence[tuple[int, int]]:
    """The times between all of some spans, if they are longer than this."""
    gaps, last_ms = list[tuple[int, int]](), None
    for run in sorted(runs, key=lambda it: it.begin):
        if last_ms is not None and run.begin - last_ms > least_ms:
            gaps.append((last_ms, run.begin))
        last_ms = run.end if last_ms is None else max(last_ms, run.end)
    return gaps


def down_before(downs: Iterable[D], left_ms: int) -> D | None:
    """The time in which the whole cluster was down as a broker's session ended, if it was: its
    clients were served until that began, and not until the session was over.
    """
    return next((it for it in downs if it.begin < left_ms <= it.end + NEXT_SEEN_MS), None)


def losses_of(changes: Iterable[MemberChange]) -> list[Loss]:
    """Those among changes of brokers."""
    return [
        Loss(it.of, left_at_of(it), unheard_of(it) or 0)
        for it in changes
        if it.event == "left" and it.how == "lost"
    ]


def losses_in(downs: Iterable[ClusterDown]) -> list[Loss]:
    """Those of brokers that were lost as the whole cluster went down: at the latest so long after
    their last signs as one that lives may be silent, or when another one started.
    """
    return [
        Loss(broker, over, over - sign)
        for down in downs
        for broker, sign in down.ended.items()
        for over in (max(sign, min(sign + SIGN_MS, down.end)),)
    ]


def _is_in(downs: Iterable[ClusterDown], loss: Loss) -> bool:
    """Whether it is one of those in `losses_in`, which a leader recorded later."""
    down = down_before(downs, loss.ts)
    return down is not None and loss.broker in down.ended


def all_losses(changes: Iterable[MemberChange], downs: Sequence[ClusterDown]) -> list[Loss]:
    """Those that leaders recorded, and those of which nobody was left to record them."""
    recorded = [it for it in losses_of(changes) if not _is_in(downs, it)]
    moved = [
        it if (down := down_before(downs, it.ts)) is None else Loss(it.broker, down.begin)
        for it in recorded
    ]
    return [*moved, *losses_in(downs)]


def standstills_of(changes: Sequence[MemberChange]) -> list[Standstill]:
    """Those among changes of brokers in which they did not lose their sessions: whose clients are
    not those of a lost broker.
    """
    left = [(it.of, it.ts) for it in changes if it.event == "left" and it.how == "lost"]
    stood = [
        Standstill(it.of, it.ts - it.took_ms, it.ts)
        for it in changes
        if it.event == "stood" and it.took_ms is not None
    ]
    return [
        it
        for it in stood
        if not any(of == it.broker and it.begin <= ts <= it.end + SEEN_MS for of, ts in left)
    ]


def waits_between(
    steps: Iterable[ClientStep],
    changes: Sequence[MemberChange],
    downs: Sequence[ClusterDown],
    times: tuple[int, int],
    as_of_ms: float,
) -> list[Interrupted]:
    """The interruptions of a time, also those that began shortly before and lasted when it began,
    and those that are unsure. `as_of_ms`: the records are those until then.
    """
    begin_ms, end_ms = times
    losses = all_losses(changes, downs)
    return [
        it
        for it in interruptions_of(steps, losses, standstills_of(changes), as_of_ms)
        if begin_ms <= it.since <= end_ms
        or begin_ms - AFTER_MS <= it.since < begin_ms <= (it.back_at or begin_ms)
    ]


@dataclass(slots=True)
class Interruptions:
    """What clients went through since a time (ms since the epoch)."""

    since: int
    moves: int = 0
    lost: int = 0
    """How often a broker was lost."""
    lost_brokers: set[str] = field(default_factory=set, init=False)
    stood: int = field(default=0, init=False)
    """How often a broker stood still."""
    clients: int = 0
    back: int = 0
    """Those of them that were seen to be served again."""
    longest_ms: float = 0.0
    sum_ms: float = 0.0
    failed: int = field(default=0, init=False)
    """Moves that failed."""
    unheard_ms: int = field(default=0, init=False)
    """For so much longer the clients of a lost broker may have waited, before it was found lost."""
    most_ms: float = field(default=0.0, init=False)
    """The longest wait was this at most, by the records of clients: one of a lost broker may have
    waited since its last sign.
    """
    sum_most_ms: float = field(default=0.0, init=False)
    """The same of the sum."""
    attached: int = field(default=0, init=False)
    """See `InterruptionsShown`."""
    by_leaders: bool = field(default=False, init=False)
    """Whether the clients are those that leaders counted."""
    lacking: list[str] = field(default_factory=list, init=False)
    """See `InterruptionsShown`."""
    unsure: int = field(default=0, init=False)
    """See `InterruptionsShown`."""
    unreturned: list[Decision] = field(default_factory=list, init=False)
    """Moves some of whose clients were not back when the leader no longer waited for them."""
    returned: list[MoveReturn] = field(default_factory=list, init=False)
    """See `InterruptionsShown`."""

    def add_move(self, move: Decision) -> None:
        """Count a move that has ended."""
        self.moves += move.state == MoveState.DONE.value
        self.failed += move.state == MoveState.FAILED.value
        if move.clients_closed is not None:
            self._waited(move.clients_closed, move)
            if move.clients_closed > (move.clients_back or 0):
                self.unreturned.append(move)

    def add_change(self, change: MemberChange) -> None:
        """Count a broker that was lost, or its clients."""
        if change.event == "left" and change.how == "lost":
            self.lost += 1
            self.lost_brokers.add(change.of)
        if change.event == "clients" and change.clients is not None:
            if change.clients:
                self.unheard_ms = max(self.unheard_ms, change.unheard_ms or 0)
            self._waited(change.clients, change)

    def add_down(self, down: ClusterDown, recorded: Iterable[Loss]) -> None:
        """Count the brokers that were lost as the whole cluster went down, but not those whose
        losses a leader recorded later.
        """
        again = {it.broker for it in recorded if down_before([down], it.ts) is not None}
        self.lost += len(down.ended.keys() - again)
        self.lost_brokers |= down.ended.keys()

    def add_standstill(self, change: MemberChange, *, lost: bool) -> None:
        """Count a broker that stood still, and its clients, who waited meanwhile; `lost`: it was
        lost in that time, so that its clients are counted as those of a lost broker.
        """
        self.stood += 1
        if not lost and change.clients and change.took_ms is not None:
            self.clients += change.clients
            self.back += change.clients
            self.longest_ms = max(self.longest_ms, change.took_ms)
            self.sum_ms += change.clients * change.took_ms

    def add_absent(self, absent: AbsentBroker) -> None:
        """Count the clients of a lost broker that come back now, of which no record is yet."""
        if absent.clients is not None:
            self.unheard_ms = max(self.unheard_ms, absent.unheard_ms or 0)
            self._waited(absent.clients, absent)

    def take(
        self, waits: Sequence[Interrupted] = (), *, whole: bool = False, unsure: int = 0
    ) -> None:
        """Count the clients by their own records, if all are there (`whole`), or if these tell of
        more than leaders counted: a leader does not count the clients on whom a broker hung up that
        was not lost. `unsure`: how many more may have been gone before.
        """
        if self.clients > len(waits) and not (whole and waits):
            self.by_leaders = True
            return
        took = [(it.waited_ms(0), it.unheard_ms) for it in waits if it.back_at is not None]
        self.clients, self.back, self.unheard_ms = len(waits), len(took), 0
        self.unsure = unsure
        self.longest_ms, self.sum_ms = (
            max((ms for ms, _ in took), default=0),
            sum(ms for ms, _ in took),
        )
        most = [ms + unheard for ms, unheard in took]
        self.most_ms, self.sum_most_ms = max(most, default=0), sum(most)
        self.attached = sum(it.came_at is not None for it in waits) - len(took)

    def shown(self) -> InterruptionsShown:
        """For those who ask."""
        return InterruptionsShown(
            since=self.since,
            moves=self.moves,
            failed=self.failed,
            lost=self.lost,
            lost_brokers=len(self.lost_brokers),
            stood=self.stood,
            clients=self.clients,
            back=self.back,
            longest_ms=self.longest_ms,
            longest_most_ms=max(self.longest_ms, self.most_ms),
            sum_ms=self.sum_ms,
            sum_most_ms=max(self.sum_ms, self.sum_most_ms),
            attached=self.attached,
            unheard_ms=self.unheard_ms,
            by_leaders=self.by_leaders,
            lacking=self.lacking,
            unsure=self.unsure,
            returned=self.returned,
        )

    def _waited(self, clients: int, came: Decision | MemberChange | AbsentBroker) -> None:
        self.clients += clients
        self.back += (back := came.clients_back or 0)
        longest, mean = came.clients_waited_ms or 0.0, came.clients_waited_mean_ms
        self.longest_ms = max(self.longest_ms, longest)
        self.sum_ms += back * (longest if mean is None else mean)


def interruptions(since_ms: int, events: Iterable[ArchivedEvent]) -> Interruptions:
    """What the events come to."""
    total, changes = Interruptions(since_ms), list[MemberChange]()
    for event in events:
        if event.kind == MemberChange.kind:
            changes.append(event.record_as(MemberChange))
        else:
            total.add_move(event.record_as(Decision))
    alone = {(it.broker, it.end) for it in standstills_of(changes)}
    for change in changes:
        if change.event == "stood":
            total.add_standstill(change, lost=(change.of, change.ts) not in alone)
        else:
            total.add_change(change)
    return total


def uncounted_losses(
    absent: Iterable[AbsentBroker], events: Sequence[ArchivedEvent], since_ms: int
) -> list[AbsentBroker]:
    """The brokers that were lost since then and whose clients are still counted: that is recorded
    once all are back, or ten minutes later.
    """
    changes = [it.record_as(MemberChange) for it in events if it.kind == MemberChange.kind]
    counted = [(it.of, it.ts) for it in changes if it.event == "clients"]
    return [
        it
        for it in absent
        if it.how == "lost"
        and it.left_at >= since_ms
        and not any(of == it.broker and ts >= it.left_at for of, ts in counted)
    ]


async def interruptions_today(
    archives: Archives, absent: Sequence[AbsentBroker], now_ms: int
) -> InterruptionsShown:
    """Those since midnight (UTC), or since there are records; `absent`: what the leader knows of
    the brokers that left.
    """
    midnight = now_ms - now_ms % DAY_MS
    until_ms = now_ms + AFTER_MS
    answer = await archives.events(KINDS, midnight, until_ms, EVENTS_MAX)
    begins = [it.recorded[0].begin for it in answer.parts.values() if it.recorded]
    events = [event for part in answer.parts.values() for event in part.events]
    events = sorted(events, key=lambda event: (event.last, event.ts), reverse=True)[:EVENTS_MAX]
    begin = max(midnight, min(begins, default=midnight))
    if len(events) == EVENTS_MAX:  # earlier ones are left out
        begin = max(begin, events[-1].ts)
    total = interruptions(begin, events)
    total.lacking = lacking(answer, begin, now_ms)
    for each in uncounted_losses(absent, events, begin):
        total.add_absent(each)
    members = [it.record_as(MemberChange) for it in events if it.kind == MemberChange.kind]
    for down in downs_of(answer.parts.values(), begin):
        total.add_down(down, losses_of(members))
    happened = total.moves or total.failed or total.lost or total.stood
    if happened or any(it.record.get("event") == "proven" for it in events):
        if len(begins) > BROKERS_MAX:
            total.take()
        else:
            steps = await archives.events(STEPS, 0, until_ms, STEPS_MAX)
            of_all = await archives.events((MemberChange.kind,), 0, until_ms, CHANGES_MAX)
            await asyncio.to_thread(_count, total, steps, of_all, now_ms)
    else:
        total.take()
    return total.shown()


def lacking(answer: AskedArchives, since_ms: int, until_ms: int) -> list[str]:
    """The brokers whose archives did not answer, or say that they lack records of a time."""
    parts = answer.parts.items()
    some = {name for name, it in parts if any(a.touches(since_ms, until_ms) for a in it.unrecorded)}
    return sorted(some | answer.silent)


def _count(total: Interruptions, steps: AskedArchives, members: AskedArchives, now_ms: int) -> None:
    """Take the records of the clients into account."""
    of_clients = steps_of(steps.parts, total.since)
    waits = _waits(of_clients, members, total.since, now_ms)
    sure = [it for it in waits if not it.unsure]
    whole = not (of_clients.since or of_clients.unrecorded or steps.silent)
    total.take(sure, whole=whole, unsure=len(waits) - len(sure))
    total.returned = returned(total.unreturned, sure)


def _waits(
    of_clients: StepsOfClients, members: AskedArchives, begin_ms: int, now_ms: int
) -> list[Interrupted]:
    """The interruptions of a time until now."""
    changes = [
        event.record_as(MemberChange)
        for part in members.parts.values()
        for event in part.events
        if event.last >= begin_ms - AFTER_MS
    ]
    changes.sort(key=lambda it: it.ts, reverse=True)
    downs = downs_of(members.parts.values(), begin_ms - AFTER_MS)
    return waits_between(of_clients.steps, changes, downs, (begin_ms, now_ms), now_ms)


async def with_clients_back(
    archives: Archives, absent: Sequence[AbsentBroker], now_ms: int
) -> list[AbsentBroker]:
    """Brokers that left, with the clients that are back by their own records, where the leader has
    counted fewer: it counts those of the lost ones for ten minutes only, and those that had ended
    by themselves before as missing.
    """
    short = [it for it in absent if misses_clients(it) and it.left_at >= now_ms - AGO_MS]
    if not short:
        return [*absent]
    begin_ms, until_ms = min(it.left_at for it in short) - ONE_LOSS_MS, now_ms + AFTER_MS
    members = await archives.events((MemberChange.kind,), 0, until_ms, CHANGES_MAX)
    if len(members.parts) > BROKERS_MAX:
        return [*absent]
    steps = await archives.events(STEPS, 0, until_ms, STEPS_MAX)

    def count() -> list[AbsentBroker]:
        of_clients = steps_of(steps.parts, begin_ms)
        waits = _waits(of_clients, members, begin_ms, now_ms)
        sure = [it for it in waits if not it.unsure]
        return [*by_records(absent, sure, of_clients.steps)]

    return await asyncio.to_thread(count)


def by_records(
    absent: Iterable[AbsentBroker], waits: Sequence[Interrupted], steps: Sequence[ClientStep]
) -> Iterator[AbsentBroker]:
    """Brokers that left, with the clients of lost ones that are back by their own records, where
    these tell of more than the leader has counted: it waits for the next reports of their brokers.
    Those that had ended by themselves before, after their broker had published how many it had, are
    not counted: nobody waits for them.
    """
    for each in absent:
        it = each
        if misses_clients(it) and (went := _went_before(it, steps)):
            it = replace(it, clients=max(it.clients_back, (it.clients or 0) - went))
        took_ms = [
            wait.waited_ms(0)
            for wait in waits
            if wait.lost
            and wait.client.broker == it.broker
            and abs(wait.since - it.left_at) <= ONE_LOSS_MS
            and wait.back_at is not None
        ]
        if it.how != "lost" or not it.clients or len(took_ms) <= it.clients_back:
            yield it
            continue
        yield replace(
            it,
            clients_back=min(len(took_ms), it.clients),
            clients_waited_ms=float(max(took_ms)),
            clients_waited_mean_ms=fmean(took_ms),
        )


def _went_before(absence: AbsentBroker, steps: Iterable[ClientStep]) -> int:
    """How many clients a lost broker had published that left by themselves before it was lost."""
    at_ms, last = absence.clients_at, dict[Key, ClientStep]()
    if at_ms is None:
        return 0
    for step in sorted(steps, key=lambda it: (it.ts, it.event == "attached")):
        if step.broker == absence.broker and at_ms <= step.ts <= absence.left_at:
            last[key_of(step)] = step
    return sum(
        it.event == "left"
        and it.reason not in BY_BROKER
        and it.attached_ms is not None
        and it.ts - it.attached_ms <= at_ms + CLOCKS_MS
        for it in last.values()
    )


def misses_clients(absence: AbsentBroker) -> bool:
    """Whether clients of a lost broker are not counted as back."""
    return absence.how == "lost" and absence.clients_back < (absence.clients or 0)


def returned(moves: Iterable[Decision], waits: Sequence[Interrupted]) -> list[MoveReturn]:
    """Of moves, those of which more clients are back by their own records than leaders counted."""
    answer = list[MoveReturn]()
    for move in moves:
        own = [it for it in waits if is_of(it, move)]
        took_ms = [it.waited_ms(0) for it in own if it.back_at is not None]
        if move.move and len(took_ms) > (move.clients_back or 0):
            answer.append(MoveReturn(move.move, len(own), len(took_ms), float(max(took_ms))))
    return answer


def is_of(it: Interrupted, move: Decision) -> bool:
    """Whether a move that has ended interrupted a client."""
    ended_ms = decided_ms(move)
    begun_ms = ended_ms if move.started_at is None else move.started_at
    of_move = it.client.broker == move.source and it.client.bundle == move.bundle
    in_time = begun_ms - CLOCKS_MS <= it.since <= ended_ms + CLOCKS_MS
    return of_move and in_time and not it.stood
