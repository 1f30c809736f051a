"""Days with little in them, and questions that fail: whatever can be said is said."""

from __future__ import annotations

import json
import math
import re
import shlex
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import command_lines
import duckdb
import pytest
from nightly.conftest import Sessions
from nightly.nightly import analyze, job_of, report, rows

from bench import _history as history
from loadmanager.cli import main
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.history.source import HistorySource
from loadmanager.nightly.analysed_days import AnalysedDays, Manifest
from loadmanager.nightly.facts import CHANGES_MAX, Facts
from loadmanager.nightly.in_process import InProcess
from loadmanager.nightly.ingest import Ingest
from loadmanager.nightly.job import QUESTIONS
from loadmanager.nightly.on_spark import OnSpark
from loadmanager.nightly.questions import flapping, hot_bundles
from loadmanager.nightly.reading import PROBLEM

FULL = "0x00000000_0xffffffff"


def a_limit(**fields: Any) -> str:
    """A throttle record."""
    common = {
        "intervalMs": 60_000,
        "level": "topic",
        "limit": "x",
        "configuredMessagesPerS": 0.0,
        "configuredBytesPerS": 0.0,
    }
    return history.record(
        {**common, "deliveredMessagesPerS": 0.0, "deliveredBytesPerS": 0.0, **fields}, 1, "b0"
    )


def idle(root: Path) -> None:
    """One broker, and nothing but zeros: an idle namespace, bundles of no width, a split of
    nothing, limits of nothing.
    """
    zero = history.broker_load(1, "b0", 0.0, bundles=0, rate=0.0)
    nothing = {"usage": 0.0, "limit": 0.0}
    later = {"ts": history.START_MS + 2 * history.MINUTE_MS}
    empty = (
        json.loads(zero)
        | later
        | dict.fromkeys(("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut"), nothing)
    )
    history.write(root, "broker_load", "b0", [zero, json.dumps(empty)])
    bundles = [
        f"t/idle/{FULL}",
        "t/flat/0x00000000_0x00000000",
        "t/odd/0x40000000_0x00000000",
        "t/none/zz",
        "odd",
    ]
    bundles += ["t/split/0x00000000_0x80000000", "t/split/0x80000000_0xffffffff"]
    history.write(
        root,
        "bundle_load",
        "b0",
        [history.bundle_load(2, "b0", bundle, 0.0, topics=0) for bundle in bundles],
    )
    topics = [
        history.topic_load(1, "b0", f"persistent://t/idle/{name}", f"t/idle/{FULL}", 0.0)
        for name in "ab"
    ]
    history.write(root, "topic_load", "b0", topics)
    steps = [
        history.step(1, "b0", bundle, "Free", "Owned", "split", parent=f"t/split/{FULL}")
        for bundle in bundles[-2:]
    ]
    steps += [
        history.step(1, "b0", bundles[0], "Assigning", "Owned", "lookup"),
        history.step(2, "b0", bundles[0], "Releasing", "Free", "x"),
    ]
    history.write(root, "ownership", "b0", steps)
    history.write(root, "throttle", "b0", [a_limit(), a_limit(limit="y", held=1, queueLength=1)])


def test_days_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An idle day, one of a single record of each kind but loads, one of a single load: every
    question answers, with finite numbers.
    """
    root = tmp_path / "history"
    idle(root)
    assert analyze(tmp_path, "--no-late") == 0, capsys.readouterr().out
    found = report(tmp_path)
    assert found["input"]["problems"] == []
    spaces = {row["namespace"]: row for row in found["tables"]["namespaces"]["rows"]}
    assert (
        spaces["t/idle"] | {"bundles": 1, "largest_share": None, "share": 0.0, "cut_into": 1}
        == spaces["t/idle"]
    )
    assert spaces["t/flat"]["cut_into"] == 1
    assert [row["max_over_mean"] for row in found["tables"]["imbalance"]["rows"]] == [1.0]
    assert found["tables"]["splits"]["rows"][0]["useful"] is None

    history.write(
        root, "broker_load", "b0", [history.broker_load(-1440, "b0", 0.0)], date="2026-11-19"
    )
    assert analyze(tmp_path, "--no-late", date="2026-11-19") == 0
    history.write(
        root,
        "ownership",
        "b0",
        [history.step(-2880, "b0", f"t/n/{FULL}", "Assigning", "Owned", "x")],
        date="2026-11-18",
    )
    assert analyze(tmp_path, "--no-late", date="2026-11-18") == 0
    assert report(tmp_path, "2026-11-18")["totals"]["brokers"] == 0


def test_a_full_broker_is_overloaded_and_its_sensor_is_no_liar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A CPU that shows its limit for two hours, to the last digit, has no more to give. The leader
    has the name of its shedder, not of what splits. A plot is one line, which begins with the first
    five minutes, although these began before the first record. Commands can be pasted, and one
    that tries settings begins with those of the report.
    """
    root = tmp_path / "history"
    for broker, usage in (("b0", 1.0), ("b1", 0.2)):
        loads = [
            history.broker_load(minute, broker, usage, cpu=100.0 if usage == 1 else minute % 50)
            for minute in range(4, 124)
        ]
        history.write(root, "broker_load", broker, loads)
    common = {"epoch": 1, "cycle": 1, "reason": "x"}
    decisions = [
        history.record({**common, "strategy": "BalancedShedder", "action": "skip"}, 5, "b1"),
        history.record({**common, "strategy": "BundleSplitterTask", "action": "split"}, 6, "b1"),
    ]
    history.write(root, "decision", "b1", decisions)
    conf, price = tmp_path / "our broker.conf", "loadManagerBalancedDifferencePercent=40"
    conf.write_text("loadBalancerLoadSheddingStrategy=BalancedShedder\n")
    given = ["--config", str(conf), "--set", price]
    assert analyze(tmp_path, "--no-late", *given, "--set", "clusterName=c") == 0
    found = report(tmp_path)
    assert found["tables"]["sensors"]["rows"] == []
    usage_of = {row["broker"]: row for row in found["tables"]["broker_usage"]["rows"]}
    assert usage_of["b0"]["hours_over"] == 2.0
    assert found["findings"][0]["title"] == "b0 was overloaded for 2.0 hours"
    (uneven,) = [one for one in found["findings"] if one["question"] == "imbalance"]
    for command in uneven["commands"]:
        command_lines.check(shlex.split(command)[1:])
    assert shlex.split(uneven["commands"][-1])[-8:-4] == given
    assert main(shlex.split(uneven["commands"][-1])[1:]) == 2  # nothing has the loads of bundles
    assert "no samples of brokers and bundles" in capsys.readouterr().err
    assert "b1 leads, epoch 1, BalancedShedder" in [event["text"] for event in found["timeline"]]
    page = (
        tmp_path / f"analysis/cluster={history.CLUSTER}/reports/{history.DATE}.html"
    ).read_text()
    (plot,) = re.findall(r'<svg[^>]*aria-label="Imbalance".*?</svg>', page, re.DOTALL)
    (line,) = re.findall(r'd="([^"]*)" class="line', plot)
    assert line.count("M") == 1
    assert "h" not in line
    assert float(line[1:].split()[0]) < 80


def test_records_of_two_segments_are_told(tmp_path: Path) -> None:
    """Each one that is there once more, of brokers and of the busiest bundles and topics; what two
    brokers or two minutes have alike is no such record.
    """
    bundle, topic = f"t/n/{FULL}", "persistent://t/n/x"
    for sequence, minutes in ((1, range(10)), (2, range(7, 17))):
        loads = {
            "broker_load": [history.broker_load(at, "b0", 0.5) for at in minutes],
            "bundle_load": [history.bundle_load(at, "b0", bundle, 1.0) for at in minutes],
            "topic_load": [history.topic_load(at, "b0", topic, bundle, 1.0) for at in minutes],
        }
        for kind, lines in loads.items():
            history.write(tmp_path / "history", kind, "b0", lines, sequence=sequence)
    other = [history.bundle_load(at, "b1", bundle, 1.0) for at in range(10)]
    history.write(tmp_path / "history", "bundle_load", "b1", other)
    assert analyze(tmp_path, "--no-late") == 3
    told = [text.partition(" of another one")[0] for text in report(tmp_path)["input"]["problems"]]
    assert sorted(told) == [
        "broker_load: 3 records have the broker and the time",
        "bundle_load: 3 records of the busiest bundles have the bundle, the broker and the time",
        "topic_load: 3 records of the busiest topics have the topic, the broker and the time",
    ]


def failing(question: ModuleType, **fields: Any) -> ModuleType:
    """A question, but for what fails."""
    kept = {
        name: getattr(question, name) for name in ("NAME", "ABOUT", "COLUMNS", "table", "findings")
    }
    return cast(ModuleType, SimpleNamespace(**kept | fields))


def asks_for_nothing(_day: Any) -> Any:
    """A query that cannot be answered."""
    return _day.facts.ingest.engine.query("SELECT nothing FROM bundle_load_lines")


def has_a_bug(_rows: Any, _day: Any) -> Any:
    """A mistake of ours."""
    return math.sqrt(-1)


@pytest.mark.parametrize("spark", [False, True], ids=["in process", "Spark"])
def test_a_question_that_fails_costs_only_what_builds_on_it(
    tmp_path: Path, sessions: Sessions, *, spark: bool
) -> None:
    """It is named in the report, on the page and in the outcome, whatever failed; yesterday's table
    does not stand in for it.
    """
    history.designed(tmp_path / "history")
    engine = OnSpark(sessions.start()) if spark else InProcess()

    def run(*questions: ModuleType) -> Any:
        source = HistorySource(str(tmp_path / "history"))
        return job_of(engine, source, tmp_path, questions).run(history.DATE)

    whole = run(*QUESTIONS)
    assert whole.failed == []
    tables = tmp_path / f"analysis/cluster={history.CLUSTER}/tables"
    assert all((tables / f"{name}/date={history.DATE}").exists() for name in ("flapping", "splits"))
    bad = {
        hot_bundles: failing(hot_bundles, table=asks_for_nothing),
        flapping: failing(flapping, findings=has_a_bug),
    }
    outcome = run(*(bad.get(question, question) for question in QUESTIONS))
    left_out = ["hot_bundles", "flapping", "splits", "namespaces", "news", "forecasts"]
    assert outcome.failed == left_out
    assert not any((tables / f"{name}/date={history.DATE}").exists() for name in left_out)
    found = report(tmp_path)
    assert found["input"]["problems"] == outcome.problems
    for name, why in (
        ("hot_bundles", "nothing"),
        ("flapping", "math domain error"),
        ("namespaces", "it builds on hot_bundles"),
    ):
        assert any(
            f"{name} could not be answered: " in text and why in text for text in outcome.problems
        )
    totals = found["totals"]
    assert (totals["brokers"], totals["splits"], totals["bundles"]) == (4, None, None)
    titles = {finding.title for finding in outcome.findings}
    kept = {finding.title for finding in whole.findings if finding.question not in left_out}
    assert kept
    assert kept <= titles
    page = Path(outcome.report).read_text()
    assert "Could not be answered: " in page
    assert "Usage of each broker" in page


def test_only_a_missing_day_counts_as_missing(tmp_path: Path) -> None:
    """Records of yesterday that cannot be read are no day without records."""
    days = AnalysedDays(str(tmp_path), history.CLUSTER)
    source, draft = HistorySource(str(tmp_path)), days.draft(history.DATE)
    ingest = Ingest(InProcess(), source, days, draft, history.DATE)
    before = tmp_path / f"cluster={history.CLUSTER}/records/kind=ownership/date=2026-11-19"
    assert not ingest.has_before("ownership")
    before.mkdir(parents=True)
    (before / "_part.parquet").write_bytes(b"")
    assert not ingest.has_before("ownership")
    (before / "part.parquet").write_bytes(b"")
    name = "records/kind=ownership/date=2026-11-19/part.parquet"
    days.commit("2026-11-19", Manifest(files=[name]))
    with pytest.raises(duckdb.Error):
        Facts(ingest, StrategySettings(), history.START_MS).steps_before  # noqa: B018


def test_of_more_brokers_that_left_than_are_read_the_last_count() -> None:
    """The same ones whatever order the engine reads them in, and in order of time."""
    names = "'b0' AS broker, 'b1' AS of, 'left' AS event, '' AS how, 1 AS epoch, 1 AS unheardMs"
    names += ", NULL AS before, NULL AS leftAt, NULL AS tookMs"
    for order in ("", " DESC"):
        db = duckdb.connect()
        db.execute(
            f"CREATE TABLE member_lines AS SELECT range AS ts, {names}, "
            f"NULL AS {PROBLEM} FROM range({CHANGES_MAX + 3}) ORDER BY ts{order}"
        )
        engine = SimpleNamespace(query=lambda sql, db=db: db.sql(sql).to_arrow_table())
        facts = Facts(cast(Ingest, SimpleNamespace(engine=engine)), StrategySettings(), 0)
        assert [row["ts"] for row in facts.members] == [*range(3, CHANGES_MAX + 3)]


def test_a_broker_that_crashed_and_was_back_at_once_is_dated_by_its_samples(tmp_path: Path) -> None:
    """It samples each minute, and is killed twice: once within five minutes that are summed up,
    once between two of them. Its next process has its first sample at the next whole minute.
    """
    root = tmp_path / "history"
    lines = []
    for minute in range(1, 41):
        load = json.loads(history.broker_load(minute, "b0", 0.3))
        load["intervalMs"] = {13: 40_000, 25: 10_000}.get(minute, 60_000)
        lines.append(json.dumps(load))
    history.write(root, "broker_load", "b0", lines)
    acquired = ((1, 1), (12.5, 2), (25, 3))
    steps = [
        history.step(at, "b0", f"t/n/{FULL}", "Free", "Owned", "acquired", life=life)
        for at, life in acquired
    ]
    history.write(root, "ownership", "b0", steps)
    assert analyze(tmp_path) == 0
    crashes = list(rows(report(tmp_path), "outages", "ts").values())
    minutes = [(row["ts"] - history.START_MS) / history.MINUTE_MS for row in crashes]
    assert ([row["how"] for row in crashes], minutes) == (["crash", "crash"], [12, 24])
    back = [(row["back_ts"] - row["ts"]) / 1000 for row in crashes]
    assert (back, [row["unowned_s_max"] for row in crashes]) == ([20, 50], [30, 60])


def test_a_broker_that_was_paused_lost_its_bundle_before_it_knew(tmp_path: Path) -> None:
    """It samples each minute, and stands still from 12:00 to 13:30; somebody else has the bundle at
    12:45. The records that it writes when it goes on are later.
    """
    root = tmp_path / "history"
    lines = []
    for minute in range(1, 41):
        load = json.loads(history.broker_load(minute + (0.5 if minute > 12 else 0), "b0", 0.3))
        load["intervalMs"] = 90_000 if minute == 13 else 60_000
        lines.append(json.dumps(load))
    history.write(root, "broker_load", "b0", lines)
    lost = {"cause": "loss", "life": 1}
    steps = [
        history.step(1, "b0", f"t/n/{FULL}", "Free", "Owned", "acquired", life=1),
        history.step(13.5, "b0", f"t/n/{FULL}", "Owned", "Free", "session lost", **lost),
    ]
    history.write(root, "ownership", "b0", steps)
    taken = history.step(12.75, "b1", f"t/n/{FULL}", "Free", "Owned", "acquired", life=2)
    history.write(root, "ownership", "b1", [taken])
    assert analyze(tmp_path) == 0
    (outage,) = rows(report(tmp_path), "outages", "ts").values()
    assert (outage["how"], outage["ts"]) == ("session lost", history.START_MS + 12 * 60_000)
    assert (outage["unowned_s_max"], outage["bundle_minutes"]) == (45, 0.75)
