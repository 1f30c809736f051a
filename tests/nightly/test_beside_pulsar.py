"""The history of a daemon beside a Pulsar says as much as that of our own brokers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nightly.nightly import analyze, report, rows
from steer.fake_pulsar import failed
from steer.watched import ACT, Watching, watching

from loadmanager.cli import main
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.history.layout import day_of
from loadmanager.steer.recording import history_of

pytestmark = pytest.mark.timeout(900)

MINUTES = 50
KILLED, BACK, FAILS, RESUMED = 20, 30, 36, 42


async def _minute(daemon: Watching, minute: int) -> None:
    """Four readings and a cycle. A broker is killed and comes back; an order fails once, which
    opens the circuit breaker.
    """
    pulsar = daemon.pulsar
    bundles = sorted(pulsar.rates)
    for number, bundle in enumerate(bundles):  # traffic comes and goes, each at its time
        pulsar.rates[bundle] = 60.0 + 10 * ((minute + 3 * number) % 7)
    dead = pulsar.brokers[2] if minute == KILLED else None
    if dead is not None:
        await pulsar.stop(dead)
    if minute == KILLED + 1:
        pulsar.brokers, others = pulsar.brokers[:2], pulsar.brokers[:2]
        for number, bundle in enumerate(bundles):
            if pulsar.owners[bundle] not in others:
                pulsar.owners[bundle] = others[number % 2]
    if minute == FAILS:
        pulsar.nonsense["/unload"] = failed
        first, second = pulsar.brokers
        with pytest.raises(OperationalError):
            await daemon.work.operations.move(pulsar.owned(first)[0], second)
    if minute == RESUMED:
        pulsar.nonsense.clear()
        await daemon.work.operations.pause(None)
    for _ in range(3):
        await daemon.work.read()
        daemon.clock.pass_s(15)
    await daemon.cycle()
    daemon.clock.pass_s(15)


async def test_a_day_beside_a_pulsar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its cycles are decided again, and the report tells of the moves, of the killed broker and of
    the circuit breaker.
    """
    settings = {**ACT, "loadBalancerLoadSheddingStrategy": "BalancedShedder"}
    async with watching(tmp_path, settings=settings) as daemon:
        daemon.pulsar.switch_off()
        killed, before = daemon.pulsar.brokers[2], daemon.clock.now_ms()
        for minute in range(MINUTES):
            await _minute(daemon, minute)
        moved = len(daemon.pulsar.moved)
        opened = daemon.work.hold.breaker.opened
    async with history_of("test", tmp_path, daemon.clock) as history:
        history.append(*daemon.history.records)  # also of moves whose clients were waited for
    assert moved > 3
    assert opened == 1
    date = day_of(before)

    capsys.readouterr()
    assert main(["replay", str(tmp_path / "history"), "--exact", "--json"]) == 0
    exact: dict[str, Any] = json.loads(capsys.readouterr().out)[date]
    assert exact["cycles"] == exact["same"] > 30
    assert exact["moves"] == exact["reproduced"] > 3

    assert main(["replay", str(tmp_path / "history"), "--date", date, "--json"]) == 0
    was = json.loads(capsys.readouterr().out)[0]
    (lived,) = was["days"]
    assert was["tried"] == "(as it was)"
    assert sum(event["kind"] == "dies" for event in lived["events"]) == 1

    assert analyze(tmp_path, date=date) == 0
    told = report(tmp_path, date, "test")
    outages = rows(told, "outages", "broker")
    assert set(outages) == {killed}
    assert outages[killed]["how"] == "crash"
    moves = told["tables"]["moves"]["rows"]
    assert sum(row["move"] is not None for row in moves) == moved
    titles = " ".join(finding["title"] for finding in told["findings"])
    assert f"{killed} crashed" in titles
    assert "the circuit breaker stopped moves 1 time" in titles
    assert f"1 of {moved + 1} moves failed" in titles
