"""The limit of open files of this process."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable

RESERVE_MIN = 64
RESERVE_FRACTION = 0.1


def raise_limit() -> None:
    """Raise the soft limit to the hard limit, if the system allows it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_cap() -> int:
    """The most client connections that leave files for HTTP, the metadata store and the history.

    0 stands for any number, when the number of open files has no limit.
    """
    return _under_soft_limit(cap_of)


def http_connections_cap() -> int:
    """The most HTTP connections that leave files for the metadata store and the history; 0: any."""
    return _under_soft_limit(http_cap_of)


def _under_soft_limit(cap: Callable[[int], int]) -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 0 if soft == resource.RLIM_INFINITY else cap(soft)


def cap_of(open_files: int) -> int:
    """Client connections under a limit of open files: all but a tenth or `RESERVE_MIN`."""
    return max(open_files - max(int(open_files * RESERVE_FRACTION), RESERVE_MIN), 1)


def http_cap_of(open_files: int) -> int:
    """HTTP connections under a limit of open files: half of those that clients leave."""
    return max((open_files - cap_of(open_files)) // 2, 1)
