"""Loads of a moment that were measured shortly before it, where the next are farther from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from loadmanager.cli.admin.archives import LoadsOfAll, loads_at, said_as_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.kit.history.archive_answers import ArchivedLoads
from loadmanager.leader.unknown_loads import MEANS_MS

BACK_MS = 30_000
"""Half of the time between two records: of two samples, one lies so near."""
SAME_MS = 1_000
"""The time of a record begins with the record before it, to within this."""


def nearer_loads(
    admin: AdminClient, past: LoadsOfAll, at_ms: int, kinds: Sequence[str]
) -> list[ArchivedLoads]:
    """Of brokers whose loads were recorded more than `BACK_MS` after a moment: those that they had
    recorded before it, if these are nearer to it. The note that says when the loads are of is
    corrected. `past` knows already which of its loads are unknown.

    An archive answers with the record of the minute that the moment lies in, which has what was
    measured at its end. Of one process only: its records follow each other.
    """
    late = {(it.broker, it.kind): it for it in past.loads if _is_late(it, past, at_ms)}
    if not late:
        return []
    before = loads_at(admin, at_ms - BACK_MS, *kinds).loads
    nearer = []
    for it in before:
        after = late.get((it.broker, it.kind))
        if after is None or it.ts > at_ms or at_ms - it.ts >= after.ts - at_ms:
            continue
        if abs(after.ts - after.span_ms - it.ts) <= SAME_MS:
            nearer.append(it)
    said = said_as_of(at_ms, past.loads, kinds[0])
    now_said = said_as_of(at_ms, with_nearer(past.loads, nearer), kinds[0])
    past.notes[:] = [now_said if note == said else note for note in past.notes]
    return nearer


def take_nearer(admin: AdminClient, past: LoadsOfAll, at_ms: int, kind: str) -> None:
    """Put these in place of the loads of one kind."""
    past.loads = with_nearer(past.loads, nearer_loads(admin, past, at_ms, (kind,)))


def with_nearer(
    loads: Iterable[ArchivedLoads], nearer: Iterable[ArchivedLoads]
) -> list[ArchivedLoads]:
    """The loads, with these in place of those of the same brokers and kinds."""
    instead = {(it.broker, it.kind): it for it in nearer}
    return [instead.get((it.broker, it.kind), it) for it in loads]


def _is_late(loads: ArchivedLoads, past: LoadsOfAll, at_ms: int) -> bool:
    if loads.broker in past.unknown or loads.span_ms >= MEANS_MS:
        return False
    return loads.ts - at_ms > BACK_MS
