"""Seeded cases: a leader's settings and the cycles that it sees, as lines of `loadmanager decide`.

A case depends on its family, the seed and its number only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from loadmanager.broker import settings

Case = dict[str, Any]

START_MS = 1_800_000_000_000
STEP_MS = 90_000
"""Between cycles: longer than a placement stays under way without a report."""
STEPS_MS = (20_300, 90_300)
"""No grace period or delay ends at the very moment of a cycle, while Java's clock goes on."""
MIB = 1024 * 1024
MODULAR = "org.apache.pulsar.broker.loadbalance.impl."
EXTENSIBLE = "org.apache.pulsar.broker.loadbalance.extensions."
MODULAR_MANAGER = f"{MODULAR}ModularLoadManagerImpl"
EXTENSIBLE_MANAGER = f"{EXTENSIBLE}ExtensibleLoadManagerImpl"
DYNAMIC = frozenset(settings.KEYS.dynamic_names()) - {"loadBalancerLoadSheddingStrategy"}
"""Settings that may change while a leader decides, in Pulsar and here."""
SYSTEM_NAMESPACES = (
    "pulsar/system",
    "pulsar/b1:8080",
    "pulsar/cluster/b1:8080",
    "sla-monitor/b1:8080",
    "sla-monitor/cluster/b1:8080",
)
"""Of all versions; no version refuses to read a report that names those of another."""


def make(family: str, seed: int, number: int, version: str) -> Case:
    """One case of a family, for a version of Pulsar."""
    rng = Random(f"{family} {seed} {number}")
    case = FAMILIES[family](rng, version)
    _change_settings(rng, family, case, version)
    return {"id": f"{family}/{seed}/{number}", "family": family, **case}


def _change_settings(rng: Random, family: str, case: Case, version: str) -> None:
    """At times, an operator changes dynamic settings while the leader decides."""
    if rng.random() < 0.85:
        return
    others = FAMILIES[family](Random(f"{family} {rng.random()}"), version)["config"]
    changed = {
        name: value
        for name, value in others.items()
        if name in DYNAMIC and case["config"].get(name) not in (None, value)
    }
    for line in case["cycles"][1:]:
        if changed and rng.random() < 0.5:
            line["config"] = {name: changed[name] for name in rng.sample(sorted(changed), 1)}


def bundle(namespace: str, at: int, of: int = 16) -> str:
    """A namespace's bundle by its place among equal ones."""
    step = 2**32 // of
    return f"{namespace}/0x{at * step:08x}_0x{min((at + 1) * step, 0xFFFFFFFF):08x}"


def boundaries(of: int = 16) -> list[str]:
    """The boundaries of a namespace of equal bundles."""
    return [f"0x{at * (2**32 // of):08x}" for at in range(of)] + ["0xffffffff"]


def _usage(rng: Random, percent: float, limit: float = 100.0) -> dict[str, float]:
    usage = round(percent * limit / 100, 3)
    return {"usage": usage, "limit": limit if rng.random() < 0.98 else 0.0}


def _stats(rng: Random, scale: float) -> dict[str, Any]:
    if rng.random() < 0.05:
        scale = 0.0
    rate = scale * rng.lognormvariate(0, 1)
    throughput = rate * rng.choice((100, 1000, 10_000)) * rng.uniform(0.5, 2)
    part, share = rng.random(), rng.random()
    return {
        "msgRateIn": round(rate * part, 2),
        "msgRateOut": round(rate * (1 - part), 2),
        "msgThroughputIn": round(throughput * share, 1),
        "msgThroughputOut": round(throughput * (1 - share), 1),
        "topics": rng.choice((0, 1, 2, 5, 40)),
        "producerCount": rng.randrange(20),
        "consumerCount": rng.randrange(20),
        "cacheSize": 0,
    }


def _brokers(rng: Random) -> list[str]:
    """A few brokers, or more; at times several on one host."""
    count = rng.randint(2, 7) if rng.random() < 0.9 else rng.randint(8, 30)
    if rng.random() < 0.8:
        return [f"b{number}:8080" for number in range(1, count + 1)]
    hosts = rng.choice((("10.0.0.1", "10.0.0.10", "[::1]"), ("b-0.svc.local", "b-10.svc.local")))
    return [f"{hosts[at % len(hosts)]}:{8080 + at // len(hosts)}" for at in range(count)]


class _Cluster:
    """Brokers and what they serve, as it changes from cycle to cycle."""

    def __init__(self, rng: Random, *, namespaces: list[str], bundles_max: int = 12) -> None:
        self.rng = rng
        self.brokers = _brokers(rng)
        names = [bundle(namespace, at) for namespace in namespaces for at in range(16)]
        rng.shuffle(names)
        self.serves: dict[str, dict[str, dict[str, Any]]] = {}
        for broker in self.brokers:
            scale = rng.choice((1, 10, 100, 1000, 5000))
            count = rng.choice((0, 1, 2, rng.randint(2, bundles_max), rng.randint(4, bundles_max)))
            self.serves[broker] = {
                names.pop(): _stats(rng, scale) for _ in range(min(count, len(names) - 6))
            }
        self.unowned = names
        self.percents = {broker: self._percents() for broker in self.brokers}
        if rng.random() < 0.15:
            self._equal_figures(same_everywhere=rng.random() < 0.5)
        self.absent: set[str] = set()
        self.left: dict[str, dict[str, dict[str, Any]]] = {}
        """Broker → bundles that have a new owner, and that it still reports."""

    def _percents(self) -> dict[str, float]:
        rng = self.rng
        high = rng.choice((20, 60, 95, 95, 130))
        return {
            "cpu": rng.uniform(0, high) if rng.random() < 0.9 else float(rng.choice((0, 85, 90))),
            "memory": rng.uniform(0, 100),
            "directMemory": rng.uniform(0, 100),
            "bandwidthIn": rng.uniform(0, high),
            "bandwidthOut": rng.uniform(0, high),
        }

    def _equal_figures(self, *, same_everywhere: bool) -> None:
        stats = _stats(self.rng, 1000)
        for served in self.serves.values():
            stats = stats if same_everywhere else _stats(self.rng, 1000)
            for name in served:
                served[name] = dict(stats)

    def advance(self) -> None:
        """Change brokers and bundles for the next cycle."""
        rng = self.rng
        for broker in self.brokers:
            kind = rng.random()
            if kind < 0.3:
                self.percents[broker] = self._percents()
            if kind < 0.6:
                for stats in self.serves[broker].values():
                    factor = rng.uniform(0.5, 1.5)
                    for name in ("msgRateIn", "msgRateOut"):
                        stats[name] = round(stats[name] * factor, 2)
                    for name in ("msgThroughputIn", "msgThroughputOut"):
                        stats[name] = round(stats[name] * factor, 1)
        self.absent = (
            set(rng.sample(self.brokers, rng.randint(1, len(self.brokers) - 1)))
            if rng.random() < 0.15
            else set()
        )
        self.left = {}
        if rng.random() < 0.4:
            self._hand_over()

    def _hand_over(self) -> None:
        """A broker's bundles get another owner; at times both report them in the next cycle."""
        rng = self.rng
        source, target = rng.sample(self.brokers, 2)
        served = self.serves[source]
        moved = rng.sample(sorted(served), min(len(served), rng.randint(1, 3)))
        late = rng.random() < 0.5
        for name in moved:
            stats = served.pop(name)
            self.serves[target][name] = stats
            if late:
                self.left.setdefault(source, {})[name] = dict(stats)

    def _reported(self, broker: str) -> dict[str, dict[str, Any]]:
        return {**self.serves[broker], **self.left.get(broker, {})}

    def owners(self) -> dict[str, str]:
        """The owners of the bundles that two brokers report."""
        late = {name for bundles in self.left.values() for name in bundles}
        return {
            name: broker for broker in self.brokers for name in self.serves[broker] if name in late
        }

    def reports(self, now: int) -> dict[str, Any]:
        """The modular manager's."""
        reports = {}
        for broker in self.brokers:
            if broker in self.absent:
                continue
            percents, served = self.percents[broker], self._reported(broker)
            reports[broker] = {
                name: _usage(self.rng, percent, {"cpu": 400.0}.get(name, 1000.0))
                for name, percent in percents.items()
            } | {
                "lastStats": {name: dict(stats) for name, stats in served.items()},
                "bundles": sorted(served),
                "numBundles": len(served),
                "numTopics": sum(stats["topics"] for stats in served.values()),
                "lastUpdate": now,
                "loadManagerClassName": MODULAR_MANAGER,
                "brokerVersionString": "4.0.0",
                **_sums(served),
            }
        return reports

    def loads(self, now: int, load: dict[str, float]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The extensible manager's reports and its published bundles, the least loaded first."""
        reports, tops = {}, {}
        for broker in self.brokers:
            if broker in self.absent:
                continue
            served = self._reported(broker)
            sums = _sums(served)
            reports[broker] = {
                **sums,
                "bundleCount": len(served),
                "topics": sum(stats["topics"] for stats in served.values()),
                "maxResourceUsage": load[broker],
                "weightedMaxEMA": load[broker],
                "msgThroughputEMA": sums["msgThroughputIn"] + sums["msgThroughputOut"],
                "updatedAt": now - 1000,
                "reportedAt": now - 1000,
            }
            order = sorted(served, key=lambda name: served[name]["msgThroughputIn"])
            tops[broker] = {
                "topBundlesLoadData": [
                    {"bundleName": name, "stats": dict(served[name])} for name in order[-10:]
                ]
            }
        return reports, tops


def _sums(served: dict[str, dict[str, Any]]) -> dict[str, float]:
    return {
        name: round(sum(stats[name] for stats in served.values()), 2)
        for name in ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")
    }


def _exclude(rng: Random, config: dict[str, Any], version: str) -> None:
    """An excluded namespace, which Pulsar 4.0 does not know."""
    if not version.startswith("4.0") and rng.random() < 0.3:
        config["loadBalancerSheddingExcludedNamespaces"] = "t/ns1"


def _grace(rng: Random, config: dict[str, Any]) -> None:
    """For how long a bundle that was moved stays; at times shorter than the case is long."""
    if rng.random() < 0.5:
        config["loadBalancerSheddingGracePeriodMinutes"] = rng.choice((0, 1, 2, 3))


def _moved(rng: Random, cluster: _Cluster, now: int) -> dict[str, int]:
    """Bundles that were moved before, some of them about when a grace period ends."""
    served = [name for bundles in cluster.serves.values() for name in bundles]
    moved = rng.sample(served, min(rng.choice((2, 2, 10)), len(served)))
    ago = 1, 59, 61, 119, 121, 1799, 1801, 7200
    return {name: now - rng.choice(ago) * 1000 for name in moved}


def _weights(rng: Random, config: dict[str, str]) -> None:
    if rng.random() < 0.4:
        for resource in ("CPU", "DirectMemory", "BandwidthIn", "BandwidthOut"):
            config[f"loadBalancer{resource}ResourceWeight"] = str(rng.choice((0, 0.5, 1, 1)))


def _some_namespaces(rng: Random) -> list[str]:
    namespaces = [f"t/ns{number}" for number in range(rng.randint(3, 6))]
    if rng.random() < 0.3:
        namespaces += rng.sample(SYSTEM_NAMESPACES, rng.randint(1, 2))
    return namespaces


def _two_part_system_namespaces(rng: Random) -> list[str]:
    """Pulsar 4.2 fails to place, to split and to publish bundles of the others."""
    names = [name for name in SYSTEM_NAMESPACES if name.count("/") == 1]
    return rng.sample(names, rng.randint(0, 2))


def _shedding(
    name: str, configure: Callable[[Random], dict[str, Any]], cycles_max: int
) -> Callable[[Random, str], Case]:
    def make_case(rng: Random, version: str) -> Case:
        config = {"loadBalancerLoadSheddingStrategy": MODULAR + name, **configure(rng)}
        if name == "AvgShedder":
            config["loadBalancerLoadPlacementStrategy"] = MODULAR + name
        _weights(rng, config)
        _grace(rng, config)
        cluster = _Cluster(rng, namespaces=_some_namespaces(rng))
        cycles = []
        for now in _times(rng, cycles_max):
            line: dict[str, Any] = {"now": now, "brokers": cluster.reports(now)}
            if rng.random() < 0.2:
                line["recentlyUnloaded"] = _moved(rng, cluster, now)
            cycles.append(line)
            cluster.advance()
        return {"kind": "modular", "config": _texts(config), "cycles": cycles}

    return make_case


def _times(rng: Random, cycles_max: int, steps_ms: Sequence[int] = STEPS_MS) -> list[int]:
    """The times of some cycles, in ms since the epoch."""
    step = rng.choice(steps_ms)
    times = [START_MS + number * step for number in range(rng.randint(1, cycles_max))]
    if rng.random() < 0.1:  # the leader sleeps, or the clock is set
        jumps = (600_000, 1_200_000) if steps_ms != STEPS_MS else (-3_600_000, -45_000, 1_200_000)
        at, by = rng.randrange(len(times)), rng.choice(jumps)
        times[at:] = [time + by for time in times[at:]]
    return times


def _texts(config: dict[str, Any]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in config.items()
    }


def _threshold(rng: Random) -> dict[str, Any]:
    return {
        "loadBalancerBrokerThresholdShedderPercentage": rng.choice((5, 10, 10, 20)),
        "loadBalancerBundleUnloadMinThroughputThreshold": rng.choice((0, 0.01, 1, 10)),
        "loadBalancerHistoryResourcePercentage": rng.choice((0.9, 0.5, 0.0)),
        "lowerBoundarySheddingEnabled": rng.random() < 0.4,
    }


def _overload(rng: Random) -> dict[str, Any]:
    return {"loadBalancerBrokerOverloadedThresholdPercentage": rng.choice((50, 85, 90))}


def _uniform(rng: Random) -> dict[str, Any]:
    return {
        "loadBalancerMsgRateDifferenceShedderThreshold": rng.choice((0, 50, 50)),
        "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold": rng.choice((0, 2, 4)),
        "minUnloadMessage": rng.choice((1, 100, 1000)),
        "minUnloadMessageThroughput": rng.choice((1, 1000, MIB)),
        "maxUnloadPercentage": rng.choice((0.2, 0.5, 1.0)),
        "maxUnloadBundleNumPerShedding": rng.choice((-1, -1, 0, 1, 3)),
    }


def _avg(rng: Random) -> dict[str, Any]:
    return {
        "minUnloadMessage": rng.choice((1, 100, 1000)),
        "minUnloadMessageThroughput": rng.choice((1, 1000, MIB)),
        "maxUnloadPercentage": rng.choice((0.2, 0.5)),
        "loadBalancerAvgShedderLowThreshold": rng.choice((5, 15)),
        "loadBalancerAvgShedderHighThreshold": rng.choice((20, 40)),
        "loadBalancerAvgShedderHitCountHighThreshold": rng.choice((1, 2, 3)),
        "loadBalancerAvgShedderHitCountLowThreshold": rng.choice((2, 4, 8)),
    }


def _policies(rng: Random, brokers: list[str]) -> dict[str, Any]:
    """Isolation policies; of those that match a namespace, the first by name counts."""
    if rng.random() < 0.6:
        return {}
    hosts = [broker.rpartition(":")[0] for broker in brokers]
    names = rng.sample(["a", "mine", "other", "z"], rng.choice((1, 1, 1, 2, 3)))
    return {name: _policy(rng, hosts) for name in names}


def _policy(rng: Random, hosts: list[str]) -> dict[str, Any]:
    expressions = [*(re.escape(host) for host in hosts), "b.*", ".*1", ".*0", "b[1-3]", ""]
    if rng.random() < 0.1:
        expressions.append(".*:8080")
    return {
        "namespaces": rng.sample(
            ("t/ns0", "t/ns1", "t/ns[12]", ".*/ns2", "t/.*"), rng.randint(1, 2)
        ),
        "primary": rng.sample(expressions, rng.randint(1, min(3, len(hosts)))),
        "secondary": rng.sample(expressions, rng.randint(0, 3)),
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": str(rng.choice((0, 1, 2, 5))), "usage_threshold": "100"},
        },
    }


def _groups(rng: Random, namespaces: list[str]) -> dict[str, Any]:
    if rng.random() < 0.6:
        return {}
    members = rng.sample(namespaces, min(len(namespaces), rng.randint(1, 4)))
    names = rng.choice((("group",), ("group", "Group"), ("group", "other")))
    return {name: {"antiAffinityGroup": rng.choice(names)} for name in members}


def _domains(rng: Random, brokers: list[str], config: dict[str, Any]) -> dict[str, list[str]]:
    if rng.random() < 0.7:
        return {}
    config["failureDomainsEnabled"] = True
    domains: dict[str, list[str]] = {}
    for broker in brokers:
        if rng.random() < 0.8:
            domains.setdefault(rng.choice(("d1", "d2", "d3")), []).append(broker)
    return domains


def _transfer(debug: bool) -> Callable[[Random, str], Case]:
    def make_case(rng: Random, version: str) -> Case:
        config = {
            "loadManagerClassName": EXTENSIBLE_MANAGER,
            "loadBalancerLoadSheddingStrategy": f"{EXTENSIBLE}scheduler.TransferShedder",
            "loadBalancerDebugModeEnabled": debug,
            "loadBalancerBrokerLoadTargetStd": rng.choice((0, 0.05, 0.1, 0.25, 1.5)),
            "loadBalancerBrokerOverloadedThresholdPercentage": rng.choice((20, 50, 85, 85)),
            "loadBalancerBrokerLoadDataTTLInSeconds": rng.choice((60, 1800, 1800)),
            "loadBalancerMaxNumberOfBrokerSheddingPerCycle": rng.choice((0, 1, 3, 3, 10)),
            "loadBalancerSheddingConditionHitCountThreshold": rng.choice((0, 0, 1, 3)),
            "loadBalancerTransferEnabled": rng.random() < 0.8,
            "loadBalanceSheddingDelayInSeconds": rng.choice((0, 30, 180)),
            "loadBalancerSheddingBundlesWithPoliciesEnabled": rng.random() < 0.5,
            "loadBalancerBrokerMaxTopics": rng.choice((50_000, 50_000, 60)),
        }
        _exclude(rng, config, version)
        _grace(rng, config)
        namespaces = [f"t/ns{number}" for number in range(rng.randint(4, 6))]
        cluster = _Cluster(rng, namespaces=namespaces)
        domains = _domains(rng, cluster.brokers, config)
        policies, groups = _policies(rng, cluster.brokers), _groups(rng, namespaces)
        versions = _versions(rng, config, cluster.brokers)
        cycles, reported = [], dict[str, int]()
        for now in _times(rng, 5):
            load = {broker: _load(rng) for broker in cluster.brokers}
            if rng.random() < 0.1:
                load = dict.fromkeys(load, rng.choice((0.0, 0.1, 0.3, 0.9)))
            elif rng.random() < 0.2:
                load = {broker: round(value, 1) for broker, value in load.items()}
            brokers, tops = cluster.loads(now, load)
            if rng.random() < 0.1:
                stale = rng.choice(sorted(brokers))
                # Too old to count, or not older than the report before: none is taken back.
                latest = reported.get(stale, 0)
                brokers[stale]["updatedAt"] = rng.choice(
                    (max(latest, now - 59_000), max(latest, now - 61_000), now - 2_000_000)
                )
            for broker, told in brokers.items():
                reported[broker] = max(reported.get(broker, 0), told["updatedAt"])
            if rng.random() < 0.05:
                del tops[rng.choice(sorted(tops))]
            line: dict[str, Any] = {"now": now, "brokers": brokers, "topBundles": tops}
            line |= {"isolationPolicies": policies} if policies else {}
            line |= {"namespaces": groups} if groups else {}
            line |= {"failureDomains": domains, **versions} if domains else versions
            line |= {"owners": cluster.owners()}
            if rng.random() < 0.3:
                line["recentlyUnloaded"] = _moved(rng, cluster, now)
            if rng.random() < 0.1:
                line["recentlyUnloadedBrokers"] = {
                    rng.choice(cluster.brokers): now - rng.choice((2, 30, 32, 180, 182, 400)) * 1000
                }
            cycles.append(line)
            cluster.advance()
        return {"kind": "extensible", "config": _texts(config), "cycles": cycles}

    return make_case


def _load(rng: Random) -> float:
    return round(rng.choice((rng.uniform(0, 1), rng.uniform(0, 0.3), rng.uniform(0.7, 1.2))), 4)


def _placing(rng: Random, config: dict[str, Any], version: str) -> tuple[_Cluster, dict[str, Any]]:
    namespaces = [f"t/ns{number}" for number in range(rng.randint(3, 5))]
    cluster = _Cluster(rng, namespaces=[*namespaces, *_two_part_system_namespaces(rng)])
    config["loadBalancerBrokerMaxTopics"] = rng.choice((50_000, 50_000, 60, 20))
    config["loadBalancerBrokerOverloadedThresholdPercentage"] = rng.choice((50, 85))
    _exclude(rng, config, version)
    domains = _domains(rng, cluster.brokers, config)
    policies, groups = _policies(rng, cluster.brokers), _groups(rng, namespaces)
    extras: dict[str, Any] = {"isolationPolicies": policies} if policies else {}
    extras |= {"namespaces": groups} if groups else {}
    extras |= {"failureDomains": domains} if domains else {}
    return cluster, extras


def _modular_placement(name: str) -> Callable[[Random, str], Case]:
    def make_case(rng: Random, version: str) -> Case:
        config: dict[str, Any] = {
            "loadBalancerLoadPlacementStrategy": MODULAR + name,
            "loadBalancerDistributeBundlesEvenlyEnabled": rng.random() < 0.5,
            "preferLaterVersions": rng.random() < 0.3,
            "loadBalancerAverageResourceUsageDifferenceThresholdPercentage": rng.choice((5, 10)),
            "loadBalancerHistoryResourcePercentage": rng.choice((0.9, 0.5)),
        }
        if name == "AvgShedder":  # Pulsar starts with both or none
            config["loadBalancerLoadSheddingStrategy"] = MODULAR + name
        _weights(rng, config)
        cluster, extras = _placing(rng, config, version)
        odd = {
            broker: rng.choice(("4.0.1", "4.1.0", "4.0.0-SNAPSHOT", "4.0.0+b7", "4.0.0-rc.2", "4"))
            for broker in cluster.brokers
            if rng.random() < 0.3
        }
        others = {broker for broker in cluster.brokers if rng.random() < 0.05}
        nameless = {broker for broker in cluster.brokers if rng.random() < 0.02}
        closed = {broker for broker in cluster.brokers if rng.random() < 0.05}
        cycles = []
        for now in _times(rng, 3):
            brokers = cluster.reports(now)
            for broker, report in brokers.items():
                report["brokerVersionString"] = odd.get(broker, "4.0.0")
                if broker in others:
                    report["loadManagerClassName"] = EXTENSIBLE_MANAGER
                if broker in nameless:
                    del report["loadManagerClassName"]
                if broker in closed:
                    report["persistentTopicsEnabled"] = False
            place = rng.sample(cluster.unowned, rng.randint(1, 5))
            cycles.append(
                {"now": now, "brokers": brokers, **extras, "do": ["place"], "place": place}
            )
            cluster.advance()
        return {"kind": "modular", "config": _texts(config), "cycles": cycles}

    return make_case


def _versions(rng: Random, config: dict[str, Any], brokers: Sequence[str]) -> dict[str, Any]:
    """In the extensible manager, whose reports have none."""
    if rng.random() < 0.7:
        return {}
    config["preferLaterVersions"] = True
    known = rng.choice((("4.0.0", "4.0.1"), ("4.0.0", "4.0.0", "4.0.1-SNAPSHOT", "latest")))
    return {"versions": {broker: rng.choice(known) for broker in brokers}}


def _extensible_placement(rng: Random, version: str) -> Case:
    config: dict[str, Any] = {
        "loadManagerClassName": EXTENSIBLE_MANAGER,
        "loadBalancerLoadSheddingStrategy": f"{EXTENSIBLE}scheduler.TransferShedder",
        "loadBalancerAverageResourceUsageDifferenceThresholdPercentage": rng.choice((5, 10)),
    }
    cluster, extras = _placing(rng, config, version)
    extras |= _versions(rng, config, cluster.brokers)
    cycles = []
    # Only a line's owners are owners: by then we have forgotten our last placements, too.
    for now in _times(rng, 3, (STEP_MS,)):
        brokers, tops = cluster.loads(now, {broker: _load(rng) for broker in cluster.brokers})
        place = rng.sample(cluster.unowned, rng.randint(1, 5))
        cycles.append(
            {
                "now": now,
                "brokers": brokers,
                "topBundles": tops,
                "owners": cluster.owners(),
                **extras,
                "do": ["place"],
                "place": place,
            }
        )
        cluster.advance()
    return {"kind": "extensible", "config": _texts(config), "cycles": cycles}


def _split_config(rng: Random) -> dict[str, Any]:
    return {
        "loadBalancerNamespaceMaximumBundles": rng.choice((16, 17, 18, 128)),
        "loadBalancerNamespaceBundleMaxTopics": rng.choice((4, 39, 1000)),
        "loadBalancerNamespaceBundleMaxSessions": rng.choice((-1, 25, 1000)),
        "loadBalancerNamespaceBundleMaxMsgRate": rng.choice((500, 3000, 30_000)),
        "loadBalancerNamespaceBundleMaxBandwidthMbytes": rng.choice((1, 10, 100)),
        "flowOrQpsDifferenceThresholdPercentage": rng.choice((0, 10, 50)),
        "defaultNamespaceBundleSplitAlgorithm": rng.choice(
            (
                "range_equally_divide",
                "range_equally_divide",
                "topic_count_equally_divide",
                "flow_or_qps_equally_divide",
            )
        ),
    }


def _moves(rng: Random, version: str) -> Case:
    """Modular shedding with destinations, under policies."""
    name, configure, cycles_max = rng.choice(
        (
            ("ThresholdShedder", _threshold, 3),
            ("OverloadShedder", _overload, 2),
            ("UniformLoadShedder", _uniform, 2),
            ("AvgShedder", _avg, 6),
        )
    )
    placement = rng.choice(("LeastLongTermMessageRate", "LeastResourceUsageWithWeight"))
    if name == "AvgShedder" and rng.random() < 0.6:
        placement = name
    config: dict[str, Any] = {
        "loadBalancerLoadSheddingStrategy": MODULAR + name,
        "loadBalancerLoadPlacementStrategy": MODULAR + placement,
        "loadBalancerDistributeBundlesEvenlyEnabled": rng.random() < 0.5,
        **configure(rng),
    }
    _weights(rng, config)
    _grace(rng, config)
    cluster, extras = _placing(rng, config, version)
    cycles = []
    for now in _times(rng, cycles_max):
        line = {"now": now, "brokers": cluster.reports(now), **extras}
        if rng.random() < 0.2:
            line["recentlyUnloaded"] = _moved(rng, cluster, now)
        cycles.append(line)
        cluster.advance()
    return {"kind": "moves", "config": _texts(config), "cycles": cycles}


def _splitting(rng: Random) -> tuple[_Cluster, dict[str, Any]]:
    """A cluster, and what a line says of its namespaces and topics."""
    namespaces = [f"t/ns{number}" for number in range(4)] + _two_part_system_namespaces(rng)
    cluster = _Cluster(rng, namespaces=namespaces)
    line: dict[str, Any] = {
        "namespaces": {name: {"boundaries": boundaries()} for name in namespaces}
    }
    if rng.random() < 0.7:
        line["topics"] = {
            name: _topics(rng, name, stats)
            for served in cluster.serves.values()
            for name, stats in served.items()
        }
    return cluster, line


def _topics(rng: Random, name: str, stats: dict[str, Any]) -> dict[str, Any]:
    """The topics of a bundle, which share its traffic; some have equal hashes."""
    namespace, _, span = name.rpartition("/")
    lower, upper = (int(edge, 16) for edge in span.split("_"))
    count = stats["topics"]
    hashes = [rng.randrange(lower, upper) for _ in range(count)]
    if count > 1 and rng.random() < 0.1:
        hashes[1] = hashes[0]
    shares = [rng.choice((0, 1, 1)) * rng.random() for _ in range(count)]
    total = sum(shares) or 1.0
    return {
        f"persistent://{namespace}/{lower:08x}-{number:02}": {
            "msgRate": round(stats["msgRateIn"] * share / total, 2),
            "msgThroughput": round(stats["msgThroughputIn"] * share / total, 1),
            "hash": value,
        }
        for number, (share, value) in enumerate(zip(shares, hashes, strict=True))
    }


def _modular_splits(rng: Random, version: str) -> Case:
    config = _split_config(rng)
    cluster, known = _splitting(rng)
    cycles = []
    for now in _times(rng, 3):
        cycles.append({"now": now, "brokers": cluster.reports(now), **known, "do": ["split"]})
        cluster.advance()
    return {"kind": "modular", "config": _texts(config), "cycles": cycles}


def _extensible_splits(rng: Random, version: str) -> Case:
    config = {
        **_split_config(rng),
        "loadManagerClassName": EXTENSIBLE_MANAGER,
        "loadBalancerLoadSheddingStrategy": f"{EXTENSIBLE}scheduler.TransferShedder",
        "loadBalancerNamespaceBundleSplitConditionHitCountThreshold": rng.choice((0, 0, 1, 3)),
        "loadBalancerMaxNumberOfBundlesToSplitPerCycle": rng.choice((1, 2, 10)),
    }
    cluster, known = _splitting(rng)
    cycles = []
    stay = rng.random() < 0.5
    tops: dict[str, Any] = {}
    for now in _times(rng, 5):
        brokers, published = cluster.loads(now, dict.fromkeys(cluster.brokers, 0.5))
        tops = {**(_without(tops, published) if stay else {}), **published}
        line = {"now": now, "brokers": brokers, "topBundles": tops, "owners": cluster.owners()}
        cycles.append({**line, **known, "do": ["split"]})
        cluster.advance()
    return {"kind": "extensible", "config": _texts(config), "cycles": cycles}


def _without(tops: dict[str, Any], published: dict[str, Any]) -> dict[str, Any]:
    """The published data without brokers that are gone and bundles that have a new owner."""
    present = {
        item["bundleName"] for top in published.values() for item in top["topBundlesLoadData"]
    }
    return {
        broker: {
            "topBundlesLoadData": [
                item for item in top["topBundlesLoadData"] if item["bundleName"] not in present
            ]
        }
        for broker, top in tops.items()
    }


def _cuts(rng: Random, version: str) -> Case:
    """One bundle and its topics; some topics have equal hashes."""
    algorithm = rng.choice(
        (
            "range_equally_divide",
            "topic_count_equally_divide",
            "specified_positions_divide",
            "flow_or_qps_equally_divide",
            "flow_or_qps_equally_divide",
        )
    )
    config = {
        "loadBalancerNamespaceBundleMaxMsgRate": rng.choice((450, 1100, 1900)),
        "loadBalancerNamespaceBundleMaxBandwidthMbytes": rng.choice((90, 110, 200)),
        "flowOrQpsDifferenceThresholdPercentage": rng.choice((0, 10, 50)),
        "defaultNamespaceBundleSplitAlgorithm": algorithm,
    }
    lower = rng.randrange(0, 2**32 - 2**20)
    upper = min(0xFFFFFFFF, lower + rng.choice((4, 2**10, 2**20, 2**28)))
    name = f"t/ns0/0x{lower:08x}_0x{upper:08x}"
    hashes = [rng.randrange(lower, upper) for _ in range(rng.choice((0, 1, 2, 3, 8, 30)))]
    if len(hashes) > 2 and rng.random() < 0.3:
        hashes[1] = hashes[0]
    topics = {
        f"persistent://t/ns0/topic-{number:02}": {
            "msgRate": round(rng.choice((0, 1, 1)) * rng.uniform(0, 600), 1),
            "msgThroughput": round(rng.choice((0, 1, 1)) * rng.uniform(0, 60) * MIB, 1),
            "hash": value,
        }
        for number, value in enumerate(hashes)
    }
    positions = [
        rng.randrange(max(0, lower - 2), min(2**32, upper + 3)) for _ in range(rng.randint(1, 4))
    ]
    if rng.random() < 0.2:
        positions.append(positions[0])
    asked: dict[str, Any] = {"bundle": name, "algorithm": algorithm}
    if algorithm == "specified_positions_divide":
        asked["positions"] = positions
    line = {"now": START_MS, "brokers": {}, "topics": {name: topics}, "do": ["split"]}
    return {"kind": "cuts", "config": _texts(config), "cycles": [{**line, "split": [asked]}]}


def _samples(rng: Random, version: str) -> Case:
    config: dict[str, Any] = {"loadBalancerHistoryResourcePercentage": rng.choice((0.9, 0.75, 0.0))}
    _weights(rng, config)
    config["loadBalancerMemoryResourceWeight"] = rng.choice((0, 0, 0.5, 1))
    config["loadBalancerMaxNumberOfBundlesInBundleLoadReport"] = rng.choice((3, 10, 20))
    _exclude(rng, config, version)
    namespaces = [f"t/ns{number}" for number in range(rng.randint(3, 6))]
    namespaces += _two_part_system_namespaces(rng)
    cluster = _Cluster(rng, namespaces=namespaces, bundles_max=14)
    cycles = []
    for now in _times(rng, 14):
        brokers = cluster.reports(now)
        for report in brokers.values():
            _tell_apart(rng, report)
        cycles.append({"now": now, "brokers": brokers, "do": []})
        cluster.advance()
    return {"kind": "samples", "config": _texts(config), "cycles": cycles}


def _tell_apart(rng: Random, report: dict[str, Any]) -> None:
    """Give bundles figures that differ in Pulsar's steps, which would leave equals in any order."""
    bundles = list(report["lastStats"].values())
    for number, stats in enumerate(rng.sample(bundles, len(bundles))):
        stats["msgThroughputIn"] = 2e5 * rng.randrange(3)
        stats["msgThroughputOut"] = 2e5 * (number + rng.randrange(2) * len(bundles))
    report |= _sums(report["lastStats"])


FAMILIES: dict[str, Callable[[Random, str], Case]] = {
    "ThresholdShedder": _shedding("ThresholdShedder", _threshold, 6),
    "OverloadShedder": _shedding("OverloadShedder", _overload, 3),
    "UniformLoadShedder": _shedding("UniformLoadShedder", _uniform, 3),
    "AvgShedder": _shedding("AvgShedder", _avg, 12),
    "TransferShedder, debug": _transfer(True),
    "TransferShedder": _transfer(False),
    "LeastLongTermMessageRate": _modular_placement("LeastLongTermMessageRate"),
    "LeastResourceUsage, modular": _modular_placement("LeastResourceUsageWithWeight"),
    "Moves, modular": _moves,
    "AvgShedder, placement": _modular_placement("AvgShedder"),
    "LeastResourceUsage, extensible": _extensible_placement,
    "Split algorithms": _cuts,
    "Splits, modular": _modular_splits,
    "Splits, extensible": _extensible_splits,
    "Averages and reports": _samples,
}
