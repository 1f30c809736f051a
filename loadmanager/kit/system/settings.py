"""Settings of how a broker's usage is measured."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.kit.conf import conf


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerSettings:
    """Sampling CPU, memory and NIC."""

    interval_minutes: float = conf(
        "loadBalancerHostUsageCheckIntervalMinutes",
        1.0,
        "How often CPU, memory and NIC are sampled",
        minimum=0.005,
        dynamic=True,
    )
    nic_speed_gbps: float | None = conf(
        "loadBalancerOverrideBrokerNicSpeedGbps",
        None,
        "Speed of all NICs together; set it where the system reports none",
        minimum=0.001,
    )
    nics: tuple[str, ...] = conf(
        "loadBalancerOverrideBrokerNics",
        (),
        "NICs whose traffic and speed count; empty: the physical ones that are up",
    )
    scope: str = conf(
        "loadBalancerSamplingScope",
        "auto",
        "Scope of the measured usage; auto: the cgroup's if it has a CPU quota, else the host's",
        choices=("auto", "host", "cgroup", "process"),
    )
    store_directory: str = conf(
        "loadManagerMetadataStoreDirectory",
        "",
        "Where a metadata store on this machine keeps its files: reports of load say how full that "
        "disk is. Empty: no store runs on this machine",
    )
