"""Settings of the strategies: Pulsar's keys and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from loadmanager.core.conf import conf

Leaf = TypeVar("Leaf")


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySettings:
    """Placing and shedding."""

    own: Mapping[type, Any] = field(default_factory=dict, hash=False)
    """The settings of single strategies, which declare them."""

    def of(self, leaf: type[Leaf]) -> Leaf:
        """A strategy's own settings; their defaults where nobody set them."""
        found: Leaf = self.own[leaf] if leaf in self.own else leaf()
        return found

    shedding_enabled: bool = conf(
        "loadBalancerSheddingEnabled", True, "Move load away from hot brokers", dynamic=True
    )
    shedding_interval_minutes: float = conf(
        "loadBalancerSheddingIntervalMinutes",
        1.0,
        "How often the leader looks for load to move",
        minimum=0.01,
        dynamic=True,
    )
    grace_period_minutes: float = conf(
        "loadBalancerSheddingGracePeriodMinutes",
        30.0,
        "A bundle that was moved stays where it is for this long",
        minimum=0,
        dynamic=True,
    )
    excluded_namespaces: tuple[str, ...] = conf(
        "loadBalancerSheddingExcludedNamespaces",
        (),
        "Namespaces whose bundles are never shed, and are placed round robin",
        dynamic=True,
    )
    shedder: str = conf(
        "loadBalancerLoadSheddingStrategy",
        "org.apache.pulsar.broker.loadbalance.impl.ThresholdShedder",
        "Which strategy sheds: a full class name of Pulsar or its last part",
        dynamic=True,
    )
    placement: str = conf(
        "loadBalancerLoadPlacementStrategy",
        "org.apache.pulsar.broker.loadbalance.impl.LeastLongTermMessageRate",
        "Which strategy places: a full class name of Pulsar or its last part",
    )
    overloaded_percent: float = conf(
        "loadBalancerBrokerOverloadedThresholdPercentage",
        85.0,
        "A broker above this usage is overloaded",
        minimum=0,
        dynamic=True,
    )
    threshold_percent: float = conf(
        "loadBalancerBrokerThresholdShedderPercentage",
        10.0,
        "ThresholdShedder: how many points above the average a broker must be",
        minimum=0,
        dynamic=True,
    )
    lower_boundary_shedding: bool = conf(
        "lowerBoundarySheddingEnabled",
        False,
        "ThresholdShedder: also fill brokers that are far below the average",
    )
    min_throughput_mib: float = conf(
        "loadBalancerBundleUnloadMinThroughputThreshold",
        10.0,
        "ThresholdShedder: less than this many MiB/s to move is not worth a move",
        minimum=0,
        dynamic=True,
    )
    history_weight: float = conf(
        "loadBalancerHistoryResourcePercentage",
        0.9,
        "Weight of history in averages of usage",
        minimum=0,
        maximum=1,
        dynamic=True,
    )
    cpu_weight: float = conf(
        "loadBalancerCPUResourceWeight",
        1.0,
        "Weight of the CPU in a broker's usage",
        minimum=0,
        dynamic=True,
    )
    memory_weight: float = conf(
        "loadBalancerMemoryResourceWeight",
        1.0,
        "Weight of heap memory (TransferShedder only)",
        minimum=0,
        dynamic=True,
    )
    direct_memory_weight: float = conf(
        "loadBalancerDirectMemoryResourceWeight",
        0.0,
        "Weight of direct memory in a broker's usage",
        minimum=0,
        dynamic=True,
    )
    bandwidth_in_weight: float = conf(
        "loadBalancerBandwidthInResourceWeight",
        1.0,
        "Weight of inbound bandwidth in a broker's usage",
        minimum=0,
        dynamic=True,
        aliases=("loadBalancerBandwithInResourceWeight",),
    )
    bandwidth_out_weight: float = conf(
        "loadBalancerBandwidthOutResourceWeight",
        1.0,
        "Weight of outbound bandwidth in a broker's usage",
        minimum=0,
        dynamic=True,
        aliases=("loadBalancerBandwithOutResourceWeight",),
    )
    distribute_evenly: bool = conf(
        "loadBalancerDistributeBundlesEvenlyEnabled",
        True,
        "Place a namespace's bundles on the brokers that have fewest of it",
        dynamic=True,
    )
    broker_topics_max: int = conf(
        "loadBalancerBrokerMaxTopics",
        50_000,
        "A broker with more topics gets no bundle, if another has fewer",
        minimum=0,
        dynamic=True,
    )
    moves_per_cycle_max: int = conf(
        "loadManagerMovesPerCycleMax",
        -1,
        "How many bundles one shedding cycle moves at most (-1: any number)",
        minimum=-1,
        dynamic=True,
    )
    usage_difference_percent: float = conf(
        "loadBalancerAverageResourceUsageDifferenceThresholdPercentage",
        10.0,
        "LeastResourceUsageWithWeight: a broker this many points below the average is a candidate",
        minimum=0,
        dynamic=True,
    )
    rate_difference_percent: float = conf(
        "loadBalancerMsgRateDifferenceShedderThreshold",
        50.0,
        "UniformLoadShedder: by how many percent message rates may differ (0: any)",
        minimum=0,
        dynamic=True,
    )
    throughput_difference_ratio: float = conf(
        "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold",
        4.0,
        "UniformLoadShedder: by which factor throughputs may differ (0: any)",
        minimum=0,
        dynamic=True,
    )
    unload_rate_min: int = conf(
        "minUnloadMessage",
        1000,
        "UniformLoadShedder, AvgShedder: fewer messages/s are not worth a move",
        minimum=0,
        dynamic=True,
    )
    unload_throughput_min: int = conf(
        "minUnloadMessageThroughput",
        1024 * 1024,
        "UniformLoadShedder, AvgShedder: fewer bytes/s are not worth a move",
        minimum=0,
        dynamic=True,
    )
    unload_fraction_max: float = conf(
        "maxUnloadPercentage",
        0.2,
        "UniformLoadShedder, AvgShedder: the part of a difference to move, a fraction",
        minimum=0,
        maximum=1,
        dynamic=True,
    )
    uniform_bundles_max: int = conf(
        "maxUnloadBundleNumPerShedding",
        -1,
        "UniformLoadShedder: bundles per cycle at most (-1: any number)",
        minimum=-1,
        dynamic=True,
    )
    avg_low: float = conf(
        "loadBalancerAvgShedderLowThreshold",
        15.0,
        "AvgShedder: a difference of scores that counts",
        minimum=0,
        dynamic=True,
    )
    avg_high: float = conf(
        "loadBalancerAvgShedderHighThreshold",
        40.0,
        "AvgShedder: a difference of scores that counts more",
        minimum=0,
        dynamic=True,
    )
    avg_low_hits: int = conf(
        "loadBalancerAvgShedderHitCountLowThreshold",
        8,
        "AvgShedder: so many cycles above low",
        minimum=1,
        dynamic=True,
    )
    avg_high_hits: int = conf(
        "loadBalancerAvgShedderHitCountHighThreshold",
        2,
        "AvgShedder: so many cycles above high",
        minimum=1,
        dynamic=True,
    )
    target_std: float = conf(
        "loadBalancerBrokerLoadTargetStd",
        0.25,
        "TransferShedder: the spread of loads to reach",
        minimum=0,
        dynamic=True,
    )
    report_ttl_s: int = conf(
        "loadBalancerBrokerLoadDataTTLInSeconds",
        1800,
        "Nothing is shed from or to brokers whose reports are older",
        minimum=1,
        dynamic=True,
    )
    brokers_per_cycle_max: int = conf(
        "loadBalancerMaxNumberOfBrokerSheddingPerCycle",
        3,
        "TransferShedder: pairs of brokers per cycle at most",
        minimum=0,
        dynamic=True,
    )
    hits_min: int = conf(
        "loadBalancerSheddingConditionHitCountThreshold",
        3,
        "TransferShedder: acts after more than so many cycles in a row",
        minimum=0,
        dynamic=True,
    )
    transfer_enabled: bool = conf(
        "loadBalancerTransferEnabled", True, "TransferShedder: choose destinations", dynamic=True
    )
    delay_s: int = conf(
        "loadBalanceSheddingDelayInSeconds",
        180,
        "TransferShedder: rest after a broker was unloaded",
        minimum=0,
        dynamic=True,
    )
    shed_policy_bundles: bool = conf(
        "loadBalancerSheddingBundlesWithPoliciesEnabled",
        False,
        "TransferShedder: also move bundles under isolation or anti-affinity policies",
        dynamic=True,
    )
    failure_domains: bool = conf(
        "failureDomainsEnabled",
        False,
        "Spread anti-affinity groups over failure domains, too",
        dynamic=True,
    )
    load_manager_class: str = conf(
        "loadManagerClassName",
        "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
        "Which load manager: brokers that run another one get no bundles; a broker itself runs "
        "ModularLoadManagerImpl",
    )
    prefer_later_versions: bool = conf(
        "preferLaterVersions", False, "Place bundles on the brokers of the newest version only"
    )
