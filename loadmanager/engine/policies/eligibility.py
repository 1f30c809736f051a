"""The brokers that qualify by their load manager's class and their version (Pulsar's `BrokerFilter`
pipeline).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from loadmanager.engine.load.reports import LocalBrokerData
from loadmanager.kit.reason import Reason

_VERSION = re.compile(
    r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?"
)

VersionKey = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]


@lru_cache(maxsize=100)  # each placement asks
def same_class(class_name: str | None, other: str) -> bool:
    """True if two class names agree in their last part; a broker may not report one."""
    return class_name is None or class_name.rpartition(".")[2] == other.rpartition(".")[2]


def other_load_manager(
    brokers: Sequence[str], reports: Mapping[str, LocalBrokerData], class_name: str
) -> dict[str, Reason]:
    """The brokers that run a load manager of another class, and which one.

    A broker whose report does not name a class qualifies.
    """
    rejected = {}
    for broker in brokers:
        runs = reports[broker].load_manager_class_name
        if not same_class(runs, class_name):
            rejected[broker] = Reason("LoadManagerClass", f"it runs {runs}")
    return rejected


def versions_of(reports: Mapping[str, LocalBrokerData]) -> dict[str, str]:
    """brokerId → version, of the brokers that report one."""
    return {
        broker: version
        for broker, report in reports.items()
        if (version := report.broker_version_string)
    }


def older_version(brokers: Sequence[str], versions: Mapping[str, str]) -> dict[str, Reason] | None:
    """The brokers that do not run the newest version, and which one they run.

    None if a version is missing or unreadable: then Pulsar's filter fails.
    """
    keys = {broker: _key(versions.get(broker, "")) for broker in brokers}
    if None in keys.values():
        return None
    newest = max((key for key in keys.values() if key is not None), default=None)
    return {broker: older(versions[broker]) for broker in brokers if keys[broker] != newest}


def ranks(versions: Sequence[str]) -> list[int]:
    """A rank for each version, higher for later ones; -1 for one that is missing or unreadable."""
    keys = [_key(version) for version in versions]
    order = sorted({key for key in keys if key is not None})
    return [-1 if key is None else order.index(key) for key in keys]


def older(version: str) -> Reason:
    """The reason why a broker of this version gets nothing."""
    return Reason("Version", f"it runs {version}, another a later one")


@lru_cache(maxsize=100)  # each placement asks, for each broker
def _key(text: str) -> VersionKey | None:
    """A sort key for semantic versions without build metadata; None for any other text."""
    match = _VERSION.fullmatch(text)
    if match is None:
        return None
    parts = tuple(
        (not part.isdigit(), int(part) if part.isdigit() and len(part) < 10 else 0, part)
        for part in (match[4] or "").split(".")
        if part
    )
    return int(match[1]), int(match[2]), int(match[3]), match[4] is None, parts
