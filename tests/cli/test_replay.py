"""`loadmanager replay` as a person compares strategies with it."""

from __future__ import annotations

import json

import pytest

from loadmanager import cli

SMALL = ("replay", "--hours", "1", "--brokers", "3", "--bundles", "30")


def test_a_table_of_what_was_tried(capsys: pytest.CaptureFixture[str]) -> None:
    """A row and a plot for each, under the text that asked for it."""
    tried = ("ThresholdShedder", "BalancedShedder+BalancedPlacement,loadManagerMovesPerCycleMax=1")
    assert cli.main([*SMALL, "--try", tried[0], "--try", tried[1]]) == 0
    printed = capsys.readouterr().out
    assert all(printed.count(text) == 2 for text in tried)


def test_json_is_the_same_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    """The same seed, the same bytes; with every minute."""
    assert cli.main([*SMALL, "--json", "--days", "2"]) == 0
    first = capsys.readouterr().out
    assert cli.main([*SMALL, "--json", "--days", "2"]) == 0
    assert capsys.readouterr().out == first
    (configured,) = json.loads(first)
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


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay", "--hours", "nan"),
        ("replay", "--seed", "-1"),
        ("tournament", "x", "--calm", "nan"),
    ],
)
def test_numbers_that_are_none(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """NaN and a negative seed are refused as a wrong value of their option."""
    assert cli.main(arguments) == 2
    assert f"Invalid value for '{arguments[-2]}'" in capsys.readouterr().err
