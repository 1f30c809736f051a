"""Remembers the brokers that left: when, how, what they owned, and when that was served again.

The leader keeps the book in the store, so that the next leader knows it; and every broker remembers
whom it saw leave, so that a leader also knows those that left before its term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from loadmanager.engine.findings.leaders import LeaderChange
from loadmanager.engine.findings.lost import LostBroker
from loadmanager.engine.findings.unserved import UnservedBundles
from loadmanager.engine.history.members import UNTIL
from loadmanager.engine.load.reports import LocalBrokerData
from loadmanager.engine.moves.move import MoveState
from loadmanager.kit.conf import Live, conf
from loadmanager.kit.errors import (
    ConflictError,
    LoadManagerError,
    NotFoundError,
    OperationalError,
)
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.store import Check, Create, Put, Store
from loadmanager.kit.tasks import for_each, sleep
from loadmanager.kit.telemetry import Sample, gauge
from loadmanager.kit.units import DAY_MS
from loadmanager.leader.brokers import Brokers, Departure
from loadmanager.leader.documents.members import (
    ANSWERS,
    LATER,
    NO_ANSWER,
    AbsentBroker,
    HowLeft,
    MembersShown,
)
from loadmanager.leader.moves import Moves, Unverified
from loadmanager.leader.owner_tracker import OwnerTracker
from loadmanager.leader.ports.operating import Absences
from loadmanager.leader.returning import NAMED_MAX, Awaited, Returning, Waited, published_clients

STEP_S = 1.0
BOOK_MAX = 200
"""Brokers in the book; the oldest give way."""
MOVES_MAX = 100
"""Moves in the book."""
LOSSES_MAX = 50
"""Earlier losses in the book."""
SHOWN_MAX = 20
"""Bundles without an owner that are named."""
ASKED_AT_ONCE = 8
ASKED_AGAIN_S = 5.0
TERMS_MAX = 50
TAKEN_WITHIN_MS = 2_000
"""What was taken from a lost broker so shortly before it was seen to leave, it owned: it lives no
more since the last third of its session, so nothing was moved away from it then.
"""

LOST = gauge(
    "loadmanager_lost_brokers", "As leader: brokers whose session was lost, and that are not back"
)
MISSING = gauge(
    "loadmanager_missing_brokers",
    "As leader: brokers that are fewer than loadManagerExpectedBrokers",
)
ORPHANS = gauge(
    "loadmanager_lost_bundles",
    "As leader: bundles of brokers that left and are not back, which nobody serves yet",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsenceSettings:
    """How many brokers there should be, and how long those that left are remembered."""

    expected: int = conf(
        "loadManagerExpectedBrokers",
        0,
        "How many brokers there should be: fewer are told of; 0: any number is right",
        minimum=0,
        dynamic=True,
    )
    days: float = conf(
        "loadManagerAbsencesMaxDays",
        7.0,
        "Brokers that left are remembered for so many days",
        minimum=0.01,
    )


class Farewell(msgspec.Struct, rename="camel"):
    """What a broker stores when it stops in order."""

    session: int
    at: int


class _Entry(msgspec.Struct, rename="camel"):
    """One broker in the book."""

    absence: AbsentBroker
    unserved: list[str]
    """Bundles that were not served again when this was stored."""
    awaited: dict[str, Awaited] = msgspec.field(default_factory=dict)
    """Bundles with clients that are not known to be back."""
    waited: Waited = msgspec.field(default_factory=Waited)
    """Of the bundles that were in `awaited`."""
    session: int = 0
    """That of its registration."""


class _TermBegun(msgspec.Struct, rename="camel"):
    """A term in the book."""

    epoch: int
    leader: str
    at: int
    orderly: bool = False
    """Whether the leader of before had stopped in order."""
    by_store: bool = False
    """Whether the metadata store had given this leader no answer before."""


class _Book(msgspec.Struct, rename="camel"):
    """The stored book."""

    entries: list[_Entry]
    terms: list[_TermBegun] = msgspec.field(default_factory=list)
    """The last ones, of all leaders."""
    moves: list[Unverified] = msgspec.field(default_factory=list)
    """Those whose clients are not all seen back yet: the next leader goes on with them."""
    losses: list[_Entry] = msgspec.field(default_factory=list)
    """See `TermMembers`."""


@dataclass(frozen=True, slots=True)
class StoreOfTerm:
    """Where the book is, and what a leader needs to write there."""

    store: Store
    checks: Sequence[Check]
    corrupt: Corrupt
    leader: str


@dataclass(slots=True, kw_only=True)
class TermMembers:
    """Implements `leader.ports.operating.Absences` for one term."""

    store: StoreOfTerm
    brokers: Brokers
    moves: Moves
    owners: OwnerTracker
    settings: Live[AbsenceSettings]
    record: Callable[..., None]
    """Records a `MemberChange`, of which it is told all but the leader, and the time if that is not
    now.
    """
    _book: dict[str, _Entry] = field(default_factory=dict)
    _losses: list[_Entry] = field(default_factory=list)
    """Losses of brokers that were back, and have stopped in order since; the last one last."""
    _terms: list[_TermBegun] = field(default_factory=list)
    _stored: bytes = b""
    _asked_again: set[str] = field(default_factory=set)
    """Lost brokers that may be frozen: each is asked until something else is known."""
    _returning: Returning = field(init=False)

    def __post_init__(self) -> None:
        """Follow clients by what the new owners say."""
        self._returning = Returning(self.brokers, self.moves, self.owners)

    async def restore(self, since_ms: int | None = None) -> None:
        """Read the book of earlier leaders, and begin this term in it; `since_ms`: when it began,
        None: now.
        """
        await self._read()
        last, term = self._terms[-1] if self._terms else None, self.moves.term
        at_ms = term.clock.now_ms() if since_ms is None else since_ms
        orderly = last is not None and await self._has_stopped(last)
        begun = _TermBegun(
            term.epoch, self.store.leader, at_ms, orderly, by_store=self._was_store_silent(at_ms)
        )
        before = None if last is None else last.leader
        self.record(of=begun.leader, event="leads", epoch=begun.epoch, before=before, ts=at_ms)
        self._terms = [*self._terms, begun][-TERMS_MAX:]

    async def _read(self) -> None:
        node = await self.store.store.get(paths.MEMBERS)
        if node is None:
            self.store.corrupt.mended(paths.MEMBERS)
            return
        with self.store.corrupt.left_out("members", paths.MEMBERS):
            book = msgspec.json.decode(node.value, type=_Book)
            self._book = {entry.absence.broker: entry for entry in book.entries}
            self._losses = book.losses
            self._terms = book.terms
            self.moves.take_up(book.moves)
        self._stored = node.value

    async def step(self) -> None:
        """Take up who left and who is back, ask those that were lost, and store the book."""
        new = [each for each in self.brokers.departures() if self._is_new(each)]
        for departure in new:
            await self._left(departure)
        lost = [self._book[departure.broker] for departure in new]
        await for_each(
            [entry for entry in lost if entry.absence.how == "lost"], self._ask, ASKED_AT_ONCE
        )
        for broker, entry in self._book.items():
            if entry.absence.gone and broker in self.brokers.registered:
                self._back(entry)
            if _may_be_frozen(entry.absence) and broker not in self._asked_again:
                self._asked_again.add(broker)
                self.moves.term.scope.spawn(self._ask_again(entry), f"ask {broker} again")
        self._look()
        for entry in self._book.values():
            if await self._returning.step(entry.absence, entry.awaited, entry.waited):
                self._tell_clients(entry.absence)
        self._forget_old()
        await self._save()

    def _is_new(self, departure: Departure) -> bool:
        """Whether nobody has told it. Leaders do not see a broker leave at the same moment; and who
        was frozen takes up late what happened meanwhile, its own end, say.
        """
        broker = departure.broker
        if broker == self.store.leader and self.brokers.sessions.get(broker) == departure.session:
            return False  # it leads in that session
        entry = self._book.get(broker)
        if entry is None:
            return True
        absence = entry.absence
        came_back = absence.back_at is not None and departure.at_ms > absence.back_at
        return departure.at_ms > absence.left_at and (
            departure.session != entry.session or came_back
        )

    async def _left(self, departure: Departure) -> None:
        broker, report = departure.broker, departure.report
        earlier = self._book.get(broker)
        if earlier is not None:
            self._tell_those_so_far(earlier, departure.at_ms - 1)
        owned = set() if report is None else set(report.bundles)
        owned -= self._moved_away(broker, report)
        owned |= {name for name, it in self.owners.by_bundle.items() if it.broker == broker}
        how = await self._how(departure)
        if how == "lost":  # its bundles may have new owners by now: the extensible manager's do
            owned |= self.owners.taken(broker, departure.at_ms - TAKEN_WITHIN_MS)
        view = self.owners.view  # which may not have noticed yet that it left
        published = view.clients_of_left.pop(broker, None) or view.clients.get(broker)
        clients = published_clients(report, published, owned)
        names = sorted(owned, key=lambda name: (-clients.get(name, 0), name))[:NAMED_MAX]
        absence = AbsentBroker(
            broker=broker,
            left_at=departure.at_ms,
            how=how,
            version=None if report is None else report.broker_version_string,
            started_at=None if report is None else int(report.start_timestamp) or None,
            bundles=len(owned),
            waiting=sorted(names)[:SHOWN_MAX],
            clients=sum(clients[name] for name in names if name in clients) if clients else None,
            restarts=0 if earlier is None else earlier.absence.restarts,
        )
        if how == "lost" and earlier is not None:
            absence.lost_before = earlier.absence.losses_until(absence.left_at)
            own = [earlier.absence.left_at] if earlier.absence.store_silent else []
            by_store = [*earlier.absence.lost_by_store, *own]
            absence.lost_by_store = [it for it in by_store if it in absence.lost_before]
        if clients and report is not None and report.last_stats:
            absence.clients_at = int(report.last_update) or None
        elif clients and published is not None:
            absence.clients_at = int(published.updated_at) or None
        if absence.how == "lost":
            absence.unheard_ms = self._silent_ms(departure.at_ms)
            absence.store_silent = self._was_store_silent(departure.at_ms)
        if absence.how == "stopped" and not owned:
            cordon = self.moves.cluster.wishes.cordons.get(broker)
            absence.how = "drained" if cordon is not None and cordon.drain else "stopped"
        awaited = {name: Awaited(clients[name]) for name in sorted(names) if clients.get(name)}
        entry = _Entry(absence, sorted(names), awaited, session=departure.session)
        if earlier is not None and earlier.absence.how == "lost" and absence.how != "lost":
            self._losses.append(earlier)
        self._book[broker] = entry
        unheard_ms = self._unheard_ms(absence)
        self._record(
            absence, "left", how=absence.how, unheard_ms=unheard_ms, left_at=absence.left_at
        )

    def _moved_away(self, broker: str, report: LocalBrokerData | None) -> set[str]:
        """The bundles that a move took from a broker after its last report, which names them: a
        drain does so, say, before the broker stops. Their clients are those of the moves.
        """
        reported_ms = 0 if report is None else int(report.last_update)
        last = dict[str, str]()
        for move in self.moves.queue.ended:  # the newest first
            if move.state is MoveState.DONE and (move.ended_at or 0) >= reported_ms:
                last.setdefault(move.bundle, move.source)
        return {bundle for bundle, source in last.items() if source == broker}

    def _silent_ms(self, left_ms: int) -> int:
        """How long before its session was over a broker gave its last sign, at most: a session
        timeout, and no session ends while the store gives no answer; those that it still has when
        it is back last for another timeout.
        """
        timeout_s, silence = self.store.store.session_timeout_s, self.store.store.lease.silence
        unheard_s = timeout_s
        if silence is not None:
            clock, (begin_s, end_s) = self.moves.term.clock, silence
            left_s = clock.monotonic_s() - (clock.now_ms() - left_ms) / 1000
            if begin_s < left_s <= end_s + 2 * timeout_s:
                unheard_s += left_s - begin_s
        return int(1000 * unheard_s)

    def _was_store_silent(self, at_ms: int) -> bool:
        """Whether the store had given no answer before what was then, so that it is no wonder."""
        return self._silent_ms(at_ms) > int(1000 * self.store.store.session_timeout_s)

    def _unheard_ms(self, absence: AbsentBroker) -> int | None:
        """How long ago its last sign was, at most: another leader may have seen its end first."""
        if absence.unheard_ms is None:
            return None
        return absence.unheard_ms + max(0, self.moves.term.clock.now_ms() - absence.left_at)

    async def _has_stopped(self, term: _TermBegun) -> bool:
        """Whether a leader said farewell after its term had begun: it does so before it resigns."""
        farewell = await self._farewell(term.leader)
        return farewell is not None and farewell.at >= term.at

    async def _how(self, departure: Departure) -> HowLeft:
        farewell = await self._farewell(departure.broker)
        own = farewell is not None and farewell.session == departure.session
        return "stopped" if own else "lost"

    async def _farewell(self, broker: str) -> Farewell | None:
        path = paths.farewell(broker)
        node = await self.store.store.get(path)
        if node is not None:
            with self.store.corrupt.left_out("members", path):
                return msgspec.json.decode(node.value, type=Farewell)
        return None

    async def _ask(self, entry: _Entry) -> None:
        """Ask a broker whose session is over for a sign."""
        entry.absence.sign = sign = await self._sign_of(entry.absence.broker)
        if sign:
            self._record(entry.absence, "sign", how=sign)

    async def _sign_of(self, broker: str) -> str:
        departure = self.brokers.departed.get(broker)
        if departure is None or departure.address is None:
            return ""
        try:
            await self.moves.orders.mover.served_bundles(departure.address)
        except OperationalError as error:
            return str(error).removeprefix(f"{broker} ").partition(": ")[0]
        return ANSWERS

    async def _ask_again(self, entry: _Entry) -> None:
        """Ask a broker that may be frozen, until something else is known of it."""
        absence = entry.absence
        try:
            while self._book.get(absence.broker) is entry and _may_be_frozen(absence):
                await sleep(ASKED_AGAIN_S)
                sign = await self._sign_of(absence.broker)
                if sign and not sign.startswith(NO_ANSWER) and _may_be_frozen(absence):
                    self._ended(absence, sign)
        finally:
            self._asked_again.discard(absence.broker)

    def _ended(self, absence: AbsentBroker, sign: str) -> None:
        """A broker that had not answered does something else: its process has ended, say."""
        absence.sign += f"{LATER}{sign}"
        silent_ms = self.moves.term.clock.now_ms() - absence.left_at
        self._record(absence, "later", how=sign, took_ms=silent_ms)

    def _back(self, entry: _Entry) -> None:
        absence = entry.absence
        report = self.brokers.reports.get(absence.broker)
        if report is None:
            return
        frozen = _may_be_frozen(absence)
        absence.back_at = self.moves.term.clock.now_ms()
        absence.same_process = int(report.start_timestamp) == absence.started_at
        absence.restarts += not absence.same_process
        if frozen and not absence.same_process:
            self._ended(absence, "had ended, when another process began in its place")
        away_ms = absence.back_at - absence.left_at
        self._record(absence, "back", took_ms=away_ms, same_process=absence.same_process)

    def _look(self) -> None:
        """Which bundles of those that left are served again?"""
        for entry in (*self._book.values(), *self._losses):
            if entry.unserved:
                self._look_at(entry)

    def _look_at(self, entry: _Entry) -> None:
        absence, unserved = entry.absence, []
        for bundle in entry.unserved:
            tracked = self.owners.by_bundle.get(bundle)
            again = tracked is not None and (
                tracked.broker != absence.broker or tracked.since_ms > absence.left_at
            )
            if tracked is None or not again:
                unserved.append(bundle)
                continue
            absence.placed += 1
            since_ms = max(tracked.since_ms, absence.left_at)
            absence.placed_at = max(absence.placed_at or 0, since_ms)
            absence.placed_exact = self.owners.records is not None
        entry.unserved, absence.waiting = unserved, unserved[:SHOWN_MAX]
        if not unserved and absence.placed_at is not None:
            absence.placed = absence.bundles  # those that are named stand for all
            self._record(absence, "placed", took_ms=absence.placed_at - absence.left_at)

    def _tell_those_so_far(self, entry: _Entry, at_ms: int) -> None:
        """Nobody counts the clients of this absence any longer: the broker is lost again, say."""
        if entry.awaited:
            entry.awaited.clear()
            self._tell_clients(entry.absence, how=UNTIL, ts=at_ms)

    def _tell_clients(self, absence: AbsentBroker, **more: object) -> None:
        """All were asked for."""
        self._record(
            absence,
            "clients",
            clients=absence.clients,
            clients_at=absence.clients_at,
            clients_back=absence.clients_back,
            clients_waited_ms=absence.clients_waited_ms,
            clients_waited_mean_ms=absence.clients_waited_mean_ms,
            unheard_ms=absence.unheard_ms,
            **more,
        )

    def _forget_old(self) -> None:
        now_ms, keep_ms = self.moves.term.clock.now_ms(), self.settings.value.days * DAY_MS
        newest = sorted(self._book.values(), key=lambda entry: -entry.absence.left_at)[:BOOK_MAX]
        self._book = {
            entry.absence.broker: entry
            for entry in newest
            if now_ms - entry.absence.left_at <= keep_ms
        }
        recent = [it for it in self._losses if now_ms - it.absence.left_at <= keep_ms]
        self._losses = [it for it in recent if not it.absence.gone][-LOSSES_MAX:]

    async def _save(self) -> None:
        entries = sorted(self._book.values(), key=lambda entry: entry.absence.broker)
        moves = [*self.moves.unverified.values()][:MOVES_MAX]
        value = msgspec.json.encode(_Book(entries, self._terms, moves, self._losses))
        if value == self._stored:
            return
        there = self._stored or await self.store.store.get(paths.MEMBERS) is not None
        write = Put(paths.MEMBERS, value) if there else Create(paths.MEMBERS, value)
        await self.store.store.commit([*self.store.checks, write])
        self._stored = value
        self.moves.handed_over = frozenset(each.move.id for each in moves)

    def leader_changes(self) -> list[LeaderChange]:
        """The last terms that began after another one, whoever led."""
        return [
            LeaderChange(after.at, before.leader, orderly=after.orderly, by_store=after.by_store)
            for before, after in pairwise(self._terms)
        ]

    def unserved(self) -> list[UnservedBundles]:
        """What nobody serves of what those had owned that left, the bundles with clients first."""
        self._look()
        left = []
        for entry in self._book.values():
            absence, names = entry.absence, entry.unserved
            total, clients = absence.bundles - absence.placed, None
            if absence.clients is not None:
                names = [name for name in names if name in entry.awaited]
                total, clients = len(names), sum(entry.awaited[name].clients for name in names)
            left.append(
                UnservedBundles(absence.broker, absence.left_at, absence.how, names, total, clients)
            )
        return left

    def lost(self) -> list[LostBroker]:
        """Who was lost, also those that are back."""
        self._look()  # a step may wait for answers of those that were lost
        return [
            LostBroker(
                it.broker,
                it.left_at,
                it.sign_told,
                it.bundles,
                it.bundles - it.placed,
                [ms for ms in it.lost_before if ms not in it.lost_by_store],
                it.back_at,
                store_silent=it.store_silent,
            )
            for it in (entry.absence for entry in self._book.values())
            if it.how == "lost"
        ]

    def _record(self, absence: AbsentBroker, event: str, **more: object) -> None:
        self.record(
            of=absence.broker,
            event=event,
            version=absence.version,
            started_at=absence.started_at,
            bundles=absence.bundles,
            **more,
        )

    async def forget(self, broker: str) -> None:
        """Forget a broker that left. Raises `NotFoundError` if it is not remembered, and
        `ConflictError` if it is there again.
        """
        if broker in self.brokers.registered:
            raise ConflictError(f"{broker} is there: only a broker that left can be forgotten")
        if broker not in self._book:
            raise NotFoundError(f"{broker} is not among the brokers that left")
        self._tell_those_so_far(self._book.pop(broker), self.moves.term.clock.now_ms())
        self._losses = [it for it in self._losses if it.absence.broker != broker]
        self.brokers.departed.pop(broker, None)
        await self._save()

    def shown(self) -> MembersShown:
        """Who is there, and who left in the last days."""
        self._look()
        absent = [entry.absence for entry in (*self._book.values(), *self._losses)]
        return MembersShown(
            at=self.moves.term.clock.now_ms(),
            present=sorted(self.brokers.registered),
            expected=self.settings.value.expected,
            absent=sorted(absent, key=lambda it: (-it.left_at, it.broker)),
        )


def _may_be_frozen(absence: AbsentBroker) -> bool:
    """Whether a broker is lost that gave no answer, and nothing else is known of it since."""
    sign = absence.sign
    return absence.gone and sign.startswith(NO_ANSWER) and LATER not in sign


async def say_farewell(store: Store, broker: str, at_ms: int) -> None:
    """Store that a broker stops in order: the last thing before it deletes its registration."""
    value = msgspec.json.encode(Farewell(store.session_id, at_ms))
    try:
        await store.create(paths.FAREWELLS, b"")
        await store.put(paths.farewell(broker), value)
    except LoadManagerError:
        return  # then it looks like one that was lost


def samples(absences: Absences | None) -> Iterator[Sample]:
    """The leader's metrics of brokers that are not there."""
    if absences is None:
        return
    shown = absences.shown()
    gone = [absence for absence in shown.absent if absence.gone]
    yield LOST.sample(sum(absence.how == "lost" for absence in gone))
    yield MISSING.sample(max(0, shown.expected - len(shown.present)))
    yield ORPHANS.sample(sum(absence.bundles - absence.placed for absence in gone))
