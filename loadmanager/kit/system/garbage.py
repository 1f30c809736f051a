"""Pauses of Python's garbage collector, for which everybody waits.

A collection of everything looks at each object that lives: 20 ms after a start, 200 ms with some
millions of them. It comes whenever a quarter has been added, which one tenant alone can bring about
several times per second.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

THRESHOLDS = (2_000, 10, 50)
"""New objects until the youngest are looked at, how often that happens until the middle ones are,
and then the old ones: once in a million new objects, which is the most garbage in cycles, about 200
MB. The middle ones take 1 to 2 ms.
"""


def set_limits() -> None:
    """Leave out what lives now from all later collections: the code, and what a process keeps as
    long as it runs.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


@contextlib.contextmanager
def not_now() -> Iterator[None]:
    """Collect nothing meanwhile: for imports, whose objects live on, and which otherwise take a
    sixth longer.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
