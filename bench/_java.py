"""Pulsar's own Java classes over a snapshot, timed in a process of their own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import maven
from oracle.compare import build

from loadmanager.engine.load.reports import BrokerLoadData, LocalBrokerData, TopBundlesLoadData

SHEDDERS = "org.apache.pulsar.broker.loadbalance"
EXTENSIBLE = {
    "loadManagerClassName": f"{SHEDDERS}.extensions.ExtensibleLoadManagerImpl",
    "loadBalancerLoadSheddingStrategy": f"{SHEDDERS}.extensions.scheduler.TransferShedder",
}
OPTIONS = ("-Xms2g", "-Xmx4g")


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds as (best, median) of the rounds."""

    rounds: int
    moves: int
    """Of the last round."""
    all_changed: tuple[float, float]
    """Every report read, the manager's data updated once, decided. Pulsar's modular manager
    updates all of its data after each report.
    """
    one_percent_changed: tuple[float, float]
    """The same with one report in a hundred read: all data is updated even so."""
    updated: tuple[float, float]
    """The manager's data updated from reports that were read before, decided."""
    decision: tuple[float, float]


def write_modular(path: Path, reports: Mapping[str, LocalBrokerData]) -> None:
    """A cluster of the modular manager as a line of `decide`.

    Bundles must have ranges that divide the hash space evenly, as real ones do: Pulsar's JSON
    parser refuses a report with many names that differ in few characters.
    """
    path.write_bytes(msgspec.json.encode({"brokers": reports}))


def write_extensible(
    path: Path, loads: Mapping[str, BrokerLoadData], tops: Mapping[str, TopBundlesLoadData]
) -> None:
    """A cluster of the extensible manager as a line of `decide`."""
    path.write_bytes(msgspec.json.encode({"brokers": loads, "topBundles": tops}))


def java_times(
    snapshot: Path,
    shedder: str,
    config: Mapping[str, str] | None = None,
    *,
    version: str = "4.2.4",
    rounds: int = 20,
    seconds: float = 30.0,
) -> Times | str:
    """Pulsar's shedder over a snapshot, with further keys of broker.conf; or why it cannot run.

    After a warm-up of 5 s and at least one round, as many rounds as given, but none begins after
    `seconds`. A shedder remembers from round to round: AvgShedder acts once in as many rounds as
    its thresholds say, and counts in the others. Maven downloads Pulsar once.
    """
    if (reason := maven.missing()) is not None:
        return reason
    try:
        command = build(version, "Times", OPTIONS)
    except subprocess.SubprocessError as error:
        return f"Maven cannot build the harness: {error}"
    full = dict(EXTENSIBLE)
    if shedder != "TransferShedder":
        name = f"{SHEDDERS}.impl.{shedder}"
        full = {"loadBalancerLoadSheddingStrategy": name}
        if shedder == "AvgShedder":
            full["loadBalancerLoadPlacementStrategy"] = name
    arguments = [str(snapshot), json.dumps({**full, **(config or {})}), str(rounds), str(seconds)]
    answered = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    if answered.returncode:
        errors = [line for line in answered.stderr.splitlines() if "Exception" in line]
        return f"Java failed: {(errors or ['no exception'])[0][:300]}"
    measured = json.loads(answered.stdout)["rounds"]

    def both(*parts: str) -> tuple[float, float]:
        sums = [sum(one[part] for part in parts) for one in measured]
        return min(sums), statistics.median(sums)

    return Times(
        len(measured),
        measured[-1]["moves"],
        both("readAll", "update", "decide"),
        both("readOnePercent", "update", "decide"),
        both("update", "decide"),
        both("decide"),
    )
