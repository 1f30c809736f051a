"""Anti-affinity groups spread their namespaces over failure domains and brokers (Pulsar
`LoadManagerShared`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loadmanager.kit.reason import Reason

DEFAULT_DOMAIN = "default"


def members(group: str, groups: Mapping[str, str]) -> list[str]:
    """The namespaces of a group; upper and lower case do not matter."""
    return [namespace for namespace, other in groups.items() if other.lower() == group.lower()]


def not_least_of_group(
    brokers: Sequence[str],
    counts: Mapping[str, int],
    domains: Mapping[str, Sequence[str]],
    *,
    what: str = "namespace",
) -> dict[str, Reason]:
    """The brokers that a bundle of a group must avoid, and why.

    They lie in a failure domain that has more of the group than another one, or have more of it
    than another broker of the best domains.
    """
    domain_of = {broker: name for name in sorted(domains) for broker in domains[name]}
    totals: dict[str, int] = {}
    for broker in brokers:
        domain = domain_of.get(broker, DEFAULT_DOMAIN)
        totals[domain] = totals.get(domain, 0) + counts.get(broker, 0)
    least = min(totals.values(), default=0)
    rejected = {}
    for broker in brokers if domains else ():
        domain = domain_of.get(broker, DEFAULT_DOMAIN)
        if totals[domain] > least:
            counted = _counted(totals[domain], what)
            rejected[broker] = Reason(
                "AntiAffinity",
                f"failure domain {domain} has {counted} of the group, another has {least}",
            )
    remaining = [broker for broker in brokers if broker not in rejected]
    fewest = min((counts.get(broker, 0) for broker in remaining), default=0)
    for broker in remaining:
        if counts.get(broker, 0) > fewest:
            counted = _counted(counts[broker], what)
            text = f"it has {counted} of the group, another has {fewest}"
            rejected[broker] = Reason("AntiAffinity", text)
    return rejected


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def may_unload(broker: str, candidates: Sequence[str], counts: Mapping[str, int]) -> bool:
    """True if a bundle of a group may leave its broker without making the group's spread worse
    (Pulsar `shouldAntiAffinityNamespaceUnload`).
    """
    if not any(counts.values()):
        return True
    candidate_counts = [counts.get(other, 0) for other in candidates]
    least = min(candidate_counts, default=0)
    current = counts.get(broker, 0) if broker in candidates else 0
    return least == 0 or current > least or len(set(candidate_counts)) > 1
