"""A cluster as it is now, as one input line of `loadmanager decide`."""

from __future__ import annotations

from typing import Any

import msgspec

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.kit.names import is_system_namespace
from loadmanager.steer.own_balancing import OWN_BALANCING
from loadmanager.steer.picture import Picture
from loadmanager.steer.ports.cluster_reader import ClusterReader


async def snapshot_line(picture: Picture, reader: ClusterReader) -> dict[str, Any]:
    """The line: reports, boundaries, policies, and Pulsar's own settings of load balancing, except
    whether it balances at all.

    Raises `OperationalError` if the boundaries cannot be read.
    """
    namespaces = sorted(
        {
            namespace
            for report in picture.reports.values()
            for namespace in (split_bundle_name(bundle)[0] for bundle in report.bundles)
            if not is_system_namespace(namespace)
        }
    )
    settings_of: dict[str, Any] = {}
    for namespace in namespaces:
        settings_of[namespace] = {"boundaries": await reader.boundaries(namespace)}
        if namespace in picture.groups:
            settings_of[namespace]["antiAffinityGroup"] = picture.groups[namespace]
    return {
        "now": picture.clock.now_ms(),
        "brokers": {
            broker: msgspec.to_builtins(picture.reports[broker])
            for broker in sorted(picture.answering & picture.reports.keys())
        },
        "namespaces": settings_of,
        "failureDomains": {name: list(brokers) for name, brokers in picture.domains.items()},
        "isolationPolicies": msgspec.to_builtins(dict(picture.isolation)),
        "config": {
            name: picture.settings[name]
            for name in sorted(picture.settings)
            if name not in OWN_BALANCING
        },
    }
