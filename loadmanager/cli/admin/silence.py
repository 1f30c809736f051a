"""Since when nothing is published to a topic or a bundle, and when its last client left."""

from __future__ import annotations

from collections.abc import Iterable

from loadmanager.broker.ports.topics import ClientsFound
from loadmanager.cli.admin.archives import events_of, now_ms, series_of
from loadmanager.cli.admin.asking import OWN, query
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.differences import QUIET
from loadmanager.cli.admin.times import clock, span
from loadmanager.engine.history.clients import ClientStep
from loadmanager.engine.history.records import BundleLoad, TopicLoad
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.history.archive_answers import ArchivedSeries
from loadmanager.kit.units import DAY_MS
from loadmanager.leader.documents.findings import SILENT_MS
from loadmanager.leader.interruptions import STEPS_MAX

AGO_MS = 7 * DAY_MS
"""The last message is looked for in records of so long."""
PUBLISHED = "msg_rate_in"
RECORDS_MIN, SILENCES_MAX = 2, 5


def silence_of(
    admin: AdminClient, topic: str, bundle: str | None, until_ms: int | None = None
) -> list[str]:
    """Since when a topic is silent at a moment (None: now), as its owner says; else by what is
    recorded of it, or of its bundle: only the busiest topics of a broker are recorded. Also of a
    bundle alone.
    """
    if "://" not in topic:
        return silence_in_records(admin, BundleLoad.kind, topic, until_ms)
    if until_ms is None and (last_ms := _last_published(admin, topic)):
        return silent_since(last_ms)
    return silence_in_records(admin, TopicLoad.kind, topic, until_ms) or (
        silence_in_records(admin, BundleLoad.kind, bundle, until_ms) if bundle else []
    )


def is_silent(last_ms: int | None) -> bool:
    """Whether the last message came so long ago that a topic is called silent."""
    return last_ms is not None and now_ms() - last_ms > SILENT_MS


def silent_since(last_ms: int) -> list[str]:
    """The same of one whose last message came at a time, as its owner says."""
    silent_ms = now_ms() - last_ms
    if silent_ms <= SILENT_MS:
        return []
    return [f"SILENT since {clock(last_ms)} ({span(silent_ms)}): its last message came then"]


def silence_in_records(
    admin: AdminClient, kind: str, name: str, until_ms: int | None = None
) -> list[str]:
    """Since when nothing was published to a topic or bundle, by its recorded loads."""
    end_ms = now_ms() if until_ms is None else until_ms
    try:
        series = series_of(admin, kind, name, max(0, end_ms - AGO_MS), end_ms)
    except LoadManagerError:  # it is of use without
        return []
    last_ms, next_ms = last_traffic(series.parts.values())
    if last_ms is None or next_ms is None or end_ms - last_ms <= SILENT_MS:
        return []
    what = f"bundle {name}" if kind == BundleLoad.kind else "it"
    silent = f"SILENT since {clock(last_ms)} ({span(end_ms - last_ms)})"
    return [f"{silent}: the next record, of {clock(next_ms)}, is without a message to {what}"]


def last_traffic(parts: Iterable[ArchivedSeries]) -> tuple[int | None, int | None]:
    """When the last recorded interval ended in which something was published, and the next of all
    that are recorded after it; None: there is none.
    """
    rates = _rates(parts)
    last_ms = max((ts for ts, rate in rates if rate > QUIET), default=None)
    if last_ms is None:
        return None, None
    return last_ms, min((ts for ts, _ in rates if ts > last_ms), default=None)


def _rates(parts: Iterable[ArchivedSeries]) -> list[tuple[int, float]]:
    """When each recorded interval ended, and what was published in it, the oldest first."""
    rates = list[tuple[int, float]]()
    for part in parts:
        column = part.columns.index(PUBLISHED) if part.points else 0
        rates += [(point.ts, point.figures[column]) for point in part.points]
    return sorted(rates)


def earlier_silences(
    admin: AdminClient, topic: str, since_ms: int | None, until_ms: int | None
) -> list[str]:
    """The last silences of a topic that are over, by its recorded loads: those without a message,
    if there were two at least in a row, before one with a message.
    """
    end_ms = now_ms() if until_ms is None else until_ms
    begin_ms = end_ms - AGO_MS if since_ms is None else since_ms
    try:
        series = series_of(admin, TopicLoad.kind, topic, max(0, begin_ms), end_ms)
    except LoadManagerError:  # it is of use without
        return []
    lines, silent = list[str](), list[int]()
    for ts, rate in _rates(series.parts.values()):
        if rate <= QUIET:
            silent.append(ts)
            continue
        if len(silent) >= RECORDS_MIN:
            first, last = clock(silent[0]), clock(silent[-1])
            lines.append(
                f"it was silent: its records from {first} to {last} are without a message; that of "
                f"{clock(ts)} has some again"
            )
        silent.clear()
    return lines[-SILENCES_MAX:]


def last_client(admin: AdminClient, topic: str) -> list[str]:
    """When the last client of a topic that has none left, and why, if that is among the last steps
    of clients that are recorded.
    """
    kinds = (f"{ClientStep.kind}.left",)
    try:
        events = events_of(admin, kinds, limit=STEPS_MAX).events
    except LoadManagerError:
        return []
    steps = (event.record_as(ClientStep) for event in events if event.kind in kinds)
    it = next((step for step in steps if step.topic == topic), None)
    if it is None:
        return []
    who = f"{it.what} {it.name} from {it.client}"
    return [f"it has no client: the last one, {who}, left at {clock(it.ts)} ({it.reason})"]


def _last_published(admin: AdminClient, topic: str) -> int | None:
    """When its last message came, as the broker says that has it open."""
    try:
        answer = admin.get(f"{OWN}/clients{query(find=topic, limit=1)}", ClientsFound)
    except LoadManagerError:
        return None
    return next((it.published for it in answer.topics if it.topic == topic), None)
