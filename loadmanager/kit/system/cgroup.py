"""CPU and memory of the control group that this process runs in: cgroup v2, or v1.

The process's own group or any group above it (a service's slice, a pod) may have a limit. The
tightest limit counts, and usage is read from the group that has it.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_UNLIMITED_BYTES = 1 << 60
"""cgroup v1 spells "no memory limit" as a number near 2⁶³."""


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The folders of the group's files: CPU quota, CPU time, memory."""

    cpu: Path
    cpu_time: Path
    memory: Path
    version: int

    @staticmethod
    def find(
        sys_fs: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
    ) -> Cgroup | None:
        """This process's group, or None where there are no control groups."""
        paths = dict[str, str]()
        with contextlib.suppress(OSError, ValueError):
            for line in membership.read_text().splitlines():
                _, controllers, path = line.split(":", 2)
                paths.update(dict.fromkeys(controllers.split(","), path.strip("/")))
        if (sys_fs / "cgroup.controllers").exists():
            chain = _chain(sys_fs, paths.get("", ""))
            cpu = _tightest(chain, _quota_v2)
            return Cgroup(
                cpu, cpu, _tightest(chain, lambda group: _bytes_limit(group / "memory.max")), 2
            )
        cpu_root, time_root = _controller(sys_fs, "cpu"), _controller(sys_fs, "cpuacct")
        if cpu_root is None or time_root is None:
            return None
        cpu = _tightest(_chain(cpu_root, paths.get("cpu", "")), _quota_v1)
        memory = _tightest(
            _chain(sys_fs / "memory", paths.get("memory", "")),
            lambda group: _bytes_limit(group / "memory.limit_in_bytes"),
        )
        return Cgroup(cpu, time_root / cpu.relative_to(cpu_root), memory, 1)

    def cpu_limit_cores(self) -> float | None:
        """The CPU quota in cores; None if there is no quota."""
        return _quota_v2(self.cpu) if self.version == 2 else _quota_v1(self.cpu)

    def cpu_used_s(self) -> float | None:
        """CPU seconds that the group has used; None if the file cannot be read."""
        if self.version == 2:
            used_us = _stat(self.cpu_time / "cpu.stat", "usage_usec")
            return None if used_us is None else used_us / 1e6
        used_ns = _number(self.cpu_time / "cpuacct.usage")
        return None if used_ns is None else used_ns / 1e9

    def memory_limit_bytes(self) -> int | None:
        """The memory limit; None if there is no limit."""
        return _bytes_limit(
            self.memory / ("memory.max" if self.version == 2 else "memory.limit_in_bytes")
        )

    def memory_used_bytes(self) -> int | None:
        """Memory in use, without the inactive page cache, which the kernel can free at once."""
        used = _number(
            self.memory / ("memory.current" if self.version == 2 else "memory.usage_in_bytes")
        )
        if used is None:
            return None
        cache = _stat(
            self.memory / "memory.stat",
            "inactive_file" if self.version == 2 else "total_inactive_file",
        )
        return max(0, used - (cache or 0))


def _controller(sys_fs: Path, name: str) -> Path | None:
    """The folder where cgroup v1 mounts a controller; CPU and its accounting may share one."""
    places = (sys_fs / name, sys_fs / "cpu,cpuacct", sys_fs / "cpuacct,cpu")
    return next((place for place in places if place.is_dir()), None)


def _chain(root: Path, path: str) -> list[Path]:
    """The group's folder and those above it.

    A container does not see the host's path: there the root is the group.
    """
    own = root / path
    if not own.is_dir():
        return [root]
    return [own, *(above for above in own.parents if above == root or root in above.parents)]


def _tightest(chain: list[Path], limit: Callable[[Path], float | None]) -> Path:
    """The group with the lowest limit, the innermost of equals; without limits the innermost."""
    limited = [(value, at) for at, group in enumerate(chain) if (value := limit(group)) is not None]
    return chain[min(limited)[1]] if limited else chain[0]


def _quota_v2(group: Path) -> float | None:
    quota, _, period = (read_text(group / "cpu.max") or "max").partition(" ")
    return (
        int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None
    )


def _quota_v1(group: Path) -> float | None:
    quota_us, period_us = _number(group / "cpu.cfs_quota_us"), _number(group / "cpu.cfs_period_us")
    return quota_us / period_us if quota_us and quota_us > 0 and period_us else None


def _bytes_limit(path: Path) -> int | None:
    limit = _number(path)
    return limit if limit is not None and 0 < limit < _UNLIMITED_BYTES else None


def _stat(path: Path, name: str) -> int | None:
    """One figure of a file with a name and a number on each line."""
    for line in (read_text(path) or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return None


def read_text(path: Path) -> str | None:
    """The text of a file of the system; None if it is not there or cannot be read.

    Raises `OSError` if no file can be opened now: no file is no limit, but this says nothing of it.
    """
    try:
        return path.read_text().strip()
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return None


def _number(path: Path) -> int | None:
    text = read_text(path)
    return int(text) if text is not None and text.lstrip("-").isdigit() else None
