"""A history of version 1, whose ownership records have neither cause nor parent.

`history_v1` holds the records of test_from_clients.py at release 0.1.0: two brokers, a bundle
that an operator moves and splits, a stop.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from nightly.nightly import analyze, report, rows

DATE = "2026-11-21"
BUNDLE = "public/default/0x40000000_0x50000000"


def test_an_older_history_gives_the_same_answers(tmp_path: Path) -> None:
    """Everything is read; causes and parents come from what the brokers wrote then."""
    shutil.copytree(Path(__file__).parent / "history_v1", tmp_path / "history")
    assert analyze(tmp_path, date=DATE) == 0
    found = report(tmp_path, DATE, "standalone")
    assert found["records"]["ownership"] == 21
    move = rows(found, "moves", "bundle")[BUNDLE]
    assert (move["source"], move["destination"]) == ("127.0.0.1:20002", "127.0.0.1:20003")
    assert (move["cause"], move["pause_ms"]) == ("operator", pytest.approx(22.1, abs=0.1))
    assert rows(found, "splits", "parent")[BUNDLE]["children"] == [
        "public/default/0x40000000_0x48000000",
        "public/default/0x48000000_0x50000000",
    ]
    records = tmp_path / f"analysis/cluster=standalone/records/kind=ownership/date={DATE}"
    causes = Counter(pq.read_table(records).column("cause").to_pylist())
    assert causes == {"operator": 3, "stop": 6, None: 12}
