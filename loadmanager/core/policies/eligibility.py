"""Which brokers qualify by what they are: the load manager that they run and their version
(Pulsar's `BrokerFilter` pipeline).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from loadmanager.core.load.reports import LocalBrokerData

_VERSION = re.compile(
    r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?"
)

VersionKey = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...], str]


def same_load_manager(
    brokers: Sequence[str],
    reports: Mapping[str, LocalBrokerData],
    name: str,
    rejected: dict[str, str],
) -> list[str]:
    """The brokers that run the load manager of that class, or do not say."""
    able = []
    for broker in brokers:
        theirs = reports[broker].load_manager_class_name
        if theirs is not None and theirs.rpartition(".")[2] != name.rpartition(".")[2]:
            rejected[broker] = f"LoadManagerClass: it runs {theirs}"
        else:
            able.append(broker)
    return able


def newest_version(
    brokers: Sequence[str], reports: Mapping[str, LocalBrokerData], rejected: dict[str, str]
) -> list[str]:
    """The brokers of the newest version; none of them where a version is missing or unreadable,
    because then the filter fails (Pulsar's rule).
    """
    keys = {broker: _key(reports[broker].broker_version_string or "") for broker in brokers}
    known = [key for key in keys.values() if key is not None]
    if not known or len(known) < len(brokers):
        return []
    newest = max(known)
    for broker in brokers:
        if keys[broker] != newest:
            rejected[broker] = (
                f"Version: it runs {reports[broker].broker_version_string}, another a later one"
            )
    return [broker for broker in brokers if keys[broker] == newest]


def _key(text: str) -> VersionKey | None:
    """The order of semantic versions, build metadata last; None for what is none."""
    match = _VERSION.fullmatch(text)
    if match is None:
        return None
    parts = tuple(
        (not part.isdigit(), int(part) if part.isdigit() and len(part) < 10 else 0, part)
        for part in (match[4] or "").split(".")
        if part
    )
    return int(match[1]), int(match[2]), int(match[3]), match[4] is None, parts, match[5] or ""
