"""Tomorrow's usage by the traffic of namespaces, with the bundles that brokers have today."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from nightly.nightly import analyze, report

from bench import _history as history
from loadmanager.kit.units import DAY_MS
from loadmanager.lab.usage_of_traffic import UsageOfTraffic
from loadmanager.nightly.questions.forecasts import foretell

BUNDLE = "0x00000000_0xffffffff"
IDLE, OF_MEGABYTE = 0.1, 0.08
MOVED = 420
"""The minute of the second day in which t/a goes from b0 to b1."""
END = 480
TWO_DAYS = (history.layout.day_of(history.START_MS - DAY_MS), history.DATE)


def owner(space: str, day: int, minute: int) -> str:
    """Who has it."""
    return "b1" if space == "c" or (space == "a" and (day, minute) >= (0, MOVED)) else "b0"


def megabytes(minute: int) -> float:
    """That each namespace carries; as many in each hour."""
    return 1 + minute % 60 / 30


def lines(kind: str, broker: str, day: int) -> Iterator[str]:
    """What a broker records on a day; usage is that of its traffic, and its idle part."""
    for minute in range(1, END):
        mine = [space for space in "abc" if owner(space, day, minute) == broker]
        time, carried = day * 1440 + minute, megabytes(minute)
        if kind == "broker_load":
            yield history.broker_load(time, broker, IDLE + OF_MEGABYTE * carried * len(mine))
        else:
            for space in mine:
                yield history.bundle_load(time, broker, f"t/{space}/{BUNDLE}", carried * 1e6)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two recorded days."""
    for number, date in enumerate(TWO_DAYS, start=-1):
        for kind in ("broker_load", "bundle_load"):
            for broker in ("b0", "b1"):
                some = lines(kind, broker, number)
                history.write(tmp_path / "history", kind, broker, some, date=date)
    return tmp_path


def foretold(folder: Path, *more: str) -> dict[str, dict[str, float]]:
    """Name → the forecast after both days."""
    for date in TWO_DAYS:
        assert analyze(folder, "--no-late", *more, date=date) == 0
    return {row["name"]: row for row in report(folder)["tables"]["forecasts"]["rows"]}


def test_bundles_that_moved_today_count_where_they_are(folder: Path) -> None:
    """By its own hours a broker would have what it had before."""
    mean = sum(map(megabytes, range(60))) / 60
    rows = foretold(folder, "--replay")
    of_one, of_two = (IDLE + count * OF_MEGABYTE * mean for count in (1, 2))
    for name, usage in (("b0", of_one), ("b1", of_two), (history.CLUSTER, of_one + of_two)):
        assert rows[name]["used"] == "traffic"
        assert rows[name]["mean_tomorrow"] == pytest.approx(usage, rel=0.05)
    assert rows["t/a"]["used"] in ("pattern", "naive")


def test_without_a_model_by_the_own_hours(folder: Path) -> None:
    """And the table says so."""
    rows = foretold(folder)
    mean = sum(map(megabytes, range(60))) / 60
    assert {rows[name]["used"] for name in ("b0", "b1", history.CLUSTER)} <= {"pattern", "naive"}
    assert rows["b0"]["mean_tomorrow"] > IDLE + 1.7 * OF_MEGABYTE * mean


def test_what_the_back_test_of_traffic_says() -> None:
    """By the same placement: what namespaces carried, and would have been foretold to carry, as
    usage; and the error of the model. A namespace of one day goes on as it was.
    """
    days = {hour: 10.0 if hour < 48 else 20.0 for hour in range(72)}
    series = {
        ("cluster", "c"): dict.fromkeys(range(72), 9.0),
        ("broker", "b0"): dict.fromkeys(range(72), 9.0),
        ("broker", "gone"): dict.fromkeys(range(72), 9.0),
        ("namespace", "t/a"): days,
        ("namespace", "t/new"): dict.fromkeys(range(48, 72), 5.0),
    }
    model = UsageOfTraffic(0.1, {"b0": {"t/a": 0.02, "t/new": 0.04, "t/no": 1.0}, "b1": {}}, 0.03)
    foretold = foretell(series, 72, model)
    used = {name for kind, name in foretold if kind != "namespace"}
    assert used == {"c", "b0", "b1"}
    days_of_history, busy = foretold["broker", "b0"]
    assert days_of_history == 3
    came = 0.1 + 20 * 0.02 + 5 * 0.04
    assert busy.error == pytest.approx((came - 0.1 - 10 * 0.02 + 0.03) / came)
    values = foretold["namespace", "t/a"][1].values
    assert busy.values == pytest.approx([0.1 + 0.02 * each + 0.04 * 5 for each in values])
    idle = foretold["broker", "b1"][1]
    assert idle.values == pytest.approx([0.1] * 24)
    assert idle.error == pytest.approx(0.3)
    both = [one + other for one, other in zip(busy.values, idle.values, strict=True)]
    assert foretold["cluster", "c"][1].values == pytest.approx(both)
    assert foretell(series, 72, None)["broker", "gone"][1].values == pytest.approx([9.0] * 24)
