"""A day of sensors that lie in ways of their own, and of brokers that went in good order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nightly import nightly
from nightly.nightly import rows

from bench import _history as history

MINUTES = 600
STEP_MINUTE, LOUD_MINUTES, WILD_MINUTE = 400, range(120, 240), 300
GONE_MINUTE, STOP_MINUTE, SILENT_MINUTES = 500, 450, range(540, 570)
LEFT = [f"t/stop/0x{low:08x}_0x{low + 1:08x}" for low in range(3)]


def load(minute: int, broker: str) -> str:
    """About half of a broker's CPU for its traffic, which is a little different each minute."""
    traffic = 1 + (minute * 7 % 10) / 50
    cpu = 45.0 * traffic
    document = json.loads(history.broker_load(minute, broker, 0.0, rate=100 * traffic))
    if broker == "stepped" and minute >= STEP_MINUTE:
        cpu += 45
    if broker == "wild" and minute == WILD_MINUTE:
        cpu = 1e14
    document["cpu"]["usage"] = cpu
    nic = 200.0 + minute % 10 if broker == "loud" and minute in LOUD_MINUTES else 1.0
    document["bandwidthIn"]["usage"] = nic
    document["usage"] = max(cpu, nic) / 100
    if broker == "busy" and minute >= STEP_MINUTE:  # twice the traffic is twice the usage
        document["usage"] = document["cpu"]["usage"] = 0
        document["cpu"]["usage"] = 2 * cpu
        document["usage"] = 2 * cpu / 100
        for name in ("msgRateIn", "msgThroughputIn"):
            document[name] *= 2
    return json.dumps(document)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the day is analysed."""
    folder = tmp_path_factory.mktemp("sensors")
    root = folder / "history"
    for broker in ("stepped", "loud", "wild", "busy", "drained", "restarted"):
        minutes = [minute for minute in range(1, MINUTES) if minute not in SILENT_MINUTES]
        if broker == "drained":
            minutes = [minute for minute in minutes if minute < GONE_MINUTE]
        if broker == "restarted":
            minutes.remove(STOP_MINUTE + 1)
        history.write(root, "broker_load", broker, [load(minute, broker) for minute in minutes])
    steps: list[str] = []
    for bundle in LEFT:
        stop = {"reason": "broker stops", "cause": "stop"}
        steps += [
            history.step(STOP_MINUTE, "restarted", bundle, "Owned", "Releasing", **stop),
            history.step(STOP_MINUTE, "restarted", bundle, "Releasing", "Free", **stop),
            history.step(STOP_MINUTE + 0.05, "busy", bundle, "Opening", "Owned", "lookup"),
        ]
    history.write(root, "ownership", "b", steps)
    assert nightly.analyze(folder, "--no-late") == 0
    return folder


@pytest.fixture(scope="module")
def report(folder: Path) -> dict[str, Any]:
    """The report of the day."""
    return nightly.report(folder)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_same_on_spark(folder: Path) -> None:
    """One code of the questions, two engines."""
    nightly.the_same_on_spark(folder)


def titles(report: dict[str, Any]) -> list[str]:
    """The titles of all cards."""
    return [card["title"] for card in report["findings"]]


def test_more_than_there_is_poisons_nothing(report: dict[str, Any]) -> None:
    """Neither for two hours nor in one sample: no overload, no full cluster, no imbalance."""
    usage = rows(report, "broker_usage", "broker")
    assert usage["loud"]["hours_over"] == usage["wild"]["hours_over"] == 0
    assert max(usage["loud"]["max"], usage["wild"]["max"]) < 0.6
    sensors = {row["broker"]: row for row in report["tables"]["sensors"]["rows"]}
    assert (sensors["loud"]["samples"], sensors["loud"]["poisoned"]) == (120, True)
    assert (sensors["wild"]["samples"], sensors["wild"]["poisoned"]) == (1, True)
    assert all(row["max"] < 1.2 for row in report["tables"]["imbalance"]["rows"])
    assert report["tables"]["capacity"]["rows"][0]["full_in_days"] is None
    assert "bandwidthIn of loud: more used than there is, for 2.0 hours" in titles(report)


def test_usage_that_traffic_does_not_explain_is_not_called_overload(
    report: dict[str, Any],
) -> None:
    """A CPU sensor that stepped; a broker whose traffic doubled is overloaded."""
    usage = rows(report, "broker_usage", "broker")
    assert usage["stepped"]["unexplained"] > 1.5
    assert usage["busy"]["unexplained"] == pytest.approx(1.0)
    found = titles(report)
    assert any(title.startswith("busy was overloaded") for title in found)
    assert not any(title.startswith("stepped was overloaded") for title in found)
    assert any(
        title.startswith("stepped showed more than 85%")
        and title.endswith("which its traffic does not explain")
        for title in found
    )


def test_brokers_that_went_in_good_order(report: dict[str, Any]) -> None:
    """A drained one did not crash; one that restarted at once is named, with what waited for it."""
    outages = {(row["broker"], row["how"]): row for row in report["tables"]["outages"]["rows"]}
    assert ("drained", "silent") in outages
    stop = outages["restarted", "stop"]
    assert (stop["bundles"], stop["unowned_s_max"]) == (3, pytest.approx(3.0))
    assert not any("crash" in title for title in titles(report))
    (card,) = [card for card in report["findings"] if card["where"] == "restarted"]
    assert card["title"] == "restarted was stopped at 07:30"
    assert card["effects"] == [
        "3 bundles had no owner for more than a second as restarted stopped (from 07:30)."
    ]


def test_brokers_that_were_silent_together_have_one_card(report: dict[str, Any]) -> None:
    """One cause, one card."""
    silent = [title for title in titles(report) if "recorded nothing" in title]
    assert silent == [
        "5 brokers recorded nothing for a while at 08:59",
        "drained recorded nothing for a while at 08:19",
    ]
