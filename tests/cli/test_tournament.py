"""`loadmanager tournament` and `replay HISTORY` as a person uses them, over days on the disk."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from loadmanager import cli
from loadmanager.core.history import layout
from loadmanager.core.history.records import BrokerLoad, BundleLoad
from loadmanager.core.load.reports import ResourceUsage
from loadmanager.simulator.days import Shape, make_day, traffic

DATES = ("2026-11-01", "2026-11-02")
NONE = ResourceUsage()


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of 40 minutes, in which the first of three brokers has half of the bundles."""
    root = tmp_path_factory.mktemp("history")
    for number, date in enumerate(DATES):
        day = make_day(number, Shape(brokers=3, bundles=24, minutes=40, events=False))
        bundles, lines = traffic(day), {BrokerLoad.kind: [b"no record"], BundleLoad.kind: []}
        for minute in range(40):
            ts, carried = layout.day_start_ms(date) + (minute + 1) * 60_000, bundles.minute(minute)
            for broker, own in zip(
                day.brokers, (slice(0, 12), slice(12, 18), slice(18, 24)), strict=True
            ):
                cpu = ResourceUsage(usage=float((carried * day.cost)[own].sum()), limit=800)
                load = BrokerLoad(
                    ts=ts,
                    broker=broker,
                    interval_ms=60_000,
                    usage=cpu.usage / cpu.limit,
                    cpu=cpu,
                    memory=NONE,
                    direct_memory=NONE,
                    bandwidth_in=NONE,
                    bandwidth_out=NONE,
                )
                lines[BrokerLoad.kind].append(msgspec.json.encode(load))
                for bundle, bytes_s in zip(day.bundles[own], carried[own].tolist(), strict=True):
                    sample = BundleLoad(
                        ts=ts,
                        broker=broker,
                        interval_ms=60_000,
                        bundle=bundle,
                        msg_throughput_in=bytes_s,
                        msg_rate_in=bytes_s / 1000,
                    )
                    lines[BundleLoad.kind].append(msgspec.json.encode(sample))
        for kind, each in lines.items():
            folder = root / layout.cluster_folder("c") / layout.partition(kind, date)
            folder.mkdir(parents=True)
            (folder / f"{layout.stem('b', 1, 1)}.jsonl").write_bytes(b"\n".join(each) + b"\n")
    return root


def test_a_tournament(history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The outcome as a document; a second run does nothing again, and says the same."""
    arguments = (
        *("tournament", str(history), "--output", str(tmp_path / "kept"), "--no-spark"),
        *("--no-grid", "--random", "2", "--json", "--pareto", str(tmp_path / "p.svg")),
        *("--try", "BalancedShedder+BalancedPlacement"),
    )
    status = cli.main(list(arguments))
    first = capsys.readouterr()
    outcome = json.loads(first.out)
    assert outcome["days"] == list(DATES)
    assert len(outcome["ranking"]) == 4
    assert status == (0 if outcome["diff"] else 4)
    assert bool(outcome["diff"]) == outcome["verdict"]["recommended"]
    assert "8 of 8 results are not known" in first.err
    assert (tmp_path / "p.svg").read_text().count("<circle") == 4
    assert cli.main(list(arguments)) == status
    second = capsys.readouterr()
    assert "0 of 8 results are not known" in second.err
    assert second.out == first.out


def test_a_recorded_day_is_replayed(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of the days, in two ways, with a picture."""
    svg = tmp_path / "day.svg"
    tried = ("--try", "", "--try", "BalancedShedder+BalancedPlacement")
    arguments = ("replay", str(history), "--date", DATES[0], "--json", "--plot", str(svg), *tried)
    assert cli.main(arguments) == 0
    live, ours = json.loads(capsys.readouterr().out)
    assert live["tried"] == "configured"
    assert [len(each["days"][0]["spreadByMinute"]) for each in (live, ours)] == [40, 40]
    assert ours["days"][0]["spread"] < live["days"][0]["spread"]
    assert svg.read_text().count("<polyline") == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["replay", "--exact"], "HISTORY"),
        (["replay", "{history}", "--cluster", "d"], "which cluster"),
        (["replay", "{history}", "--date", "2026-12-01"], "no samples"),
        (["replay", "{history}", "--date", "*"], "a day such as"),
        (["replay", "{history}", "--date", "2026-11-31", "--exact"], "a day such as"),
        (["tournament", "{history}", "--date", "2026-12-01", "--no-spark"], "no samples"),
        (["tournament", "{history}", "--try", "Nobody", "--no-spark"], "one of AvgShedder"),
    ],
)
def test_what_cannot_be_done(
    arguments: list[str],
    words: str,
    history: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Is said in one line."""
    monkeypatch.chdir(tmp_path)
    assert cli.main([text.format(history=history) for text in arguments]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert words in error


def test_a_history_without_cycles(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is nothing to decide again, and that is said."""
    assert cli.main(["replay", str(history), "--exact", "--date", DATES[0]]) == 4
    assert "no cycle could be decided again" in capsys.readouterr().out
