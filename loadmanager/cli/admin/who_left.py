"""The brokers that left, as all commands tell of them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from loadmanager.cli.admin.absences import since_down
from loadmanager.cli.admin.archives import events_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.client_steps import interrupted_between
from loadmanager.cli.admin.downtimes import Downtime, Lapse, downtimes, lapses_of, unproven
from loadmanager.engine.history.records import OwnershipStep
from loadmanager.engine.ownership.states import BundleState
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.units import DAY_MS
from loadmanager.leader.documents.members import AbsentBroker
from loadmanager.leader.interruptions import CLOCKS_MS, ONE_LOSS_MS, by_records, misses_clients

OWNERS_OF_MAX = 8
"""Brokers whose bundles' owners are asked for."""
STEPS_MAX = 2_000
OWNED, FREE = BundleState.OWNED.value, BundleState.FREE.value
LATELY_MS = 3_600_000
"""Brokers that left within this time are named, also when they are back, and those that could not
prove their sessions.
"""


def who_left(
    admin: AdminClient, absent: Sequence[AbsentBroker], now_ms: int
) -> tuple[list[AbsentBroker], list[Lapse], list[Downtime]]:
    """Those that left, with the clients that are back by their own records, and since when they
    are lost; of which lapses, and downtimes of the whole cluster, that may be a consequence.
    """
    lapses, downs = (
        lapses_of(unproven(admin, now_ms - LATELY_MS)),
        downtimes(admin, now_ms - DAY_MS),
    )
    left = [*since_down(with_records(admin, absent, now_ms), downs)]
    for it in left[:OWNERS_OF_MAX]:
        if it.how == "lost" and it.placed_at is not None and now_ms - it.left_at <= LATELY_MS:
            with contextlib.suppress(LoadManagerError):
                _place_by_owners(admin, it)
    return left, lapses, downs


def _place_by_owners(admin: AdminClient, absence: AbsentBroker) -> None:
    """Have a lost broker say when its last bundle had an owner again by the owners' own records, if
    these tell of all of its bundles: the leader sees that by later reports.
    """
    placed_at, left_at = absence.placed_at or 0, absence.left_at
    if absence.placed_exact or absence.placed < absence.bundles:
        return
    heard_ms, broker = left_at - (absence.unheard_ms or 0), absence.broker
    kinds, limit = (OwnershipStep.kind,), STEPS_MAX
    before = events_of(admin, kinds, broker, until_ms=heard_ms, limit=limit).events
    after = events_of(
        admin, kinds, since_ms=heard_ms, until_ms=placed_at + CLOCKS_MS, limit=limit
    ).events
    had = dict[str, bool]()
    for step in (event.record_as(OwnershipStep) for event in reversed(before)):
        if step.broker == broker and step.after in (OWNED, FREE):
            had[step.bundle] = step.after == OWNED
    owned = {name for name, last in had.items() if last}
    again = dict[str, int]()
    for step in (event.record_as(OwnershipStep) for event in reversed(after)):
        if step.after == OWNED and step.bundle in owned:
            again.setdefault(step.bundle, step.ts)
    if len(owned) == absence.bundles and again.keys() == owned and len(after) < limit:
        absence.placed_at, absence.placed_exact = max(left_at, *again.values()), True


def with_records(
    admin: AdminClient, absent: Sequence[AbsentBroker], now_ms: int
) -> list[AbsentBroker]:
    """Who left, with the clients that are back by their own records, where some seem to be missing;
    as leaders counted without archives.
    """
    if missing := [it for it in absent if misses_clients(it)]:
        begin_ms = min(it.left_at for it in missing) - ONE_LOSS_MS
        with contextlib.suppress(LoadManagerError):
            by_name = interrupted_between(admin, begin_ms, now_ms)
            return [*by_records(absent, by_name.waits, by_name.steps)]
    return [*absent]
