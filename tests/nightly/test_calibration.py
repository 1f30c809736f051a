"""The nightly report says how far off replays of the day are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from nightly.nightly import analyze, report

from bench import _history as history
from loadmanager.cli import main
from loadmanager.engine.history import replay_error
from loadmanager.nightly.questions import calibration, tenant_costs


def test_the_day_is_replayed_if_asked(tmp_path: Path) -> None:
    """A table of the report and metrics for a text file; without `--replay`, neither."""
    lines = [history.broker_load(minute, "b0", 0.3 + minute % 7 / 100) for minute in range(90)]
    history.write(tmp_path / "history", "broker_load", "b0", lines)
    bundles = [
        history.record(
            {
                "intervalMs": 60_000,
                "bundle": "t/n/0x00000000_0xffffffff",
                "msgRateIn": 1000.0 + minute % 7,
                "msgThroughputIn": 1e6 + 30_000 * (minute % 7),
            },
            minute,
            "b0",
        )
        for minute in range(90)
    ]
    history.write(tmp_path / "history", "bundle_load", "b0", bundles)
    assert analyze(tmp_path) == 0
    assert calibration.NAME not in report(tmp_path)["tables"]
    assert not list(tmp_path.rglob("*.prom"))

    assert analyze(tmp_path, "--replay") == 0
    (row,) = report(tmp_path)["tables"][calibration.NAME]["rows"]
    assert row["spread_was"] == row["spread_replayed"] == 0  # one broker
    assert row["model_error"] < 0.05
    (metrics,) = tmp_path.rglob("calibration.prom")
    (left,) = tmp_path.rglob(replay_error.FILE)
    error = replay_error.decode(left.read_bytes(), str(left))
    assert (error.date, error.model_error) == (history.DATE, row["model_error"])
    assert re.search(
        r'loadmanager_replay_model_error\{cluster="[^"]+"\} 0\.0\d', metrics.read_text()
    )


def test_what_tenants_cost_is_what_the_model_learned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tenant whose bytes cost three times as much has half of the bytes and most of the cost, as
    `loadmanager bill` says it. Without `--replay` the report has traffic only, and says so.
    """
    costs, shares = {"small": 0.075, "large": 0.025}, ((6, 2), (2, 6), (1, 4), (7, 4))
    left = {tenant: iter(range(16)) for tenant in costs}
    groups = [
        [
            f"{tenant}/n/0x{16 * at:02x}000000_0x{16 * at + 15:02x}000000"
            for tenant, count in zip(costs, share, strict=True)
            for at in (next(left[tenant]) for _ in range(count))
        ]
        for share in shares
    ]
    for number in range(len(groups)):
        broker, loads, lines = f"b{number}", [], []
        for minute in range(1, 121):  # brokers change their bundles every half an hour
            part = 0.5 + minute % 60 / 60
            mine = groups[(number + minute // 30) % len(groups)]
            usage = part * sum(costs[bundle.partition("/")[0]] for bundle in mine)
            lines.append(history.broker_load(minute, broker, usage))
            loads += [history.bundle_load(minute, broker, bundle, 1e6 * part) for bundle in mine]
        history.write(tmp_path / "history", "broker_load", broker, lines)
        history.write(tmp_path / "history", "bundle_load", broker, loads)
    assert analyze(tmp_path) == 0
    traffic = report(tmp_path)["tables"]["tenants"]
    assert tenant_costs.NAME not in report(tmp_path)["tables"]
    assert "not by what they cost" in traffic["about"]
    assert {row["idle_by"] for row in report(tmp_path)["tables"]["headroom"]["rows"]} == {"line"}
    assert [row["share"] for row in traffic["rows"]] == pytest.approx([0.5, 0.5], abs=0.05)

    assert analyze(tmp_path, "--replay") == 0
    for row in report(tmp_path)["tables"]["headroom"]["rows"]:
        assert row["idle_by"] == "model"
        assert row["idle"] == pytest.approx(0, abs=0.02)  # all usage goes by traffic
    rows = {row["tenant"]: row for row in report(tmp_path)["tables"][tenant_costs.NAME]["rows"]}
    assert rows["small"]["share"] > 0.65, rows
    capsys.readouterr()
    assert main(["bill", str(tmp_path / "history"), "--json"]) == 0
    (bill,) = json.loads(capsys.readouterr().out).values()
    for name, row in rows.items():
        assert row["shared_by"] == "model"
        assert row["core_hours"] == pytest.approx(bill["tenants"][name]["core_hours"])
        assert row["broker_hours"] == pytest.approx(bill["tenants"][name]["broker_hours"])


def test_tenants_of_a_day_of_which_the_model_explains_little(tmp_path: Path) -> None:
    """Are told by bytes, and the table says so."""
    for at, tenant in enumerate(("little", "much")):
        lines, loads, broker = [], [], f"b{at}"
        for minute in range(1, 121):
            usage = 0.2 if (minute // 7 + at) % 2 else 0.6  # whatever the traffic is
            lines.append(history.broker_load(minute, broker, usage))
            bytes_s = (1 + 2 * at) * 1e6 * (0.5 + minute % 60 / 60)
            bundle = f"{tenant}/n/0x00000000_0xffffffff"
            loads.append(history.bundle_load(minute, broker, bundle, bytes_s))
        history.write(tmp_path / "history", "broker_load", broker, lines)
        history.write(tmp_path / "history", "bundle_load", broker, loads)
    assert analyze(tmp_path, "--replay") == 0
    rows = {row["tenant"]: row for row in report(tmp_path)["tables"][tenant_costs.NAME]["rows"]}
    assert {row["shared_by"] for row in rows.values()} == {"traffic"}
    assert {row["core_hours"] for row in rows.values()} == {None}
    assert rows["much"]["share"] == pytest.approx(0.75)
    assert rows["much"]["model_error"] > 0.1
    assert rows["much"]["broker_hours"] == pytest.approx(3, abs=0.1)


def test_a_day_that_cannot_be_replayed(tmp_path: Path) -> None:
    """Has no row, and no figure."""
    lines = [history.broker_load(minute, "b0", 0.3) for minute in range(10)]
    history.write(tmp_path / "history", "broker_load", "b0", lines)
    assert analyze(tmp_path, "--replay") == 0
    assert report(tmp_path)["tables"][calibration.NAME]["rows"] == []
    assert report(tmp_path)["tables"][tenant_costs.NAME]["rows"] == []
    assert {row["idle_by"] for row in report(tmp_path)["tables"]["headroom"]["rows"]} <= {"line"}
    (metrics,) = tmp_path.rglob("calibration.prom")
    assert "{" not in metrics.read_text()
    assert not list(tmp_path.rglob(replay_error.FILE))


def test_each_card_says_how_certain_it_is(tmp_path: Path) -> None:
    """In the report's JSON and on its page: a broker that was overloaded was so by its records, the
    headroom is a line's.
    """
    for name, usage in (("b0", 0.97), ("b1", 0.6)):
        shown = [usage + minute % 7 / 500 for minute in range(240)]
        lines = [history.broker_load(minute, name, each) for minute, each in enumerate(shown)]
        history.write(tmp_path / "history", "broker_load", name, lines)
    assert analyze(tmp_path) == 0
    cards = {card["question"]: card["certainty"] for card in report(tmp_path)["findings"]}
    assert cards["headroom"] == "estimated", cards
    assert "recorded" in cards.values(), cards
    (page,) = tmp_path.rglob("*.html")
    for certainty in cards.values():
        assert f" · {certainty} · " in page.read_text()
