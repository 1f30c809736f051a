"""What waits for a client: an answer, or those events of a transaction that it watches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

ENTRY_BYTES = 200
"""About what a waiting answer, or a waiting event, takes in memory beside its bytes."""


class EventFrames(NamedTuple):
    """The events of a transaction for one client, and about how much memory they take."""

    frames: Iterator[bytes]
    """An empty one stands for what the client may not hear of."""
    size: int


@dataclass(slots=True)
class SharedEvents:
    """The events of one transaction. All who watch wait for the same bytes."""

    size: int
    """About how much memory they take, in bytes."""
    clients: int
    """For how many they wait."""


@dataclass(slots=True)
class Outgoing:
    """It may leave once `zxid` is on the disk: an answer, or events."""

    zxid: int
    since_s: float
    answer: bytes | None = None
    """None without events: there is nothing more; hang up."""
    answer_bytes: int = 0
    """How much memory the answer takes."""
    events: EventFrames | None = None
    shared: SharedEvents | None = None
    event_bytes: int = 0
    """How much memory the events take, also if others wait for them, too."""
