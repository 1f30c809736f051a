"""What a tournament keeps, and what becomes of candidates that fail."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from loadmanager.broker import settings
from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.strategy import Shedder
from loadmanager.kit.errors import OperationalError
from loadmanager.lab.days import DaySize, make_day
from loadmanager.lab.tournament import Tournament, _measured, _write

DAY = make_day(1, DaySize(brokers=3, bundles=12, minutes=30, events=False))
RECORDED = replace(DAY, carried=np.full((30, 12), 1e6, np.float32))


@pytest.fixture
def failing() -> Iterator[str]:
    """The name of a shedder that raises."""

    def shed(*_arguments: object) -> None:
        raise ValueError("no idea")

    registry.register(Shedder(name="Failing", shed=shed))  # type: ignore[arg-type]
    yield "Failing"
    del registry.SHEDDERS["Failing"]


@pytest.fixture
def endless() -> Iterator[str]:
    """The name of a shedder that never answers."""

    def shed(*_arguments: object) -> None:
        while True:
            pass

    registry.register(Shedder(name="Endless", shed=shed))  # type: ignore[arg-type]
    yield "Endless"
    del registry.SHEDDERS["Endless"]


def a_tournament(folder: Path, **keys: str) -> Tournament:
    """A tournament of one day."""
    tournament = Tournament(folder, settings.KEYS.load(overrides=keys))
    tournament.add("2026-11-01", RECORDED)
    return tournament


def test_a_candidate_that_fails_is_left_out(tmp_path: Path, failing: str) -> None:
    """With its error; the others have their results. It is tried again the next time."""
    tournament = a_tournament(tmp_path)
    results = tournament.play(["", failing])
    assert list(results) == [""]
    assert tournament.failed == {failing: "2026-11-01: ValueError: no idea"}
    assert [task.candidate for task in tournament.tasks(["", failing])[0]] == [failing]


def test_a_candidate_that_does_not_end(tmp_path: Path, endless: str) -> None:
    """It is stopped; a timer that ran before goes on."""
    a_tournament(tmp_path)
    (file,) = (tmp_path / "days").iterdir()
    before = signal.getitimer(signal.ITIMER_REAL)[0]
    answer = _measured(str(file), {"loadBalancerLoadSheddingStrategy": endless}, 0.2)
    assert (answer.measures, answer.error) == (
        None,
        "TimeoutError: a day was not over after 0 s",
    )
    assert bool(signal.getitimer(signal.ITIMER_REAL)[0]) == bool(before)


def test_bundles_that_carry_nothing_cost_nothing(tmp_path: Path) -> None:
    """A day with many idle bundles is about as long as one without them."""

    def seconds(idle: float, bundles: int) -> float:
        day = make_day(1, DaySize(brokers=3, bundles=bundles, minutes=30, events=False))
        carried = np.full((30, bundles), 1e6, np.float32)
        carried[:, : round(idle * bundles)] = 0
        tournament = Tournament(tmp_path, settings.KEYS.load())
        tournament.add("2026-11-01", replace(day, carried=carried))
        ((task,), _) = tournament.tasks([""])
        return task.seconds

    assert seconds(0.99, 10_000) == seconds(0, 100)
    assert seconds(0, 10_000) == pytest.approx(30 * 0.01, rel=0.2)


def test_settings_in_force_that_fail(tmp_path: Path, failing: str) -> None:
    """Nothing can be compared with them."""
    tournament = a_tournament(tmp_path, loadBalancerLoadSheddingStrategy=failing)
    with pytest.raises(OperationalError, match=r"settings in force cannot be .*no idea"):
        tournament.play(["", "ThresholdShedder"])


def test_a_damaged_day_is_written_again(tmp_path: Path) -> None:
    """A file that a crash of the machine cut off does not stay so."""
    a_tournament(tmp_path)
    (file,) = (tmp_path / "days").iterdir()
    file.write_bytes(file.read_bytes()[:100])
    assert a_tournament(tmp_path).play([""])[""]


@pytest.mark.parametrize("damage", ["", "null", "{", '"spread":-1.0', '"spread":1e300', "\xff"])
def test_a_damaged_result_is_no_result(tmp_path: Path, damage: str) -> None:
    """It is made again."""
    tournament = a_tournament(tmp_path)
    played = tournament.play([""])
    (file,) = (tmp_path / "results").iterdir()
    whole = file.read_text()
    file.write_text(re.sub(r'"spread":[^,]*', damage, whole) if ":" in damage else damage, "latin1")
    assert [task.candidate for task in tournament.tasks([""])[0]] == [""]
    assert tournament.play([""]) == played
    assert file.read_text() == whole


def test_two_runs_write_one_file(tmp_path: Path) -> None:
    """Neither fails, and what is there is whole at any time."""
    path, texts = tmp_path / "result.json", [letter * (1 << 20) for letter in (b"a", b"b")]

    def write(text: bytes) -> None:
        for _ in range(100):
            _write(path, text)
            assert path.read_bytes() in texts

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, texts))
    assert list(tmp_path.iterdir()) == [path]
