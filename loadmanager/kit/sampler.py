"""Measures the resources that a broker uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SensorFault:
    """A sensor that cannot be trusted now, and why.

    The limit of its resource is reported as 0, so that no decision depends on it.
    """

    sensor: str
    reason: str


@dataclass(frozen=True, slots=True)
class Reading:
    """Usage and limit of one resource, in Pulsar's units.

    CPU: percent of one core; memory and disks: MiB; bandwidth: kbit/s.
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
    disks: Mapping[str, Reading] = field(default_factory=dict)
    """What is stored there, such as `history, topics` → how full that disk is, as `df` says it."""


@dataclass(frozen=True, slots=True)
class OwnTraffic:
    """The process's own figures: bytes on its connections since start, and the load of its loop."""

    bytes_in_total: Callable[[], int]
    bytes_out_total: Callable[[], int]
    loop_busy: Callable[[], float]


class Sampler(Protocol):
    """Samples the machine, the container or the process, depending on its scope."""

    @property
    def scope(self) -> str:
        """`host`, `cgroup` or `process`, also where the setting is `auto`."""
        ...

    def sample(self) -> SystemUsage:
        """Usage since the last call; the first call measures since construction.

        Takes a few milliseconds at most; reports failures of sensors as faults.
        """
        ...
