"""Days of a made-up cluster: brokers that serve evenly divided namespaces with the shape of a day,
until a story changes something.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import _history as history
from loadmanager.kit.history.layout import day_of
from loadmanager.kit.units import DAY_MS, MIB

DAY_MINUTES = 1440
CAPACITY = 12 * MIB
"""Bytes/s that fill a broker."""
IDLE = 0.05
USUAL = MIB
"""Bytes/s of a namespace, in and out."""
MESSAGE = 1024.0
HALVES = ("0x00000000_0x80000000", "0x80000000_0xffffffff")


def date_of(day: int) -> str:
    """The date of a day, counted from that of the designed history, which is a Friday."""
    return day_of(history.START_MS + day * DAY_MS)


def space_of(number: int) -> str:
    """The name of a namespace."""
    return f"t/n{number:02}"


def bundle_of(number: int, half: int) -> str:
    """One of the two bundles of a namespace."""
    return f"{space_of(number)}/{HALVES[half]}"


@dataclass(kw_only=True)
class Behaviour:
    """How a day goes. Minutes count from the day's begin."""

    begin: int = 0
    end: int = DAY_MINUTES
    traffic: Callable[[int, int], float] = lambda _space, _minute: 1.0
    """Namespace, minute → its traffic as a multiple of the usual."""
    size: Callable[[int, int], float] = lambda _space, _minute: MESSAGE
    """Namespace, minute → bytes of a message."""
    cost: Callable[[int, int], float] = lambda _broker, _minute: 1.0
    """Broker, minute → what a byte costs it, as a multiple of the usual."""
    owner: Callable[[int, int, int], int | None] | None = None
    """Namespace, half, minute → the broker; None: nobody, or the bundle is not there."""
    away: Callable[[int, int], bool] = lambda _broker, _minute: False
    producers: Callable[[str], int] = lambda _bundle: 4
    """Bundle → its producers."""
    ahead_s: Callable[[int], float] = lambda _broker: 0.0
    """Broker → by how much its clock is ahead."""


@dataclass
class Cluster:
    """Collects the records of days and writes them."""

    root: Path
    brokers: int = 6
    spaces: int = 24
    every: int = 5
    """Minutes from sample to sample."""
    scale: float = 1.0
    """What all carry, as a multiple of the usual."""
    seed: int = 1
    _lines: dict[tuple[int, str, int], list[str]] = field(default_factory=dict)
    """Day, kind, broker → lines."""

    def add(self, day: int, kind: str, broker: int, minute: float, fields: dict[str, Any]) -> None:
        """A record at a minute of a day."""
        line = history.compact(fields, day * DAY_MINUTES + minute, f"b{broker}")
        self._lines.setdefault((day, kind, broker), []).append(line)

    def write(self) -> None:
        """Seal the segments of all days."""
        for (day, kind, broker), lines in self._lines.items():
            history.write(self.root, kind, f"b{broker}", lines, date=date_of(day))

    def usual_owner(self, space: int, half: int, _minute: int = 0) -> int:
        """Bundles go round the brokers."""
        return (2 * space + half) % self.brokers

    def loads(self, day: int, behaviour: Behaviour | None = None) -> None:
        """The loads of brokers and bundles on a day."""
        how = behaviour or Behaviour()
        owner = how.owner or self.usual_owner
        rng = random.Random(f"{self.seed} {day}")
        for minute in range(how.begin, how.end, self.every):
            carried: dict[int, list[tuple[str, float, float]]] = {}
            for space in range(self.spaces):
                for half in (0, 1):
                    broker = owner(space, half, minute)
                    if broker is None:
                        continue
                    value = self.scale * USUAL / 2 * (1 + 0.1 * (space % 4)) * _shape(minute)
                    value *= how.traffic(space, minute) * rng.uniform(0.97, 1.03)
                    message = how.size(space, minute) * rng.uniform(0.99, 1.01)
                    carried.setdefault(broker, []).append(
                        (bundle_of(space, half), value, value / message)
                    )
            for broker in range(self.brokers):
                if how.away(broker, minute):
                    continue
                of_broker = carried.get(broker, [])
                bytes_ = sum(value for _, value, _ in of_broker)
                used = IDLE + how.cost(broker, minute) * bytes_ / CAPACITY
                used = min(used * rng.uniform(0.97, 1.03), 1.0)
                at = minute + self.every * (broker + 1) / (self.brokers + 1)
                at += how.ahead_s(broker) / 60
                self._load(day, broker, at, used, of_broker, how)

    def _load(
        self,
        day: int,
        broker: int,
        at: float,
        used: float,
        bundles: list[tuple[str, float, float]],
        how: Behaviour,
    ) -> None:
        interval = {"intervalMs": self.every * history.MINUTE_MS}
        nothing = {"usage": 0.0, "limit": 100.0}
        fields = {
            **interval,
            "usage": used,
            "cpu": {"usage": used * 100, "limit": 100.0},
            **dict.fromkeys(("memory", "directMemory", "bandwidthIn", "bandwidthOut"), nothing),
            "bundles": len(bundles),
            "msgRateIn": sum(rate for _, _, rate in bundles),
            "msgThroughputIn": sum(value for _, value, _ in bundles),
        }
        self.add(day, "broker_load", broker, at, fields)
        for bundle, value, rate in bundles:
            load = {**interval, "bundle": bundle, "msgRateIn": rate, "msgThroughputIn": value}
            producers = how.producers(bundle)
            self.add(day, "bundle_load", broker, at, {**load, "topics": 8, "producers": producers})

    def step(
        self,
        day: int,
        broker: int,
        minute: float,
        bundle: str,
        states: tuple[str, str],
        **more: Any,
    ) -> None:
        """An ownership record."""
        before, after = states
        fields = {"bundle": bundle, "before": before, "after": after, "reason": "x", **more}
        self.add(day, "ownership", broker, minute, fields)

    def acquired(self, day: int, broker: int, minute: float, bundle: str, **more: Any) -> None:
        """A broker comes to own a bundle."""
        more = {"reason": "lookup", "cause": "lookup", **more}
        self.step(day, broker, minute, bundle, ("Free", "Assigning"), **more)
        self.step(day, broker, minute, bundle, ("Assigning", "Owned"), **more)

    def released(
        self, day: int, broker: int, minute: float, bundle: str, cause: str, **more: Any
    ) -> None:
        """A broker gives a bundle up."""
        more = {"reason": f"by {cause}", "cause": cause, **more}
        self.step(day, broker, minute, bundle, ("Owned", "Releasing"), **more)
        more = {"pauseMs": 20.0, **more}
        self.step(day, broker, minute + 0.0003, bundle, ("Releasing", "Free"), **more)

    def limit(
        self, day: int, broker: int, minute: float, limit: str, level: str, **more: Any
    ) -> None:
        """A limit's record."""
        fields = {
            "intervalMs": self.every * history.MINUTE_MS,
            "limit": limit,
            "level": level,
            "configuredMessagesPerS": 1000.0,
            "configuredBytesPerS": -1.0,
            "deliveredMessagesPerS": 400.0,
            "deliveredBytesPerS": 0.0,
            **more,
        }
        self.add(day, "throttle", broker, minute, fields)

    def decision(self, day: int, broker: int, minute: float, **more: Any) -> None:
        """A leader's record."""
        fields = {"epoch": 1, "cycle": 1, "strategy": "ThresholdShedder", "reason": "x", **more}
        self.add(day, "decision", broker, minute, fields)

    def change(self, day: int, broker: int, minute: float, what: str, **more: Any) -> None:
        """A change that an operator made."""
        fields = {"role": "ops", "address": "10.0.0.9", "over": "http", "what": what, **more}
        self.add(day, "change", broker, minute, fields)


def _shape(minute: int) -> float:
    """A day has its busiest hours in the afternoon."""
    return 1 + 0.4 * math.sin((minute - 540) / DAY_MINUTES * 2 * math.pi)
