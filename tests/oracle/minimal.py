"""The smallest cases in which we once decided otherwise than Pulsar, or still do on purpose.

`make test-oracle-vectors` writes them with Pulsar's answers to `vectors/`; `test_vectors.py` checks
ours without Java.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oracle.cases import (
    EXTENSIBLE,
    EXTENSIBLE_MANAGER,
    MIB,
    MODULAR,
    MODULAR_MANAGER,
    START_MS,
    STEP_MS,
    boundaries,
    bundle,
)

FULL_RANGE = "0x00000000_0xffffffff"
TRANSFER_NOW = {
    "loadManagerClassName": EXTENSIBLE_MANAGER,
    "loadBalancerLoadSheddingStrategy": f"{EXTENSIBLE}scheduler.TransferShedder",
    "loadBalancerSheddingConditionHitCountThreshold": "0",
}
BOTH = ("4.0.8", "4.2.4")


@dataclass(frozen=True, slots=True)
class Minimal:
    """One case."""

    name: str
    family: str
    kind: str
    config: dict[str, str]
    cycles: tuple[dict[str, Any], ...]
    versions: tuple[str, ...] = BOTH
    deviation: str = ""
    """By which name of `oracle.deviations` the answers still differ."""

    def case(self) -> dict[str, Any]:
        """The case in the form that the harness reads."""
        cycles = [
            {"now": START_MS + number * STEP_MS, **cycle}
            for number, cycle in enumerate(self.cycles)
        ]
        return {
            "id": self.name,
            "family": self.family,
            "kind": self.kind,
            "config": self.config,
            "cycles": cycles,
        }


def _isolation(namespace: str) -> dict[str, Any]:
    """A policy with b1 as primary and b2 as secondary."""
    return {
        "namespaces": [namespace],
        "primary": ["b1"],
        "secondary": ["b2"],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "100"},
        },
    }


def report(
    cpu: float, namespace: str = "t/n", rates: tuple[float, ...] = (), **fields: Any
) -> dict[str, Any]:
    """A modular report: bundles by their messages/s, of 10 kB each; other fields as given."""
    size = fields.pop("size", 10_000)
    first = fields.pop("first", 0)
    stats = {
        bundle(namespace, first + number): {
            "msgRateIn": rate,
            "msgThroughputIn": rate * size,
            "topics": 4,
        }
        for number, rate in enumerate(rates)
    }
    return {
        "cpu": {"usage": cpu, "limit": 100.0},
        "lastStats": stats,
        "bundles": sorted(stats),
        "numBundles": len(stats),
        "numTopics": 4 * len(stats),
        "msgRateIn": sum(rates),
        "msgThroughputIn": sum(rates) * size,
        "loadManagerClassName": MODULAR_MANAGER,
        "brokerVersionString": "4.0.0",
        "lastUpdate": START_MS,
        **fields,
    }


def loads(brokers: dict[str, tuple[float, tuple[float, ...]]], **topics: int) -> dict[str, Any]:
    """Extensible reports: broker → its load, and its bundles by MiB/s in ascending order."""
    line: dict[str, Any] = {"brokers": {}, "topBundles": {}}
    for broker, (load, mibs) in brokers.items():
        total = sum(mibs) * MIB
        line["brokers"][broker] = {
            "msgThroughputIn": total,
            "msgThroughputEMA": total,
            "weightedMaxEMA": load,
            "topics": topics.get(broker.partition(":")[0], 4),
            "updatedAt": START_MS,
        }
        line["topBundles"][broker] = {
            "topBundlesLoadData": [
                {
                    "bundleName": bundle(f"t/{broker[:2]}", number),
                    "stats": {"msgThroughputIn": mib * MIB, "topics": 4},
                }
                for number, mib in enumerate(mibs)
            ]
        }
    return line


def _reported(line: dict[str, Any], later_ms: int) -> dict[str, Any]:
    """The brokers of a line, with reports that are later or, if negative, earlier."""
    return {
        broker: {**report, "updatedAt": report["updatedAt"] + later_ms}
        for broker, report in line["brokers"].items()
    }


def minimal() -> Iterator[Minimal]:
    """All cases."""
    yield from _modular_shedders()
    yield from _uniform_and_avg()
    yield from _transfers()
    yield from _moves()
    yield from _placements()
    yield from _splits()


def _modular_shedders() -> Iterator[Minimal]:
    overload = {"loadBalancerLoadSheddingStrategy": f"{MODULAR}OverloadShedder"}
    threshold = {"loadBalancerLoadSheddingStrategy": f"{MODULAR}ThresholdShedder"}
    idle = report(10)
    full = {"usage": 95.0, "limit": 100.0}
    yield Minimal(
        "a resource of weight 0 does not count",
        "OverloadShedder",
        "modular",
        overload,
        ({"brokers": {"b1:1": report(10, rates=(9, 8), directMemory=full), "b2:1": idle}},),
    )
    yield Minimal(
        "90 % is 90 %",
        "OverloadShedder",
        "modular",
        {**overload, "loadBalancerBrokerOverloadedThresholdPercentage": "90"},
        ({"brokers": {"b1:1": report(90, rates=(9, 8)), "b2:1": idle}},),
    )
    yield Minimal(
        "a usage above 100 % counts",
        "ThresholdShedder",
        "modular",
        threshold,
        ({"brokers": {"b1:1": report(120, rates=(9000, 8000)), "b2:1": report(30)}},),
    )
    yield Minimal(
        "bundles of pulsar/system are shed",
        "OverloadShedder",
        "modular",
        overload,
        ({"brokers": {"b1:1": report(90, "pulsar/system", (9, 8)), "b2:1": idle}},),
    )
    yield Minimal(
        "SLA monitors stay",
        "OverloadShedder",
        "modular",
        overload,
        ({"brokers": {"b1:1": report(90, "sla-monitor/h:80", (9, 8)), "b2:1": idle}},),
        versions=("4.2.4",),
    )
    for namespace, name, version, which in (
        ("sla-monitor/h:80", "SLA monitors of 4.2 stay in 4.0", "4.0.8", "new"),
        ("sla-monitor/cluster/h:80", "SLA monitors of 4.0 stay in 4.2", "4.2.4", "old"),
    ):
        yield Minimal(
            name,
            "OverloadShedder",
            "modular",
            overload,
            ({"brokers": {"b1:1": report(90, namespace, (9, 8)), "b2:1": idle}},),
            versions=(version,),
            deviation=f"monitors stay by their {which} names",
        )
    twice = report(90, rates=(9, 8))
    yield Minimal(
        "two brokers report the same bundles",
        "OverloadShedder",
        "modular",
        overload,
        ({"brokers": {"b1:1": twice, "b2:1": twice, "b3:1": idle}},),
        deviation="a bundle that two brokers report counts once",
    )
    rates = (4000.0, 3000.0, 2000.0)
    hot = {"b1:1": report(90, "t/a", rates), "b2:1": report(90, "t/b", rates)}
    yield Minimal(
        "averages of brokers that left are forgotten in a cycle with one broker",
        "ThresholdShedder",
        "modular",
        threshold,
        (
            {"brokers": hot},
            {"brokers": {"b2:1": hot["b2:1"]}},
            {"brokers": {"b1:1": report(10, "t/a", rates), "b2:1": report(20, "t/b", rates)}},
        ),
    )
    boundary = {
        **threshold,
        "lowerBoundarySheddingEnabled": "true",
        "loadBalancerHistoryResourcePercentage": "0.5",
        "loadBalancerBundleUnloadMinThroughputThreshold": "0",
    }
    nine = {f"b{at}:1": report(90, f"t/{at}", rates) for at in range(1, 10)}
    nine["b9:1"] = report(70, "t/9", rates)
    later = {**nine, "b9:1": report(90, "t/9", rates), "b1:1": report(66, "t/1", rates)}
    yield Minimal(
        "the lower-boundary pass advances averages a second time",
        "ThresholdShedder",
        "modular",
        boundary,
        ({"brokers": nine}, {"brokers": later}),
        deviation="the average advances once a cycle",
    )
    swings = {"b1:1": report(90, "t/a", (4000.0, 3900.0)), "b2:1": report(10, "t/b", (1.0, 2.0))}
    turned = {"b1:1": report(90, "t/a", (3800.0, 3900.0)), "b2:1": report(10, "t/b", (1.0, 2.0))}
    yield Minimal(
        "averages of bundles without a report",
        "OverloadShedder",
        "modular",
        overload,
        (
            {"brokers": {**swings, "b1:1": report(50, "t/a", (4000.0, 3900.0))}},
            {"brokers": {"b2:1": swings["b2:1"]}},
            {"brokers": turned},
        ),
        deviation="averages of absent bundles are kept",
    )


def _uniform_and_avg() -> Iterator[Minimal]:
    uniform = {"loadBalancerLoadSheddingStrategy": f"{MODULAR}UniformLoadShedder"}
    cold = report(10, "t/b", (2.0,))
    yield Minimal(
        "bundles without load move",
        "UniformLoadShedder",
        "modular",
        uniform,
        ({"brokers": {"b1:1": report(50, rates=(10_000.0, 1500.0, 0.0)), "b2:1": cold}},),
        deviation="bundles without load stay",
    )
    yield Minimal(
        "a goal of 2680 messages/s and a bundle of 2500",
        "UniformLoadShedder",
        "modular",
        uniform,
        (
            {
                "brokers": {
                    "b1:1": report(50, rates=(6000.0, 2500.0)),
                    "b2:1": report(10, "t/b", (100.0,)),
                }
            },
        ),
        versions=("4.2.4",),
        deviation="a bundle may exceed the goal by 1000",
    )
    yield Minimal(
        "11 GB/s",
        "UniformLoadShedder",
        "modular",
        {**uniform, "loadBalancerMsgRateDifferenceShedderThreshold": "0"},
        (
            {
                "brokers": {
                    "b1:1": report(50, rates=(10.0, 1.0), size=1e9),
                    "b2:1": report(10, "t/b", (1.0,), size=100),
                }
            },
        ),
        versions=("4.0.8",),
        deviation="goals beyond 2 GiB/s do not overflow",
    )
    avg = {
        "loadBalancerLoadSheddingStrategy": f"{MODULAR}AvgShedder",
        "loadBalancerLoadPlacementStrategy": f"{MODULAR}AvgShedder",
        "loadBalancerAvgShedderHitCountHighThreshold": "1",
        "maxUnloadPercentage": "0.5",
    }
    equal = (2000.0,) * 4
    yield Minimal(
        "equal bundles of two hot brokers share a destination",
        "AvgShedder",
        "modular",
        avg,
        (
            {
                "brokers": {
                    "b1:1": report(10),
                    "b2:1": report(20),
                    "b3:1": report(80, "t/c", equal),
                    "b4:1": report(90, "t/d", equal),
                }
            },
        ),
        deviation="equal bundles have destinations of their own",
    )
    hot_and_idle = {"b1:1": report(10), "b2:1": report(90, "t/d", (900.0, 800.0) * 6)}
    yield Minimal(
        "a planned move that no report shows after 20 s",
        "AvgShedder",
        "modular",
        {**avg, "loadBalancerSheddingGracePeriodMinutes": "0"},
        tuple({"now": START_MS + at * 20_000, "brokers": hot_and_idle} for at in range(2)),
        deviation="bundles under way are not shed again",
    )
    yield Minimal(
        "new bundles share a broker",
        "AvgShedder, placement",
        "modular",
        {**avg, "loadBalancerDistributeBundlesEvenlyEnabled": "false"},
        (
            {
                "brokers": {"b1:1": report(10), "b2:1": report(20)},
                "do": ["place"],
                "place": [bundle("t/new", at) for at in range(2)],
            },
        ),
        deviation="equal bundles have destinations of their own",
    )


def _transfers() -> Iterator[Minimal]:
    ladder = (10.0, 20.0, 30.0, 40.0)
    family, kind = "TransferShedder", "extensible"
    yield Minimal(
        "without transfers, the least loaded broker must qualify",
        family,
        kind,
        {
            **TRANSFER_NOW,
            "loadBalancerTransferEnabled": "false",
            "loadBalancerBrokerMaxTopics": "10",
        },
        (loads({"b1:1": (0.9, ladder), "b2:1": (0.2, ()), "b3:1": (0.1, ())}, b3=11),),
    )
    yield Minimal(
        "rounding makes the variance of equal loads negative",
        family,
        kind,
        {**TRANSFER_NOW, "loadBalancerBrokerLoadTargetStd": "0"},
        (loads({"b1:1": (0.1, ladder), "b2:1": (0.1, ()), "b3:1": (0.1, ())}),),
    )
    uneven = loads({"b1:1": (0.9, ladder), "b2:1": (0.1, ())})
    yield Minimal(
        "a broker has cooled down, and the clock is set back",
        family,
        kind,
        TRANSFER_NOW,
        (
            {
                **loads({"b1:1": (0.5, ladder), "b2:1": (0.5, ladder)}),
                "recentlyUnloadedBrokers": {"b1:1": START_MS - 200_000},
            },
            {**uneven, "now": START_MS - 100_000, "brokers": _reported(uneven, -100_000)},
        ),
    )
    yield Minimal(
        "throughputs differ, loads are 0",
        family,
        kind,
        TRANSFER_NOW,
        (loads({"b1:1": (0.0, ()), "b2:1": (0.0, (1.0, 2.0, 3.0))}),),
        deviation="brokers without load move nothing",
    )
    swap = loads({"b1:1": (0.9, (60.0, 62.0)), "b2:1": (0.2, (20.0, 21.0))})
    yield Minimal(
        "a swap with a bundle that was moved",
        family,
        kind,
        TRANSFER_NOW,
        ({**swap, "recentlyUnloaded": {bundle("t/b2", 0): START_MS - 60_000}},),
        deviation="bundles that may not leave do not come back in a swap",
    )
    yield Minimal(
        "a swap with a bundle of an excluded namespace",
        family,
        kind,
        {**TRANSFER_NOW, "loadBalancerSheddingExcludedNamespaces": "t/b2"},
        (swap,),
        versions=("4.2.4",),
        deviation="bundles that may not leave do not come back in a swap",
    )
    yield Minimal(
        "a swap with a bundle that another broker owns by now",
        family,
        kind,
        TRANSFER_NOW,
        ({**swap, "owners": {bundle("t/b2", 0): "b1:1"}},),
        deviation="bundles that may not leave do not come back in a swap",
    )
    yield Minimal(
        "a small bundle after a swap",
        family,
        kind,
        TRANSFER_NOW,
        (loads({"b1:1": (0.9, (60.0, 5.0, 40.0)), "b2:1": (0.2, (30.0,))}),),
        deviation="what a swap brings back counts",
    )
    yield Minimal(
        "bundles of excluded namespaces are no candidates",
        family,
        kind,
        {**TRANSFER_NOW, "loadBalancerSheddingExcludedNamespaces": "t/b1"},
        (_with_other(loads({"b1:1": (0.9, ladder), "b2:1": (0.2, ())})),),
        versions=("4.2.4",),
    )
    alone = loads({"b2:1": (0.2, ()), "b3:1": (0.1, ())})
    yield Minimal(
        "a broker that was unloaded and comes back cools down",
        family,
        kind,
        TRANSFER_NOW,
        (
            loads({"b1:1": (0.9, ladder), "b2:1": (0.2, ()), "b3:1": (0.1, ())}),
            alone,
            loads({"b1:1": (0.9, ladder), "b2:1": (0.2, ()), "b3:1": (0.1, ())}),
        ),
    )
    stale = loads({"b1:1": (0.9, ladder), "b2:1": (0.2, ()), "b3:1": (0.1, ())})
    stale["brokers"]["b3:1"]["updatedAt"] = START_MS - 2_000_000
    yield Minimal(
        "the least loaded broker's report is old",
        family,
        kind,
        TRANSFER_NOW,
        (stale,),
        deviation="brokers with old reports are left out",
    )

    policy = _isolation("t/b1")
    yield Minimal(
        "a secondary takes from a primary with too many topics",
        family,
        kind,
        {
            **TRANSFER_NOW,
            "loadBalancerBrokerMaxTopics": "10",
            "loadBalancerSheddingBundlesWithPoliciesEnabled": "true",
        },
        (
            {
                **loads({"b1:1": (0.9, ladder), "b2:1": (0.1, ())}, b1=11),
                "isolationPolicies": {"mine": policy},
            },
        ),
    )


def _moves() -> Iterator[Minimal]:
    """Modular shedding with destinations."""
    overload = {
        "loadBalancerLoadSheddingStrategy": f"{MODULAR}OverloadShedder",
        "loadBalancerDistributeBundlesEvenlyEnabled": "false",
    }
    hot = report(90, "t/a", (9, 8))
    yield Minimal(
        "every broker is overloaded",
        "Moves, modular",
        "moves",
        overload,
        ({"brokers": {"b1:1": hot, "b2:1": report(95, "t/b", (900, 800))}},),
        deviation="a shed bundle does not stay",
    )
    yield Minimal(
        "bundles of two hot brokers, two idle brokers",
        "Moves, modular",
        "moves",
        overload,
        (
            {
                "brokers": {
                    "b1:1": hot,
                    "b2:1": report(90, "t/b", (9, 8)),
                    "b3:1": report(10),
                    "b4:1": report(10),
                }
            },
        ),
        deviation="moves of a plan count for its next ones",
    )
    avg = {
        "loadBalancerLoadSheddingStrategy": f"{MODULAR}AvgShedder",
        "loadBalancerAvgShedderHitCountHighThreshold": "1",
        "maxUnloadPercentage": "0.5",
    }
    pair = {
        "b1:1": report(90, "t/a", (2000, 3000)),
        "b2:1": report(10, "t/a", (1,), first=4),
        "b3:1": report(50),
    }
    yield Minimal(
        "AvgShedder with another placement",
        "Moves, modular",
        "moves",
        avg,
        ({"brokers": pair},),
    )
    yield Minimal(
        "the planned destination has a bundle of the namespace",
        "Moves, modular",
        "moves",
        {**avg, "loadBalancerLoadPlacementStrategy": f"{MODULAR}AvgShedder"},
        ({"brokers": pair},),
        deviation="planned destinations are checked when the move is planned",
    )
    yield Minimal(
        "the planned destination is overloaded",
        "Moves, modular",
        "moves",
        {
            **avg,
            "loadBalancerLoadPlacementStrategy": f"{MODULAR}AvgShedder",
            "loadBalancerDistributeBundlesEvenlyEnabled": "false",
            "loadBalancerBrokerOverloadedThresholdPercentage": "5",
        },
        ({"brokers": pair},),
    )


def _with_other(line: dict[str, Any]) -> dict[str, Any]:
    """The line with its largest bundle in another namespace."""
    line["topBundles"]["b1:1"]["topBundlesLoadData"][-1]["bundleName"] = bundle("t/other", 0)
    return line


def _placements() -> Iterator[Minimal]:
    rule = {"loadBalancerDistributeBundlesEvenlyEnabled": "false"}
    place = {"do": ["place"], "place": [bundle("t/new", at) for at in range(3)]}
    nameless = report(10, "t/a", (1.0,))
    del nameless["loadManagerClassName"]
    yield Minimal(
        "a report without loadManagerClassName",
        "LeastLongTermMessageRate",
        "modular",
        rule,
        ({**place, "brokers": {"b1:1": nameless, "b2:1": report(10, "t/b", (900.0,))}},),
        deviation="brokers that name no load manager qualify",
    )
    empty = {"b1:1": report(10), "b2:1": report(10)}
    yield Minimal(
        "a placement that no report shows after 20 s",
        "LeastLongTermMessageRate",
        "modular",
        rule,
        tuple(
            {"now": START_MS + at * 20_000, "do": ["place"], "place": [new], "brokers": empty}
            for at, new in enumerate(place["place"][:2])
        ),
        deviation="placements under way outlast reports",
    )
    nearly = {"b1:1": report(10, "t/a", (88.67,)), "b2:1": report(10, "t/b", (88.67,))}
    for broker, rate_out in (("b1:1", 125.91), ("b2:1", 125.91000000000001)):
        (stats,) = nearly[broker]["lastStats"].values()
        stats["msgRateOut"] = nearly[broker]["msgRateOut"] = rate_out
    yield Minimal(
        "rates that differ in their last digit",
        "LeastLongTermMessageRate",
        "modular",
        rule,
        ({**place, "brokers": nearly},),
    )
    usage = {**rule, "loadBalancerLoadPlacementStrategy": f"{MODULAR}LeastResourceUsageWithWeight"}
    yield Minimal(
        "three placements advance averages three times",
        "LeastResourceUsage, modular",
        "modular",
        {**usage, "loadBalancerHistoryResourcePercentage": "0.5"},
        (
            {
                **place,
                "brokers": {
                    "b1:1": report(50, "t/a", (1e6, 1.0)),
                    "b2:1": report(20, "t/b", (1e6, 1.0)),
                },
            },
            {
                **place,
                "place": [bundle("t/other", at) for at in range(4)],
                "brokers": {
                    "b1:1": report(20, "t/a", (1e6, 1.0)),
                    "b2:1": report(80, "t/b", (1e6, 1.0)),
                },
            },
        ),
        deviation="averages advance once a request",
    )
    extensible = {key: TRANSFER_NOW[key] for key in list(TRANSFER_NOW)[:2]}
    yield Minimal(
        "a burst of placements",
        "LeastResourceUsage, extensible",
        "extensible",
        extensible,
        ({**loads({"b1:1": (0.5, (0.2,)), "b2:1": (0.2, (0.1,))}), **place},),
        deviation="placements under way count",
    )
    built = report(10, "t/b", (900.0,), brokerVersionString="4.0.0+b7")
    yield Minimal(
        "versions that differ in build metadata are equal",
        "LeastLongTermMessageRate",
        "modular",
        {**rule, "preferLaterVersions": "true"},
        ({**place, "brokers": {"b1:1": report(10, "t/a", (1.0,)), "b2:1": built}},),
    )
    later = {**extensible, "preferLaterVersions": "true"}
    pair = {**loads({"b1:1": (0.5, (0.2,)), "b2:1": (0.2, (0.1,))}), **place}
    for what, newer in (("a later version", "4.0.1"), ("an unreadable version", "latest")):
        yield Minimal(
            f"{what} in the extensible manager",
            "LeastResourceUsage, extensible",
            "extensible",
            later,
            ({**pair, "versions": {"b1:1": newer, "b2:1": "4.0.0"}},),
            deviation="" if newer == "4.0.1" else "placements under way count",
        )
    excluded = {"loadBalancerSheddingExcludedNamespaces": "t/new"}
    three = {"b1:1": (0.8, (20.0,)), "b2:1": (0.4, (10.0,)), "b3:1": (0.1, (5.0,))}
    yield Minimal(
        "excluded namespaces are placed round robin in the extensible manager",
        "LeastResourceUsage, extensible",
        "extensible",
        {**extensible, **excluded},
        ({**loads(three), **place},),
        versions=("4.2.4",),
    )
    one = {"do": ["place"], "place": [bundle("t/new", 0)]}
    yield Minimal(
        "the brokers of a round are kept while others are as many",
        "LeastResourceUsage, extensible",
        "extensible",
        {**extensible, **excluded},
        tuple(
            {**loads({broker: three[broker] for broker in brokers}), **one}
            for brokers in (three, ("b2:1", "b3:1"), ("b1:1", "b2:1"))
        ),
        versions=("4.2.4",),
    )
    yield Minimal(
        "an excluded namespace at an overloaded broker's turn",
        "LeastLongTermMessageRate",
        "modular",
        {**rule, **excluded},
        (
            {
                **place,
                "brokers": {
                    "b1:1": report(95, "t/a", (40.0, 20.0)),
                    "b2:1": report(50, "t/b", (20.0, 10.0)),
                    "b3:1": report(30, "t/c", (5.0,)),
                },
            },
        ),
        versions=("4.2.4",),
    )
    policy = _isolation("t/new")
    placing_new = {"do": ["place"], "place": [bundle("t/new", 0)]}
    for name, primary, deviation in (
        ("a primary's expression that fits a port", ".*0", ""),
        (
            "a primary's expression with a colon",
            "b2:.*",
            "expressions with a colon match a broker's id",
        ),
    ):
        policies = {"mine": {**policy, "primary": [primary], "secondary": ["b3"]}}
        yield Minimal(
            name,
            "LeastLongTermMessageRate",
            "modular",
            rule,
            (
                {
                    **placing_new,
                    "brokers": {f"b{at}:10": report(10 * at, rates=(at,)) for at in (1, 2, 3)},
                    "isolationPolicies": policies,
                },
            ),
            deviation=deviation,
        )
    yield Minimal(
        "a primary with too many topics",
        "LeastResourceUsage, extensible",
        "extensible",
        {**extensible, "loadBalancerBrokerMaxTopics": "10"},
        (
            {
                **loads(three, b1=10),
                **placing_new,
                "isolationPolicies": {"mine": policy},
            },
        ),
    )


def _splits() -> Iterator[Minimal]:
    two = loads({"b1:1": (0.5, (150.0,)), "b2:1": (0.5, (150.0,))})
    known = {f"t/b{at}": {"boundaries": boundaries()} for at in (1, 2)}
    yield Minimal(
        "each broker splits as many bundles as a cycle allows",
        "Splits, extensible",
        "extensible",
        {
            **{key: TRANSFER_NOW[key] for key in list(TRANSFER_NOW)[:2]},
            "loadBalancerNamespaceBundleSplitConditionHitCountThreshold": "0",
            "loadBalancerMaxNumberOfBundlesToSplitPerCycle": "1",
        },
        ({**two, "namespaces": known, "do": ["split"]},),
    )
    gone = {**two, "brokers": {"b1:1": two["brokers"]["b1:1"]}}
    yield Minimal(
        "what a broker published that is gone",
        "Splits, extensible",
        "extensible",
        {
            **{key: TRANSFER_NOW[key] for key in list(TRANSFER_NOW)[:2]},
            "loadBalancerNamespaceBundleSplitConditionHitCountThreshold": "0",
        },
        ({**gone, "namespaces": known, "do": ["split"]},),
    )
    yield from _modular_splits()
    name = f"t/n/{FULL_RANGE}"
    yield _cuts("a position twice", name, [256, 256], (1, 1000), "a position counts once")
    yield _cuts(
        "topics on one side",
        f"t/n/0x00000000_0x{MIB:08x}",
        [],
        (1, 1),
        "splits that divide nothing are not made",
        "topic_count_equally_divide",
    )
    yield _cuts(
        "two topics of one hash",
        name,
        [],
        (1, 1, 1000),
        "topics of one hash count as one",
        "flow_or_qps_equally_divide",
    )
    full = {"usage": 95.0, "limit": 100.0}
    yield Minimal(
        "heap memory does not count by default",
        "Averages and reports",
        "samples",
        {},
        (
            {
                "brokers": {
                    "b1:1": report(10, rates=(9, 1), memory=full, size=1e6),
                    "b2:1": report(10),
                },
                "do": [],
            },
        ),
    )
    yield Minimal(
        "two busiest bundles",
        "Averages and reports",
        "samples",
        {"loadBalancerMaxNumberOfBundlesInBundleLoadReport": "2"},
        ({"brokers": {"b1:1": report(10, rates=(900, 100, 500)), "b2:1": report(10)}, "do": []},),
    )
    shared = {"b1:1": report(10, rates=(9, 1)), "b2:1": report(10, rates=(90, 10))}
    yield Minimal(
        "sums of brokers that report the same bundles",
        "Averages and reports",
        "samples",
        {},
        tuple({"brokers": shared, "do": []} for _ in range(2)),
    )


def _modular_splits() -> Iterator[Minimal]:
    """At most 18 bundles, where 16 are."""
    config = {
        "loadBalancerNamespaceMaximumBundles": "18",
        "loadBalancerNamespaceBundleMaxTopics": "3",
    }
    line = {"namespaces": {"t/n": {"boundaries": boundaries()}}, "do": ["split"]}
    one, two = report(10, rates=(9,)), report(10, rates=(9, 8))
    yield Minimal(
        "two brokers report a bundle that is split",
        "Splits, modular",
        "modular",
        config,
        ({**line, "brokers": {"b1:1": one, "b2:1": two}},),
        deviation="a bundle that two brokers report counts once",
    )
    topics = {
        bundle("t/n", at): {
            f"persistent://t/n/{at}-{number}": {
                "msgRate": 400.0,
                "hash": at * 2**28 + number * 2**20,
            }
            for number in range(3)
        }
        for at in range(2)
    }
    yield Minimal(
        "a bundle that is split into three",
        "Splits, modular",
        "modular",
        {
            **config,
            "loadBalancerNamespaceBundleMaxMsgRate": "500",
            "defaultNamespaceBundleSplitAlgorithm": "flow_or_qps_equally_divide",
        },
        ({**line, "topics": topics, "brokers": {"b1:1": two, "b2:1": report(10)}},),
        deviation="a split into many parts counts as many",
    )


def _cuts(
    name: str,
    of: str,
    positions: list[int],
    hashes: tuple[int, ...],
    deviation: str,
    algorithm: str = "specified_positions_divide",
) -> Minimal:
    topics = {
        f"persistent://t/n/{number}": {"msgRate": 400.0, "msgThroughput": 1.0, "hash": value}
        for number, value in enumerate(hashes)
    }
    asked = {"bundle": of, "algorithm": algorithm, "positions": positions}
    line = {"brokers": {}, "topics": {of: topics}, "do": ["split"], "split": [asked]}
    config = {
        "loadBalancerNamespaceBundleMaxMsgRate": "700",
        "defaultNamespaceBundleSplitAlgorithm": algorithm,
    }
    return Minimal(name, "Split algorithms", "cuts", config, (line,), deviation=deviation)
