"""Settings that strategies share: Pulsar's keys and defaults.

What a single strategy reads stands beside it, in a dataclass of its own; but for the weight of heap
memory, which stands with the other weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, TypeVar, cast

from loadmanager.engine.load.manager import Manager
from loadmanager.engine.load.usage import Weights
from loadmanager.kit.conf import conf, without_effect

Leaf = TypeVar("Leaf")


@cache
def _default(leaf: type[Leaf]) -> Leaf:
    return leaf()


@dataclass(frozen=True, kw_only=True)  # without slots, for what is computed once
class StrategySettings:
    """Placing and shedding."""

    own: Mapping[type, Any] = field(default_factory=dict, hash=False)
    """A strategy's settings dataclass → its value."""

    def of(self, leaf: type[Leaf]) -> Leaf:
        """A strategy's own settings; the defaults if `own` does not have them."""
        settings: Leaf = self.own.get(leaf) or _default(cast(Any, leaf))
        return settings

    @cached_property
    def weights(self) -> Weights:
        """The weight of each resource in a broker's usage."""
        return Weights(
            self.cpu_weight,
            self.direct_memory_weight,
            self.bandwidth_in_weight,
            self.bandwidth_out_weight,
        )

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
        "A bundle that was moved stays where it is for this long, with BalancedShedder for "
        "five minutes at most at a broker that is full (95 %)",
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
        "The shedder: a full class name of Pulsar or its last part",
        dynamic=True,
    )
    placement: str = conf(
        "loadBalancerLoadPlacementStrategy",
        "org.apache.pulsar.broker.loadbalance.impl.LeastLongTermMessageRate",
        "The placement rule: a full class name of Pulsar or its last part",
    )
    overloaded_percent: float = conf(
        "loadBalancerBrokerOverloadedThresholdPercentage",
        85.0,
        "A broker above this usage is overloaded",
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
        0.0,
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
        "Place a namespace's bundles on the brokers that have the fewest of them",
        dynamic=True,
    )
    broker_topics_max: int = conf(
        "loadBalancerBrokerMaxTopics",
        50_000,
        "A broker with more topics gets no bundle while another has fewer",
        minimum=0,
        dynamic=True,
    )
    moves_per_cycle_max: int = conf(
        "loadManagerMovesPerCycleMax",
        -1,
        "Most bundles to move in one shedding cycle (-1: any number)",
        minimum=-1,
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
        "UniformLoadShedder, AvgShedder: the fraction of a difference to move",
        minimum=0,
        maximum=1,
        dynamic=True,
    )
    report_ttl_s: int = conf(
        "loadBalancerBrokerLoadDataTTLInSeconds",
        1800,
        "Nothing is shed from or to brokers whose reports are older",
        minimum=1,
        dynamic=True,
    )
    shed_policy_bundles: bool = conf(
        "loadBalancerSheddingBundlesWithPoliciesEnabled",
        False,
        "Extensible manager: also move bundles under isolation or anti-affinity policies",
        dynamic=True,
    )
    bundles_in_report_max: int = conf(
        "loadBalancerMaxNumberOfBundlesInBundleLoadReport",
        10,
        "How many bundles per broker TransferShedder sees, and the leader stores averages of "
        "(-1: all)",
        minimum=-1,
        dynamic=True,
    )
    failure_domains: bool = conf(
        "failureDomainsEnabled",
        False,
        "Spread anti-affinity groups over failure domains and brokers, not over brokers alone",
        dynamic=True,
    )
    load_manager_class: str = conf(
        "loadManagerClassName",
        Manager.MODULAR.value,
        "The load manager: ModularLoadManagerImpl or ExtensibleLoadManagerImpl, by full name or "
        "its last part. Brokers that run another one get no bundles from this one",
    )
    prefer_later_versions: bool = conf(
        "preferLaterVersions", False, "Place bundles on the brokers of the newest version only"
    )


_RECORDS = "the states of bundles are kept in the metadata store"
_DIFFERENCE = (
    "loadManagerBalancedDifferencePercent replaced it, which holds for any number of bundles"
)
_SIMPLE = "Pulsar's SimpleLoadManagerImpl alone reads it"

OtherManagerSettings = without_effect(
    "OtherManagerSettings",
    "Keys of load balancing that do nothing here.",
    {
        "loadBalancerBrokerComfortLoadLevelPercentage": (65, _SIMPLE),
        "loadBalancerBrokerUnderloadedThresholdPercentage": (50, _SIMPLE),
        "loadBalancerPlacementStrategy": ("leastLoadedServer", _SIMPLE),
        "loadBalancerDebugModeEnabled": (False, "every decision is kept with its reasons"),
        "loadBalancerMultiPhaseBundleUnload": (True, "clients are told where to go in any case"),
        "loadBalancerServiceUnitStateMaxConcurrentOverrides": (
            64,
            "a transaction changes hundreds of states at once",
        ),
        "loadBalancerServiceUnitTableViewSyncer": ("None", _RECORDS),
        "loadManagerServiceUnitStateTableViewClassName": (
            "org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitStateTableViewImpl",
            _RECORDS,
        ),
        "loadManagerBalancedMovePrice": (0.004, _DIFFERENCE),
        "loadManagerMigrationEnabled": (False, "brokers with both managers always get on"),
        "supportedNamespaceBundleSplitAlgorithms": ("", "every algorithm is supported"),
        "topicBundleAssignmentStrategy": (
            "org.apache.pulsar.common.naming.ConsistentHashingTopicBundleAssigner",
            "topics fall into bundles by their CRC-32",
        ),
        "maxConcurrentTopicLoadRequest": (5000, "a topic in memory is loaded at once"),
        "topicLoadTimeoutSeconds": (60, "a topic in memory is loaded at once"),
    },
    replaced=("loadManagerBalancedMovePrice",),
)
