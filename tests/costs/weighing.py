"""Counts the objects that are kept, without any clock."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable


def alive(*kinds: type) -> dict[str, int]:
    """The number of objects of each class that something refers to."""
    gc.collect()
    counts = Counter(map(type, gc.get_objects()))
    return {kind.__name__: counts[kind] for kind in kinds}


def left_by(act: Callable[[], object], *kinds: type) -> dict[str, int]:
    """Run `act`; return how many more objects of each class there are afterwards."""
    before = alive(*kinds)
    act()
    return {name: count - before[name] for name, count in alive(*kinds).items()}
