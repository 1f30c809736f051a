"""The nightly report says how far off replays of the day are."""

from __future__ import annotations

import re
from pathlib import Path

from nightly.nightly import analyze, report

from bench import _history as history
from loadmanager.engine.history import replay_error
from loadmanager.nightly.questions import calibration


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


def test_a_day_that_cannot_be_replayed(tmp_path: Path) -> None:
    """Has no row, and no figure."""
    lines = [history.broker_load(minute, "b0", 0.3) for minute in range(10)]
    history.write(tmp_path / "history", "broker_load", "b0", lines)
    assert analyze(tmp_path, "--replay") == 0
    assert report(tmp_path)["tables"][calibration.NAME]["rows"] == []
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
