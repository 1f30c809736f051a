"""Settings of the strategies: Pulsar's keys and defaults."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.core.conf import conf


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySettings:
    """Placing and shedding."""

    shedding_enabled: bool = conf("loadBalancerSheddingEnabled", True, "Move load away from hot brokers", dynamic=True)
    shedding_interval_minutes: float = conf(
        "loadBalancerSheddingIntervalMinutes", 1.0, "How often the leader looks for load to move", minimum=0.01, dynamic=True
    )
    grace_period_minutes: float = conf(
        "loadBalancerSheddingGracePeriodMinutes", 30.0, "A bundle that was moved stays where it is for this long", minimum=0, dynamic=True
    )
    excluded_namespaces: tuple[str, ...] = conf(
        "loadBalancerSheddingExcludedNamespaces", (), "Namespaces whose bundles are never shed, and are placed round robin", dynamic=True
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
        "loadBalancerBrokerOverloadedThresholdPercentage", 85.0, "A broker above this usage is overloaded", minimum=0, dynamic=True
    )
    threshold_percent: float = conf(
        "loadBalancerBrokerThresholdShedderPercentage",
        10.0,
        "ThresholdShedder: how many points above the average a broker must be",
        minimum=0,
        dynamic=True,
    )
    lower_boundary_shedding: bool = conf(
        "lowerBoundarySheddingEnabled", False, "ThresholdShedder: also fill brokers that are far below the average"
    )
    min_throughput_mib: float = conf(
        "loadBalancerBundleUnloadMinThroughputThreshold",
        10.0,
        "ThresholdShedder: less than this many MiB/s to move is not worth a move",
        minimum=0,
        dynamic=True,
    )
    history_weight: float = conf(
        "loadBalancerHistoryResourcePercentage", 0.9, "Weight of history in averages of usage", minimum=0, maximum=1, dynamic=True
    )
    cpu_weight: float = conf("loadBalancerCPUResourceWeight", 1.0, "Weight of the CPU in a broker's usage", minimum=0, dynamic=True)
    memory_weight: float = conf(
        "loadBalancerMemoryResourceWeight", 1.0, "Weight of heap memory (TransferShedder only)", minimum=0, dynamic=True
    )
    direct_memory_weight: float = conf(
        "loadBalancerDirectMemoryResourceWeight", 0.0, "Weight of direct memory in a broker's usage", minimum=0, dynamic=True
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
        "loadBalancerBrokerMaxTopics", 50_000, "A broker with more topics gets no bundle, if another has fewer", minimum=0, dynamic=True
    )
    moves_per_cycle_max: int = conf(
        "loadManagerMovesPerCycleMax", 100, "How many bundles one shedding cycle moves at most", minimum=1, dynamic=True
    )
