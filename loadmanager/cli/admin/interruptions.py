"""How many clients were interrupted today, as the archives have it: by their own records, as those
that `admin interrupted` names. Where these are not all there, or too many to be asked for by every
`status`, by what leaders counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from loadmanager.cli.admin.archives import events_of
from loadmanager.cli.admin.asking import OWN, count_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.client_steps import Waits, interrupted_between, standstills_of
from loadmanager.cli.admin.times import clock, span, span_between, time_of_day
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import Decision
from loadmanager.engine.history.waits import Interrupted
from loadmanager.engine.moves.move import MoveState
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.history.archive_answers import ArchivedEvent
from loadmanager.kit.units import DAY_MS
from loadmanager.leader.documents.members import AbsentBroker, MembersShown

EVENTS_MAX = 1_000
BY_LEADERS = "as leaders counted, and not by the records of each client"
BROKERS_MAX = 20
"""Each may have two thousand records of clients: those of more brokers take seconds."""
KINDS = ("decision.move", MemberChange.kind)


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
    longest: str = field(default="", init=False)
    """`longest_ms` by the records of clients: from … to … for those of a lost broker."""
    by_leaders: bool = field(default=False, init=False)
    """Whether the clients are those that leaders counted."""

    def add_move(self, move: Decision) -> None:
        """Count a move that has ended."""
        self.moves += move.state == MoveState.DONE.value
        self.failed += move.state == MoveState.FAILED.value
        if move.clients_closed is not None:
            self._waited(move.clients_closed, move)

    def add_change(self, change: MemberChange) -> None:
        """Count a broker that was lost, or its clients."""
        if change.event == "left" and change.how == "lost":
            self.lost += 1
            self.lost_brokers.add(change.of)
        if change.event == "clients" and change.clients is not None:
            if change.clients:
                self.unheard_ms = max(self.unheard_ms, change.unheard_ms or 0)
            self._waited(change.clients, change)

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

    def take(self, by_name: Waits | None) -> None:
        """Count the clients by their own records, if all are there, or if these tell of more than
        leaders counted: a leader does not count the clients on whom a broker hung up that was not
        lost. None: they were not asked for.
        """
        waits = [] if by_name is None else by_name.waits
        whole = by_name is not None and by_name.whole
        if self.clients > len(waits) and not (whole and waits):
            self.by_leaders = True
            return
        took_ms = [it.waited_ms(0) for it in waits if it.back_at is not None]
        self.clients, self.back = len(waits), len(took_ms)
        self.longest_ms, self.sum_ms = max(took_ms, default=0), sum(took_ms)
        self.longest, self.unheard_ms = longest_of(waits), 0

    def _waited(self, clients: int, came: Decision | MemberChange | AbsentBroker) -> None:
        self.clients += clients
        self.back += (back := came.clients_back or 0)
        longest, mean = came.clients_waited_ms or 0.0, came.clients_waited_mean_ms
        self.longest_ms = max(self.longest_ms, longest)
        self.sum_ms += back * (longest if mean is None else mean)

    def __str__(self) -> str:
        """As a sentence."""
        parts = [count_of(self.moves, "move")]
        parts += [f"{count_of(self.failed, 'move')} failed"] if self.failed else []
        if self.lost > len(self.lost_brokers) > 0:
            brokers = count_of(len(self.lost_brokers), "broker")
            parts.append(f"{self.lost} losses of {brokers}")
        elif self.lost:
            parts.append(f"{count_of(self.lost, 'broker')} lost")
        parts += [f"{count_of(self.stood, 'standstill')} of brokers"] if self.stood else []
        by = f" ({BY_LEADERS})" if self.by_leaders else ""
        parts.append(f"{count_of(self.clients, 'interruption')} of clients{by}")
        if self.sum_ms:
            until = "" if self.by_leaders else " until attached again"
            longest = self.longest or span(self.longest_ms)
            parts += [f"longest {longest}{until}", f"in all {span(self.sum_ms)}"]
        if self.unheard_ms:
            parts.append(f"up to {span(self.unheard_ms)} more before a broker counted as lost")
        if missing := self.clients - self.back:
            parts.append(f"{missing} of them not seen to be back")
        return f"today since {time_of_day(self.since)}: {', '.join(parts)}"


def longest_of(waits: Iterable[Interrupted]) -> str:
    """How long the longest wait of those that are back was, or from … to … of a lost broker's
    client; empty if none is.
    """
    took = [(it.waited_ms(0), it.unheard_ms) for it in waits if it.back_at is not None]
    if not took:
        return ""
    least, most = max(ms for ms, _ in took), max(ms + unheard for ms, unheard in took)
    return span_between(least, most)


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


def _absent(admin: AdminClient) -> list[AbsentBroker]:
    """What the leader knows of those that left; none if it does not answer."""
    try:
        return admin.get(f"{OWN}/members", MembersShown).absent
    except LoadManagerError:
        return []


def todays_interruptions(admin: AdminClient, now_ms: int) -> list[str]:
    """Those since midnight (UTC), or since there are records, in a sentence; none without
    archives, and before anything was moved or lost, stood still, or could not prove its session.
    """
    midnight = now_ms - now_ms % DAY_MS
    try:
        answer = events_of(admin, KINDS, since_ms=midnight, limit=EVENTS_MAX)
        begin = max(midnight, min(answer.begins.values(), default=midnight))
        if len(answer.events) == EVENTS_MAX:  # earlier ones are left out
            begin = max(begin, answer.events[-1].ts)
        total = interruptions(begin, answer.events)
        for absent in uncounted_losses(_absent(admin), answer.events, begin):
            total.add_absent(absent)
        happened = bool(total.moves or total.failed or total.lost or total.stood)
        if happened or any(it.record.get("event") == "proven" for it in answer.events):
            few = len(answer.begins) <= BROKERS_MAX
            total.take(interrupted_between(admin, begin, now_ms) if few else None)
    except LoadManagerError:
        return []
    if not (happened or total.clients):
        return []
    since = clock(begin).replace(" ", "T")
    names = f"`loadmanager admin interrupted --since {since}` names them"
    return [f"{total}: {names}" if total.clients else str(total)]
