"""What cycles, plans and brokers were at a moment: dry runs on recorded loads, plans that were made
then, how well brokers were, and the last events before.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from broker.admin.serving import serving
from broker.admin.test_admin_leading import a_plan, hot_broker
from broker.admin.test_archive import BUNDLE, MINUTE, a_decision, in_folder, written
from cli.test_admin_command import Shell
from cli.test_past import UNUSED
from clusters.running import eventually

from loadmanager.cli import main
from loadmanager.cli.admin.times import clock
from loadmanager.engine.history.findings import FindingStep
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import BrokerLoad, BundleLoad, OwnershipStep
from loadmanager.engine.load.reports import ResourceUsage
from loadmanager.kit.system.clock import SystemClock

OTHER = "acme/orders/0x40000000_0x80000000"


def _at(at_ms: int) -> tuple[str, str]:
    """The option, for a moment that is a whole second."""
    return ("--at", clock(at_ms).replace(" ", "T"))


async def test_plans_of_a_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before it was made, once it was made, and once it was carried out: each as it stood then,
    with the moves that it had; and the bundle's story tells of it.
    """
    async with hot_broker(in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        plan = await a_plan(served)
        (unload,) = plan["plan"]["unloads"]
        made_ms = plan["createdAt"]
        before, after = _at(made_ms - 2_000), _at(made_ms + 1_000)
        assert "no plan had been made by then" in (await shell.run("plans", "list", *before))[1]
        status, out, _ = await shell.run("plans", "show", plan["id"], *before)
        assert (status, f"no plan {plan['id']} had been made" in out) == (1, True)

        async def listed() -> list[list[str]]:
            rows = await shell.json("plans", "list", *after)
            return [[row["plan"], row["state"]] for row in rows]

        await eventually(listed, lambda rows: rows == [[plan["id"], "ready"]])
        shown = (await shell.run("plans", "show", plan["id"], *after))[1].splitlines()
        now = (await shell.run("plans", "show", plan["id"]))[1].splitlines()
        assert shown[0] == f"plan {plan['id']}  ready  OverloadShedder: 1 bundle would move"
        assert shown[1] == now[1]
        assert unload["bundle"] in shown[1]
        assert (await shell.run("plans", "execute", plan["id"]))[0] == 0

        async def outcomes() -> Any:
            told = await shell.json("plans", "show", plan["id"], "--at", "now")
            return told["state"], told.get("outcomes", [])

        _, (line,) = await eventually(
            outcomes, lambda told: told[0] == "executed" and "done" in str(told[1])
        )
        assert unload["bundle"] in line
        assert (await shell.json("plans", "show", plan["id"], *after))["state"] == "ready"
        story = (await shell.run("history", unload["bundle"]))[1]
        assert f"plan {plan['id']} of OverloadShedder is made: 1 move" in story


async def _recorded(served: Any, at_ms: int) -> None:
    """For an hour, broker 1 was full of two bundles, and broker 0 did nothing."""
    for ago in range(60, -1, -5):
        ts = at_ms - ago * MINUTE
        for index, percent in ((0, 5.0), (1, 95.0)):
            name = served.broker_id(index)
            head: dict[str, Any] = {"ts": ts, "broker": name, "interval_ms": MINUTE}
            used = {**UNUSED, "cpu": ResourceUsage(percent, 100.0)}
            rate = 50_000_000.0 * index
            load = BrokerLoad(
                **head, usage=percent / 100, bundles=2 * index, msg_throughput_in=rate, **used
            )
            bundles = [
                BundleLoad(**head, bundle=bundle, msg_throughput_in=rate / 2, msg_rate_in=100.0)
                for bundle in (BUNDLE, OTHER)
                if index
            ]
            await written(served, index, load, *bundles)


@asynccontextmanager
async def _recorded_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[tuple[Shell, int]]:
    """One with records of ten minutes ago, and the second that it is."""
    async with serving(values=in_folder(tmp_path)) as served:
        now = SystemClock().now_ms() // 1000 * 1000
        await _recorded(served, now - 10 * MINUTE)
        yield Shell(served, capsys), now


async def test_a_dry_run_on_the_loads_of_a_moment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the shedder in force or another one, other settings, and what was cordoned then."""
    async with _recorded_cluster(tmp_path, capsys) as (shell, now):
        served, at = shell.served, _at(now - 10 * MINUTE)
        status, out, err = await shell.run("dry-run", *at, "--strategy", "OverloadShedder")
        assert (status, err) == (0, "")
        head, move, *_ = out.splitlines()
        assert head == f"OverloadShedder at {clock(now - 10 * MINUTE)}: 1 bundle would have moved"
        assert f"{served.broker_id(1)} -> {served.broker_id(0)}" in move
        told = await shell.json("dry-run", *at, "--strategy", "OverloadShedder")
        assert len(told["looks"]) == 12
        assert len(told["plan"]["unloads"]) == 1
        key = "loadBalancerBrokerOverloadedThresholdPercentage"
        words = ("dry-run", *at, "--strategy", "OverloadShedder", "--set", f"{key}=99")
        assert (await shell.json(*words))["plan"]["unloads"] == []
        leaves = MemberChange(
            ts=now - 11 * MINUTE, broker=served.broker_id(1), of=served.broker_id(0),
            event="left", how="lost",
        )  # fmt: skip
        await written(served, 1, leaves)
        told = await shell.json("dry-run", *at, "--strategy", "OverloadShedder")
        assert [skip["code"] for skip in told["plan"]["skipped"]] == ["NoOtherBroker"]
        status, _, err = await shell.run("dry-run", *_at(now - 300 * MINUTE))
        assert (status, "no broker has recorded loads at" in err) == (1, True)
        status, _, err = await shell.run("dry-run", *at, "--set", "webServicePort=1")
        assert (status, "webServicePort is not a key of strategies" in err) == (2, True)


async def test_loads_of_an_outage_are_neither_tried_nor_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is recorded first after an outage of the store says nothing of the moment within it:
    a dry run refuses that, and a what-if leaves it out, and the next moment's loads count.
    """
    async with _recorded_cluster(tmp_path, capsys) as (shell, now):
        served, name = shell.served, shell.served.broker_id(1)
        within = (now - 30 * MINUTE) // (5 * MINUTE) * 5 * MINUTE  # a what-if looks then
        proven = {"of": name, "event": "proven", "took_ms": 60_000, "unheard_ms": 5_000}
        await written(
            served,
            1,
            BrokerLoad(ts=within + 30_000, broker=name, interval_ms=MINUTE, usage=0.01, **UNUSED),
            MemberChange(ts=within + 15_000, broker=name, **proven),
        )
        status, _, err = await shell.run("dry-run", *_at(within), "--strategy", "OverloadShedder")
        assert status == 1
        unknown = f"what {name} carried at {clock(within)} is not known: an outage"
        assert unknown in err
        assert "name a moment before or after that" in err
        status, out, err = await shell.run("what-if", *_at(now), "--tenant", "acme=0.5")
        assert (status, err) == (0, "")
        said = " ".join(out.split())
        assert f"left out, so that the loads of the next moment count for that time: {unknown}" in (
            said
        )


async def test_a_dry_run_with_other_brokers_is_a_what_if(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the same words; a tenant without a number takes that of --times."""
    async with _recorded_cluster(tmp_path, capsys) as (shell, now):
        at = _at(now - 10 * MINUTE)
        of_hour = await shell.run("what-if", *at, "--tenant", "acme=0.5")
        assert of_hour[0] == 0, of_hour
        assert await shell.run("dry-run", *at, "--tenant", "acme", "--times", "0.5") == of_hour
        assert "acme × 0.5" in of_hour[1]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--add", "1", "--strategy", "AvgShedder"), "tried with the settings in force"),
        (("--price", "1"), "--price says what other brokers would cost"),
        (("--tenant", "acme"), "acme: TENANT=TIMES is expected, such as acme=2, or --times"),
    ],
)
def test_dry_runs_that_cannot_be_meant(
    words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are refused before a broker is asked."""
    assert main(["admin", "dry-run", *words, "--url", "http://127.0.0.1:1"]) == 2
    assert why in " ".join(capsys.readouterr().err.split())


async def test_how_well_brokers_were(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who had left, could not prove its session, or had a lying sensor; the others were well."""
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        now = SystemClock().now_ms() // 1000 * 1000
        first, second = served.broker_id(0), served.broker_id(1)
        for ago in (30, 20, 10, 2):
            for index, name in enumerate((first, second)):
                load = {"ts": now - ago * MINUTE, "broker": name, "interval_ms": MINUTE}
                await written(served, index, BrokerLoad(**load, usage=0.5, **UNUSED))
        finding = FindingStep(
            ts=now - 20 * MINUTE, broker=first, epoch=1, event="began", what="sensor",
            about=f"{second} cpu", since=now - 21 * MINUTE, title=f"the CPU of {second} lies",
        )  # fmt: skip
        lost = MemberChange(ts=now - 9 * MINUTE, broker=first, of=second, event="left", how="lost")
        proven = MemberChange(
            ts=now - MINUTE, broker=first, of=first, event="proven", took_ms=3 * MINUTE
        )
        await written(served, 0, finding, lost, proven)
        assert await shell.json("brokers", "health", first, *_at(now - 20 * MINUTE)) == {
            first: "ok"
        }
        status, out, _ = await shell.run("brokers", "health", "--json", *_at(now - 15 * MINUTE))
        assert (status, json.loads(out)) == (1, {first: "ok", second: finding.title})
        status, out, _ = await shell.run("brokers", "health", "--json", *_at(now - 2 * MINUTE))
        health = json.loads(out)
        assert (status, health[second]) == (1, f"lost since {clock(lost.ts)}")
        assert health[first].startswith("it could not prove its session from ")
        status, _, err = await shell.run("brokers", "health", "b9:1", *_at(now - 2 * MINUTE))
        assert (status, "no broker b9:1 is known, now or by what is recorded" in err) == (1, True)


async def test_the_busiest_of_a_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once, with the decisions before; and each present look is a line of JSON."""
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        now = SystemClock().now_ms() // 1000 * 1000
        await _recorded(served, now - 10 * MINUTE)
        await written(
            served,
            0,
            a_decision(now - 12 * MINUTE, what="cluster", code="NotWorthIt", reason="it is even"),
            a_decision(now - 5 * MINUTE, what="cluster", code="Later", reason="afterwards"),
        )
        status, out, _ = await shell.run("top", *_at(now - 10 * MINUTE))
        assert status == 0
        lines = [line.split() for line in out.splitlines()]
        busiest = [served.broker_id(1), "#" * 19, "95%", "95.0", "2", "200.0", "47.7"]
        assert busiest in lines
        assert [BUNDLE, served.broker_id(1), "100.0", "23.8"] in lines
        assert f"{clock(now - 12 * MINUTE)}  BalancedShedder moved nothing" in out
        assert "afterwards" not in out
        status, out, _ = await shell.run("top", "--count", "2", "--every", "0.5", "--json")
        look, again, *_ = out.splitlines()
        for text in (look, again):
            assert {*json.loads(text)} == {"at", "cluster", "bundles", "decisions"}


async def test_the_last_events_before_a_moment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `watch` shows them: so many that have something to say, and none of later; the story of
    the whole cluster is the same with --since.
    """
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        now = SystemClock().now_ms() // 1000 * 1000
        first, second = served.broker_id(0), served.broker_id(1)
        steps = [
            OwnershipStep(
                ts=now - ago * MINUTE, broker=first, bundle=bundle, before=before, after=after,
                reason="a client looked it up",
            )
            for ago, bundle, before, after in (
                (9, BUNDLE, "Free", "Assigning"),
                (8, BUNDLE, "Opening", "Owned"),
                (7, OTHER, "Free", "Assigning"),
                (6, OTHER, "Opening", "Owned"),
            )
        ]  # fmt: skip
        lost = MemberChange(ts=now - 5 * MINUTE, broker=first, of=second, event="left", how="lost")
        late = MemberChange(ts=now - MINUTE, broker=first, of=second, event="starts")
        await written(served, 0, *steps, lost, late)
        at = _at(now - 3 * MINUTE)
        out = (await shell.run("watch", *at, "--count", "2"))[1].splitlines()
        assert out[0].startswith(f"{clock(now - 6 * MINUTE)}  {OTHER} is served by {first}")
        assert out[1].startswith(f"{clock(now - 5 * MINUTE)}  {second} left: lost")
        assert out[-1] == "the newest 2 are shown: --count shows more"
        assert [it["kind"] for it in await shell.json("watch", *at, "--count", "2")] == [
            "ownership",
            "member",
        ]
        since = ("--since", clock(now - 7 * MINUTE).replace(" ", "T"))
        assert (await shell.run("history", *at, *since))[1].splitlines()[:2] == out[:2]
        assert second in (await shell.run("history"))[1]
