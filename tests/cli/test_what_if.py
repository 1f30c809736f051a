"""`loadmanager what-if` and `loadmanager admin what-if`, as a person asks them."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from broker.admin.serving import serving
from broker.admin.test_archive import MINUTE, in_folder, written
from cli.test_admin_command import Shell
from clusters.running import eventually, until

from bench import _history as history
from loadmanager import cli
from loadmanager.cli.admin.times import clock
from loadmanager.cli.recorded import RecordedDay
from loadmanager.cli.what_if import WhatIfAnswer
from loadmanager.engine.history.records import BrokerLoad, BundleLoad
from loadmanager.engine.load.reports import ResourceUsage
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.system.clock import SystemClock
from loadmanager.lab.recorded import record
from loadmanager.lab.what_if import WhatIf

BROKERS = ("b0", "b1")
EDGES = [f"0x{number:x}0000000" for number in range(16)] + ["0xffffffff"]


LATER = "2026-11-21"
MINUTES_OF_A_DAY = 1_440


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """40 minutes of two brokers at 40 %, each with eight bundles of one tenant that are alike."""
    a_day(tmp_path, history.DATE, 1)
    return tmp_path


def a_day(root: Path, date: str, first: int) -> None:
    """The same from a minute on, which is one of that date."""
    for at, broker in enumerate(BROKERS):
        minutes = range(first, first + 40)
        loads = [history.broker_load(minute, broker, 0.4) for minute in minutes]
        history.write(root, "broker_load", broker, loads, date=date)
        bundles = [
            history.bundle_load(minute, broker, f"t{at}/n/{low}_{high}", 50.0)
            for minute in minutes
            for low, high in list(zip(EDGES, EDGES[1:], strict=False))[8 * at : 8 * at + 8]
        ]
        history.write(root, "bundle_load", broker, bundles, date=date)


def asked(root: Path, *words: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The answer for programs."""
    assert cli.main(["what-if", str(root), *words, "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)[history.DATE]
    return answer


def test_a_lost_broker(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One broker does the work of two, at 80 %; of three halves more it cannot."""
    answer = asked(root, "--without", "b1", capsys=capsys)
    assert answer["asItWas"]["mean"] == pytest.approx(40, abs=2)
    assert answer["changed"]["mean"] == pytest.approx(80, abs=4)
    assert (answer["changed"]["brokers"], answer["changed"]["enough"]) == (1, True)
    assert answer["fewest"] is None
    answer = asked(root, "--without", "b1", "--times", "1.5", capsys=capsys)
    assert answer["changed"]["undone"] > 0


def test_two_days_come_to_a_sum_and_a_page(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which shows what the terminal does, and no name as markup."""
    a_day(root, LATER, MINUTES_OF_A_DAY + 1)
    page = tmp_path / "page.html"
    words = ["what-if", str(root), "--tenant", "t0=1.5", "--price", "2", "--page", str(page)]
    assert cli.main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    days = [told[history.DATE], told[LATER]]
    both = told["all"]["changed"]
    assert (both["days"], both["enough"], both["brokers"]) == (2, 2, 2)
    assert both["undone"] == sum(day["changed"]["undone"] for day in days)
    assert both["cost"] == 2 * 2 * 24 * 2
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert "2 days with the change: enough on 2, at most 2 brokers" in out
    text = page.read_text()
    assert "<h1>What if: t0 × 1.5</h1>" in text
    assert text.count("<table>") == 2
    assert "2 days with the change: enough on 2" in text
    assert cli.main([*words[:-1], str(tmp_path / "nowhere" / "page.html")]) == 2
    assert "the page cannot be written" in capsys.readouterr().err


def test_a_lost_zone(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has to be one that a leader recorded."""
    assert cli.main(["what-if", str(root), "--without-zone", "east"]) == 2
    assert "no failure domain east on this day; there are none" in capsys.readouterr().err


def test_a_day_that_does_not_exist(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That is what is wrong, whatever change was forgotten."""
    assert cli.main(["what-if", str(root), "--date", "2026-11-33"]) == 2
    assert "2026-11-33: a day such as 2026-11-20 is expected" in capsys.readouterr().err


def test_the_fewest_and_what_they_cost(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twice the traffic of one tenant: 120 % of a broker."""
    words = ["what-if", str(root), "--tenant", "t0=2", "--fewest", "--price", "0.5"]
    assert cli.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("t0 × 2 ")
    assert "2 brokers are the fewest that are enough" in lines
    assert "the fewest: 2 brokers cost 24.00 a day" in lines
    assert "replayed with default settings (none are recorded)" in "\n".join(lines)
    given = ("--set", "loadBalancerLoadSheddingStrategy=OverloadShedder")
    assert cli.main([*words, *given]) == 0
    assert "replayed with the settings given (none are recorded)" in capsys.readouterr().out
    assert cli.main([*words, "--try", "OverloadShedder"]) == 0
    assert "replayed with the settings tried" in capsys.readouterr().out


def test_the_price_may_be_a_setting(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of broker.conf; that of the command wins."""
    file = root / "broker.conf"
    file.write_text("loadManagerBrokerHourPrice=0.25\n")
    for words, cost in (((), 2 * 24 * 0.25), (("--price", "1"), 2 * 24 * 1.0)):
        answer = asked(root, "--times", "1.1", "--config", str(file), *words, capsys=capsys)
        assert answer["changed"]["cost_a_day"] == cost
    assert "cost_a_day" not in asked(root, "--times", "1.1", capsys=capsys)["changed"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "nothing is different: give --without, --without-zone, --add, --times, --tenant or"),
        (("--without", "b7"), "no loads of broker b7 are recorded on this day, only of b0, b1"),
        (("--tenant", "x=2"), "no tenant x on this day; there are t0, t1"),
        (("--tenant", "t0"), "t0: TENANT=TIMES is expected"),
        (("--tenant", "t0=nan"), "t0=nan: TENANT=TIMES is expected"),
        (("--times", "-1"), "--times"),
        (("--without", "b0", "--without", "b1"), "no broker is left"),
        (("--add", "1", "--try", "Nobody"), "one of AvgShedder"),
    ],
)
def test_what_cannot_be_asked(
    root: Path, words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said what is wrong, and what there is."""
    assert cli.main(["what-if", str(root), *words]) == 2
    assert expected in capsys.readouterr().err


def test_a_day_that_tells_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without traffic, nobody knows what it costs: no number of brokers is said to be enough."""
    minutes = range(1, 41)
    loads = [history.broker_load(minute, "b0", 0.3) for minute in minutes]
    history.write(tmp_path, "broker_load", "b0", loads)
    bundle = f"t/n/{EDGES[0]}_{EDGES[8]}"
    bundles = [history.bundle_load(minute, "b0", bundle, 0.0) for minute in minutes]
    history.write(tmp_path, "bundle_load", "b0", bundles)
    assert cli.main(["what-if", str(tmp_path), "--times", "1000"]) == 2
    printed = capsys.readouterr()
    assert "does not tell what traffic costs a broker" in printed.err
    assert "enough:" not in printed.out


def test_a_replay_that_is_far_off_says_nothing_of_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One broker had everything all the time, which the settings in force would have mended."""
    for broker, first, last in (("b0", 0.4, 0.8), ("b1", 0.1, 0.1)):
        usages = [first + (last - first) * minute / 40 for minute in range(1, 41)]
        loads = [history.broker_load(at, broker, usage) for at, usage in enumerate(usages, 1)]
        history.write(tmp_path, "broker_load", broker, loads)
    bundles = [
        history.bundle_load(minute, "b0", f"t/n/{low}_{high}", 1e6 * (40 + minute))
        for minute in range(1, 41)
        for low, high in zip(EDGES, EDGES[1:], strict=False)
    ]
    history.write(tmp_path, "bundle_load", "b0", bundles)
    words = ["what-if", str(tmp_path), "--times", "1.1", "--fewest", "--price", "1"]
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert "whether these brokers are enough, the replay does not say" in out
    assert "are enough:" not in out
    assert " cost " not in out
    answer = asked(tmp_path, "--times", "1.1", capsys=capsys)
    assert (answer["farOff"], answer["changed"]["enough"]) == (True, None)


def test_a_day_of_which_the_model_explains_little_has_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Usage that jumps by eight points whatever the traffic does; neither a price nor the fewest
    brokers are said. Where usage hardly changes, there is nothing to explain, and a verdict.
    """

    def written_day(root: Path, jump: float) -> None:
        for at, broker in enumerate(BROKERS):
            sign = (1, -1)[at]
            loads = [
                history.broker_load(minute, broker, 0.3 + sign * jump * (-1) ** minute)
                for minute in range(1, 41)
            ]
            history.write(root, "broker_load", broker, loads)
            bundles = [
                history.bundle_load(minute, broker, f"t{at}/n/{low}_{high}", 50.0 + minute % 3)
                for minute in range(1, 41)
                for low, high in list(zip(EDGES, EDGES[1:], strict=False))[8 * at : 8 * at + 8]
            ]
            history.write(root, "bundle_load", broker, bundles)

    jumps, calm = tmp_path / "jumps", tmp_path / "calm"
    written_day(jumps, 0.08)
    words = ["what-if", str(jumps), "--add", "1", "--fewest", "--price", "1"]
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert "whether these brokers are enough, the replay does not say: the model explains " in out
    assert "and 50% is the least; ask a busier day" in out
    assert "enough:" not in out
    assert "the fewest that" not in out
    assert " cost " not in out
    answer = asked(jumps, "--add", "1", "--fewest", capsys=capsys)
    assert answer["explained"] < 0.5
    assert (answer["farOff"], answer["changed"]["enough"], answer["fewest"]) == (True, None, None)
    written_day(calm, 0.005)
    assert asked(calm, "--add", "1", capsys=capsys)["changed"]["enough"] is True


async def test_of_a_running_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the loads that its brokers recorded; of a young one, its last loads count for an hour."""
    then = SystemClock().now_ms() - 120 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        status, _, error = await shell.run("what-if", "--add", "1", "--until", "1d")
        assert (status, "no broker has recorded loads between" in error) == (1, True)
        for index in range(2):
            await written(served, index, *_loads(served.broker_id(index), then, index))
        lost = served.broker_id(1)
        words = ("what-if", "--without", lost, "--until", clock(then).replace(" ", "T"))
        status, out, error = await shell.run(*words)
        assert (status, error) == (0, "")
        title = out.splitlines()[0]
        assert title.startswith(f"THE LOAD AT {clock(then)}, AS IF IT HAD LASTED AN HOUR")
        asked = f"{clock(then - 60 * MINUTE)} to {clock(then)}"
        assert f"asked for {asked}: what was before " in out
        assert "too short a time for a replay, which needs 30 min: the last ones count" in out
        assert "x 0.50" not in out
        assert f"without {lost}" in out
        answer = await shell.json(*words)
        assert answer["changed"]["mean"] == pytest.approx(80, abs=4)
        assert (await shell.run("what-if", "--until", words[-1]))[0] == 2
        assert (
            await shell.run("what-if", "--add", "1", "--since", words[-1], "--until", words[-1])
        )[0] == 2


async def test_who_asks_again_gets_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Loads that jump each minute are looked at by the clock, and not by when it was asked."""
    step = 5 * MINUTE
    end = (SystemClock().now_ms() - 120 * MINUTE) // step * step
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        for index in range(2):
            name = served.broker_id(index)
            loads = [
                load
                for minute in range(-60, 6)
                for load in _loads(name, end + minute * MINUTE, index, 0.2 + minute % 5 / 10)
            ]
            await written(served, index, *loads)
        answers = [
            await shell.json("what-if", "--add", "1", "--until", clock(end + ms).replace(" ", "T"))
            for ms in (1_000, 61_000, 130_000)
        ]
        assert answers[0]["asItWas"] == answers[1]["asItWas"] == answers[2]["asItWas"]


async def test_of_a_young_cluster_after_a_move(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bundle that two brokers recorded one after the other is the last one's: it does not go to
    and fro, and what the change comes to is said. Nothing is said of a past that was not.
    """
    then = SystemClock().now_ms() - 120 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        lost, busy = served.broker_id(0), served.broker_id(1)
        await written(served, 0, *_loads(lost, then - MINUTE // 3, 0, usage=0.1))
        await written(served, 1, *_loads(busy, then, 0))
        words = ("what-if", "--without", lost, "--until", clock(then).replace(" ", "T"))
        shell = Shell(served, capsys)
        _, out, _ = await shell.run(*words)
        assert "1 broker is enough" in out
        assert "how far off it is with another load is not known" in out
        assert "points off" not in out
        answer = await shell.json(*words)
        assert answer["changed"]["mean"] == pytest.approx(40, abs=2)
        assert (answer["off"], answer["modelError"], answer["farOff"]) == (None, None, False)


def test_a_broker_that_is_gone_does_not_count_with_the_change() -> None:
    """It was there for all of the recorded time, and is not now."""
    loads = [
        load
        for minute in range(1, 41)
        for number in range(3)
        for load in _loads(f"b{number}:8080", minute * MINUTE, number, usage=0.2)
    ]
    day = RecordedDay(record(loads), StrategySettings())
    for gone, left in (((), 2), (("b1:8080", "elsewhere:8080"), 1), (("b0:8080",), 2)):
        wanted = WhatIf(without=("b0:8080",))
        answer = WhatIfAnswer(day, wanted, with_fewest=True, present=True, gone=gone)
        assert (answer.was.brokers, answer.changed.brokers) == (3, left)
        (verdict,) = [line for line in answer.sentences(None) if "none is above 85 %" in line]
        assert verdict.startswith(f"{left} broker")


async def test_of_a_cluster_that_lost_a_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the brokers that are there now, those without one; which these are is said."""
    async with serving(brokers=3, values=in_folder(tmp_path)) as served:
        then, names = SystemClock().now_ms(), [served.broker_id(index) for index in range(3)]
        for index, name in enumerate(names):
            await written(served, index, *_loads(name, then, index))
        shell, reports = Shell(served, capsys), served.brokers[0].use.brokers.reports
        await until(lambda: names[2] in reports)
        await served.servers[2].stop()
        served.brokers[2].store.suspend()
        served.brokers[2].store.expire()
        members = served.brokers[0].use.leading.members
        assert members is not None
        await until(lambda: any(it.sign for it in members.shown().absent))
        (lost,) = members.shown().absent
        words = ("what-if", "--without", names[1])
        _, out, err = await shell.run(*words)
        counted = f"with the change these count: {names[0]}; not there now, so that they do not "
        assert f"{counted}count: {names[2]} (lost since {clock(lost.left_at)})" in out, err
        answer = await shell.json(*words)
        assert answer["changed"]["brokers"] == 1


async def test_of_a_load_that_is_not_the_present_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right after brokers were lost, say, the recorded load is another one than brokers report:
    both figures are told, and whether brokers are enough is not.
    """
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        used = fmean(await eventually(lambda: _reports(shell), lambda all_: len(all_) == 2))
        then = SystemClock().now_ms()
        for index in range(2):
            loads = _loads(served.broker_id(index), then, index, usage=used / 100 + 0.25)
            await written(served, index, *loads)
        words = ("what-if", "--without", served.broker_id(1))
        _, out, err = await shell.run(*words)
        assert "whether these brokers are enough, the replay does not say" in out, err
        assert f"use {used:.1f} % on the mean by their last reports, and " in out
        answer = await shell.json(*words)
        assert (answer["farOff"], answer["changed"]["enough"]) == (True, None)
        assert answer["asItWas"]["mean"] == pytest.approx(used + 25, abs=3)


async def _reports(shell: Shell) -> list[float]:
    rows = await shell.json("brokers", "list")
    return [100 * row["usage"] for row in rows if row["usage"] is not None]


async def test_of_a_cluster_that_served_nothing_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says so, and nevertheless where the bundles of a lost broker would go."""
    then = SystemClock().now_ms() - 120 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        await written(served, 0, _loads(served.broker_id(0), then, 0)[0])
        words = ("what-if", "--add", "1", "--until", clock(then).replace(" ", "T"))
        status, _, error = await Shell(served, capsys).run(*words)
        assert (status, "no bundle was served yet" in error) == (1, True)
        await served.own("acme/orders/0x00000000_0x40000000", at=1)
        words = ("what-if", "--without", served.broker_id(1))
        reports = served.brokers[0].use.brokers.reports
        await until(lambda: served.broker_id(1) in reports)
        status, _, error = await Shell(served, capsys).run(*words)
        assert (status, f"of {served.broker_id(1)} now: " in error) == (1, True)


def _loads(broker: str, ts: int, number: int, usage: float = 0.4) -> list[BrokerLoad | BundleLoad]:
    """A broker with eight bundles that are alike."""
    nothing, cpu = ResourceUsage(usage=0, limit=100), ResourceUsage(usage=100 * usage, limit=100)
    resources: dict[str, Any] = dict.fromkeys(
        ("memory", "direct_memory", "bandwidth_in", "bandwidth_out"), nothing
    )
    head: dict[str, Any] = {"ts": ts, "broker": broker, "interval_ms": MINUTE}
    return [
        BrokerLoad(usage=usage, cpu=cpu, **resources, **head),
        *(
            BundleLoad(bundle=f"t{number}/n/{low}_{high}", msg_throughput_in=1e6, **head)
            for low, high in list(zip(EDGES, EDGES[1:], strict=False))[:8]
        ),
    ]
