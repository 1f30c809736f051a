"""`loadmanager tournament` and `replay HISTORY` as a person uses them, over days on the disk."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from loadmanager import cli
from loadmanager.engine.history.cycles import Cycle
from loadmanager.engine.history.records import BrokerLoad, BundleLoad, Decision
from loadmanager.engine.load.reports import ResourceUsage
from loadmanager.kit.history import layout
from loadmanager.lab.days import DaySize, make_day, traffic
from loadmanager.lab.picture import pareto

DATES = ("2026-11-01", "2026-11-02", "2026-11-03")
NONE = ResourceUsage()


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three days of 40 minutes, the later two with the same load; the first of three brokers has
    most bundles.
    """
    root = tmp_path_factory.mktemp("history")
    for number, date in enumerate(DATES):
        day = make_day(min(number, 1), DaySize(brokers=3, bundles=24, minutes=40, events=False))
        bundles, lines = traffic(day), {BrokerLoad.kind: [b"no record"], BundleLoad.kind: []}
        for minute in range(40):
            ts, carried = layout.day_start_ms(date) + (minute + 1) * 60_000, bundles.minute(minute)
            for broker, own in zip(
                day.brokers, (slice(0, 18), slice(18, 21), slice(21, 24)), strict=True
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
    assert [each["calibration"] for each in outcome["calibrations"]] == list(DATES)
    assert status == (0 if outcome["diff"] else 4)
    assert bool(outcome["diff"]) == outcome["verdict"]["recommended"]
    assert "12 of 12 results are not known" in first.err
    assert (tmp_path / "p.svg").read_text().count("<circle") == 4
    assert cli.main(list(arguments)) == status
    second = capsys.readouterr()
    assert "0 of 12 results are not known" in second.err
    assert second.out == first.out


@pytest.mark.skipif(shutil.which("patch") is None, reason="no patch on this machine")
def test_the_recommended_diff_can_be_applied(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It changes the lines of the file that is in force and adds the others: `patch` takes it."""
    conf = tmp_path / "broker.conf"
    conf.write_text("# ours\nloadBalancerLoadSheddingStrategy = OverloadShedder\nclusterName=c\n")
    arguments = (
        *("tournament", str(history), "--output", str(tmp_path / "kept"), "--no-spark"),
        *("--no-grid", "--random", "0", "--config", str(conf)),
        *("--try", "BalancedShedder+BalancedPlacement"),
    )
    assert cli.main(list(arguments)) == 0
    diff = capsys.readouterr().out.partition("--- ")
    subprocess.run(
        ["patch", str(conf)],
        input="".join(diff[1:]),
        text=True,
        check=True,
        capture_output=True,
        timeout=300,
    )
    assert conf.read_text().splitlines() == [
        "# ours",
        "loadBalancerLoadSheddingStrategy=BalancedShedder",
        "clusterName=c",
        "loadBalancerLoadPlacementStrategy=BalancedPlacement",
    ]


def test_today_is_no_day_yet(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hours that there are would count as much as a day, and cost anew each time."""
    shutil.copytree(history, tmp_path / "history")
    today = datetime.now(UTC).date().isoformat()
    for kind in (BrokerLoad.kind, BundleLoad.kind):
        folder = tmp_path / "history" / layout.cluster_folder("c")
        shutil.copytree(
            folder / layout.partition(kind, DATES[0]), folder / layout.partition(kind, today)
        )
    arguments = ["tournament", str(tmp_path / "history"), "--output", str(tmp_path / "kept")]
    cli.main([*arguments, "--no-spark", "--no-grid", "--random", "1", "--json"])
    told = capsys.readouterr()
    assert f"left out: {today} has not ended" in told.err
    assert json.loads(told.out)["days"] == list(DATES)


def test_a_table_for_people(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every column is defined below it; nothing follows the verdict if there is no diff."""
    options = ("--no-spark", "--no-grid", "--random", "1", "--output", str(tmp_path))
    assert cli.main(["tournament", str(history), "--date", DATES[0], *options]) == 4
    shown, defined, compared, verdict = capsys.readouterr().out.rstrip("\n").split("\n\n")
    for column in ("cost", "from", "to", "spread", "hot min", "moves", "efficient"):
        assert column.upper() in shown
        assert f"{column}: " in defined or f"{column}, " in defined
    assert compared.startswith(f"{DATES[0]}: replayed with default settings (none are recorded)")
    assert verdict.endswith("Nothing is recommended: that needs three days at least.")


def test_figures_that_are_refused_are_refused_everywhere(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The replay's spread is far from what happened: the cost, in which it is, and the moves, which
    come of it, are told as multiples like the spread itself, in the table and the picture and for
    programs.
    """
    svg = tmp_path / "p.svg"
    options = ("--no-spark", "--no-grid", "--random", "1", "--pareto", str(svg))
    words = ["tournament", str(history), *options, "--output", str(tmp_path / "kept")]
    cli.main(words)
    shown, _, compared, verdict = capsys.readouterr().out.split("\n\n")[:4]
    assert "spread and moves are not to be believed" in compared
    (header, *lines) = (re.split(r"\s{2,}", line.strip()) for line in shown.splitlines())
    names = [name.lower() for name in header]
    rows = [dict(zip(names, line, strict=False)) for line in lines]
    for name in ("cost", "from", "to", "spread", "moves"):
        assert all(row[name].startswith(("x ", "more")) for row in rows), (name, rows)
    (in_force,) = [row for row in rows if row["candidate"] == "(the settings in force)"]
    assert (in_force["cost"], in_force["spread"]) == ("x 1.00", "x 1.00")
    assert "points more than the best" not in verdict
    words_of = [text.text for text in ET.fromstring(svg.read_text()).iter() if text.text]
    assert not [word for word in words_of if "moves, spread" in word]
    assert "No figures: replays of these days are far from what happened" in words_of
    cli.main([*words, "--json"])
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["figures_refused"]
    assert outcome["regret"] is None
    for ranked in outcome["ranking"]:
        assert (ranked["cost"], ranked["low"], ranked["high"]) == (None, None, None)
        assert ranked["cost_over_in_force"] > 0
    refused = [each["refused"] for each in outcome["calibrations"]]
    assert ["spread", "moves"] in refused


def test_the_candidates_in_a_picture() -> None:
    """The efficient ones and the settings in force are numbered and named, others alike counted."""
    points = {"a": (10.0, 2.0, True), "b": (10.0, 2.0, True), "c": (90.0, 9.0, False)}
    drawn = ET.fromstring(pareto({**points, "live": (0.0, 8.5, True)}, "live"))
    words = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert words[0] == "Candidates: spread of usage in points, by moves a day"
    assert "1: 0 moves, spread 8.5: live" in words
    assert "2: 10 moves, spread 2.0 and 1 alike: a" in words
    assert not any(text and text.startswith("3") for text in words)


def test_a_recorded_day_is_replayed(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of the days, in two ways, with a picture."""
    svg = tmp_path / "day.svg"
    tried = ("--try", "", "--try", "BalancedShedder+BalancedPlacement")
    arguments = ("replay", str(history), "--date", DATES[0], "--json", "--plot", str(svg), *tried)
    assert cli.main(arguments) == 0
    happened, live, ours, calibration = json.loads(capsys.readouterr().out)
    assert happened["tried"] == "(as it was)"
    assert happened["days"][0]["moves"] == 0
    assert calibration["calibration"] == DATES[0]
    assert calibration["modelError"] < 0.01
    assert set(calibration["refused"]) <= {"spread", "hot_minutes", "moves"}
    assert live["tried"] == "configured"
    assert [len(each["days"][0]["spreadByMinute"]) for each in (live, ours)] == [40, 40]
    assert ours["days"][0]["spread"] < live["days"][0]["spread"]
    assert svg.read_text().count("<polyline") == 3


def test_how_long_clients_waited_is_what_leaders_recorded(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For the moves of the day as it was, in the table and for programs; a day without moves has no
    pause.
    """
    root = tmp_path / "history"
    shutil.copytree(history, root)
    folder = root / layout.cluster_folder("c") / layout.partition(Decision.kind, DATES[0])
    folder.mkdir(parents=True)
    start_ms = layout.day_start_ms(DATES[0])
    move = Decision(
        ts=start_ms + 35 * 60_000,
        broker="b",
        epoch=1,
        cycle=1,
        strategy="s",
        action="move",
        move="m",
        state="done",
        bundle="t/n/0x0_0x1",
        clients_closed=40,
        pause_ms=200.0,
        clients_waited_mean_ms=300.0,
    )
    (folder / "b-0-1.jsonl").write_bytes(msgspec.json.encode(move) + b"\n")

    def lived(source: Path) -> float | None:
        assert cli.main(["replay", str(source), "--date", DATES[0], "--json"]) == 0
        was, _, compared = json.loads(capsys.readouterr().out)
        (day,) = was["days"]
        assert compared["happened"]["pause_s"] == day["pause_s"]
        seconds: float | None = day["pause_s"]
        return seconds

    assert (lived(history), lived(root)) == (0.0, pytest.approx(12.0))
    assert cli.main(["replay", str(root), "--date", DATES[0]]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "(as it was)  " in line]
    assert " 12" in row


def test_weights_count_once(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The brokers' weights are in the recorded usage."""
    printed = []
    for weight in ("1", "0.01"):
        text = f"loadBalancerCPUResourceWeight={weight}"
        arguments = ["replay", str(history), "--date", DATES[0], "--json", "--set", text]
        strategies = ["--try", "BalancedShedder+BalancedPlacement"]
        assert cli.main([*arguments, *strategies]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert sum(json.loads(printed[0])[1]["days"][0]["movesByMinute"]) > 0


@pytest.mark.parametrize("command", ["replay", "tournament"])
def test_that_the_leader_had_other_settings_is_said(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Once for days alike; nothing is said when `--set` has them."""
    root = tmp_path / "history"
    shutil.copytree(history, root)
    keys = {"loadBalancerLoadSheddingStrategy": "OverloadShedder"}
    for date in DATES:
        folder = root / layout.cluster_folder("c") / layout.partition(Cycle.kind, date)
        folder.mkdir(parents=True)
        cycles = [
            Cycle(ts=1, broker="b", epoch=1, cycle=1, strategy="", settings={}),
            Cycle(ts=3, broker="b", epoch=1, cycle=3, strategy="", settings=None),
            Cycle(ts=2, broker="b", epoch=1, cycle=2, strategy="", settings=keys),
        ]
        lines = b"".join(msgspec.json.encode(each) + b"\n" for each in cycles)
        (folder / f"{layout.stem('b', 1, 1)}.jsonl").write_bytes(lines)
    arguments = [command, str(root)]
    if command == "tournament":
        arguments += ["--no-spark", "--no-grid", "--random", "0", "--output", str(tmp_path / "out")]
    said = (
        f"{DATES[0]}: the leader had other settings than --config and --set say: "
        "loadBalancerLoadSheddingStrategy=OverloadShedder"
    )
    cli.main(arguments)
    shown = capsys.readouterr()
    assert shown.err.splitlines().count(said) == 1
    assert f"{DATES[0]}: replayed with the settings that were in force: " in shown.out
    cli.main([*arguments, "--set", "loadBalancerLoadSheddingStrategy=OverloadShedder"])
    assert "the leader had" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["replay", "--exact"], "HISTORY"),
        (
            ["replay", "{history}", "--try", ",loadBalancerCPUResourceWeight=1"],
            "leave out loadBalancerCPUResourceWeight",
        ),
        (
            ["tournament", "{history}", "--balance", "0", "--headroom", "0", "--calm", "0"],
            "one of them is more than 0",
        ),
        (["replay", "{history}", "--cluster", "d"], "no history of cluster d; it has c"),
        (["replay", "nope"], "nope does not exist"),
        (["tournament", "."], "there is no history here"),
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
