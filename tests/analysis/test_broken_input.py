"""Broken history: a clear message, the rest processed, and the exit status tells."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench import _history as history
from loadmanager.cli import main

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def analyze(folder: Path, *arguments: str) -> int:
    """The command on a folder's history."""
    where = ["--history", str(folder / "history"), "--output", str(folder / "analysis"), "--master", "local[2]", "--quiet"]
    return main(["analyze", "--date", history.DATE, *where, *arguments])


def report(folder: Path) -> dict[str, Any]:
    """The JSON."""
    found: dict[str, Any] = json.loads((folder / f"analysis/cluster={history.CLUSTER}/reports/{history.DATE}.json").read_text())
    return found


def test_broken_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong types, no JSON, missing fields, impossible times, a torn line, a cut-off gzip, duplicates, a strange file: all at once."""
    root = tmp_path / "history"
    good = [history.broker_load(minute, "b0", 0.5, cpu=float(minute)) for minute in range(100)]
    bad = [
        "{",
        "[1, 2]",
        json.dumps({"v": 1, "ts": "yesterday", "broker": "b0"}),
        json.dumps({"v": 1, "broker": "b0"}),
        history.broker_load(1440 * 30, "b0", 0.5),
        history.broker_load(-1440, "b0", 0.5),
    ]
    written = history.write(root, "broker_load", "b0", [*good, *bad])
    shutil.copy(written, written.with_name("b0-2-1.jsonl.gz"))
    plain = history.folder(root, "broker_load") / f"b0-{history.START_MS}-1.jsonl"
    plain.write_text("".join(f"{line}\n" for line in [*good, *bad]))
    torn = history.folder(root, "broker_load") / "b1:8080-3-1.jsonl.open"
    torn.write_text(history.broker_load(1, "b1", 0.4) + "\n" + history.broker_load(2, "b1", 0.4)[:50])
    cut = history.write(
        root, "bundle_load", "b0", [history.bundle_load(m / 100, "b0", f"t/n/0x{m:08x}_0x{m + 1:08x}", m) for m in range(5000)]
    )
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    (history.folder(root, "broker_load") / "README.txt").write_text("not a segment")
    history.folder(root, "unheard_of").joinpath("b0-1-1.jsonl").write_text("{}\n")

    assert analyze(tmp_path) == 3
    out = capsys.readouterr().out
    assert "rows are no records" in out
    assert f"{cut.name} is cut off" in out
    found = report(tmp_path)
    assert found["records"]["broker_load"] == 101
    assert 0 < found["records"]["bundle_load"] < 5000
    quarantined = found["input"]["quarantined"]["broker_load"]
    assert quarantined["rows"] == len(bad) + 1
    assert all(sample["problem"] and sample["segment"] for sample in quarantined["samples"])
    assert sorted(item["reason"].split(" ")[0] for item in found["input"]["leftOut"]) == ["duplicate", "duplicate"]
    assert not any("b1" in problem and "cut off" in problem for problem in found["input"]["problems"]), (
        "a torn last line is no cut-off segment"
    )


def test_an_empty_day(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing recorded: said so, with an exit status of its own."""
    history.write(tmp_path / "history", "broker_load", "b0", [history.broker_load(0, "b0", 0.5)], date="2026-11-19")
    assert analyze(tmp_path) == 4
    assert "nothing was recorded on 2026-11-20" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("--date", "20.11."), ("--spark", "x"), ("--set", "loadBalancerHistoryResourcePercentage=9")])
def test_bad_usage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Exit status 2 before anything is started."""
    assert analyze(tmp_path, *arguments) == 2


def test_which_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Several clusters: one must be chosen; none: said so."""
    assert analyze(tmp_path) == 2
    assert "there is none" in capsys.readouterr().err
    (tmp_path / "history/cluster=a").mkdir(parents=True)
    (tmp_path / "history/cluster=b").mkdir()
    assert analyze(tmp_path) == 2
    assert "--cluster" in capsys.readouterr().err
    assert analyze(tmp_path, "--cluster", "c") == 2
