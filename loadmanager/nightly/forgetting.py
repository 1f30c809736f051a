"""Deletes days that are older than the retention: of the history, and of what was made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from loadmanager.kit.failures import first_line
from loadmanager.kit.history import retention
from loadmanager.kit.history.layout import cluster_folder, day_of, day_start_ms
from loadmanager.kit.history.retention import SETTING, Retention
from loadmanager.kit.history.source import HistorySource
from loadmanager.kit.units import DAY_MS
from loadmanager.nightly.analysed_days import AnalysedDays
from loadmanager.nightly.day import many
from loadmanager.nightly.drafts import put_in_place


def forget(days: AnalysedDays, source: HistorySource, date: str, max_days: int) -> list[str]:
    """Delete everything of days more than so many before `date`; 0: of none. Returns what was
    deleted, a sentence each, and what could not be, which stops nothing: the next run tries again.
    """
    if not max_days:
        return []
    left = Retention(before=day_of(day_start_ms(date) - max_days * DAY_MS), max_days=max_days)
    deletions: Mapping[str, Callable[[], list[str]]] = {
        "records, tables and reports": lambda: days.forget(left.before),
        "segments of the history": lambda: _forget_segments(source, days.cluster, left),
    }
    sentences = []
    for what, delete in deletions.items():
        try:
            dates = delete()
        except Exception as error:  # noqa: BLE001 - every file system raises its own
            sentences.append(f"{what} of old days cannot be deleted: {first_line(error)}")
            continue
        if dates:
            sentences.append(f"deleted, for {SETTING} is {max_days}: {what} of {_range(dates)}")
    return sentences


def _forget_segments(source: HistorySource, cluster: str, left: Retention) -> list[str]:
    """What a killed run began is finished. Before anything is deleted it is said: whoever misses a
    day then reads why, and nobody reads a part of one. What an earlier run deleted stays said.
    """
    earlier = source.retention(cluster)
    unfinished = () if earlier is None else earlier.removing
    old = [day for day in source.dates(cluster) if day < left.before or day in unfinished]
    if old or unfinished:
        said = left if earlier is None or earlier.before < left.before else earlier
        _say(source, cluster, replace(said, removing=tuple(old)))
        for folder in source.folders(cluster, old):
            source.files.rm(folder, recursive=True)
        _say(source, cluster, replace(said, removing=()))
    return old


def _say(source: HistorySource, cluster: str, left: Retention) -> None:
    path = source.path(f"{cluster_folder(cluster)}/{retention.FILE}")
    part = f"{path}.part"
    with source.files.open(part, "wb") as file:
        file.write(retention.encode(left))
    put_in_place(source.files, part, path)


def _range(dates: Sequence[str]) -> str:
    first, last = dates[0], dates[-1]
    return first if first == last else f"{many(len(dates), 'day')}, {first} to {last}"
