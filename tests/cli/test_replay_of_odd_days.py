"""Histories with folders, files and days that are none: they cost nothing but themselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench import _history as history
from loadmanager import cli
from loadmanager.kit.history.source import HistorySource


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A day of 40 minutes, one of 10, one that no calendar has, and files of no broker."""
    for date, minutes in ((history.DATE, 40), ("2026-11-19", 10), ("2026-02-31", 40)):
        shift = (history.START_MS - _start_ms(date)) / history.MINUTE_MS
        times = [minute - shift for minute in range(1, minutes + 1)]
        loads = [history.broker_load(minute, "b0", 0.5) for minute in times]
        history.write(tmp_path, "broker_load", "b0", loads, date=date)
        bundles = [history.bundle_load(minute, "b0", "t/n/0x0_0x8", 9.0) for minute in times]
        history.write(tmp_path, "bundle_load", "b0", bundles, date=date)
    for kind in ("cycle", "seen"):
        (history.folder(tmp_path, kind) / "odd.jsonl").write_text("{}\n")
        (history.folder(tmp_path, kind) / "b0-x-y.jsonl").write_text("{1}\n")
    os.mkfifo(history.folder(tmp_path, "bundle_load") / "pipe-1-1.jsonl")
    return tmp_path


def _start_ms(date: str) -> int:
    return {"2026-11-19": history.START_MS - 86_400_000}.get(date, history.START_MS)


def test_other_days_are_replayed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A day that is too short is left out, unless it was asked for."""
    assert cli.main(["replay", str(root)]) == 0
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("left out: ")
    assert told[0].endswith("2026-11-19: 10 minutes were recorded, fewer than 30")
    assert told[1].startswith(f"{history.DATE}: 40 minutes, 1 brokers")
    assert cli.main(["replay", str(root), "--date", "2026-11-19"]) == 2


def test_cycles_are_looked_for(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In files whose names do not say when they began, too."""
    assert cli.main(["replay", str(root), "--exact"]) == 4
    assert capsys.readouterr().out.count("no cycle could be decided again") == 2


def test_a_pipe_is_no_segment(root: Path) -> None:
    """To read it would never end."""
    source = HistorySource(str(root))
    assert source.dates(history.CLUSTER) == ["2026-11-19", history.DATE]
    (left_out,) = source.day(history.CLUSTER, history.DATE).left_out
    assert left_out[0].endswith("/pipe-1-1.jsonl")
    assert left_out[1] == "is no regular file"
