"""The limit of open files of this process."""

from __future__ import annotations

import contextlib
import resource

RESERVE_MIN = 64
RESERVE_FRACTION = 0.1


def raise_limit() -> None:
    """Raise the soft limit to the hard one, where the system lets us."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_cap() -> int:
    """How many client connections leave enough files for HTTP, the metadata store and the history;
    0: any number.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 0 if soft == resource.RLIM_INFINITY else cap_of(soft)


def http_connections_cap() -> int:
    """How many HTTP connections leave enough files for the metadata store and the history; 0: any
    number.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 0 if soft == resource.RLIM_INFINITY else http_cap_of(soft)


def http_cap_of(open_files: int) -> int:
    """HTTP connections of a process that may open so many files: half of what clients leave."""
    return max((open_files - cap_of(open_files)) // 2, 1)


def cap_of(open_files: int) -> int:
    """Client connections of a process that may open so many files: a tenth, and at least
    `RESERVE_MIN`, is kept back.
    """
    return max(open_files - max(int(open_files * RESERVE_FRACTION), RESERVE_MIN), 1)
