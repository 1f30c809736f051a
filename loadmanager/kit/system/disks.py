"""The fill levels of the disks that a broker writes to."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from loadmanager.kit.telemetry import Sample, gauge

INTERVAL_S = 30.0
FREE = gauge("loadmanager_disk_free_bytes", "Bytes that a broker may still write there", "folder")
SIZE = gauge("loadmanager_disk_size_bytes", "Size of the file system of that folder", "folder")


class Disks:
    """Looks at file systems in a thread: one that hangs, such as a network's, stops no broker.

    `folders` maps names, such as history and topics, to their folders.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders
        self._measured: dict[str, tuple[int, int]] = {}

    async def measure(self) -> None:
        """Look at all file systems. Raises `OSError` if one cannot be read."""
        self._measured = await asyncio.to_thread(
            lambda: {name: space(folder) for name, folder in self._folders.items()}
        )

    def samples(self) -> Iterator[Sample]:
        """Free space and size of each, as last seen."""
        for name, (free, size) in list(self._measured.items()):
            yield FREE.sample(free, name)
            yield SIZE.sample(size, name)


def space(folder: Path) -> tuple[int, int]:
    """Free bytes and size of the file system of a folder, or of what is above it.

    Raises `OSError`.
    """
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    system = os.statvfs(there)
    return system.f_bavail * system.f_frsize, system.f_blocks * system.f_frsize
