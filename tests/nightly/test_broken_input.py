"""Broken history: a clear message, the rest processed, and the exit status tells."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from nightly.conftest import Sessions
from nightly.nightly import analyze, report, rows

from bench import _history as history


def test_broken_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong types, no JSON, missing fields, impossible times, a torn line, a cut-off gzip,
    duplicates, a strange file: all at once.
    """
    root = tmp_path / "history"
    good = [history.broker_load(minute, "b0", 0.5, cpu=float(minute)) for minute in range(100)]
    bad = [
        "{",
        "[1, 2]",
        json.dumps({"v": 2, "ts": "yesterday", "broker": "b0"}),
        json.dumps({"v": 2, "broker": "b0"}),
        history.broker_load(1440 * 30, "b0", 0.5),
        history.broker_load(-1440, "b0", 0.5),
    ]
    written = history.write(root, "broker_load", "b0", [*good, *bad])
    shutil.copy(written, written.with_name("b0-2-1.jsonl.gz"))
    plain = history.folder(root, "broker_load") / f"b0-{history.START_MS}-1.jsonl"
    plain.write_text("".join(f"{line}\n" for line in [*good, *bad]))
    torn = history.folder(root, "broker_load") / "b1:8080-3-1.jsonl.open"
    torn.write_text(
        history.broker_load(1, "b1", 0.4) + "\n" + history.broker_load(2, "b1", 0.4)[:50]
    )
    cut = history.write(
        root,
        "bundle_load",
        "b0",
        [
            history.bundle_load(m / 100, "b0", f"t/n/0x{m:08x}_0x{m + 1:08x}", m)
            for m in range(5000)
        ],
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
    assert sorted(item["reason"].split(" ")[0] for item in found["input"]["leftOut"]) == [
        "duplicate",
        "duplicate",
    ]
    assert not any(
        "b1" in problem and "cut off" in problem for problem in found["input"]["problems"]
    ), "a torn last line is no cut-off segment"


def test_impossible_numbers_and_damaged_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What would break the arithmetic of a whole night is put aside with the reason; a file with
    flipped bytes, and one of nothing, are named.
    """
    root = tmp_path / "history {of} [us]"
    good = history.broker_load(1, "b0", 0.5)
    bad = [good.replace("0.5", text) for text in ("1e999", '"Infinity"', "NaN", "-0.1")]
    bad += [
        good.replace('"intervalMs": 60000', f'"intervalMs": {text}')
        for text in ("0", "9000000000000000000")
    ]
    history.write(root, "broker_load", "b0:1", [good, *bad])
    limit = {
        "intervalMs": 0,
        "level": "topic",
        "limit": "x",
        "configuredMessagesPerS": 1.0,
        "configuredBytesPerS": -1.0,
    }
    history.write(
        root,
        "throttle",
        "b0",
        [
            history.record(
                {**limit, "deliveredMessagesPerS": 1.0, "deliveredBytesPerS": 1.0}, 1, "b0"
            )
        ],
    )
    loads = [
        history.bundle_load(m / 100, "b0", f"t/n/0x{m:08x}_0x{m + 1:08x}", m) for m in range(20_000)
    ]
    rotten = history.write(root, "bundle_load", "b0", loads)
    data = bytearray(rotten.read_bytes())
    for at in range(3):
        data[len(data) * 3 // 4 + at] ^= 0xFF
    rotten.write_bytes(data)
    (history.folder(root, "bundle_load") / "b1-1-1.jsonl.gz").write_bytes(b"")
    history.write(
        root,
        "ownership",
        "___1__8080",
        [history.step(1, "[::1]:8080", "t/n/0x00000000_0xffffffff", "Free", "Owned", "x")],
    )
    padded = history.write(
        root,
        "topic_load",
        "b0",
        [history.topic_load(1, "b0", "persistent://t/n/a", "t/n/0x00000000_0xffffffff", 1.0)],
    )
    padded.write_bytes(padded.read_bytes() + bytes(512))
    for name in ("b2", "b3"):
        zeroed = history.write(
            root,
            "decision",
            name,
            [
                history.record({"epoch": 1, "cycle": n, "strategy": "x", "action": "skip"}, 1, name)
                for n in range(9000)
            ],
        )
        zeroed.write_bytes(zeroed.read_bytes()[:-4096] + bytes(4096))
    assert analyze(tmp_path, "--history", str(root)) == 3
    out = capsys.readouterr().out
    assert "usage is impossible: 4" in out
    assert "intervalMs is impossible: 2" in out
    assert f"{rotten.name} is cut off or damaged" in out
    assert "b1-1-1.jsonl.gz: left out, is cut off after 0 bytes" in out
    found = report(tmp_path)
    assert (found["records"]["broker_load"], found["records"]["throttle"]) == (1, 0)
    assert 0 < found["records"]["bundle_load"] < 20_000
    assert (found["records"]["ownership"], found["records"]["topic_load"]) == (1, 1)
    assert f"topic_load: {padded.name} is cut off or damaged" in out
    assert out.count("decision: b") == 2


def days_analysed(out: str) -> list[str]:
    """The days that a run says it analysed."""
    return [line.split(":")[0] for line in out.splitlines() if line.startswith("2026")]


def test_days_that_come_late_and_segments_that_are_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A day that came wholly late is made up for, and one of which a segment came late is analysed
    anew; one of which segments were dropped meanwhile keeps the tables that it has.
    """
    root = tmp_path / "history"
    days = ["2026-11-18", "2026-11-19", history.DATE]
    old = [
        history.write(
            root,
            "broker_load",
            f"b{n}",
            [history.broker_load(-2880, f"b{n}", 0.1 * n)],
            date=days[0],
        )
        for n in (1, 2)
    ]
    assert analyze(tmp_path, date=days[0]) == 0
    history.write(root, "broker_load", "b1", [history.broker_load(-1440, "b1", 0.5)], date=days[1])
    history.write(root, "broker_load", "b1", [history.broker_load(0, "b1", 0.5)])
    old[0].unlink()
    history.write(root, "broker_load", "b3", [history.broker_load(-2880, "b3", 0.3)], date=days[0])
    capsys.readouterr()
    assert analyze(tmp_path) == 0
    said = capsys.readouterr()
    assert days_analysed(said.out) == days[1:]
    assert f"{days[0]}: segments came late, but 1 of those analysed before are gone" in said.err
    history.write(root, "broker_load", "b9", [history.broker_load(-1440, "b9", 0.4)], date=days[1])
    assert analyze(tmp_path) == 0
    assert days_analysed(capsys.readouterr().out) == days[1:]
    assert set(rows(report(tmp_path, days[1]), "broker_usage", "broker")) == {"b1", "b9"}
    assert analyze(tmp_path, date=days[0]) == 3
    assert "1 segment of this day that an earlier run analysed are gone" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("--master", "local[banana]"), 1),
        (("--master", "foo://x"), 2),
        (("--output", "/proc/x"), 2),
    ],
)
@pytest.mark.spark
def test_what_spark_cannot_do_is_said_in_a_line(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    sessions: Sessions,
    arguments: tuple[str, ...],
    status: int,
) -> None:
    """No stack trace for an operator's slip."""
    sessions.stop()  # it is to start one of its own
    history.write(tmp_path / "history", "broker_load", "b0", [history.broker_load(0, "b0", 0.5)])
    assert analyze(tmp_path, *arguments) == status
    said = capfd.readouterr().err.splitlines()
    assert sum(line.startswith("loadmanager") for line in said) == 1
    assert not any(line.startswith(("Traceback", "\tat ")) for line in said)


def test_an_empty_day(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing recorded: said so, with an exit status of its own."""
    history.write(
        tmp_path / "history",
        "broker_load",
        "b0",
        [history.broker_load(0, "b0", 0.5)],
        date="2026-11-19",
    )
    assert analyze(tmp_path) == 4
    assert "nothing was recorded on 2026-11-20" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [("--date", "20.11."), ("--spark", "x"), ("--set", "loadBalancerHistoryResourcePercentage=9")],
)
def test_bad_usage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Exit status 2 before anything is started."""
    assert analyze(tmp_path, *arguments) == 2


def test_which_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Several clusters: one must be chosen; none: said so."""
    assert analyze(tmp_path) == 2
    assert "history does not exist" in capsys.readouterr().err
    (tmp_path / "history").mkdir()
    assert analyze(tmp_path) == 2
    assert "there is no history here" in capsys.readouterr().err
    (tmp_path / "history/cluster=a").mkdir()
    (tmp_path / "history/cluster=b").mkdir()
    assert analyze(tmp_path) == 2
    assert "--cluster" in capsys.readouterr().err
    assert analyze(tmp_path, "--cluster", "c") == 2
