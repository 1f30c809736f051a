"""The tournament's tasks on Spark give what they give in one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from loadmanager.broker import settings
from loadmanager.kit.errors import OperationalError
from loadmanager.lab.days import DaySize, make_day, traffic
from loadmanager.lab.tournament import TASKS_PER_CORE, Tournament

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

TRIED = ["", "BalancedShedder+BalancedPlacement", "AvgShedder+AvgShedder"]


def a_tournament(folder: Path) -> Tournament:
    """Two short days, as they would be recorded."""
    tournament = Tournament(folder, settings.KEYS.load())
    for number, date in enumerate(("2026-11-01", "2026-11-02")):
        day = make_day(number, DaySize(brokers=3, bundles=24, minutes=40, events=False))
        bundles = traffic(day)
        carried = np.array([bundles.minute(minute) for minute in range(40)], np.float32)
        tournament.add(date, replace(day, carried=carried))
    return tournament


def test_tasks_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    """To the last digit, in more than one batch; each result is kept, so that nothing is left."""
    told: list[tuple[int, int]] = []
    tournament = a_tournament(tmp_path / "spark")
    assert len(tournament.tasks(TRIED)[0]) == 6 > TASKS_PER_CORE
    results = tournament.play(TRIED, spark, lambda done, all_: told.append((done, all_)))
    assert results == a_tournament(tmp_path / "here").play(TRIED)
    assert told == [(done, 6) for done in range(1, 7)]
    left, kept = tournament.tasks(TRIED)
    assert (left, kept) == ([], results)


def test_workers_that_do_not_see_the_folder(tmp_path: Path, spark: SparkSession) -> None:
    """The error is one line that names the file."""
    tournament = a_tournament(tmp_path)
    for file in (tmp_path / "days").iterdir():
        file.unlink()
    with pytest.raises(OperationalError, match="No such file") as raised:
        tournament.play(TRIED, spark)
    assert "\n" not in str(raised.value)
