"""The history's layout: names that the writer makes are those that the reader understands."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmanager.kit.history import layout
from loadmanager.kit.units import DAY_MS


@given(st.integers(0, 4_000_000_000_000))
def test_days_are_those_of_the_calendar(ts_ms: int) -> None:
    """In UTC, leap days included."""
    day = layout.day_of(ts_ms)
    assert day == datetime.fromtimestamp(ts_ms // 1000, UTC).strftime("%Y-%m-%d")
    assert layout.day_start_ms(day) == ts_ms // DAY_MS * DAY_MS


@pytest.mark.parametrize("state", [layout.OPEN, layout.SEALED, layout.COMPRESSED])
def test_a_written_name_can_be_read(state: str) -> None:
    """Whatever the state of the segment, and whatever its broker is called."""
    stem = layout.stem("[::1]:8080", 1_795_132_800_000, 3)
    path = (
        f"{layout.cluster_folder('c')}/{layout.partition('throttle', '2026-11-20')}/{stem}{state}"
    )
    match = layout.SEGMENT_PATH.search(path)
    assert match is not None
    assert match.groupdict() == {
        "cluster": "c",
        "kind": "throttle",
        "date": "2026-11-20",
        "name": f"{stem}{state}",
    }
    assert layout.stem_of(match["name"]) == stem == "b___1__8080-1795132800000-3"
    assert layout.SEGMENT_FILE.fullmatch(f"{stem}{state}.shipped") is None
