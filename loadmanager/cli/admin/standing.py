"""Which record of loads stands for a moment. A record has the means of its time, which is a minute:
it does not stand for a moment if what it is about changed in that time, or between the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from loadmanager.cli.admin.archives import (
    LoadsOfAll,
    events_of,
    fields_of_change,
    loads_at,
    said_as_of,
)
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.times import time_of_day
from loadmanager.cli.admin.where_set import FIELDS
from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.history.archived import named_by_path
from loadmanager.engine.history.records import (
    AuditedChange,
    BrokerLoad,
    BundleLoad,
    OwnershipStep,
    TopicLoad,
)
from loadmanager.engine.load.wishes import LIMIT_NAMES
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.history.archive_answers import ArchivedLoads
from loadmanager.kit.names import TopicName
from loadmanager.leader.owners_then import OwnerChange, begin_of, in_bundle, owner_change
from loadmanager.leader.unknown_loads import MEANS_MS

SAME_MS = 1_000
"""The time of a record begins with the record before it, to within this."""
STEPS_MAX = 2_000
TIMES_NAMED = 3
LIMITS_MAX = 200


class LimitsChanged(NamedTuple):
    """That limits of a namespace, or of a topic, were set, changed or removed."""

    ts: int
    namespace: str
    topic: str | None


def limit_change(change: AuditedChange) -> LimitsChanged | None:
    """None: it is about something else."""
    keys = {*fields_of_change(change.before), *fields_of_change(change.after)}
    if change.failed or not any(LIMIT_NAMES.get(key, key) in FIELDS for key in keys):
        return None
    names = list(named_by_path(change.path or ""))
    namespace = next((it for it in names if it.count("/") == 1), None)
    topic = next((it for it in names if "://" in it), None)
    return None if namespace is None else LimitsChanged(change.ts, namespace, topic)


@dataclass(frozen=True, slots=True)
class ChangesThen:
    """What changed in a time, of that which makes figures others."""

    owners: Sequence[OwnerChange] = ()
    limits: Sequence[LimitsChanged] = ()

    @classmethod
    def between(cls, admin: AdminClient, since_ms: int, until_ms: int) -> ChangesThen:
        """As it is recorded; without limits, if the role may not see who changed them."""
        steps, changed = (OwnershipStep.kind,), (AuditedChange.kind,)
        moves = events_of(admin, steps, since_ms=since_ms, until_ms=until_ms, limit=STEPS_MAX)
        try:
            events = events_of(
                admin, changed, since_ms=since_ms, until_ms=until_ms, limit=LIMITS_MAX
            ).events
        except LoadManagerError:
            events = []
        changes = (limit_change(it.record_as(AuditedChange)) for it in events)
        owners = (owner_change(it) for it in moves.events)
        return cls([*filter(None, owners)], [*filter(None, changes)])

    def moved(self, bundle: str, begin_ms: int, end_ms: int) -> list[int]:
        """When a bundle came or went."""
        of = (it.ts for it in self.owners if it.bundle == bundle)
        return [ts for ts in of if begin_ms < ts <= end_ms]

    def bundles_of(self, broker: str, begin_ms: int, end_ms: int) -> list[int]:
        """When bundles came to a broker or went from it."""
        of = (it.ts for it in self.owners if it.broker == broker)
        return [ts for ts in of if begin_ms < ts <= end_ms]

    def limited(self, bundle: str, topic: str, begin_ms: int, end_ms: int) -> list[int]:
        """When limits changed of a topic, or, without one, of some topic of a bundle."""
        namespace = split_bundle_name(bundle)[0]
        return [
            it.ts
            for it in self.limits
            if begin_ms < it.ts <= end_ms
            and it.namespace == namespace
            and (it.topic is None or _is_about(TopicName.parse(it.topic), bundle, topic))
        ]

    def any_between(self, begin_ms: int, end_ms: int) -> bool:
        """Whether anything changed in a time."""
        times = [*(it.ts for it in self.owners), *(it.ts for it in self.limits)]
        return any(begin_ms < ts <= end_ms for ts in times)


def _is_about(limited: TopicName, bundle: str, topic: str) -> bool:
    """Whether a limit of a topic is one of this topic; or, without one, of a topic in the bundle.
    Where the partitions of a topic are is not known here.
    """
    if topic:
        return TopicName.parse(topic).partitioned_topic == limited
    return in_bundle(limited, bundle)


class Stands(NamedTuple):
    """The record that stands best for a moment, and why it does not quite."""

    loads: ArchivedLoads
    moved: Sequence[int] = ()
    """When what it is about came or went in its time: it has only a part."""
    limited: Sequence[int] = ()
    """When limits changed in its time, or between it and the moment."""


@dataclass(slots=True)
class Standing:
    """The records around a moment."""

    at_ms: int
    records: Sequence[ArchivedLoads]
    changes: ChangesThen
    counts: Sequence[ArchivedLoads] = ()
    """These, and those of before of which nobody knows whether their means are still of the moment:
    what had been counted by then was so.
    """
    used: list[ArchivedLoads] = field(default_factory=list)
    """Those that were chosen."""

    @classmethod
    def of(cls, admin: AdminClient, past: LoadsOfAll, at_ms: int, *kinds: str) -> Standing:
        """Those of `past`, without those that are not of the moment; and, if something changed
        about then, what each process recorded before and after these.
        """
        records = [it for it in past.loads if it.broker not in past.unknown]
        recorded = [it for it in past.loads if not is_coarse(it)]
        if not recorded:
            return cls(at_ms, records, ChangesThen(), records)
        begin_ms = min(at_ms, *map(begin_of, recorded))
        end_ms = max(at_ms, *(it.ts for it in recorded))
        apart_ms = max(it.span_ms for it in recorded)
        changes = ChangesThen.between(admin, begin_ms - apart_ms, end_ms + apart_ms)
        counts = [it for it in past.loads if it in records or it.ts <= at_ms]
        if changes.any_between(begin_ms, end_ms) or len(counts) < len(past.loads):
            for at in (at_ms - apart_ms, at_ms + apart_ms):
                beside = loads_at(admin, at, *kinds).loads
                of = [it for it in beside if any(_follow(it, each) for each in recorded)]
                records += [it for it in of if it.broker not in past.unknown]
                counts += [it for it in of if it.broker not in past.unknown or it.ts <= at_ms]
        return cls(at_ms, records, changes, counts)

    def say(self, past: LoadsOfAll, kind: str) -> None:
        """Have the note that says when the loads are of be about those that were chosen."""
        if self.used:
            said = said_as_of(self.at_ms, past.loads, kind, measured=past.measured)
            now_said = said_as_of(self.at_ms, self.used, kind, measured=past.measured)
            past.notes[:] = [now_said if note == said else note for note in past.notes]

    def bundle(self, bundle: str, owner: str) -> Stands | None:
        """The record of the owner of a bundle; None: it has none about then."""
        return self._best(self._of(BundleLoad.kind, owner, bundle), bundle, "")

    def topic(self, topic: str, bundle: str, owner: str) -> Stands | None:
        """The same of a topic of a bundle."""
        return self._best(self._of(TopicLoad.kind, owner, topic), bundle, topic)

    def counted(self, topic: str, bundle: str, owner: str) -> ArchivedLoads | None:
        """The record at whose end the clients and the backlog of a topic were counted nearest to
        the moment, by the broker that served it then and at that end.
        """
        of = _named(self.counts, TopicLoad.kind, owner, topic)
        served = [it for it in of if not self.changes.moved(bundle, *sorted((it.ts, self.at_ms)))]
        return min(served, key=lambda it: abs(it.ts - self.at_ms), default=None)

    def broker(self, broker: str) -> Stands | None:
        """The record of a broker; it is of another moment if bundles came or went between."""
        standing = [
            Stands(it, self.changes.bundles_of(broker, *self._between(it)))
            for it in self._of(BrokerLoad.kind, broker, broker)
        ]
        return self._use(min(standing, key=self._rank, default=None))

    def _of(self, kind: str, broker: str, name: str) -> list[ArchivedLoads]:
        return _named(self.records, kind, broker, name)

    def _best(self, records: Iterable[ArchivedLoads], bundle: str, topic: str) -> Stands | None:
        standing = [
            Stands(
                it,
                [] if is_coarse(it) else self.changes.moved(bundle, begin_of(it), it.ts),
                [] if is_coarse(it) else self.changes.limited(bundle, topic, *self._between(it)),
            )
            for it in records
        ]
        return self._use(min(standing, key=self._rank, default=None))

    def _use(self, best: Stands | None) -> Stands | None:
        if best is not None and best.loads not in self.used:
            self.used.append(best.loads)
        return best

    def _rank(self, it: Stands) -> tuple[bool, bool, int]:
        begin, end = begin_of(it.loads), it.loads.ts
        return bool(it.moved), bool(it.limited), max(begin - self.at_ms, self.at_ms - end, 0)

    def _between(self, loads: ArchivedLoads) -> tuple[int, int]:
        """The time of a record, and that from it to the moment."""
        if is_coarse(loads):
            return self.at_ms, self.at_ms
        return min(begin_of(loads), self.at_ms), max(loads.ts, self.at_ms)


def _named(
    records: Iterable[ArchivedLoads], kind: str, broker: str, name: str
) -> list[ArchivedLoads]:
    return [it for it in records if (it.kind, it.broker) == (kind, broker) and name in it.figures]


def times_text(times: Iterable[int]) -> str:
    """The first of some times, each once."""
    texts = list(dict.fromkeys(map(time_of_day, sorted(times))))
    return ", ".join(texts[:TIMES_NAMED]) + (", …" if len(texts) > TIMES_NAMED else "")


def is_coarse(loads: ArchivedLoads) -> bool:
    """Whether loads are means of a quarter of an hour: whatever changed meanwhile is in them."""
    return loads.span_ms >= MEANS_MS


def _follow(it: ArchivedLoads, other: ArchivedLoads) -> bool:
    """Whether one process recorded the one right before or after the other."""
    if (it.broker, it.kind) != (other.broker, other.kind) or it.ts == other.ts:
        return False
    first, second = sorted((it, other), key=lambda each: each.ts)
    return abs(begin_of(second) - first.ts) <= SAME_MS
