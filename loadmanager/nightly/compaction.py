"""Records and sums of old days, merged into few files: smaller, and faster to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from loadmanager.kit.history.layout import day_of, day_start_ms
from loadmanager.kit.units import DAY_MS
from loadmanager.nightly import merging
from loadmanager.nightly.analysed_days import TABLES, AnalysedDays
from loadmanager.nightly.drafts import DayDraft
from loadmanager.nightly.engine import Engine
from loadmanager.nightly.late import LATE_DAYS

DAYS_AT_ONCE = 7
"""So many days are compacted by a run, the oldest first: the first run may find years of them."""
MERGED_BYTES = 512 << 20
"""Files of so many bytes become one."""


def compact(
    engine: Engine, days: AnalysedDays, date: str, file_bytes: int = MERGED_BYTES
) -> list[str]:
    """Compact days before `date` that no late segment changes any more; returns which. Raises what
    the engine and the file system raise: the day stays as it was then.
    """
    young = day_of(day_start_ms(date) - LATE_DAYS * DAY_MS)
    old = [day for day in days.analysed() if day < young and not days.manifest(day).compacted]
    for day in old[:DAYS_AT_ONCE]:
        _compact_day(engine, days, day, file_bytes)
    return old[:DAYS_AT_ONCE]


def _compact_day(engine: Engine, days: AnalysedDays, day: str, file_bytes: int) -> None:
    draft, files = days.draft(day), days.stored_files(day)
    engine.each(merging.run, list(_tasks(days, draft, files, file_bytes)))
    stored = [path for path in files if path.startswith(TABLES)] + draft.publish()
    manifest = msgspec.structs.replace(days.manifest(day), files=stored, compacted=True)
    days.commit(day, manifest)


def _tasks(
    days: AnalysedDays, draft: DayDraft, files: Sequence[str], file_bytes: int
) -> Iterator[merging.MergeTask]:
    mergeable = sorted(path for path in files if not path.startswith(TABLES))
    for folder, group in groupby(mergeable, key=lambda path: path.rpartition("/")[0]):
        what, kind, _ = folder.split("/")
        paths = [days.whole_path(path) for path in group]
        sizes = [int(days.files.size(path)) for path in paths]
        starts = [sum(sizes[:number]) // file_bytes for number in range(len(sizes))]
        for number, part in groupby(zip(starts, paths, strict=True), key=lambda pair: pair[0]):
            target = draft.path(what, kind.partition("=")[2], number)
            draft.paths.append(target)
            yield merging.MergeTask(days.files, [path for _, path in part], target)
