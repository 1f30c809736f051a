"""Strategies of an installed third-party package, in `decide` and in `config check`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.packaged import PACKAGE, install
from cli.piped import piped

from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.strategy import PlacementRule
from loadmanager.kit.conf import conf
from loadmanager.lab import candidates
from loadmanager.lab.day_files import dump
from loadmanager.lab.days import DaySize, make_day
from loadmanager.leader import plugins

ROOT = PACKAGE.parents[2]
CHOSEN = (
    "--set",
    "loadBalancerLoadSheddingStrategy=org.example.BusiestShedder",
    "--set",
    "loadBalancerLoadPlacementStrategy=FewestBundles",
)


def a_report(bundles: int, each: float) -> dict[str, Any]:
    """A broker with bundles of one namespace, of one size."""
    stats = {
        f"t/n{bundles}/0x{n:08x}_0x{n + 1:08x}": {"msgThroughputIn": each} for n in range(bundles)
    }
    return {"bundles": list(stats), "lastStats": stats}


def line(minute: int, **fields: object) -> dict[str, Any]:
    """A cycle: b1 is the busiest and has most bundles."""
    reports = {
        "b1:8080": a_report(4, 4e6),
        "b2:8080": a_report(3, 1e6),
        "b3:8080": a_report(2, 1e6),
    }
    return {"now": 1_000_000 + 60_000 * minute, "brokers": reports, **fields}


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A directory with the package as an installer leaves it there."""
    install(tmp_path)
    return tmp_path


def run(
    path: Path, *arguments: str, lines: list[dict[str, Any]] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command with the package on its path."""
    folders = os.pathsep.join((str(path), str(ROOT)))
    return piped(*arguments, lines=lines or [], path=folders)


def answers(result: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The output of `decide`."""
    assert result.returncode == 0, result.stderr
    return [json.loads(text) for text in result.stdout.splitlines()]


def test_a_shedder_has_memory_and_settings(installed: Path) -> None:
    """It acts in the second cycle; in the third with its own key set to 3; at once from a line on
    that sets it to 1.
    """
    lines = [line(minute) for minute in range(3)]
    assert [
        len(answer["unloads"]) for answer in answers(run(installed, "decide", *CHOSEN, lines=lines))
    ] == [0, 1, 0]
    patient = answers(
        run(installed, "decide", *CHOSEN, "--set", "busiestShedderCycles=3", lines=lines)
    )
    assert [len(answer["unloads"]) for answer in patient] == [0, 0, 1]
    assert patient[0]["skipped"] == [
        {
            "what": "b1:8080",
            "code": "Patience",
            "reason": "Patience: the busiest for 1 of 3 cycles",
        }
    ]
    lines[0]["config"] = {"busiestShedderCycles": 1}
    assert [
        len(answer["unloads"]) for answer in answers(run(installed, "decide", *CHOSEN, lines=lines))
    ] == [1, 1, 1]


def test_the_guards_hold_for_it(installed: Path) -> None:
    """Each bundle moves once in the grace period, and the bundles of excluded namespaces never."""
    lines = [line(minute, config={"busiestShedderCycles": 1}) for minute in range(6)]
    moved = [
        unload["bundle"]
        for answer in answers(run(installed, "decide", *CHOSEN, lines=lines))
        for unload in answer["unloads"]
    ]
    assert len(moved) == len(set(moved)) == 4
    excluded = answers(
        run(
            installed,
            "decide",
            *CHOSEN,
            "--set",
            "loadBalancerSheddingExcludedNamespaces=t/n4",
            lines=lines,
        )
    )
    assert all(answer["unloads"] == [] for answer in excluded)
    assert any("ExcludedNamespace" in skip["reason"] for skip in excluded[0]["skipped"])


def test_a_placement_rule_has_memory(installed: Path) -> None:
    """The first placement is free, the later ones go where there are fewest bundles."""
    lines = [
        line(minute, do=["place"], place=[f"x/y{minute}/0x00000000_0xffffffff"])
        for minute in range(3)
    ]
    placements = [
        answer["placements"][0]
        for answer in answers(run(installed, "decide", *CHOSEN, lines=lines))
    ]
    assert [placement["candidates"] for placement in placements] == [
        ["b1:8080", "b2:8080", "b3:8080"],
        ["b3:8080"],
        ["b3:8080"],
    ]
    assert placements[1]["rejected"]["b1:8080"] == "FewestBundles: another broker scores better"


def test_a_shedder_sees_every_report(installed: Path) -> None:
    """A shedder sees the reports of lines in which it does not shed, too."""
    lines = [line(0), line(1, do=["place"]), line(2, do=["split"]), line(3)]
    (unload,) = answers(run(installed, "decide", *CHOSEN, lines=lines))[-1]["unloads"]
    assert unload["why"]["reports"] == 4 * 3


def test_strategies_know_what_is_placed(installed: Path) -> None:
    """The rule gets the bundle to place and what each one carries, and decides the order. The
    shedder gets the bundles that wait.
    """
    loads = {
        "x/y/0x00000000_0x00000001": 0,
        "x/y/0x00000001_0x00000002": 1e6,
        "x/y/0x00000002_0x00000003": 9e6,
    }
    averages = {
        bundle: {"shortTermData": {"msgThroughputIn": load}} for bundle, load in loads.items()
    }
    reports = {
        bundle: {"shortTermData": {"msgThroughputIn": 1}}
        for bundle in line(0)["brokers"]["b1:8080"]["bundles"]
    }
    asked = [*loads, "x/y/0x00000000_0x00000001"]
    config = {"busiestShedderCycles": 1, "loadBalancerDistributeBundlesEvenlyEnabled": False}
    given = line(
        0, do=["shed", "place"], place=asked, bundleData={**averages, **reports}, config=config
    )
    (answer,) = answers(run(installed, "decide", *CHOSEN, lines=[given]))
    assert answer["unloads"][0]["why"]["toPlace"] == 3
    assert [placement["bundle"] for placement in answer["placements"]] == asked
    assert [placement["candidates"] for placement in answer["placements"][:3]] == [
        ["b3:8080"],
        ["b3:8080"],
        ["b1:8080", "b2:8080", "b3:8080"],
    ]


def test_its_keys_are_checked(installed: Path, tmp_path: Path) -> None:
    """A third party's key is checked like ours, and unknown without the package."""
    bad = run(installed, "decide", *CHOSEN, "--set", "busiestShedderCycles=0", lines=[line(0)])
    assert (
        bad.returncode,
        "busiestShedderCycles = '0': a whole number from 1 to 8 is allowed" in bad.stderr,
    ) == (2, True)
    conf = tmp_path / "broker.conf"
    conf.write_text("busiestShedderCycles=5\n")
    assert "unknown" not in run(installed, "config", "check", str(conf)).stdout
    assert run(PACKAGE.parent, "config", "check", str(conf)).stdout.splitlines()[-2:] == [
        "unknown, neither a key of this broker nor of Pulsar: 1",
        "  busiestShedderCycles",
    ]


def test_a_name_must_be_its_own(installed: Path) -> None:
    """A package is left out, and named, whose entry point is not called as its strategy, or that
    declares a key which others have.
    """
    (points,) = installed.glob("*.dist-info/entry_points.txt")
    text = points.read_text()
    points.write_text(text.replace("BusiestShedder =", "LaziestShedder ="))
    result = run(installed, "decide", lines=[line(0)])
    assert (result.returncode, "calls itself BusiestShedder" in result.stderr) == (0, True)
    points.write_text(text)
    module = installed / "busiest.py"
    module.write_text(module.read_text().replace("busiestShedderCycles", "minUnloadMessage"))
    result = run(installed, "decide", lines=[line(0)])
    assert (result.returncode, "the key minUnloadMessage is" in result.stderr) == (0, True)


BROKEN = """
import asyncio, json, sys
from pathlib import Path
sys.path.insert(0, "TESTS")
from cli.piped import here
from loadmanager.testing import cluster, virtual

chosen = "--set=loadBalancerLoadSheddingStrategy=BrokenShedder"
conf = Path("CONF")
conf.write_text("loadBalancerLoadSheddingStrategy=BrokenShedder\\nbrokenShedderKey=1\\n"
                "defaultNamespaceBundleSplitAlgorithm=broken_split\\n")
lines = json.loads('LINES')
said = {
    "others": here("decide", lines=lines),
    "decide": here("decide", chosen, lines=lines),
    "replay": here("replay", "--days", "1", "--hours", "0.5", chosen),
    "check": here("config", "check", str(conf)),
    "json": here("config", "check", str(conf), "--json"),
    "doctor": here("doctor", "--config", str(conf)),
}

class Rooms:
    async def open(self, shard): return {}
    async def close(self, shard, state): pass

@virtual
async def serve():
    settings = {"loadBalancerLoadSheddingStrategy": "BrokenShedder", "brokenShedderKey": "1"}
    async with cluster(Rooms, members=2, settings=settings) as members:
        await asyncio.sleep(300)
        said["owner"] = (await members.owner("kitchen")).member.address

serve()
for name, each in said.items():
    rest = [each] if isinstance(each, str) else [each.returncode, each.stdout, each.stderr]
    print(json.dumps([name, *rest]), file=sys.__stdout__)
"""


def test_one_that_cannot_be_loaded_costs_itself(installed: Path, tmp_path: Path) -> None:
    """It is named wherever plug-ins count; a broker or member whose settings choose it starts and
    serves, and what it was to decide fails with the reason.
    """
    (installed / "broken.py").write_text('raise SystemExit("no GPU here")\n')
    info = installed / "broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[loadmanager.shedders]\nBrokenShedder = broken:SHEDDER\n"
        "[loadmanager.splits]\nbroken_split = broken:split\n"
    )
    code = BROKEN.replace("TESTS", str(ROOT / "tests")).replace("CONF", str(tmp_path / "conf"))
    done = program(installed, code.replace("LINES", json.dumps([line(0)])))
    assert done.returncode == 0, done.stderr
    said = {name: rest for name, *rest in map(json.loads, done.stdout.splitlines())}
    why = "loadmanager.shedders: BrokenShedder = broken:SHEDDER cannot be loaded: no GPU here"
    status, out, err = said["others"]
    assert (status, f"left out: {why}" in err, bool(out)) == (0, True, True)
    status, _, err = said["decide"]
    assert (status, f"line 1: {why}" in err) == (2, True)
    assert (said["replay"][0], why in said["replay"][2]) == (2, True), said["replay"]
    status, out, _ = said["check"]
    assert (status, f"problem: BrokenShedder: {why}" in out) == (0, True)
    assert "problem: broken_split: loadmanager.splits: broken_split" in out
    assert json.loads(said["json"][1])["plugInsLeftOut"][0] == why
    assert (said["doctor"][0], "no GPU here" in said["doctor"][1]) == (1, True)
    assert said["owner"][0].startswith("http://member-")
    assert "a plug-in is left out" in done.stderr


def test_workers_of_a_tournament_know_the_strategies(installed: Path, tmp_path: Path) -> None:
    """Each is a process of its own."""
    made = make_day(1, DaySize(brokers=3, bundles=12, minutes=90, events=False))
    day = tmp_path / "day.npz"
    loads = np.linspace(0, 2e8, 12, dtype=np.float32)
    day.write_bytes(dump(replace(made, carried=np.tile(loads, (90, 1)))))
    keys = {"loadBalancerLoadSheddingStrategy": "BusiestShedder", "busiestShedderCycles": "1"}
    keys["busiestShedderMarginPercent"] = "5"
    code = "import sys; from loadmanager.lab.tournament import _played as play, program; "
    code += "print(play(*sys.argv[1:], program()))"
    played = subprocess.run(
        [sys.executable, "-c", code, json.dumps(keys), str(day)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(installed), str(ROOT)))},
        timeout=300,
    )
    assert played.returncode == 0, played.stderr
    assert json.loads(played.stdout)["measures"]["moves"] > 0


def test_results_of_other_code_are_not_known(installed: Path) -> None:
    """A result is kept under a name that changes with the code of third parties."""

    def program() -> str:
        code = "from loadmanager.lab import tournament; print(tournament.program())"
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(installed), str(ROOT)))},
            timeout=300,
        )
        return done.stdout

    before = program()
    assert program() == before
    module = installed / "busiest.py"
    module.write_text(module.read_text().replace("<= above", "< above"))
    assert program() != before


def program(installed: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run a program with the package on its path.

    Without byte code: Python takes it for current when a file was edited within the same second and
    kept its size, as the tests do that edit the package.
    """
    return subprocess.run(
        [sys.executable, "-B", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(installed), str(ROOT)))},
        timeout=300,
    )


def test_settings_know_it_whoever_reads_them_first(installed: Path) -> None:
    """A host of its own loads settings before it runs a broker: its keys are no unknown ones. A
    tournament searches them by their ranges.
    """
    done = program(
        installed,
        "from loadmanager.broker import settings;"
        "from loadmanager.engine.strategies.settings import StrategySettings;"
        "read = settings.KEYS.load(None, {'loadBalancerLoadSheddingStrategy': 'BusiestShedder',"
        " 'busiestShedderCycles': '3', 'defaultNamespaceBundleSplitAlgorithm': 'hottest_alone'});"
        "import busiest;"
        "print(read.unknown, read.leaf(StrategySettings).of(busiest.BusiestSettings).cycles);"
        "from loadmanager.lab import candidates;"
        "print(*candidates.grid(['BusiestShedder'])[-1].split(',')[1:])",
    )
    assert done.stdout.splitlines() == [
        "() 3",
        "busiestShedderCycles=8 busiestShedderMarginPercent=100",
    ], done.stderr


def test_a_member_of_a_service_sheds_by_it(installed: Path) -> None:
    """Its keys are settings of a member, too."""
    done = program(
        installed,
        "from loadmanager import Member\n"
        "class Rooms:\n"
        "    async def open(self, shard): ...\n"
        "    async def close(self, shard, state): ...\n"
        "Member('zk://h/x', Rooms(), address='http://h:1', settings={"
        "'loadBalancerLoadSheddingStrategy': 'BusiestShedder', 'busiestShedderCycles': '3'})",
    )
    assert done.returncode == 0, done.stderr


def test_it_may_bring_a_split_algorithm(installed: Path) -> None:
    """Whose answers are checked."""
    code = (
        "from loadmanager.leader import plugins; plugins.own_settings();"
        "from loadmanager.engine.bundles.ranges import BundleRange;"
        "from loadmanager.engine.strategies.splitting.algorithms import *;"
        "rates = {10: 1.0, 20: 9.0, 30: 1.0};"
        "topics = {str(at): HashedTopic(at, rates[at]) for at in rates};"
        "print(useful_boundaries('hottest_alone', BundleRange(0, 100), topics,"
        " limits=FlowLimits(1, 1, 0)))"
    )
    assert program(installed, code).stdout.strip() == "((20, 21), '')"
    module = installed / "busiest.py"
    module.write_text(module.read_text().replace("(hottest, hottest + 1)", "(hottest, 0.5)"))
    assert "whole numbers inside" in program(installed, code).stderr


def test_it_may_bring_a_merge_rule(installed: Path) -> None:
    """Whose answers are checked, and which is in force where settings name it."""
    code = (
        "from loadmanager.broker import settings;"
        "from loadmanager.engine.load.reports import NamespaceBundleStats as Stats;"
        "from loadmanager.engine.strategies.splitting.merging import *;"
        "read = settings.KEYS.load(None, {'loadManagerBundleMergeRule': 'few_clients'});"
        "limits = SplitSettings(), read.leaf(MergeSettings);"
        "spans = ['t/n/0x00000000_0x80000000', 't/n/0x80000000_0xffffffff'];"
        "pairs = lambda clients: sorted(choose("
        "dict.fromkeys(spans, Stats(msg_rate_in=9e9, producer_count=clients)),"
        " {}, 0, limits, MergeMemory())[1].idle_since_ms);"
        "print(len(pairs(50)), len(pairs(51)))"
    )
    assert program(installed, code).stdout.strip() == "1 0"
    module = installed / "busiest.py"
    module.write_text(module.read_text().replace("return clients <=", "return clients or"))
    assert "a bool is expected" in program(installed, code).stderr


METRIC = """
import asyncio
from loadmanager.testing import cluster, virtual

class Rooms:
    async def open(self, shard): return {}
    async def close(self, shard, state): pass

class Counting(Rooms):
    def load(self, shard): return {"users": 5.0}

def used(member):
    usage = member._joined.host.usage()
    return round(usage.memory_used_bytes / usage.memory_limit_bytes, 3)

@virtual
async def serve(service):
    async with cluster(service, members=1, shards=4, budgets={"users": 8}) as members:
        member = members[0].member
        with member.own("kitchen"), member.own("garden"):
            print(used(member), sum(each.msg_throughput_in > 0
                                    for each in member._joined.host.bundle_stats().values()))

serve(Rooms)
serve(Counting)
"""


def test_it_may_bring_a_load_metric(installed: Path) -> None:
    """A member with a budget for it is as busy as it says, unless the service says another thing;
    where it fails, nothing else does.
    """
    assert program(installed, METRIC).stdout.splitlines() == ["0.25 2", "2.5 4"]
    module = installed / "busiest.py"
    module.write_text(module.read_text().replace("float(shard.users)", "shard.number_of_users"))
    done = program(installed, METRIC)
    assert done.stdout.splitlines() == ["0.0 0", "2.5 4"]
    assert "the load metric users" in done.stderr


def test_another_version_of_the_contract_is_refused(installed: Path) -> None:
    """With words that say what to do."""
    module = installed / "busiest.py"
    module.write_text(module.read_text().replace("CONTRACT = 1", "CONTRACT = 2"))
    done = run(installed, "decide", *CHOSEN, lines=[line(0)])
    assert done.returncode == 2
    assert "written for version 2 of the contract of plug-ins; this is 1" in done.stderr


@dataclass(frozen=True, slots=True, kw_only=True)
class RangedSettings:
    """Keys with and without ranges."""

    points: float = conf("p", 5.0, "", minimum=1, maximum=1_000)
    share: float = conf("s", 0.1, "", minimum=0, maximum=1)
    cycles: int = conf("c", 2, "", minimum=0, maximum=8)
    free: int = conf("f", 2, "", minimum=0)
    name: str = conf("n", "", "")


def test_a_tournament_searches_its_keys_by_their_ranges() -> None:
    """If it does not say itself which values to try; others stay as they are."""
    tries = {each.key: each for each in plugins._tries(RangedSettings)}
    assert tries.keys() == {"p", "s", "c"}
    assert [round(value, 6) for value in tries["p"].grid] == [1, 10, 100, 1_000]
    assert (tries["s"].low, tries["s"].high) == (0.001, 1)
    assert tries["c"].whole
    assert tries["c"].grid == (1, 2, 4, 8)
    assert (tries["c"].low, tries["c"].high) == (0, 8)


def test_a_tournament_searches_the_keys_of_a_placement_rule() -> None:
    """With each shedder that any rule goes with, together with the keys of that."""
    rule: Any = plugins._with_tries(
        PlacementRule(name="Ranged", candidates=lambda *_: ([], None), settings=RangedSettings)
    )
    before = candidates.grid(["OverloadShedder"])
    registry.register(rule)
    try:
        added = [each for each in candidates.grid(["OverloadShedder"]) if each not in before]
        assert len(added) == 4 * 4 * 4 * len(registry.SHEDDERS["OverloadShedder"].tries[0].grid)
        text = "OverloadShedder+Ranged,loadBalancerBrokerOverloadedThresholdPercentage=85"
        assert added[-1] == f"{text},p=1000,s=1,c=8"
        drawn = [each for each in candidates.drawn(40, 1, ["OverloadShedder"]) if "+Ranged" in each]
        assert drawn
        assert all(",p=" in each and ",c=" in each for each in drawn)
    finally:
        del registry.PLACEMENTS["Ranged"]
