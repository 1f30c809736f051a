"""CPU and memory of the control group that this process runs in: cgroup v2, or v1."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

_UNLIMITED_BYTES = 1 << 60
"""cgroup v1 spells "no memory limit" as a number near 2⁶³."""


@dataclass(frozen=True, slots=True)
class Cgroup:
    """Where the group's files are."""

    cpu: Path
    memory: Path
    version: int

    @staticmethod
    def find(sys_fs: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> Cgroup | None:
        """This process's group, or None where there are no control groups."""
        paths = dict[str, str]()
        with contextlib.suppress(OSError):
            for line in membership.read_text().splitlines():
                _, controllers, path = line.split(":", 2)
                paths.update(dict.fromkeys(controllers.split(","), path.strip("/")))
        if (sys_fs / "cgroup.controllers").exists():
            group = _nearest(sys_fs, paths.get("", ""), "cpu.max")
            return Cgroup(group, group, 2)
        if (sys_fs / "cpu").is_dir() or (sys_fs / "cpuacct").is_dir():
            cpu = _nearest(sys_fs / "cpu", paths.get("cpu", ""), "cpu.cfs_quota_us")
            memory = _nearest(sys_fs / "memory", paths.get("memory", ""), "memory.limit_in_bytes")
            return Cgroup(cpu, memory, 1)
        return None

    def cpu_limit_cores(self) -> float | None:
        """The quota in cores, None without one."""
        if self.version == 2:
            quota, _, period = (_text(self.cpu / "cpu.max") or "max 100000").partition(" ")
            return None if quota == "max" else int(quota) / int(period)
        quota_us, period_us = _number(self.cpu / "cpu.cfs_quota_us"), _number(self.cpu / "cpu.cfs_period_us")
        return quota_us / period_us if quota_us and quota_us > 0 and period_us else None

    def cpu_used_s(self) -> float | None:
        """CPU seconds that the group has used."""
        if self.version == 2:
            for line in (_text(self.cpu / "cpu.stat") or "").splitlines():
                if line.startswith("usage_usec "):
                    return int(line.split()[1]) / 1e6
            return None
        used_ns = _number(self.cpu / "cpuacct.usage")
        if used_ns is None:
            used_ns = _number(self.cpu.parent / "cpuacct" / "cpuacct.usage")
        return None if used_ns is None else used_ns / 1e9

    def memory_limit_bytes(self) -> int | None:
        """The memory limit, None without one."""
        limit = _number(self.memory / ("memory.max" if self.version == 2 else "memory.limit_in_bytes"))
        return limit if limit is not None and 0 < limit < _UNLIMITED_BYTES else None

    def memory_used_bytes(self) -> int | None:
        """Memory in use, without what the kernel would give back at once (inactive page cache)."""
        used = _number(self.memory / ("memory.current" if self.version == 2 else "memory.usage_in_bytes"))
        if used is None:
            return None
        name = "inactive_file " if self.version == 2 else "total_inactive_file "
        for line in (_text(self.memory / "memory.stat") or "").splitlines():
            if line.startswith(name):
                return max(0, used - int(line.split()[1]))
        return used


def _nearest(root: Path, path: str, name: str) -> Path:
    """The group's folder; within a container the path of the host is not visible, and the root is the group."""
    own = root / path
    return own if (own / name).exists() else root


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text is not None and text.lstrip("-").isdigit() else None
