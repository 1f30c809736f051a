"""Brokers' loads in five minutes, without what a sensor that lied made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from loadmanager.engine.findings.sensors import (
    FULL,
    STUCK_MS_MIN,
    STUCK_SAMPLES_MIN,
    TRAFFIC_VARIES,
)
from loadmanager.engine.history.records import POSSIBLE
from loadmanager.kit.units import DAY_MS
from loadmanager.nightly.day import Day, Row
from loadmanager.nightly.facts import BUCKET_MS
from loadmanager.nightly.schema import RESOURCES

SAME = 0.02
"""A usage that differs from a resource's by no more was taken from it."""
Stretch = tuple[str, str, int, int]
"""Broker, resource, begin and end in ms."""


def by_broker(steps: Iterable[Row]) -> dict[str, list[Row]]:
    """The steps of each broker, in order."""
    return {name: list(group) for name, group in groupby(steps, key=lambda row: row["broker"])}


def stuck(day: Day) -> list[Stretch]:
    """Sensors that showed one value for an hour or more, to the last digit."""
    stretches = []
    for broker, steps in by_broker(day.facts.brokers).items():
        for resource in RESOURCES:
            if resource in ("memory", "directMemory"):
                continue  # may well stay as they are
            for stretch in _constant(steps, resource):
                if _suspicious(stretch, resource):
                    begun, ended = stretch[0]["first_ts"], stretch[-1]["last_ts"]
                    stretches.append((broker, resource, begun, ended))
    return stretches


def _constant(steps: Sequence[Row], resource: str) -> list[list[Row]]:
    """Maximal stretches in which a resource had one value."""
    stretches: list[list[Row]] = []
    least, most = f"{resource}_least", f"{resource}_most"
    for step in steps:
        if not step[least] or step[least] != step[most]:
            stretches.append([])
        elif stretches and stretches[-1] and stretches[-1][0][least] == step[least]:
            stretches[-1].append(step)
        else:
            stretches.append([step])
    return [stretch for stretch in stretches if stretch]


def _suspicious(stretch: Sequence[Row], resource: str) -> bool:
    lasted = sum(step["interval_ms"] for step in stretch)
    samples = sum(step["samples"] for step in stretch)
    if lasted < STUCK_MS_MIN or samples < STUCK_SAMPLES_MIN:
        return False
    if resource == "cpu":
        return bool(stretch[0]["cpu_mean"] < FULL)
    least = min(step["throughput_min"] for step in stretch)
    most = max(step["throughput_max"] for step in stretch)
    return bool(most - least > TRAFFIC_VARIES * most)


def trusted(day: Day) -> list[Row]:
    """The day's five minutes of brokers, with two columns more: `usage`, the mean; `lied`, whether
    it is that of the other sensors and samples, because one that it came from was stuck, or showed
    more than there is.
    """
    weights = day.settings.weights
    weight = {
        "cpu": weights.cpu,
        "directMemory": weights.direct_memory,
        "bandwidthIn": weights.bandwidth_in,
        "bandwidthOut": weights.bandwidth_out,
    }
    lying: dict[str, list[tuple[str, int, int]]] = {}
    for broker, resource, begun, ended in stuck(day):
        lying.setdefault(broker, []).append((resource, begun, ended))
    rows = []
    for step in day.facts.brokers:
        usage, lied = step["usage_sum"] / step["samples"], False
        bad = {
            resource
            for resource, begun, ended in lying.get(step["broker"], ())
            if begun <= step["last_ts"] and step["first_ts"] <= ended
        }
        weighted = {
            resource: (step[f"{resource}_mean"] or 0.0) * factor
            for resource, factor in weight.items()
        }
        if any(abs(weighted.get(resource, -1.0) - usage) <= SAME * usage for resource in bad):
            usage, lied = max(weighted[name] for name in weighted if name not in bad), True
        elif _impossible(step, weight):
            honest = max(weighted[name] for name in weighted if name not in bad)
            usage, lied = (honest, True) if usage > honest * (1 + SAME) else (usage, False)
        rows.append({**step, "usage": usage, "lied": lied})
    return rows


def filled(steps: Sequence[Row]) -> list[Row]:
    """The same, and for five minutes in which a broker recorded nothing the sample that stands for
    most of them: one that came later, of a longer interval.

    So what is summed up over brokers in five minutes has all of them, however they sample.
    """
    recorded = {(step["broker"], step["bucket"]) for step in steps}
    copies: dict[tuple[str, int], Row] = {}
    for step in steps:
        begun = step["first_ts"] - step["interval_ms"] / step["samples"]
        bucket = step["bucket"] - BUCKET_MS
        while bucket + BUCKET_MS / 2 >= begun and bucket >= step["bucket"] // DAY_MS * DAY_MS:
            if (step["broker"], bucket) not in recorded:
                copies[step["broker"], bucket] = {**step, "bucket": bucket}
            bucket -= BUCKET_MS
    return sorted([*steps, *copies.values()], key=lambda step: (step["broker"], step["bucket"]))


def _impossible(step: Row, weight: Mapping[str, float]) -> bool:
    """Whether a sample showed more than there is."""
    most = POSSIBLE * max(1.0, *weight.values())
    return step["usage_max"] > most or any(step[f"{name}_impossible"] for name in weight)
