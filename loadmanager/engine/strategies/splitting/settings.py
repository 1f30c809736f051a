"""Settings of splits: Pulsar's keys and defaults."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.engine.strategies.splitting.algorithms import ALGORITHMS, RANGE, FlowLimits
from loadmanager.kit.conf import conf
from loadmanager.kit.units import MIB

OF_MODULAR, OF_OWNERS = "BundleSplitterTask", "DefaultNamespaceBundleSplitStrategyImpl"
OF_SHARDS = "ShardSplits"
SPLITTERS = (OF_MODULAR, OF_OWNERS, OF_SHARDS)
"""The names under which splits are decided: they move nothing, and nobody selects them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSettings:
    """Splitting bundles."""

    enabled: bool = conf(
        "loadBalancerAutoBundleSplitEnabled", True, "Split bundles that are too big", dynamic=True
    )
    interval_minutes: float = conf(
        "loadBalancerSplitIntervalMinutes",
        1.0,
        "How often the leader looks for bundles that are too big",
        minimum=0.01,
    )
    unload_after: bool = conf(
        "loadBalancerAutoUnloadSplitBundlesEnabled",
        True,
        "Unload the children of an automatic split, so that each is placed again (modular manager)",
        dynamic=True,
    )
    hits_min: int = conf(
        "loadBalancerNamespaceBundleSplitConditionHitCountThreshold",
        3,
        "Split after more than this many checks in a row above a threshold (extensible manager)",
        minimum=0,
    )
    splits_per_cycle_max: int = conf(
        "loadBalancerMaxNumberOfBundlesToSplitPerCycle",
        10,
        "Most splits of a check (extensible manager)",
        minimum=1,
    )
    algorithm: str = conf(
        "defaultNamespaceBundleSplitAlgorithm",
        RANGE,
        "The algorithm that chooses the boundaries of a split",
        choices=ALGORITHMS,
        dynamic=True,
    )
    bundles_max: int = conf(
        "loadBalancerNamespaceMaximumBundles",
        128,
        "Splits give a namespace at most this many bundles",
        minimum=0,
        dynamic=True,
    )
    msg_rate_max: float = conf(
        "loadBalancerNamespaceBundleMaxMsgRate",
        30_000.0,
        "Messages/s that make a bundle too big",
        minimum=0,
        dynamic=True,
    )
    bandwidth_mib_max: float = conf(
        "loadBalancerNamespaceBundleMaxBandwidthMbytes",
        100.0,
        "MiB/s that make a bundle too big",
        minimum=0,
        dynamic=True,
    )
    flow_difference_percent: float = conf(
        "flowOrQpsDifferenceThresholdPercentage",
        10.0,
        "flow_or_qps_equally_divide: tolerated excess, in percent",
        minimum=0,
        dynamic=True,
    )
    topics_max: int = conf(
        "loadBalancerNamespaceBundleMaxTopics",
        1000,
        "Topics that make a bundle too big",
        minimum=0,
        dynamic=True,
    )
    sessions_max: int = conf(
        "loadBalancerNamespaceBundleMaxSessions",
        1000,
        "Producers and consumers that make a bundle too big (-1: any number)",
        minimum=-1,
        dynamic=True,
    )

    @property
    def flow_limits(self) -> FlowLimits:
        """The limits of a bundle, for `flow_or_qps_equally_divide`."""
        return FlowLimits(
            self.msg_rate_max,
            self.bandwidth_mib_max * MIB,
            self.flow_difference_percent / 100,
        )
