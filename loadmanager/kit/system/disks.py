"""The fill levels of the disks that a broker writes to."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from loadmanager.kit.sampler import Reading
from loadmanager.kit.telemetry import Sample, gauge
from loadmanager.kit.units import MIB

INTERVAL_S = 30.0
FREE = gauge("loadmanager_disk_free_bytes", "Bytes that a broker may still write there", "folder")
SIZE = gauge("loadmanager_disk_size_bytes", "Size of the file system of that folder", "folder")


@dataclass(frozen=True, slots=True)
class Space:
    """A file system, in bytes. What is kept for the superuser is neither free nor used."""

    free: int
    used: int
    size: int
    device: int


class Disks:
    """Looks at file systems in a thread: one that hangs, such as a network's, stops no broker.

    `folders` maps names, such as history and topics, to their folders.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders
        self._measured: dict[str, Space] = {}

    async def measure(self) -> None:
        """Look at all file systems. Raises `OSError` if one cannot be read."""
        self._measured = await asyncio.to_thread(
            lambda: {name: space(folder) for name, folder in self._folders.items()}
        )

    def samples(self) -> Iterator[Sample]:
        """Free space and size of each, as last seen."""
        for name, each in list(self._measured.items()):
            yield FREE.sample(each.free, name)
            yield SIZE.sample(each.size, name)

    def fills(self) -> dict[str, Reading]:
        """Each disk as last seen, under the names of all that is stored there."""
        names: dict[int, list[str]] = {}
        for name, each in self._measured.items():
            names.setdefault(each.device, []).append(name)
        last = {each.device: each for each in self._measured.values()}
        return {
            ", ".join(names[device]): Reading(each.used / MIB, (each.used + each.free) / MIB)
            for device, each in last.items()
        }


def space(folder: Path) -> Space:
    """The file system of a folder, or of what is above it. Raises `OSError`."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    system = os.statvfs(there)
    return Space(
        free=system.f_bavail * system.f_frsize,
        used=(system.f_blocks - system.f_bfree) * system.f_frsize,
        size=system.f_blocks * system.f_frsize,
        device=there.stat().st_dev,
    )
