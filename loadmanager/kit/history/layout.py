"""Names of record files: `cluster=<c>/kind=<kind>/date=<UTC day>/<broker>-<start
ms>-<sequence>.jsonl`.

A segment that is being written ends in `.jsonl.open`, a sealed one in `.jsonl`, a compressed one in
`.jsonl.gz`. All segments of a broker are numbered, so that a stem names one segment in any state.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from loadmanager.kit.units import DAY_MS

SEALED, OPEN, COMPRESSED = ".jsonl", ".jsonl.open", ".jsonl.gz"
SEGMENT_BYTES_MAX = 16 << 20
"""Default size at which a segment is sealed, uncompressed."""
SEGMENT_FILE = re.compile(r"(?P<stem>.+)(?P<state>\.jsonl(?:\.gz|\.open)?)")
SEGMENT_PATH = re.compile(
    r"cluster=(?P<cluster>[^/]+)/kind=(?P<kind>[^/]+)/date=(?P<date>\d{4}-\d\d-\d\d)/(?P<name>[^/]+)$"
)


def cluster_folder(cluster: str) -> str:
    """The folder of a cluster's history."""
    return f"cluster={cluster}"


def partition(kind: str, day: str) -> str:
    """The folder of a kind's records of one UTC day, below the cluster's."""
    return f"kind={kind}/date={day}"


def stem(broker: str, started_ms: int, sequence: int) -> str:
    """A segment's name without its state."""
    return f"{safe_name(broker)}-{started_ms}-{sequence}"


def stem_of(name: str) -> str:
    """The stem in a segment's file name."""
    match = SEGMENT_FILE.fullmatch(name)
    assert match is not None, name
    return match["stem"]


def safe_name(name: str) -> str:
    """The id of a broker or cluster as a file name: Hadoop's paths cannot have a colon, and Spark
    ignores files whose names begin with an underscore or a dot.
    """
    safe = "".join(char if char.isalnum() or char in ".-" else "_" for char in name)
    return safe if safe[:1].isalnum() else f"b{safe}"


def day_of(ts_ms: int) -> str:
    """The UTC day of a time, as `YYYY-MM-DD`."""
    return _day(ts_ms // DAY_MS)


@lru_cache(maxsize=10)
def _day(number: int) -> str:
    return str(np.datetime64(number, "D"))


def day_start_ms(day: str) -> int:
    """The time at which a UTC day begins."""
    return int(np.datetime64(day, "ms").astype(int))


def is_day(text: str) -> bool:
    """Whether it is a day of the calendar, as `YYYY-MM-DD`."""
    try:
        return day_of(day_start_ms(text)) == text
    except ValueError:
        return False
