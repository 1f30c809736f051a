"""Which earlier days to analyse again, because segments came late."""

from __future__ import annotations

import sys

from loadmanager.kit.history.source import HistorySource
from loadmanager.nightly.analysed_days import AnalysedDays
from loadmanager.nightly.listed_segments import changed, gone_count

LATE_DAYS = 3
"""How many days back to look for late segments."""


def late_days(days: AnalysedDays, source: HistorySource, date: str) -> list[str]:
    """Days before `date` to analyse again or for the first time, because segments came late.

    A day is left as it is once analysed segments are gone from the history: its tables hold
    more than could be read now.
    """
    analysed, late = days.analysed(), []
    for day in [day for day in source.dates(days.cluster) if day < date][-LATE_DAYS:]:
        if day not in analysed:
            late += [day] if analysed and day > min(analysed) else []
            continue
        before, present = days.manifest(day).seen, source.segments(days.cluster, day)
        if not changed(before, present):
            continue
        if gone_segments := gone_count(before, present):
            print(
                f"{day}: segments came late, but {gone_segments} of those analysed before are "
                "gone; it stays as it was",
                file=sys.stderr,
            )
            continue
        late.append(day)
    return late
