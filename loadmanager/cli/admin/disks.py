"""How full the disks of brokers are, for `status` and the doctor."""

from __future__ import annotations

from collections.abc import Sequence

from loadmanager.kit.units import gibibytes
from loadmanager.leader.documents.cluster import BrokerShown


def fullest_text(brokers: Sequence[BrokerShown]) -> str:
    """How full the disks are, by the fullest one; empty: nobody tells."""
    disks = [(disk.percent, it.broker, disk) for it in brokers for disk in it.disks]
    if not disks:
        return ""
    percent, broker, disk = max(disks, key=lambda it: it[:2])
    free = gibibytes(disk.size_bytes - disk.used_bytes)
    up_to = f"the fullest disk is that of {broker} with its {disk.stored}: {percent:.0f}% full"
    return f"{up_to}, {free} free"
