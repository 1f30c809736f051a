"""Anti-affinity groups: spread the namespaces of a group over failure domains and brokers (Pulsar
`LoadManagerShared`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loadmanager.core.bundles.ranges import split_bundle_name

DEFAULT_DOMAIN = "default"


def namespaces_of_group(
    group: str, groups: Mapping[str, str], bundles: Mapping[str, Sequence[str]]
) -> dict[str, int]:
    """How many namespaces of a group each broker serves, the one to be placed included.

    `bundles`: broker → reported and pending bundles.
    """
    members = {namespace for namespace, other in groups.items() if other.lower() == group.lower()}
    return {
        broker: len({split_bundle_name(bundle)[0] for bundle in served} & members)
        for broker, served in bundles.items()
    }


def bundles_of_group(
    group: str, groups: Mapping[str, str], bundles: Mapping[str, Sequence[str]]
) -> dict[str, int]:
    """How many bundles of a group's namespaces each broker serves: what the extensible manager
    counts instead.
    """
    members = {namespace for namespace, other in groups.items() if other.lower() == group.lower()}
    return {
        broker: sum(split_bundle_name(bundle)[0] in members for bundle in served)
        for broker, served in bundles.items()
    }


def least_of_group(
    brokers: Sequence[str],
    counts: Mapping[str, int],
    domains: Mapping[str, Sequence[str]],
    rejected: dict[str, str],
    *,
    what: str = "namespaces",
) -> list[str]:
    """The brokers with the fewest namespaces of a group, within the failure domains that have the
    fewest. The others get their reason.
    """
    able = list(brokers)
    if domains:
        domain_of = {broker: name for name in sorted(domains) for broker in domains[name]}
        totals: dict[str, int] = {}
        for broker in able:
            domain = domain_of.get(broker, DEFAULT_DOMAIN)
            totals[domain] = totals.get(domain, 0) + counts.get(broker, 0)
        least = min(totals.values(), default=0)
        for broker in brokers:
            domain = domain_of.get(broker, DEFAULT_DOMAIN)
            if totals[domain] > least:
                rejected[broker] = (
                    f"AntiAffinity: failure domain {domain} has {totals[domain]} {what} of the "
                    f"group, another has {least}"
                )
        able = [broker for broker in able if broker not in rejected]
    fewest = min((counts.get(broker, 0) for broker in able), default=0)
    for broker in able:
        if counts.get(broker, 0) > fewest:
            rejected[broker] = (
                f"AntiAffinity: it has {counts[broker]} {what} of the group, another has {fewest}"
            )
    return [broker for broker in able if counts.get(broker, 0) == fewest]


def may_unload(broker: str, candidates: Sequence[str], counts: Mapping[str, int]) -> bool:
    """Whether moving a bundle of a group away does not make its spread worse (Pulsar
    `shouldAntiAffinityNamespaceUnload`).
    """
    if not any(counts.values()):
        return True
    of_candidates = [counts.get(other, 0) for other in candidates]
    least, current = min(of_candidates, default=0), counts.get(broker, 0)
    return least == 0 or current > least or len(set(of_candidates)) > 1
