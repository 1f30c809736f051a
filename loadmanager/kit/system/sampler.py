"""CPU, memory and NIC of the host, the control group or this process, sampled with psutil.

The rules are those of Pulsar's `LinuxBrokerHostUsageImpl`, with corrections. A reading that cannot
be true gets the limit 0, so that every strategy ignores it, and a `SensorFault` with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from loadmanager.kit.sampler import OwnTraffic, Reading, SensorFault, SystemUsage
from loadmanager.kit.system.cgroup import Cgroup, read_text
from loadmanager.kit.system.settings import SamplerSettings
from loadmanager.kit.units import MIB

KBIT_PER_GBIT = 1_000_000
PERCENT_TOLERANCE = 5.0
"""Up to so many percent over 100 count as 100: CPU and wall time are read one after the other."""
NET = Path("/sys/class/net")
ETHERNET = "1"
UNKNOWN_SPEEDS = (0, 0xFFFF, 0xFFFFFFFF)
"""Speeds that mean "unknown": 0, and −1, which older drivers report as an unsigned number of 16 or
32 bits.
"""
USABLE_STATES = ("up", "unknown", "dormant")
SENSORS = ("cpu", "memory", "bandwidthIn", "bandwidthOut")
ELAPSED_MIN_S = 0.5
"""Usage counts as 0 until so much time has passed: over less, a process that just started would
look overloaded.
"""


@dataclass(frozen=True, slots=True)
class _Counters:
    """Counters of the system, read at one instant."""

    at_s: float
    cpu_s: float
    idle_s: float
    bytes_in: int
    bytes_out: int


class SystemSampler:
    """Implements `kit.sampler.Sampler`.

    `net` is the folder where the system lists its NICs; `cgroup` is this process's group; `disks`
    says how full they were when they were last looked at.
    """

    def __init__(
        self,
        settings: SamplerSettings,
        own: OwnTraffic,
        *,
        net: Path = NET,
        cgroup: Cgroup | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        disks: Callable[[], Mapping[str, Reading]] = dict,
    ) -> None:
        self._settings = settings
        self._own = own
        self._net = net
        self._cgroup = cgroup
        self._clock_s = clock_s
        self._disks = disks
        self._process = psutil.Process()
        self._scope = self._resolve(settings.scope)
        self._before = self._read()
        self._last: SystemUsage | None = None

    @property
    def scope(self) -> str:
        """Whose usage is measured: host, cgroup or process."""
        return self._scope

    def _resolve(self, scope: str) -> str:
        if scope == "auto":
            return (
                "cgroup"
                if self._cgroup is not None and self._cgroup.cpu_limit_cores() is not None
                else "host"
            )
        return "host" if scope == "cgroup" and self._cgroup is None else scope

    def sample(self) -> SystemUsage:
        """Usage since the last call.

        If the system cannot be read, because no file descriptor is left for example, every sensor
        gets a fault.
        """
        try:
            return self._sample()
        except (OSError, psutil.Error) as error:
            faults = tuple(
                SensorFault(sensor, f"the system cannot be read: {error}") for sensor in SENSORS
            )
            nothing = Reading(0.0, 0.0)
            return SystemUsage(nothing, nothing, nothing, nothing, faults)

    def _sample(self) -> SystemUsage:
        now = self._read()
        before, elapsed_s = self._before, now.at_s - self._before.at_s
        if elapsed_s < ELAPSED_MIN_S:
            if self._last is not None:
                return self._last
            before, elapsed_s = now, ELAPSED_MIN_S
        else:
            self._before = now
        faults: list[SensorFault] = []
        cpu = _trusted("cpu", self._cpu(before, now, elapsed_s), faults)
        limit_kbit, unknown_speed = nic_limit(self._settings, self._net)
        faults += unknown_speed
        self._last = SystemUsage(
            cpu=cpu,
            memory=_trusted("memory", self._memory(), faults),
            bandwidth_in=_trusted(
                "bandwidthIn",
                Reading((now.bytes_in - before.bytes_in) * 8 / 1000 / elapsed_s, limit_kbit),
                faults,
            ),
            bandwidth_out=_trusted(
                "bandwidthOut",
                Reading((now.bytes_out - before.bytes_out) * 8 / 1000 / elapsed_s, limit_kbit),
                faults,
            ),
            faults=tuple(faults),
            disks=self._disks(),
        )
        return self._last

    # CPU

    def _cpu(self, before: _Counters, now: _Counters, elapsed_s: float) -> Reading:
        """CPU usage and its limit, in percent of one core.

        A busy event loop counts as CPU usage: a broker whose loop is saturated is full.
        """
        limit = self._cpu_limit_cores() * 100
        if self._scope == "host":
            busy_s, idle_s = now.cpu_s - before.cpu_s, now.idle_s - before.idle_s
            total_s = busy_s + idle_s
            usage = limit * busy_s / total_s if total_s > 0 else 0.0
        else:
            usage = 100 * (now.cpu_s - before.cpu_s) / elapsed_s
        if self._scope == "process":
            # The limit is one core, but threads that release the interpreter lock use more.
            usage = min(usage, limit)
        return Reading(max(usage, limit * min(self._own.loop_busy(), 1.0)), limit)

    def _cpu_limit_cores(self) -> float:
        if self._scope == "process":
            return 1.0
        cores = float(psutil.cpu_count() or 1)
        # On Linux, a cpuset may leave fewer cores.
        if self._scope == "cgroup" and hasattr(self._process, "cpu_affinity"):
            cores = float(len(self._process.cpu_affinity()) or 1)
        quota = (
            self._cgroup.cpu_limit_cores()
            if self._scope == "cgroup" and self._cgroup is not None
            else None
        )
        return min(quota, cores) if quota else cores

    # Memory

    def _memory(self) -> Reading:
        host = psutil.virtual_memory()
        group_limit = self._cgroup.memory_limit_bytes() if self._cgroup is not None else None
        limit = min(group_limit or host.total, host.total)
        if self._scope == "process":
            return Reading(self._process.memory_info().rss / MIB, limit / MIB)
        if self._scope == "cgroup" and self._cgroup is not None:
            used = self._cgroup.memory_used_bytes()
            if used is not None:
                return Reading(used / MIB, limit / MIB)
        return Reading((host.total - host.available) / MIB, host.total / MIB)

    # Counters

    def _read(self) -> _Counters:
        cpu_s, idle_s = self._read_cpu()
        bytes_in, bytes_out = self._read_bytes()
        return _Counters(self._clock_s(), cpu_s, idle_s, bytes_in, bytes_out)

    def _read_cpu(self) -> tuple[float, float]:
        if self._scope == "process":
            times = self._process.cpu_times()
            return times.user + times.system, 0.0
        if self._scope == "cgroup" and self._cgroup is not None:
            used_s = self._cgroup.cpu_used_s()
            if used_s is not None:
                return used_s, 0.0
        host = psutil.cpu_times()
        idle_s = host.idle + getattr(host, "iowait", 0.0)
        # The kernel counts guests in user and nice, too.
        guest_s = getattr(host, "guest", 0.0) + getattr(host, "guest_nice", 0.0)
        return sum(host) - guest_s - idle_s, idle_s

    def _read_bytes(self) -> tuple[int, int]:
        if self._scope == "process":
            return self._own.bytes_in_total(), self._own.bytes_out_total()
        counted = psutil.net_io_counters(pernic=True)
        nics = [
            counted[nic.name] for nic in _nics(self._settings, self._net) if nic.name in counted
        ]
        # A container sees virtual devices only: there, the traffic of this process counts.
        if not nics:
            return self._own.bytes_in_total(), self._own.bytes_out_total()
        return sum(nic.bytes_recv for nic in nics), sum(nic.bytes_sent for nic in nics)


def nic_limit(settings: SamplerSettings, net: Path = NET) -> tuple[float, tuple[SensorFault, ...]]:
    """The speed of all NICs together, in kbit/s, and no fault; or 0, and why nobody knows it."""
    if settings.nic_speed_gbps is not None:
        return settings.nic_speed_gbps * KBIT_PER_GBIT, ()
    nics = _nics(settings, net)
    total_mbit = 0
    for nic in nics:
        speed = read_text(nic / "speed")
        if speed is None or not speed.isdigit() or int(speed) in UNKNOWN_SPEEDS:
            return _unknown_speed(f"{nic.name} reports a speed of {speed or 'nothing'}")
        total_mbit += int(speed)
    return (total_mbit * 1000.0, ()) if nics else _unknown_speed("no physical NIC found")


def _unknown_speed(reason: str) -> tuple[float, tuple[SensorFault, ...]]:
    hint = "set loadBalancerOverrideBrokerNicSpeedGbps"
    return 0.0, (SensorFault("nicSpeed", f"{reason}; {hint}"),)


def _nics(settings: SamplerSettings, net: Path) -> list[Path]:
    """The devices that the settings name, else physical ethernet devices that are up.

    Links of virtual devices lead below `virtual/`.
    """
    if settings.nics:
        return [net / name for name in settings.nics]
    try:
        links = sorted(net.iterdir())
    except OSError:
        return []
    return [
        nic
        for nic in links
        if "/virtual/" not in f"{nic.resolve()}/"
        and read_text(nic / "type") == ETHERNET
        and (read_text(nic / "operstate") or "up") in USABLE_STATES
    ]


def _trusted(sensor: str, reading: Reading, faults: list[SensorFault]) -> Reading:
    """The reading; with the limit 0, and a fault in `faults`, if it cannot be true."""
    if reading.usage < 0:
        faults.append(SensorFault(sensor, f"usage {reading.usage:.1f} is negative"))
        return Reading(0.0, 0.0)
    if reading.limit <= 0:
        return Reading(reading.usage, 0.0)
    percent = 100 * reading.usage / reading.limit
    if percent > 100 + PERCENT_TOLERANCE:
        faults.append(SensorFault(sensor, f"usage is {percent:.0f} % of the limit"))
        return Reading(reading.usage, 0.0)
    return Reading(min(reading.usage, reading.limit), reading.limit)
