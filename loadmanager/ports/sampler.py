"""Reads how much of its resources a broker uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SensorFault:
    """A sensor that cannot be trusted now, and why; its resource is reported with limit 0, so that
    it drives no decision.
    """

    sensor: str
    reason: str


@dataclass(frozen=True, slots=True)
class Reading:
    """Usage and limit of one resource, in Pulsar's units (CPU: percent of one core; memory: MiB;
    bandwidth: kbit/s).
    """

    usage: float
    limit: float


@dataclass(frozen=True, slots=True)
class SystemUsage:
    """One sample."""

    cpu: Reading
    memory: Reading
    bandwidth_in: Reading
    bandwidth_out: Reading
    faults: tuple[SensorFault, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnTraffic:
    """What the process knows of itself: bytes on its connections since start, and how busy its loop
    is (0 to 1).
    """

    bytes_in_total: Callable[[], int]
    bytes_out_total: Callable[[], int]
    loop_busy: Callable[[], float]


class Sampler(Protocol):
    """Samples the machine, the container or the process, by its scope."""

    @property
    def scope(self) -> str:
        """`host`, `cgroup` or `process`: what `auto` was resolved to."""
        ...

    def sample(self) -> SystemUsage:
        """Usage since the last call (since construction, for the first).

        A few milliseconds at most; never raises for what a sensor does.
        """
        ...
