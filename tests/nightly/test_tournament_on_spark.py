"""The tournament's tasks on Spark give what they give in one process."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.packaged import install
from nightly.conftest import Sessions
from pyspark.sql import SparkSession

from loadmanager.broker import settings
from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.splitting.algorithms import ALGORITHMS
from loadmanager.engine.strategies.splitting.merging import MERGE_RULES
from loadmanager.kit.errors import OperationalError
from loadmanager.lab.days import DaySize, make_day, traffic
from loadmanager.lab.tournament import TASKS_PER_CORE, Tournament
from loadmanager.leader import plugins

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


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Path]:
    """The package of the tests as `--py-files` takes it, which this process, the driver, knows."""
    folder = tmp_path / "package"
    folder.mkdir()
    install(folder)
    archive = tmp_path / "busiest.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted(folder.rglob("*")):
            packed.write(path, path.relative_to(folder))
    registered: list[dict[str, Any]] = [
        registry.SHEDDERS,
        registry.PLACEMENTS,
        ALGORITHMS,
        MERGE_RULES,
        plugins.LOAD_METRICS,
    ]
    before = [dict(each) for each in registered]
    sys.path.insert(0, str(archive))
    plugins.register_plugins()
    yield archive
    sys.path[:] = [path for path in sys.path if not path.endswith(archive.name)]
    sys.modules.pop("busiest", None)
    for each, names in zip(registered, before, strict=True):
        for name in each.keys() - names.keys():
            del each[name]


def test_a_strategy_of_others_on_workers(tmp_path: Path, archive: Path, sessions: Sessions) -> None:
    """A worker without it answers nothing, and says why; with the archive that the session was
    given, to the last digit what this process does.
    """
    tried = ["BusiestShedder+FewestBundles,busiestShedderCycles=1,busiestShedderMarginPercent=5"]
    sessions.stop()  # its workers may have looked for plug-ins before
    tournament = a_tournament(tmp_path / "without")
    assert tournament.play(tried, sessions.start()) == {}
    assert "has another version of loadmanager, or other plug-ins" in tournament.failed[tried[0]]
    sessions.stop()
    spark = sessions.start()
    spark.sparkContext.addPyFile(str(archive))  # as spark-submit --py-files
    tournament = a_tournament(tmp_path / "with")
    results = tournament.play(tried, spark)
    sessions.stop()
    assert tournament.failed == {}
    assert sum(day.moves for day in results[tried[0]].values()) > 0
    assert results == a_tournament(tmp_path / "here").play(tried)
