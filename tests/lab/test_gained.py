"""What the daemon would have gained is told with its error, or not at all."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from lab.test_calibration import BALANCED, COSTS, a_day, history

from bench import _history as written
from loadmanager import cli
from loadmanager.lab.closed_loop import run
from loadmanager.lab.gained import gained
from loadmanager.lab.measures import measure
from loadmanager.lab.recorded import Recording, record

IDLE = replace(BALANCED, shedding_enabled=False)


@cache
def watched() -> Recording:
    """A day on which nothing was moved."""
    return record(history(a_day(1), IDLE))


def test_the_gain_is_what_acting_would_have_brought() -> None:
    """On a day that is known in truth: within the error that is told."""
    told = gained("2026-11-20", watched(), BALANCED, COSTS)
    truth = measure(run(a_day(1), IDLE, COSTS)).spread
    truth -= measure(run(a_day(1), BALANCED, COSTS)).spread
    assert told.silent is None
    assert told.changed_owners == 0
    assert told.spread_gained == pytest.approx(truth, abs=told.error)
    assert told.spread_gained > told.error


def test_the_moves_of_the_first_minutes_are_told() -> None:
    """They are what makes an uneven day even."""
    told = gained("2026-11-20", watched(), BALANCED, COSTS).would_be
    minutes = run(watched().day, BALANCED, COSTS)
    assert told.moves == sum(minute.moves for minute in minutes)
    assert told.moves > measure(minutes).moves
    assert told.pause_s == pytest.approx(sum(minute.pause_s or 0.0 for minute in minutes))


def test_what_cannot_be_told_is_said() -> None:
    """A gain within the error, and a day that the model does not explain."""
    recording = watched()
    nothing = gained("2026-11-20", recording, IDLE, COSTS)
    assert nothing.silent is not None
    assert nothing.silent.code == "WithinError"
    odd = replace(recording, fit=replace(recording.fit, explained=0.3))
    silent = gained("2026-11-20", odd, BALANCED, COSTS).silent
    assert silent is not None
    assert (silent.code, "30%" in silent.text) == ("NotExplained", True)


def test_days_that_tell_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One broker cannot be more even; a day that is too short is left out. The status says it."""
    root = tmp_path / "history"
    for minutes, shift in ((40, 0), (10, 1440)):
        date = [written.DATE, "2026-11-19"][shift > 0]
        times = [minute - shift for minute in range(1, minutes + 1)]
        loads = [written.broker_load(minute, "b0", 0.5) for minute in times]
        written.write(root, "broker_load", "b0", loads, date=date)
        bundles = [written.bundle_load(minute, "b0", "t/n/0x0_0x8", 9.0) for minute in times]
        written.write(root, "bundle_load", "b0", bundles, date=date)
    config = tmp_path / "fleet.conf"
    config.write_text(f"[{written.CLUSTER}]\npulsar=http://127.0.0.1:1\n")
    asked = ["fleet", "--config", str(config), "--data-dir", str(tmp_path), "gained"]
    elsewhere = ["fleet", "--config", str(config), "--data-dir", str(tmp_path / "x"), "gained"]
    assert cli.main(elsewhere) == 2
    assert "--data-dir PATH gained" in capsys.readouterr().err
    assert cli.main(asked) == 4
    told = capsys.readouterr()
    assert "2026-11-19: 10 minutes were recorded, fewer than 30" in told.err
    assert "None of 1 recorded days tells what act would have gained." in told.out
    assert cli.main([*asked, "--json"]) == 4
    report = json.loads(capsys.readouterr().out)
    assert report["sum"]["text"].startswith("None of 1 recorded days")
    assert report["sum"]["daysTold"] == 0
    (day,) = report["days"]
    assert (day["date"], day["minutes"], day["spreadGained"]) == (written.DATE, 40, 0)
    assert day["cannotTell"]["code"] in ("NotExplained", "WithinError")
