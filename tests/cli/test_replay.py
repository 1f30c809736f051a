"""`loadmanager replay` as a person compares strategies with it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from loadmanager import cli

SMALL = ("replay", "--hours", "1", "--brokers", "3", "--bundles", "30")


def test_a_table_of_what_was_tried(capsys: pytest.CaptureFixture[str]) -> None:
    """A row and a plot for each, under the text that asked for it."""
    tried = ("ThresholdShedder", "BalancedShedder+BalancedPlacement,loadManagerMovesPerCycleMax=1")
    assert cli.main([*SMALL, "--try", tried[0], "--try", tried[1]]) == 0
    printed = capsys.readouterr().out
    assert all(printed.count(text) == 2 for text in tried)
    assert "MB/s moved: " in printed


def test_nothing_settles_without_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    """No figure stands for what was not measured."""
    assert cli.main([*SMALL, "--calm"]) == 0
    header, row = capsys.readouterr().out.splitlines()[:2]
    assert (header.split()[-1], row.split()[-1]) == ("MIN", "-")
    assert cli.main([*SMALL, "--calm", "--json"]) == 0
    ((day,),) = (each["days"] for each in json.loads(capsys.readouterr().out))
    assert day["settle_minutes"] is None
    assert cli.main(list(SMALL)) == 0
    assert float(capsys.readouterr().out.splitlines()[1].split()[-1]) > 0


def test_json_is_the_same_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    """The same seed, the same bytes; with every minute."""
    assert cli.main([*SMALL, "--json", "--days", "2"]) == 0
    first = capsys.readouterr().out
    assert cli.main([*SMALL, "--json", "--days", "2"]) == 0
    assert capsys.readouterr().out == first
    (configured,) = json.loads(first)
    assert [day["day"] for day in configured["days"]] == ["1", "2"]
    assert [len(day["spreadByMinute"]) for day in configured["days"]] == [60, 60]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Nobody", "one of AvgShedder"),
        ("ThresholdShedder+Nobody", "one of AvgShedder"),
        ("ThresholdShedder,noSuchKey=1", "noSuchKey"),
        ("ThresholdShedder+AvgShedder", "needs"),
        ("AvgShedder+AvgShedder,loadBalancerAvgShedderLowThreshold=41", "= 41 is above"),
        ("ThresholdShedder,loadBalancerBrokerThresholdShedderPercentage=x", "Percentage"),
    ],
)
def test_what_cannot_be_tried(text: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong strategy or key is refused in one line."""
    assert cli.main([*SMALL, "--try", text]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_what_a_move_costs_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    """Twice the pause is twice the time without an owner, of the same moves; a surge makes work at
    the new owner. BalancedShedder makes the fewer moves the longer clients wait.
    """

    def days(*options: str, strategy: str = "OverloadShedder") -> dict[str, float]:
        tried = ("--calm", "--try", strategy, "--json", *options)
        assert cli.main([*SMALL, *tried]) == 0
        (outcome,) = json.loads(capsys.readouterr().out)
        (day,) = outcome["days"]
        found: dict[str, float] = day
        return found

    usual, longer, calm = days(), days("--pause", "0.3"), days("--surge", "0")
    assert usual["moves"] > 0
    assert longer["pause_s"] == pytest.approx(2 * usual["pause_s"])
    assert longer["spread"] == usual["spread"] != calm["spread"]
    ours = "BalancedShedder+BalancedPlacement,loadManagerBalancedDifferencePercent=4"
    short, long = (days("--pause", pause, strategy=ours)["moves"] for pause in ("0.15", "0.6"))
    assert short > long


def test_another_kind_of_picture_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file `.png` that holds SVG would open nowhere."""
    path = tmp_path / "day.png"
    assert cli.main([*SMALL, "--plot", str(path)]) == 2
    assert "ends in .svg" in capsys.readouterr().err
    assert not path.exists()


def test_the_picture_says_what_it_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A title to read, round numbers at the axes, and as many moves as the table."""
    path = tmp_path / "day.svg"
    assert cli.main([*SMALL, "--plot", str(path)]) == 0
    row = capsys.readouterr().out.splitlines()[1].split()
    drawn = ET.parse(path).getroot()
    words = [text.text or "" for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert words[0].startswith("Spread: standard deviation of the brokers' usage in points")
    assert [text for text in words if text == "0" or text.endswith(" h")] == [
        "0",
        "0 h",
        "0.25 h",
        "0.5 h",
        "0.75 h",
    ]
    assert f"configured: {float(row[5]):.0f} moves after the first 20 minutes" in words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--date", "2026-11-01"], "--date: a HISTORY is expected"),
        (["--cluster", "c"], "--cluster: a HISTORY is expected"),
        (["history", "--seed", "2"], "--seed is for synthetic days"),
        (["history", "--calm"], "--calm is for synthetic days"),
        (["history", "--exact", "--try", "AvgShedder"], "--try has no effect on --exact"),
        (["history", "--exact", "--set", "clusterName=c"], "--set has no effect on --exact"),
        (["--hours", "nan"], "'--hours': nan is no number"),
        (["--pause", "inf"], "'--pause': inf is no number"),
    ],
)
def test_an_option_without_effect_is_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody takes the figures of a synthetic day for those of a recorded one."""
    assert cli.main(["replay", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay", "--hours", "nan"),
        ("replay", "--seed", "-1"),
        ("tournament", "x", "--calm", "nan"),
        ("tournament", "x", "--seed", "-3"),
        ("tournament", "x", "--output", ""),
        ("analyze", "--output", ""),
        ("analyze", "--history", ""),
    ],
)
def test_values_that_are_none(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """NaN, a negative seed and a folder without a name are refused, and the option is named."""
    assert cli.main(arguments) == 2
    assert f"Invalid value for '{arguments[-2]}'" in capsys.readouterr().err
