"""The machine on which the doctor runs: what a broker here would measure, and its limits."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from loadmanager.broker.messaging.settings import StorageSettings
from loadmanager.cli.doctor.findings import Diagnosis, fine, problem, warning
from loadmanager.kit.history.settings import HistorySettings
from loadmanager.kit.sampler import OwnTraffic
from loadmanager.kit.settings import Settings
from loadmanager.kit.system import open_files
from loadmanager.kit.system.cgroup import Cgroup
from loadmanager.kit.system.disks import space
from loadmanager.kit.system.sampler import SystemSampler
from loadmanager.kit.system.settings import SamplerSettings
from loadmanager.kit.units import GIB, MIB, free_text

PART = "host"
OPEN_FILES_MIN = 16_384
DISK_FREE_MIN = 0.1
DISK_FREE_BYTES_MIN = GIB
MEMORY_MIN = 512 * MIB


@dataclass(frozen=True, slots=True)
class Host:
    """The state of this machine."""

    cores: int
    """Cores of the machine."""
    cores_here: float
    """Cores that a process here may use: by its quota and its set of cores."""
    memory: int
    """Bytes of the machine."""
    memory_here: int
    """Bytes that a process here may use."""
    cgroup: str
    """Version of the control groups, or empty."""
    open_files: tuple[int, int]
    """Soft and hard limit of open files; −1: none."""
    nic_fault: str
    """Why the speed of the NIC is not known; empty: it is."""
    nic_gbps: float
    disks: dict[str, tuple[Path, int, int]] = field(default_factory=dict)
    """history and topics → folder, free bytes, size."""
    unwritable: dict[str, Path] = field(default_factory=dict)


def read(settings: Settings | None) -> Host:
    """Read this machine; the disks are those of the folders in the settings, if there are any."""
    group = Cgroup.find()
    cores = psutil.cpu_count() or 1
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    quota = None if group is None else group.cpu_limit_cores()
    memory = psutil.virtual_memory().total
    limit = None if group is None else group.memory_limit_bytes()
    sampling = SamplerSettings() if settings is None else settings.leaf(SamplerSettings)
    sampler = SystemSampler(sampling, OwnTraffic(lambda: 0, lambda: 0, lambda: 0.0), cgroup=group)
    usage = sampler.sample()
    faults = [fault.reason for fault in usage.faults if fault.sensor == "nicSpeed"]
    disks, unwritable = _disks(settings)
    return Host(
        cores=cores,
        cores_here=min(quota or cores, affinity),
        memory=memory,
        memory_here=min(limit or memory, memory),
        cgroup="" if group is None else f"v{group.version}",
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE),
        nic_fault=faults[0] if faults else "",
        nic_gbps=usage.bandwidth_in.limit / 1e6,
        disks=disks,
        unwritable=unwritable,
    )


def _disks(
    settings: Settings | None,
) -> tuple[dict[str, tuple[Path, int, int]], dict[str, Path]]:
    if settings is None:
        return {}, {}
    history, stored = settings.leaf(HistorySettings), settings.leaf(StorageSettings)
    folders = {"history": history.directory if history.enabled else "", "topics": stored.directory}
    disks, unwritable = {}, {}
    for name, text in folders.items():
        if not text:
            continue
        folder = Path(text)
        try:
            room = space(folder)
        except OSError:
            unwritable[name] = folder
            continue
        disks[name] = (folder, room.free, room.size)
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not os.access(there, os.W_OK):
            unwritable[name] = folder
    return disks, unwritable


def check_nic(host: Host) -> Iterator[Diagnosis]:
    """Whether a broker that starts here would know the speed of the NIC."""
    if host.nic_fault:
        yield warning(
            PART,
            "NIC",
            f"{host.nic_fault.partition(';')[0]}: bandwidth drives no decision of a broker here",
            "set loadBalancerOverrideBrokerNicSpeedGbps to what the network really carries",
        )
    else:
        yield fine(PART, "NIC", f"{host.nic_gbps:g} Gbit/s")


def check(host: Host) -> Iterator[Diagnosis]:
    """Findings about this machine, but for its NIC."""
    yield from _cores_and_memory(host)
    yield from _open_files(host)
    for name, folder in host.unwritable.items():
        yield problem(
            PART,
            f"{name}: {folder}",
            "cannot be written by this user",
            "create it for the broker's user, or run the doctor as that user",
        )
    for name, (folder, free, size) in host.disks.items():
        yield disk(PART, f"{name}: {folder}", free, size)


def _cores_and_memory(host: Host) -> Iterator[Diagnosis]:
    group = f" (cgroup {host.cgroup})" if host.cgroup else ""
    text = f"{host.cores_here:g} of {host.cores} cores{group}"
    if host.cores_here < 1:
        advice = "give a broker one core at least: its event loop can use exactly one"
        yield warning(PART, "CPU", text, advice)
    else:
        yield fine(PART, "CPU", text)
    text = f"{host.memory_here / GIB:.1f} of {host.memory / GIB:.1f} GiB{group}"
    if host.memory_here < MEMORY_MIN:
        yield warning(PART, "memory", text, "give a broker 512 MiB at least")
    else:
        yield fine(PART, "memory", text)


def _open_files(host: Host) -> Iterator[Diagnosis]:
    _, hard = host.open_files
    if hard == resource.RLIM_INFINITY:
        yield fine(PART, "open files", "no limit")
        return
    # A broker raises its soft limit to the hard limit.
    text = f"{hard}: a broker started from here takes {open_files.cap_of(hard)} client connections"
    if hard < OPEN_FILES_MIN:
        advice = "raise the hard limit: LimitNOFILE= of the unit, ulimit -Hn, or the container's"
        yield warning(PART, "open files", text, advice)
    else:
        yield fine(PART, "open files", text)


def disk(part: str, subject: str, free: int, size: int) -> Diagnosis:
    """A finding about the free space of a disk."""
    text = free_text(free, size)
    if free < DISK_FREE_BYTES_MIN or free < DISK_FREE_MIN * size:
        advice = (
            "free some of it, or make it larger: producers are refused, and records of the history "
            "dropped, once it is full"
        )
        made = problem if free < DISK_FREE_BYTES_MIN else warning
        return made(part, subject, text, advice)
    return fine(part, subject, text)
