"""The brokers that left, as all commands tell of them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from loadmanager.cli.admin.absences import since_down
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.client_steps import interrupted_between
from loadmanager.cli.admin.downtimes import Downtime, Lapse, downtimes, lapses_of, unproven
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.units import DAY_MS
from loadmanager.leader.documents.members import AbsentBroker
from loadmanager.leader.interruptions import ONE_LOSS_MS, by_records, misses_clients

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
    return [*since_down(with_records(admin, absent, now_ms), downs)], lapses, downs


def with_records(
    admin: AdminClient, absent: Sequence[AbsentBroker], now_ms: int
) -> list[AbsentBroker]:
    """Who left, with the clients that are back by their own records, where some seem to be missing;
    as leaders counted without archives.
    """
    if missing := [it for it in absent if misses_clients(it)]:
        begin_ms = min(it.left_at for it in missing) - ONE_LOSS_MS
        with contextlib.suppress(LoadManagerError):
            waits = interrupted_between(admin, begin_ms, now_ms).waits
            return [*by_records(absent, waits)]
    return [*absent]
