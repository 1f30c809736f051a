"""Limits and usage of control groups, from trees of files as kernels show them."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.system.descriptors import no_descriptors

from loadmanager.kit.system.cgroup import Cgroup

GIB = 1 << 30


def write(root: Path, files: dict[str, str]) -> Path:
    """Make a tree of files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def find(folder: Path, files: dict[str, str], membership: str) -> Cgroup | None:
    """The group in a fake `/sys/fs/cgroup`."""
    write(folder, {"membership": membership})
    return Cgroup.find(write(folder / "cgroup", files), folder / "membership")


def test_v2_container(tmp_path: Path) -> None:
    """In a container the root is the group: quota, time and memory without inactive page cache."""
    group = find(
        tmp_path,
        {
            "cgroup.controllers": "cpu memory",
            "cpu.max": "150000 100000",
            "cpu.stat": "usage_usec 2500000\nuser_usec 1\nsystem_usec 2",
            "memory.max": str(2 * GIB),
            "memory.current": str(GIB),
            "memory.stat": f"anon 5\ninactive_file {GIB // 4}",
        },
        "0::/",
    )
    assert group is not None
    assert (group.cpu_limit_cores(), group.cpu_used_s()) == (1.5, 2.5)
    assert (group.memory_limit_bytes(), group.memory_used_bytes()) == (2 * GIB, GIB * 3 // 4)
    with no_descriptors():  # a quota that cannot be read now is not none
        for read in (group.cpu_limit_cores, group.memory_limit_bytes):
            with pytest.raises(OSError, match="open files"):
                read()


def test_v2_without_limits(tmp_path: Path) -> None:
    """`max` means no limit; usage is still the group's own."""
    files = {
        "cgroup.controllers": "cpu memory",
        "a/cpu.max": "max 100000",
        "a/cpu.stat": "usage_usec 10",
        "a/memory.max": "max",
        "a/memory.current": "7",
    }
    group = find(tmp_path, files, "0::/a")
    assert group is not None
    assert (group.cpu_limit_cores(), group.memory_limit_bytes()) == (None, None)
    assert (group.cpu_used_s(), group.memory_used_bytes()) == (1e-5, 7)


def test_v2_tightest_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    """A slice's tighter quota wins over the service's own, with the slice's usage; memory is chosen
    independently.
    """
    group = find(
        tmp_path,
        {
            "cgroup.controllers": "cpu memory",
            "slice/cpu.max": "100000 100000",
            "slice/cpu.stat": "usage_usec 9000000",
            "slice/memory.max": "max",
            "slice/service/cpu.max": "400000 100000",
            "slice/service/cpu.stat": "usage_usec 1000000",
            "slice/service/memory.max": str(GIB),
            "slice/service/memory.current": "42",
        },
        "0::/slice/service",
    )
    assert group is not None
    assert (group.cpu_limit_cores(), group.cpu_used_s()) == (1.0, 9.0)
    assert (group.memory_limit_bytes(), group.memory_used_bytes()) == (GIB, 42)


@pytest.mark.parametrize("mount", ["cpu,cpuacct", "cpuacct,cpu", "apart"])
def test_v1(tmp_path: Path, mount: str) -> None:
    """cgroup v1, with CPU and its accounting mounted together or apart."""
    quota, time = ("cpu", "cpuacct") if mount == "apart" else (mount, mount)
    group = find(
        tmp_path,
        {
            f"{quota}/box/cpu.cfs_quota_us": "50000",
            f"{quota}/box/cpu.cfs_period_us": "100000",
            f"{time}/box/cpuacct.usage": "3000000000",
            "memory/box/memory.limit_in_bytes": str(GIB),
            "memory/box/memory.usage_in_bytes": "1000",
            "memory/box/memory.stat": "inactive_file 1\ntotal_inactive_file 400",
        },
        "5:memory:/box\n4:cpu,cpuacct:/box\n1:name=systemd:/box",
    )
    assert group is not None
    assert (group.cpu_limit_cores(), group.cpu_used_s()) == (0.5, 3.0)
    assert (group.memory_limit_bytes(), group.memory_used_bytes()) == (GIB, 600)


def test_v1_without_limits_in_a_container(tmp_path: Path) -> None:
    """−1 and a number near 2⁶³ mean no limit; a path of the host that is not visible means the
    root.
    """
    group = find(
        tmp_path,
        {
            "cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "cpu,cpuacct/cpu.cfs_period_us": "100000",
            "cpu,cpuacct/cpuacct.usage": "1000000000",
            "memory/memory.limit_in_bytes": "9223372036854771712",
            "memory/memory.usage_in_bytes": "5",
        },
        "4:cpu,cpuacct:/docker/1234\n5:memory:/docker/1234",
    )
    assert group is not None
    assert (group.cpu_limit_cores(), group.memory_limit_bytes()) == (None, None)
    assert (group.cpu_used_s(), group.memory_used_bytes()) == (1.0, 5)


def test_no_groups(tmp_path: Path) -> None:
    """A system without control groups has none."""
    assert Cgroup.find(tmp_path / "none", tmp_path / "nothing") is None


def test_unreadable_figures_are_none(tmp_path: Path) -> None:
    """Files that are missing or hold nonsense give None, never an exception."""
    group = find(
        tmp_path,
        {
            "cgroup.controllers": "",
            "cpu.max": "many",
            "cpu.stat": "usage_usec x",
            "memory.max": "?",
        },
        "nonsense",
    )
    assert group is not None
    assert (
        group.cpu_limit_cores(),
        group.cpu_used_s(),
        group.memory_limit_bytes(),
        group.memory_used_bytes(),
    ) == (None,) * 4
