"""How full disks are, as `df` says it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from loadmanager.kit.system.disks import Disks, space
from loadmanager.kit.units import MIB


async def test_a_disk_is_told_once(tmp_path: Path) -> None:
    """Two folders of one file system are one disk with both names, also if one is not there yet."""
    disks = Disks({"history": tmp_path, "topics": tmp_path / "later" / "topics"})
    assert disks.fills() == {}, "nobody has looked yet"
    await disks.measure()
    ((name, shown),) = disks.fills().items()
    assert name == "history, topics"
    system = shutil.disk_usage(tmp_path)
    assert shown.usage == pytest.approx(system.used / MIB, rel=0.01)
    assert shown.limit == pytest.approx((system.used + system.free) / MIB, rel=0.01)
    assert len(list(disks.samples())) == 4


def test_two_disks() -> None:
    """Different file systems are told apart."""
    assert space(Path("/proc")).device != space(Path("/")).device
