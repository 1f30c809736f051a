"""What became of a day's segments since they were listed."""

from __future__ import annotations

from collections.abc import Iterable

from loadmanager.kit.history.layout import OPEN, stem_of
from loadmanager.kit.history.source import ListedSegment


def _stems(segments: Iterable[ListedSegment]) -> set[tuple[str, str]]:
    return {(kind, stem_of(name)) for kind, name, _ in segments}


def changed(before: Iterable[ListedSegment], present: Iterable[ListedSegment]) -> bool:
    """True if a segment is new, was still being written, or has another size under its name."""
    sealed = _stems({segment for segment in before if not segment[1].endswith(OPEN)})
    sizes = {(kind, name): size for kind, name, size in before}
    return any(
        sizes.get((kind, name), size) != size
        or ((kind, name) not in sizes and (kind, stem_of(name)) not in sealed)
        for kind, name, size in present
    )


def gone(before: Iterable[ListedSegment], present: Iterable[ListedSegment]) -> set[ListedSegment]:
    """Segments that no longer exist in any state."""
    present_stems = _stems(present)
    return {segment for segment in before if (segment[0], stem_of(segment[1])) not in present_stems}


def gone_count(before: Iterable[ListedSegment], present: Iterable[ListedSegment]) -> int:
    """Number of segments that disappeared."""
    return len(_stems(gone(before, present)))
