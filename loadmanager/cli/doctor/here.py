"""Brokers on the machine on which the doctor runs: what they know of it beside what is there."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable, Iterator

import psutil

from loadmanager.cli.doctor.asking import BrokerFacts
from loadmanager.cli.doctor.findings import Diagnosis, problem
from loadmanager.cli.doctor.host import PART, Host, check_nic
from loadmanager.kit.units import GIB
from loadmanager.leader.documents.cluster import ClusterShown

MIB_PER_GIB = 1024
NIC_SPEED = "loadBalancerOverrideBrokerNicSpeedGbps"
TOLERANCE = 1.01


def names() -> set[str]:
    """The names and addresses of this machine, without asking a name server."""
    addresses = {each.address for some in psutil.net_if_addrs().values() for each in some}
    return {"localhost", "127.0.0.1", "::1", socket.gethostname(), *addresses}


def check(
    host: Host, leaders_view: ClusterShown | None, own: Collection[str]
) -> Iterator[Diagnosis]:
    """Brokers here that count on more than they may use: they look less loaded than they are.

    `leaders_view` is what the leader sees; `own` are the names of this machine.
    """
    for each in leaders_view.brokers if leaders_view else ():
        name, resources = each.broker, each.resources
        if resources is None or not _is_here(name, own):
            continue
        cores = resources.cpu.limit / 100
        if cores > host.cores_here * TOLERANCE:
            yield problem(
                PART,
                name,
                f"reports {cores:g} cores, and a process here may use {host.cores_here:g}",
                "run the doctor in the container or unit of the broker; if it says the same there, "
                "set loadBalancerSamplingScope=cgroup",
            )
        memory_gib = resources.memory.limit / MIB_PER_GIB
        if memory_gib > host.memory_here / GIB * TOLERANCE:
            yield problem(
                PART,
                name,
                f"reports {memory_gib:.1f} GiB of memory, and a process here may use "
                f"{host.memory_here / GIB:.1f}",
                "run the doctor in the container or unit of the broker; if it says the same there, "
                "set loadBalancerSamplingScope=cgroup",
            )


def check_speed(
    host: Host, brokers: Iterable[BrokerFacts], own: Collection[str]
) -> Iterator[Diagnosis]:
    """The NIC of this machine; nothing if its speed is not known here, and the brokers that run
    here know it, because a setting says it, say: `standalone` sets it where the system knows none.
    """
    here = [each for each in brokers if _is_here(each.broker, own)]
    if not (host.nic_fault and here and all(map(_knows_speed, here))):
        yield from check_nic(host)


def _is_here(broker: str, own: Collection[str]) -> bool:
    return broker.rpartition(":")[0].strip("[]") in own


def _knows_speed(broker: BrokerFacts) -> bool:
    trusted = broker.value("loadmanager_sensor_trusted", "nicSpeed") == 1
    return trusted or bool(broker.settings.get(NIC_SPEED))
