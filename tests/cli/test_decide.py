"""`loadmanager decide` as an operator pipes load reports through it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli.piped import here, piped

from loadmanager.engine.strategies import registry


def a_report(cpu: float, name: str, throughput: float) -> dict[str, object]:
    """A report as Pulsar writes it, with four bundles, whole numbers as floats, and a field that
    nobody knows.
    """
    bundles = [f"t/{name}/0x{n:08x}_0x{n + 1:08x}" for n in range(4)]
    stats = {bundle: {"msgThroughputIn": throughput / 4, "topics": 3.0} for bundle in bundles}
    return {
        "cpu": {"usage": cpu, "limit": 100.0},
        "bundles": bundles,
        "lastStats": stats,
        "msgThroughputIn": throughput,
        "numTopics": 12.0,
        "new": 1,
    }


def decide(
    lines: list[object], *arguments: str, seed: str = "", path: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the command: with a seed of hashes or a path in a process of its own."""
    if seed or path:
        return piped("decide", *arguments, lines=lines, seed=seed or "0", path=path)
    return here("decide", *arguments, lines=lines)


LINE = {
    "now": 1000,
    "brokers": {
        "b1:8080": a_report(40, "a", 4e8),
        "b2:8080": a_report(10, "b", 1e8),
        "b3:8080": a_report(10, "c", 1e8),
    },
}


def test_a_file_instead_of_standard_input(tmp_path: Path) -> None:
    """The answer is the same; a file that does not exist is refused."""
    (tmp_path / "cycles.jsonl").write_text(json.dumps(LINE))
    assert decide([], str(tmp_path / "cycles.jsonl")).stdout == decide([LINE]).stdout
    missing = decide([], str(tmp_path / "none"))
    assert (missing.returncode, "No such file" in missing.stderr) == (2, True)


def test_no_line() -> None:
    """Nothing in, nothing out, and a word about it."""
    result = decide([])
    assert (result.returncode, result.stdout) == (0, "")
    assert "no line to decide" in result.stderr


def test_one_line_in_one_line_out() -> None:
    """A decision has the documented fields and numbers."""
    result = decide([LINE])
    assert result.returncode == 0
    (answer,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert set(answer) == {"now", "strategy", "unloads", "placements", "splits", "skipped"}
    assert (answer["now"], answer["strategy"]) == (1000, "ThresholdShedder")
    (unload,) = answer["unloads"]
    assert (unload["source"], unload["destination"], unload["reason"]) == (
        "b1:8080",
        None,
        "Overloaded",
    )
    assert unload["why"]["usage"] == pytest.approx(0.4)
    assert {skip["what"] for skip in answer["skipped"]} == {"b2:8080", "b3:8080"}


def test_same_bytes_for_any_hash_seed() -> None:
    """Same input, same output, byte for byte, with every strategy; also with the brokers and their
    bundles in another order.
    """
    pairs = [
        (shedder, placement)
        for shedder in registry.SHEDDERS
        for placement in registry.PLACEMENTS
        if placement != "AvgShedder"
    ]
    lines = [
        {
            **LINE,
            "do": ["shed", "place", "split"],
            "place": ["x/y/0x00000000_0xffffffff"],
            "config": {
                "loadBalancerLoadSheddingStrategy": shedder,
                "loadBalancerLoadPlacementStrategy": placement,
                "loadBalancerSheddingConditionHitCountThreshold": 0,
                "loadBalancerNamespaceBundleMaxTopics": 2,
            },
        }
        for shedder, placement in [*pairs, ("AvgShedder", "AvgShedder")]
    ]
    shuffled = [
        {
            **line,
            "brokers": {
                name: {**report, "bundles": report["bundles"][::-1]}
                for name, report in reversed(line["brokers"].items())
            },
        }  # type: ignore[attr-defined]
        for line in lines
    ]
    outputs = {
        decide(given, seed=seed).stdout for seed in ("0", "1", "2") for given in (lines, shuffled)
    }  # type: ignore[arg-type]
    assert len(outputs) == 1
    assert len(outputs.pop().splitlines()) == len(lines)


def test_state_carries_over_and_config_is_per_line() -> None:
    """A bundle that was moved stays for the grace period; a line's config holds from there on."""
    later = {
        **LINE,
        "now": 61_000,
        "config": {
            "loadBalancerLoadSheddingStrategy": "org.apache.pulsar.broker.loadbalance.impl.OverloadShedder"  # noqa: E501
        },
    }
    answers = [
        json.loads(line)
        for line in decide(
            [LINE, {**LINE, "now": 61_000}, later, {**LINE, "now": 61_000}]
        ).stdout.splitlines()
    ]
    assert answers[1]["unloads"][0]["bundle"] != answers[0]["unloads"][0]["bundle"]
    assert [answer["strategy"] for answer in answers] == [
        "ThresholdShedder",
        "ThresholdShedder",
        "OverloadShedder",
        "OverloadShedder",
    ]


def test_the_command_line_goes_before_the_settings_of_a_line() -> None:
    """As in the line of `loadmanager fleet snapshot`, which has those of Pulsar's brokers."""
    line = {**LINE, "config": {"loadBalancerLoadSheddingStrategy": "ThresholdShedder"}}
    chosen = decide([line], "--set", "loadBalancerLoadSheddingStrategy=OverloadShedder")
    assert json.loads(chosen.stdout)["strategy"] == "OverloadShedder"
    assert json.loads(decide([line]).stdout)["strategy"] == "ThresholdShedder"


def test_a_measured_pause_is_part_of_the_price() -> None:
    """A difference that is worth a usual pause of clients is not worth one of seconds; a negative
    pause is refused.
    """
    brokers = {}
    for name, cpu in (("b1:8080", 60), ("b2:8080", 44)):
        bundles = [f"t/{name[1]}/0x{n:08x}_0x{n + 1:08x}" for n in range(cpu)]
        stats = {bundle: {"msgThroughputIn": 1e6, "consumerCount": 3} for bundle in bundles}
        report = a_report(cpu, name[1], cpu * 1e6)
        brokers[name] = {**report, "bundles": bundles, "lastStats": stats}
    line = {
        "now": 1000,
        "brokers": brokers,
        "config": {"loadBalancerLoadSheddingStrategy": "BalancedShedder"},
    }
    assert json.loads(decide([line]).stdout)["unloads"]
    assert not json.loads(decide([{**line, "pauseSeconds": 2.5}]).stdout)["unloads"]
    refused = decide([{**line, "pauseSeconds": -1}])
    assert refused.returncode != 0
    assert "pauseSeconds" in refused.stderr


def test_reports_as_others_write_them() -> None:
    """Nulls for what is missing, whole numbers as floats and the other way round."""
    report = {
        **a_report(40, "a", 4e8),
        "bandwidthIn": None,
        "lastBundleGains": None,
        "numTopics": 12,
        "memory": {"usage": 1, "limit": None},
    }
    average = {"maxSamples": 10.0, "numSamples": 3.0, "msgThroughputIn": 1}
    line = {
        **LINE,
        "brokers": {**LINE["brokers"], "b1:8080": report},
        "bundleData": {"t/a/0x00000000_0x00000001": {"shortTermData": average}},
    }  # type: ignore[dict-item]
    (answer,) = [json.loads(text) for text in decide([line]).stdout.splitlines()]
    assert [unload["bundle"] for unload in answer["unloads"]] == ["t/a/0x00000000_0x00000001"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2"),
        ({"now": 1}, "brokers"),
        ({"brokers": {"b": {"cpu": {"usage": "x"}}}}, "cpu.usage"),
        ({"brokers": {}, "do": ["dance"]}, "dance"),
        ({"brokers": {"b9:8080": None}}, "b9:8080"),
        (
            {"brokers": {}, "config": {"loadBalancerHistoryResourcePercentage": 7}},
            "loadBalancerHistoryResourcePercentage",
        ),
        (
            {"brokers": {}, "config": {"loadBalancerCPUResourceWeight": [1]}},
            "$.config['loadBalancerCPUResourceWeight']",
        ),
        (
            {"brokers": {}, "config": {"loadBalancerLoadSheddingStrategy": "Foo"}},
            "ThresholdShedder",
        ),
        (
            {"brokers": {}, "config": {"loadBalancerLoadPlacementStrategy": "AvgShedder"}},
            "loadBalancerLoadSheddingStrategy",
        ),
        (
            {"brokers": {}, "bundleData": {"t/n/0x0_0x1": {"shortTermData": {"msgRateIn": "x"}}}},
            "['t/n/0x0_0x1'].shortTermData.msgRateIn",
        ),
        ({"brokers": {"b": {"msgRateIn": 1.7e308}}}, "msgRateIn"),
        ({"brokers": {"b": {"lastStats": {"foo": {}}}}}, "foo"),
        ({"brokers": {}, "do": ["place"], "place": ["foo"]}, "place[0]"),
        (
            {"brokers": {}, "split": [{"bundle": "t/n/0x0_0x9", "algorithm": "halve"}]},
            "split[0].algorithm",
        ),
        (
            {
                "brokers": {},
                "isolationPolicies": {
                    "p": {"auto_failover_policy": {"parameters": {"min_limit": "²"}}}
                },
            },
            "min_limit",
        ),
        (
            {
                "brokers": {},
                "isolationPolicies": {
                    "p": {"auto_failover_policy": {"parameters": {"min_limit": "9" * 5000}}}
                },
            },
            "min_limit",
        ),
        (
            {"brokers": {}, "namespaces": {"t/n": {"boundaries": ["zz"]}}},
            "namespaces['t/n'].boundaries",
        ),
        ({"brokers": {}, "owners": {"foo": "b1"}}, "owners"),
        ({"brokers": {}, "place": ["t/n/0x00000000_0xffffffff"]}, "'place'"),
        ('{"brokers": {}, "x": ' + "[" * 100_000, "line 2"),
        ('{"brokers": {}, "namespaces": {"a": 1}, "now": NaN}', "namespaces"),
        ('{"brokers": {}, "owners": {"a": 1}, "owners": 5}', "owners"),
        ('{"brokers": {}, "owners": {"a": 1e400}}', "owners"),
    ],
)
def test_malformed_lines(line: object, words: str) -> None:
    """The error names the malformed line and its field; earlier lines were answered, later ones are
    not; the exit status is 2.
    """
    result = decide([LINE, line, LINE])
    assert result.returncode == 2
    assert len(result.stdout.splitlines()) == 1
    assert "line 2" in result.stderr
    assert words in result.stderr


def test_settings_that_contradict_each_other_are_refused() -> None:
    """On the command line, and in a line: the exit status is 2, and the error names the keys."""
    low = "loadBalancerAvgShedderLowThreshold"
    for result in (decide([LINE], "--set", f"{low}=41"), decide([{**LINE, "config": {low: 41}}])):
        assert (result.returncode, result.stdout) == (2, "")
        assert f"{low} = 41 is above loadBalancerAvgShedderHighThreshold = 40" in result.stderr


def test_unknown_keys_are_told_once() -> None:
    """A misspelt key changes nothing; a warning names it and the nearest key."""
    line = {**LINE, "config": {"loadBalancerLoadShedingStrategy": "AvgShedder"}}
    result = decide([line, line])
    assert (result.returncode, len(result.stdout.splitlines())) == (0, 2)
    assert result.stderr.count("did you mean loadBalancerLoadSheddingStrategy?") == 1


def test_unknown_keys_of_lines_are_told_once() -> None:
    """They change nothing; what a terminal would obey in them is escaped."""
    result = decide([LINE, {**LINE, "topBundels\x1b": {}}, {**LINE, "topBundels\x1b": {}}])
    assert (result.returncode, result.stdout) == (0, decide([LINE, LINE, LINE]).stdout)
    assert result.stderr == (
        "loadmanager decide: line 2: not of a line, and ignored: topBundels\\x1b\n"
    )


@pytest.mark.parametrize("figure", ["NaN", "Infinity", "-Infinity", None])
def test_figures_that_are_not_numbers_are_missing(figure: str | None) -> None:
    """As Pulsar writes them; the rest of the report counts."""
    plain = {"cpu": {"limit": 100.0}, "bandwidthIn": {"usage": 95.0, "limit": 100.0}}
    odd = {**plain, "cpu": {"usage": figure, "limit": 100.0}, "msgRateIn": figure}
    first, second = (
        decide([{"now": 1, "brokers": {"b1": report, "b2": {"cpu": {"limit": 100.0}}}}]).stdout
        for report in (plain, odd)
    )
    assert first
    assert first == second
    assert decide([{"brokers": {"b1": {"cpu": {"usage": "much"}}}}]).returncode == 2


def test_explanations_have_no_control_characters() -> None:
    """A terminal would obey those in names."""
    result = decide(
        [{"brokers": {"b\x1b[31m": {"cpu": {"usage": 1.0, "limit": 2.0}}}}], "--explain"
    )
    assert "b\\x1b[31m" in result.stdout
    assert "\x1b" not in result.stdout


def test_bundles_that_belong_to_their_broker() -> None:
    """Heartbeats and SLA monitors, whose namespaces may have three parts, stay where they are,
    whatever the strategy.
    """
    own = (
        "pulsar/standalone/localhost:8080",
        "pulsar/localhost:8080",
        "sla-monitor/standalone/localhost:8080",
        "sla-monitor/localhost:8080",
    )
    stats = {
        f"{namespace}/0x00000000_0xffffffff": {
            "msgThroughputIn": 1e8,
            "msgRateIn": 1e5,
            "topics": 1,
        }
        for namespace in own
    }
    line = {
        "brokers": {
            "b1:8080": {**a_report(90, "a", 0), "bundles": list(stats), "lastStats": stats},
            "b2:8080": a_report(10, "b", 1e6),
        }
    }
    for shedder in registry.SHEDDERS:
        config = {
            "loadBalancerLoadSheddingStrategy": shedder,
            "loadBalancerSheddingConditionHitCountThreshold": 0,
            "minUnloadMessage": 0,
        }
        result = decide([{**line, "config": config, "do": ["shed", "split"]}])
        assert (result.returncode, json.loads(result.stdout)["unloads"]) == (0, []), shedder


def test_reports_of_two_managers() -> None:
    """One manager's reports count; the other brokers are named with the reason, and an empty report
    is taken for one of the others.
    """
    extensible = {"cpu": {"usage": 10, "limit": 100}, "weightedMaxEMA": 0.1, "updatedAt": 1000}
    place = {"do": ["shed", "place"], "place": ["x/y/0x00000000_0xffffffff"]}
    answer = json.loads(
        decide([{**LINE, **place, "brokers": {**LINE["brokers"], "b4:8080": extensible}}]).stdout
    )  # type: ignore[dict-item]
    assert "OtherLoadManager" in answer["placements"][0]["rejected"]["b4:8080"]
    assert [skip["what"] for skip in answer["skipped"] if "OtherLoadManager" in skip["reason"]] == [
        "b4:8080"
    ]
    answer = json.loads(
        decide(
            [{**place, "brokers": {"b4:8080": extensible, "b5:8080": extensible, "b6:8080": {}}}]
        ).stdout
    )
    assert answer["strategy"] == "TransferShedder"
    (placement,) = answer["placements"]
    assert {*placement["candidates"], *placement["rejected"]} == {"b4:8080", "b5:8080", "b6:8080"}


def test_what_reports_leave_out_is_taken_from_their_bundles() -> None:
    """Without `bundles` and sums, both come from the bundles' statistics."""
    report = {
        key: value
        for key, value in a_report(40, "a", 4e8).items()
        if key not in ("bundles", "msgThroughputIn")
    }
    sparse = {**LINE, "brokers": {**LINE["brokers"], "b1:8080": report}}  # type: ignore[dict-item]
    assert decide([sparse]).stdout == decide([LINE]).stdout


def test_placements_count_until_they_are_reported() -> None:
    """The same bundle gets the same broker; the next line's placements see those of the line
    before.
    """
    names = [f"x/y/0x{n:08x}_0x{n + 1:08x}" for n in range(3)]
    lines = [
        {"now": 1000 + at, "brokers": LINE["brokers"], "do": ["place"], "place": [name, name]}
        for at, name in enumerate(names)
    ]
    answers = [json.loads(line)["placements"] for line in decide(lines).stdout.splitlines()]  # type: ignore[arg-type]
    again = [
        json.loads(line)["placements"][0]["broker"]
        for line in decide([lines[0], {**lines[0], "now": 2000}]).stdout.splitlines()
    ]
    assert again[0] == again[1], "it is on its way"
    assert all(first["broker"] == second["broker"] for first, second in answers)
    assert {first["broker"] for first, _ in answers} == set(LINE["brokers"])  # type: ignore[arg-type]


def test_useless_splits_are_reported() -> None:
    """Topics of one hash, and a cut that leaves all topics on one side: the reason instead of a
    split.
    """
    bundle = "t/n/0x00000000_0x00000010"
    for hashes, algorithm, words in (
        ((3, 3), "range_equally_divide", "one hash"),
        ((3,), "topic_count_equally_divide", "one topic"),
        ((5, 5, 5, 9), "topic_count_equally_divide", "one side"),
    ):
        topics = {f"persistent://t/n/{n}": {"hash": value} for n, value in enumerate(hashes)}
        line = {
            "brokers": {},
            "do": ["split"],
            "split": [{"bundle": bundle, "algorithm": algorithm}],
            "topics": {bundle: topics},
        }
        answer = json.loads(decide([line]).stdout)
        assert answer["splits"] == []
        assert words in answer["skipped"][0]["reason"]


def test_splits_of_what_is_no_bundle_any_more() -> None:
    """Boundaries that are given decide which bundles exist, also in namespaces of three parts."""
    stats = {
        "t/n/0x00000000_0x40000000": {"topics": 5000},
        "t/c/n/0x00000000_0xffffffff": {"topics": 5000},
    }
    boundaries = {
        "t/n": {"boundaries": ["0x00000000", "0x20000000", "0x40000000", "0xffffffff"]},
        "t/c/n": {"boundaries": ["0x0", "0xffffffff"]},
    }
    topics = {
        bundle: {f"persistent://t/n/{n}": {"hash": n << 26} for n in range(8)} for bundle in stats
    }
    line = {
        "brokers": {"b1": {"lastStats": stats}, "b2": {"bundles": []}},
        "do": ["split"],
        "namespaces": boundaries,
        "topics": topics,
    }
    answer = json.loads(decide([line]).stdout)
    assert [split["bundle"] for split in answer["splits"]] == ["t/c/n/0x00000000_0xffffffff"]
    assert [
        skip["reason"].split(":")[0] for skip in answer["skipped"] if skip["what"].startswith("t/n")
    ] == ["NoSuchBundle"]


def test_splits() -> None:
    """Explicit splits use the given algorithm; a bundle of one topic is skipped with the reason."""
    bundle = "t/n/0x00000000_0x40000000"
    topics = {
        f"persistent://t/n/{n}": {"msgRate": 100.0, "hash": n * 0x1000000} for n in (1, 2, 3, 4)
    }
    line = {
        "brokers": {},
        "do": ["split"],
        "split": [
            {"bundle": bundle, "algorithm": "range_equally_divide"},
            {"bundle": bundle, "algorithm": "topic_count_equally_divide"},
            {
                "bundle": bundle,
                "algorithm": "specified_positions_divide",
                "positions": [0x30000000, 0x10000000, 0x50000000],
            },
            {"bundle": "t/n/0x40000000_0x80000000", "algorithm": "topic_count_equally_divide"},
        ],
        "topics": {bundle: topics},
    }
    answer = json.loads(decide([line]).stdout)
    assert [split["boundaries"] for split in answer["splits"]] == [
        ["0x20000000"],
        ["0x02800000"],
        ["0x10000000", "0x30000000"],
    ]
    assert "Unsplittable" in answer["skipped"][-1]["reason"]


def test_explain() -> None:
    """For a person: bars and numbers."""
    result = decide([LINE], "--explain")
    assert "████" in result.stdout
    assert "goalBytesPerSecond" in result.stdout


def test_policies_reject_with_reasons() -> None:
    """Isolation and anti-affinity reject brokers, each with its reason."""
    line = {
        **LINE,
        "do": ["place"],
        "place": ["gold/a/0x00000000_0xffffffff", "t/x/0x00000000_0xffffffff"],
        "isolationPolicies": {
            "gold": {
                "namespaces": ["gold/.*"],
                "primary": ["b2"],
                "secondary": [],
                "auto_failover_policy": {},
            }
        },
        "namespaces": {"t/x": {"antiAffinityGroup": "g"}, "t/a": {"antiAffinityGroup": "g"}},
    }
    gold, spread = json.loads(decide([line]).stdout)["placements"]
    assert (gold["broker"], set(gold["rejected"])) == ("b2:8080", {"b1:8080", "b3:8080"})
    assert (spread["broker"], set(spread["rejected"])) == ("b3:8080", {"b1:8080", "b2:8080"})


def test_failure_domains_count_when_a_line_gives_them() -> None:
    """Unless failureDomainsEnabled says otherwise. b1 has a bundle of the group, and b2 shares its
    domain.
    """
    line = {
        **LINE,
        "do": ["place"],
        "place": ["t/x/0x00000000_0xffffffff"],
        "namespaces": {"t/x": {"antiAffinityGroup": "g"}, "t/a": {"antiAffinityGroup": "g"}},
        "failureDomains": {"left": ["b1:8080", "b2:8080"], "right": ["b3:8080"]},
    }
    (spread,) = json.loads(decide([line]).stdout)["placements"]
    assert spread["candidates"] == ["b3:8080"]
    assert "failure domain left" in spread["rejected"]["b2:8080"]
    (not_spread,) = json.loads(decide([line], "--set", "failureDomainsEnabled=false").stdout)[
        "placements"
    ]
    assert not_spread["candidates"] == ["b2:8080", "b3:8080"]


PLUGIN = """
from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.engine.strategies.strategy import Shed


def shed(snapshot, settings, memory):
    \"\"\"Move the first bundle of the broker with most bundles to the one with fewest.\"\"\"
    bundles = {broker: report.bundles for broker, report in snapshot.reports.items()}
    order = sorted(bundles, key=lambda broker: (-len(bundles[broker]), broker))
    most, least = order[0], order[-1]
    numbers = {"bundles": float(len(bundles[most]))}
    unload = Unload(bundles[most][0], most, least, "MostBundles", numbers)
    return Shed((unload,), (Skip(least, "Receives"),), memory)
"""


def test_a_strategy_of_a_third_party(tmp_path: Path) -> None:
    """A strategy is found by the name of its entry point, and its moves pass the guards that hold
    for all.
    """
    (tmp_path / "counting.py").write_text(PLUGIN)
    info = tmp_path / "counting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[loadmanager.shedders]\nCountingShedder = counting:shed\n"
    )
    chosen = ("--set", "loadBalancerLoadSheddingStrategy=org.example.CountingShedder")
    (answer,) = [
        json.loads(line) for line in decide([LINE], *chosen, path=str(tmp_path)).stdout.splitlines()
    ]
    assert (answer["strategy"], answer["unloads"][0]["reason"]) == (
        "CountingShedder",
        "MostBundles",
    )
    guarded = decide(
        [LINE], *chosen, "--set", "loadBalancerSheddingExcludedNamespaces=t/a", path=str(tmp_path)
    )
    assert json.loads(guarded.stdout)["unloads"] == []
    without = decide([LINE], *chosen)
    assert without.returncode == 2
    assert "ThresholdShedder" in without.stderr


MEASURED = """import resource, sys
from loadmanager.cli import main
main(["decide"])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


def test_memory_does_not_grow_with_lines() -> None:
    """Twenty times the lines take no more memory, apart from noise: lines are read, answered and
    forgotten.
    """

    def peak_kib(count: int) -> int:
        lines = "".join(
            json.dumps({**LINE, "now": 60_000 * number}) + "\n" for number in range(count)
        )
        result = subprocess.run(
            [sys.executable, "-c", MEASURED],
            input=lines,
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        assert result.stdout.count("\n") == count
        return int(result.stderr)

    assert peak_kib(4000) - peak_kib(200) < 4096


def test_avg_placement_honours_the_plan() -> None:
    """AvgShedder places a bundle where it planned it to go when it shed it."""
    chosen = (
        "loadBalancerLoadSheddingStrategy=AvgShedder",
        "loadBalancerLoadPlacementStrategy=AvgShedder",
        "minUnloadMessageThroughput=1",
    )
    arguments = [
        word
        for setting in (*chosen, "loadBalancerAvgShedderHitCountLowThreshold=1")
        for word in ("--set", setting)
    ]
    sets = [
        *arguments,
        "--set",
        "loadBalancerDistributeBundlesEvenlyEnabled=false",
        "--set",
        "maxUnloadPercentage=0.5",
    ]
    for seed in range(8):
        shed = json.loads(decide([LINE], *sets, "--seed", str(seed)).stdout)
        moved = {unload["bundle"]: unload["destination"] for unload in shed["unloads"]}
        assert moved
        later = {**LINE, "do": ["place"], "place": sorted(moved)}
        placed = json.loads(
            decide([LINE, later], *sets, "--seed", str(seed)).stdout.splitlines()[1]
        )
        assert {item["bundle"]: item["broker"] for item in placed["placements"]} == moved


def test_a_document_on_several_lines() -> None:
    """The error says how documents are expected."""
    said = piped("decide", lines=["{", '  "now": 1', "}"])
    assert said.returncode == 2
    assert "one JSON object a line is expected" in said.stderr
