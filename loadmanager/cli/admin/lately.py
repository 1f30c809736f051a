"""The loads that the brokers of a running cluster recorded lately, as a day to replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadmanager.broker import settings
from loadmanager.cli.admin.archives import LoadsOfAll, ended_before, events_of, loads_at
from loadmanager.cli.admin.asking import OWN, V2
from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.admin.downtimes import Doubts, gone_at, say_unknown, unknown_lines
from loadmanager.cli.admin.shapes import Texts
from loadmanager.cli.admin.times import clock, span
from loadmanager.cli.recorded import RecordedDay
from loadmanager.engine.history.archived import RESOURCES, TRAFFIC
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import BrokerLoad, BundleLoad
from loadmanager.engine.load.reports import ResourceUsage
from loadmanager.kit.errors import BadInputError, OperationalError
from loadmanager.kit.history.archive_answers import ArchivedEvent
from loadmanager.kit.model import Shape
from loadmanager.kit.settings import Settings
from loadmanager.kit.units import MINUTE_MS
from loadmanager.lab import candidates
from loadmanager.lab.recorded import MINUTES_MIN, record
from loadmanager.leader.owners_then import figures
from loadmanager.leader.strategy_keys import strategies_of

LOOKS = 12
"""Moments that are looked at; until the next one, loads are as they were."""
MEMBERS_MAX = 1_000
WAITS_MS = 300_000
"""Clients of a lost broker's bundles wait for another owner at most so long."""
UNKNOWN_NAMED = 3
COUNTS = ("topics", "producers", "consumers")
PRESENT_MINUTES = 60
"""Of a cluster that has recorded less than half an hour, its last loads count for so long."""


NOT_FOUND = 404


class DaemonKeys(Shape):
    """What the daemon beside a Pulsar cluster says of its settings."""

    decides_by: dict[str, str]


@dataclass(frozen=True, slots=True)
class Lately:
    """A time of a running cluster, and its settings."""

    day: RecordedDay
    settings: Settings
    title: str
    notes: list[str]
    missing: dict[str, str]
    """Broker → why its part is not there."""
    present: bool
    """Whether it is one moment's load that counts for an hour."""
    recorded: list[str]
    """How much of the time is recorded, if that is not all of it."""


def recorded_lately(admin: AdminClient, begin_ms: int, end_ms: int) -> Lately:
    """The loads between two times, looked at by the clock, so that who asks again a moment later
    gets the same; and the settings in force. Raises `OperationalError` if nothing was recorded, or
    too little.
    """
    step_ms = -(-(end_ms - begin_ms) // (LOOKS * MINUTE_MS)) * MINUTE_MS
    moments = [*range(end_ms - end_ms % step_ms, begin_ms, -step_ms)][:LOOKS]
    members = events_of(admin, (MemberChange.kind,), until_ms=end_ms, limit=MEMBERS_MAX)
    changes = [event for event in members.events if event.kind == MemberChange.kind]
    doubts = Doubts.between(admin, begin_ms, end_ms)
    looks = {at: LoadsThen.of(admin, at, changes, doubts) for at in moments}
    last = LoadsThen.of(admin, end_ms, changes, doubts)
    there = {at: look for at, look in looks.items() if look.is_whole}
    left_out = [line for at, look in sorted(looks.items()) for line in look.unknown_lines(at)]
    if not (there or last.is_whole):
        text = f"no broker has recorded loads between {_between(begin_ms, end_ms)}"
        unknown = [*left_out, *last.unknown_lines(end_ms)]
        raise OperationalError("; ".join(unknown[:UNKNOWN_NAMED]) or text)
    earliest_ms = min(there, default=end_ms) - step_ms
    first_ms = max(begin_ms, earliest_ms, min(members.begins.values(), default=0))
    title, recorded = _between(first_ms, max(there, default=end_ms)), list[str]()
    if first_ms > begin_ms:
        recorded.append(
            f"asked for {_between(begin_ms, end_ms)}: what was before {clock(first_ms)} is not "
            "recorded"
        )
    recorded += _left_out_text(left_out)
    spans = _spans(looks, step_ms)
    present = sum(spans.values()) < MINUTES_MIN * MINUTE_MS
    if present:
        there |= {end_ms: last} if last.is_whole else {}
        latest = max(there)
        spans = {latest: PRESENT_MINUTES * MINUTE_MS}
        title = f"the load at {clock(latest)}, as if it had lasted an hour"
        recorded.append(
            f"loads from {_between(first_ms, end_ms)} ({span(end_ms - first_ms)}) are too short a "
            f"time for a replay, which needs {MINUTES_MIN} min: the last ones count for an hour"
        )
    loads = [load for at, span_ms in spans.items() for load in there[at].records(at, span_ms)]
    if not any(isinstance(load, BundleLoad) for load in loads):
        between = _between(first_ms, end_ms)
        raise OperationalError(f"{between}: no bundle was served yet, so no traffic is recorded")
    of_cluster = settings.KEYS.parse(_keys_in_force(admin))
    in_force = strategies_of(candidates.unweighted(of_cluster))
    try:
        recording = record(loads)
    except BadInputError as error:
        raise OperationalError(f"{title}: {error}") from None
    return Lately(
        RecordedDay(recording, in_force),
        of_cluster,
        title,
        [],
        last.missing | members.missing,
        present,
        recorded,
    )


def _keys_in_force(admin: AdminClient) -> dict[str, str]:
    """The keys of broker.conf that cycles decide by: the brokers', or those of a daemon."""
    try:
        return admin.get(f"{V2}/brokers/configuration/runtime", Texts)
    except AnsweredError as error:
        if error.status != NOT_FOUND:
            raise
    return admin.get(f"{OWN}/fleet", DaemonKeys).decides_by


def _spans(looks: Mapping[int, LoadsThen], step_ms: int) -> dict[int, int]:
    """Moment → for how long before it its loads count: also for the moments just before it of which
    not all loads are known.
    """
    spans, unknown = dict[int, int](), 0
    for at, look in sorted(looks.items()):
        if look.is_whole:
            spans[at] = (1 + unknown) * step_ms
        unknown = unknown + 1 if look.brokers.unknown and spans else 0
    return spans


def _left_out_text(unknown: Sequence[str]) -> list[str]:
    """Which moments are left out, and why; nothing: none."""
    if not unknown:
        return []
    more = len(unknown) - UNKNOWN_NAMED
    some = "; ".join(unknown[:UNKNOWN_NAMED]) + (f"; and {more} more" if more > 0 else "")
    return [f"left out, so that the loads of the next moment count for that time: {some}"]


def _between(begin_ms: int, end_ms: int) -> str:
    return f"{clock(begin_ms)} to {clock(end_ms)}"


@dataclass(frozen=True, slots=True)
class LoadsThen:
    """The loads at a moment."""

    brokers: LoadsOfAll
    bundles: LoadsOfAll

    @classmethod
    def of(
        cls, admin: AdminClient, at_ms: int, members: Sequence[ArchivedEvent], doubts: Doubts
    ) -> LoadsThen:
        """Without the brokers that had left; what their bundles carried last still waits for
        another owner, if none has recorded it since.
        """
        brokers, bundles = (loads_at(admin, at_ms, it.kind) for it in (BrokerLoad, BundleLoad))
        gone = gone_at(members, at_ms).keys() | ended_before(admin, brokers, at_ms).keys()
        brokers.loads = [it for it in brokers.loads if it.broker not in gone]
        bundles.loads = [
            it for it in bundles.loads if it.broker not in gone or at_ms - it.ts <= WAITS_MS
        ]
        say_unknown(admin, at_ms, brokers, doubts)
        return cls(brokers, bundles)

    @property
    def is_whole(self) -> bool:
        """Whether brokers recorded loads, and none of them those of another time."""
        return bool(self.brokers.loads) and not self.brokers.unknown

    def unknown_lines(self, at_ms: int) -> list[str]:
        """Of which brokers the loads of the moment are not known, and why."""
        return unknown_lines(self.brokers.unknown, at_ms)

    @property
    def missing(self) -> dict[str, str]:
        return self.brokers.missing | self.bundles.missing

    def records(self, at_ms: int, interval_ms: int) -> Iterator[BrokerLoad | BundleLoad]:
        """As the history has them; a bundle that brokers recorded one after the other is the last
        one's.
        """
        recorders = {
            name: loads.broker
            for loads in sorted(self.bundles.loads, key=lambda each: (each.ts, each.broker))
            for name in loads.figures
        }
        both = (self.brokers.loads, _broker_load), (self.bundles.loads, _bundle_load)
        for recorded, record_of in both:
            for loads in recorded:
                head = {"ts": at_ms, "broker": loads.broker, "interval_ms": interval_ms}
                for name in loads.figures:
                    if recorders.get(name, loads.broker) != loads.broker:
                        continue
                    shown = figures(loads, name)
                    try:
                        fields = {key: shown[key] for key in TRAFFIC}
                        yield record_of(name, shown, {**head, **fields})
                    except KeyError as error:
                        raise OperationalError(
                            f"{loads.broker} recorded no {error} of {name}: of another version?"
                        ) from None


def _broker_load(_name: str, shown: dict[str, float], fields: dict[str, Any]) -> BrokerLoad:
    resources: dict[str, Any] = {
        each: ResourceUsage(usage=shown[f"{each}_usage"], limit=shown[f"{each}_limit"])
        for each in RESOURCES
    }
    return BrokerLoad(usage=shown["usage"], **resources, **fields)


def _bundle_load(name: str, shown: dict[str, float], fields: dict[str, Any]) -> BundleLoad:
    counts: dict[str, Any] = {key: round(shown[key]) for key in COUNTS}
    return BundleLoad(bundle=name, **counts, **fields)
