"""Sensors that cannot be right: they contradict the traffic, stand still, or show more than there
is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from loadmanager.engine.findings import words
from loadmanager.engine.findings.finding import FindingShown, bounded, command
from loadmanager.engine.history.records import POSSIBLE
from loadmanager.engine.load.reports import BrokerLoadData, LocalBrokerData, ResourceUsage
from loadmanager.kit.reason import Reason
from loadmanager.kit.units import HOUR_MS

STUCK_MS_MIN = HOUR_MS
STUCK_SAMPLES_MIN = 30
TRAFFIC_VARIES = 0.05
"""Bandwidth that stays the same while the traffic differs by so much is not measured."""
FULL = 0.999
"""A CPU that shows one value above this part of its limit has no more to give: it may well be so,
and brokers record no more than the limit.
"""
MISTRUSTED = {"SensorMistrusted": "cpu", "NetworkCardMistrusted": "bandwidth", "NoSensor": "cpu"}
"""Code of a doubt → the sensor."""
DOUBTED_MS = {"NoSensor": 60_000}
"""Code of a doubt → for so long it stands before it is a finding: a broker that starts has measured
nothing yet. The others took several reports to arise.
"""
Load = LocalBrokerData | BrokerLoadData


@dataclass(slots=True)
class _Stretch:
    """Reports in a row in which a sensor had one value."""

    usage: float
    limit: float
    since_ms: int
    traffic_min: float
    traffic_max: float
    samples: int = 0
    impossible_since_ms: int | None = None
    """Since when more is used than there is, whatever the value."""

    def suspicious(self, sensor: str, now_ms: int) -> bool:
        """Whether a sensor that works would have changed."""
        lasted = now_ms - self.since_ms
        if not self.usage or lasted < STUCK_MS_MIN or self.samples < STUCK_SAMPLES_MIN:
            return False
        if sensor == "cpu":
            return self.usage < FULL * self.limit
        return self.traffic_max - self.traffic_min > TRAFFIC_VARIES * self.traffic_max


@dataclass(slots=True)
class SensorFindings:
    """Looks at the loads of brokers, once a minute or so."""

    _made_ms: dict[str, int] = field(default_factory=dict)
    """Broker → when its last load that counted was made."""
    _stretches: dict[str, dict[str, _Stretch]] = field(default_factory=dict)
    """Broker → sensor → its last stretch."""

    def step(
        self,
        loads: Mapping[str, Load],
        doubts: Mapping[str, Reason],
        since_ms: Mapping[str, int],
        now_ms: int,
    ) -> list[FindingShown]:
        """The loads and what the model of usage says against sensors since when, by broker."""
        self._made_ms = {name: at for name, at in self._made_ms.items() if name in loads}
        self._stretches = {name: it for name, it in self._stretches.items() if name in loads}
        for broker, load in loads.items():
            self._look(broker, load, now_ms)
        doubted = _doubted(doubts, since_ms, now_ms)
        return bounded([*doubted, *self._constant(now_ms)])

    def _look(self, broker: str, load: Load, now_ms: int) -> None:
        made_ms = int(load.last_update if isinstance(load, LocalBrokerData) else load.updated_at)
        if self._made_ms.get(broker) == made_ms:
            return
        self._made_ms[broker] = made_ms
        stretches = self._stretches.setdefault(broker, {})
        traffic = load.msg_throughput_in + load.msg_throughput_out
        for sensor, shown in _sensors(load):
            last = stretches.get(sensor)
            if last is None or (last.usage, last.limit) != (shown.usage, shown.limit):
                since_ms = None if last is None else last.impossible_since_ms
                last = _Stretch(shown.usage, shown.limit, now_ms, traffic, traffic)
                last.impossible_since_ms = since_ms
                stretches[sensor] = last
            last.samples += 1
            last.traffic_min = min(last.traffic_min, traffic)
            last.traffic_max = max(last.traffic_max, traffic)
            if not 0 < shown.limit * POSSIBLE < shown.usage:
                last.impossible_since_ms = None
            elif last.impossible_since_ms is None:
                last.impossible_since_ms = now_ms

    def _constant(self, now_ms: int) -> Iterator[FindingShown]:
        for broker, stretches in self._stretches.items():
            for sensor, stretch in stretches.items():
                fault, since_ms = words.STUCK, stretch.since_ms
                impossible_ms = stretch.impossible_since_ms
                if impossible_ms is not None and now_ms - impossible_ms >= STUCK_MS_MIN:
                    fault, since_ms = words.IMPOSSIBLE, impossible_ms
                elif not stretch.suspicious(sensor, now_ms):
                    continue
                yield FindingShown(
                    kind="sensor",
                    about=f"{broker} {sensor}",
                    since=since_ms,
                    title=words.sensor(sensor, broker, fault),
                    text=words.WRONG_SENSOR,
                    advice=words.sensor_advice(sensor),
                    command=command("loadmanager admin brokers report", broker),
                )


def _doubted(
    doubts: Mapping[str, Reason], since_ms: Mapping[str, int], now_ms: int
) -> Iterator[FindingShown]:
    for broker, doubt in sorted(doubts.items()):
        began_ms = since_ms.get(broker, now_ms)
        if doubt.code not in MISTRUSTED or now_ms - began_ms < DOUBTED_MS.get(doubt.code, 0):
            continue
        sensor = MISTRUSTED[doubt.code]
        fault = words.NO_SENSOR if doubt.code == "NoSensor" else "contradicts its traffic"
        yield FindingShown(
            kind="sensor",
            about=broker,
            since=began_ms,
            title=words.sensor(sensor, broker, fault),
            text=f"{doubt.text[:1].upper()}{doubt.text[1:]}.",
            advice=words.sensor_advice(sensor),
            command=command("loadmanager admin brokers report", broker),
        )


def _sensors(load: Load) -> tuple[tuple[str, ResourceUsage], ...]:
    """Those that change while a broker works; memory may well stay as it is."""
    return (
        ("cpu", load.cpu),
        ("bandwidthIn", load.bandwidth_in),
        ("bandwidthOut", load.bandwidth_out),
    )
