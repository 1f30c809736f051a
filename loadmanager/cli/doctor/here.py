"""Brokers on the machine on which the doctor runs: what they report beside what is there."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator

import psutil

from loadmanager.cli.doctor.findings import Diagnosis, problem
from loadmanager.cli.doctor.host import PART, Host
from loadmanager.kit.units import GIB
from loadmanager.leader.documents.cluster import ClusterShown

MIB_PER_GIB = 1024
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
        if name.rpartition(":")[0].strip("[]") not in own or resources is None:
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
