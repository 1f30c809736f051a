"""When all brokers were down, when some could not prove their sessions or stood still, and of which
therefore no load of a moment is known: by the archives of all brokers, whoever is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loadmanager.engine.history.lapses import (
    SIGN_MS,
    SessionLapse,
    Unproven,
    together,
    unproven_of,
)
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import BrokerLoad
from loadmanager.kit.history.archive_answers import ArchivedEvents
from loadmanager.kit.tasks import for_each
from loadmanager.kit.text import moment
from loadmanager.kit.units import HOUR_MS
from loadmanager.leader.documents.outages import DownShown, LapseShown, OutagesShown, UnknownLoads
from loadmanager.leader.interruptions import Archives, AskedArchives, downs_of
from loadmanager.leader.unknown_loads import lost_about, unknown_loads

MEMBERS_MAX = 500
"""Records of members that are asked of one broker."""
LAPSE_MS_MAX = HOUR_MS
"""What lasted longer is not looked for."""
TIME_MAX = 10**15
KINDS = (MemberChange.kind,)


def unproven_since(parts: Mapping[str, ArchivedEvents], since_ms: int) -> list[Unproven]:
    """Those that ended later than this, by records of members, the oldest first."""
    changes = [event.record_as(MemberChange) for it in parts.values() for event in it.events]

    def last_sign(broker: str, at_ms: int) -> int:
        runs = parts[broker].recorded if broker in parts else ()
        return max([at_ms, *(run.end for run in runs if run.begin <= at_ms)])

    times = unproven_of(changes, last_sign)
    return [it for it in times if it.until + (SIGN_MS if it.is_open else 0) >= since_ms]


async def outages_between(archives: Archives, since_ms: int, until_ms: int) -> OutagesShown:
    """Those that ended in a time."""

    async def ask(times: tuple[int, int]) -> AskedArchives:
        return await archives.events(KINDS, *times, MEMBERS_MAX)

    of_time, always = await for_each([(_before(since_ms), until_ms), (0, TIME_MAX)], ask, 2)
    downs = downs_of(always.parts.values(), since_ms)
    return OutagesShown(
        lapses=[_shown(it) for it in _lapses(of_time.parts, since_ms)],
        downs=[DownShown(it.begin, it.end, it.in_order) for it in downs if it.end <= until_ms],
        missing=sorted(of_time.silent | always.silent),
    )


async def unknown_at(archives: Archives, at_ms: int) -> UnknownLoads:
    """Of which brokers no load of a moment is known, and which were lost about then."""
    end_ms = at_ms + LAPSE_MS_MAX
    members = await archives.events(KINDS, _before(at_ms), end_ms, MEMBERS_MAX)
    loads = await archives.loads(at_ms, (BrokerLoad.kind,))
    later = sorted(
        (
            event.record_as(MemberChange)
            for part in members.parts.values()
            for event in part.events
            if event.ts > at_ms
        ),
        key=lambda it: it.ts,
    )
    recorded = [each for part in loads.parts.values() for each in part.loads]
    unknown = unknown_loads(recorded, _lapses(members.parts, at_ms), later, at_ms, moment)

    def last_sign(broker: str, heard_ms: int, left_ms: int) -> int:
        runs = members.parts[broker].recorded if broker in members.parts else ()
        return max([heard_ms, *(min(it.end, left_ms) for it in runs if it.begin <= heard_ms)])

    lost = lost_about(later, at_ms, last_sign, moment)
    return UnknownLoads(at_ms, unknown, lost, sorted(members.silent | loads.silent))


def _before(since_ms: int) -> int:
    """What has no recorded end began before."""
    return max(0, since_ms - LAPSE_MS_MAX)


def _lapses(parts: Mapping[str, ArchivedEvents], since_ms: int) -> Sequence[SessionLapse]:
    return together(unproven_since(parts, since_ms), SessionLapse)


def _shown(it: SessionLapse) -> LapseShown:
    return LapseShown(
        begin=it.begin,
        end=it.end,
        since=it.since,
        until=it.end + (SIGN_MS if it.is_open else 0),
        brokers=sorted(it.brokers),
        stood_ms=it.stood_ms,
        is_open=it.is_open,
        is_unproven=it.is_unproven,
    )
