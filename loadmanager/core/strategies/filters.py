"""Which brokers may take a bundle: the filters of Pulsar's two load managers, with a reason for
every broker that drops out.

Modular: `ModularLoadManagerImpl.selectBroker` before it asks the strategy. Extensible: the
`BrokerFilter`s, in order of their registration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from loadmanager.core.bundles.ranges import split_bundle_name
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.policies import anti_affinity, eligibility, isolation
from loadmanager.core.strategies.settings import StrategySettings

SYSTEM_NAMESPACE = "pulsar/system"


def may_serve(snapshot: ClusterSnapshot, namespace: str, rejected: dict[str, str]) -> list[str]:
    """The available brokers that isolation policies leave to a namespace, in order of name."""
    return isolation.allowed(
        namespace,
        sorted(snapshot.available),
        snapshot.isolation_policies,
        snapshot.reports,
        rejected,
    )


def modular(
    snapshot: ClusterSnapshot,
    allowed: Sequence[str],
    namespace: str,
    settings: StrategySettings,
    rejected: dict[str, str],
    *,
    leaving: str | None = None,
) -> list[str]:
    """Topic limit, anti-affinity, evenness, load manager class, version.

    If nobody is left, all of `allowed` are (Pulsar's rule).

    The broker that the bundle is `leaving` is none of them, but it counts where it is asked whether
    anybody is below the topic limit.
    """
    reasons: dict[str, str] = {}
    able = [
        broker
        for broker in _below_topic_limit(snapshot, allowed, settings, reasons)
        if broker != leaving
    ]
    if not able:
        rejected.update(reasons)
        return []
    group = snapshot.anti_affinity_groups.get(namespace)
    if group is not None:
        counts = anti_affinity.namespaces_of_group(
            group, snapshot.anti_affinity_groups, served(snapshot)
        )
        able = anti_affinity.least_of_group(able, counts, snapshot.failure_domains, reasons)
    if settings.distribute_evenly or namespace == SYSTEM_NAMESPACE:
        able = _fewest_of_namespace(snapshot, able, namespace, reasons)
    able = _of_our_kind(snapshot, able, settings, reasons)
    if not able:
        return [broker for broker in allowed if broker != leaving]
    rejected.update(reasons)
    return able


def unfit(snapshot: ClusterSnapshot, settings: StrategySettings) -> dict[str, str]:
    """Brokers that the modular manager sends no bundle to, of whatever namespace, and why.

    None of them if they are all.
    """
    reasons: dict[str, str] = {}
    able = _below_topic_limit(snapshot, sorted(snapshot.available), settings, reasons)
    if not _of_our_kind(snapshot, able, settings, reasons):
        reasons = {}
    off = {
        broker: "PersistentTopicsDisabled"
        for broker, report in snapshot.reports.items()
        if not report.persistent_topics_enabled
    }
    return reasons if snapshot.isolation_policies else {**reasons, **off}


def _of_our_kind(
    snapshot: ClusterSnapshot,
    brokers: Sequence[str],
    settings: StrategySettings,
    rejected: dict[str, str],
) -> list[str]:
    """Load manager class, version."""
    able = eligibility.same_load_manager(
        brokers, snapshot.reports, settings.load_manager_class, rejected
    )
    return (
        eligibility.newest_version(able, snapshot.reports, rejected)
        if settings.prefer_later_versions
        else able
    )


def extensible(
    snapshot: ClusterSnapshot,
    namespace: str,
    settings: StrategySettings,
    rejected: dict[str, str],
    *,
    leaving: str | None = None,
) -> list[str]:
    """Topic limit, anti-affinity (which counts bundles, not namespaces), isolation.

    Nobody may be left: Pulsar has no way back here.
    """
    able = []
    for broker in sorted(snapshot.available - {leaving}):
        topics = snapshot.load_data[broker].topics + sum(
            data.topics for data in snapshot.pending.get(broker, {}).values()
        )
        if topics >= settings.broker_topics_max:
            rejected[broker] = f"MaxTopics: {topics:g} topics"
        else:
            able.append(broker)
    group = snapshot.anti_affinity_groups.get(namespace)
    if group is not None:
        counts = anti_affinity.bundles_of_group(
            group, snapshot.anti_affinity_groups, served(snapshot)
        )
        able = anti_affinity.least_of_group(
            able, counts, snapshot.failure_domains, rejected, what="bundles"
        )
    reasons: dict[str, str] = {}
    allowed = set(may_serve(snapshot, namespace, reasons))
    rejected.update((broker, reason) for broker, reason in reasons.items() if broker in able)
    return [broker for broker in able if broker in allowed]


def served(snapshot: ClusterSnapshot) -> dict[str, list[str]]:
    """Known and pending bundles of every broker: as reported, in the extensible manager as
    published, where `owners` says nothing else.
    """
    if snapshot.reports:
        reported: dict[str, Sequence[str]] = {
            broker: report.bundles for broker, report in snapshot.reports.items()
        }
    else:
        reported = {
            broker: [item.bundle_name for item in top.top_bundles_load_data]
            for broker, top in snapshot.top_bundles.items()
        }
    found = {
        broker: [*reported.get(broker, ()), *snapshot.pending.get(broker, {})]
        for broker in sorted(snapshot.available)
    }
    if snapshot.owners:
        found = {
            broker: [name for name in names if snapshot.owners.get(name, broker) == broker]
            for broker, names in found.items()
        }
        for bundle, owner in snapshot.owners.items():
            if owner in found and bundle not in found[owner]:
                found[owner].append(bundle)
    return found


def has_policy(snapshot: ClusterSnapshot, namespace: str) -> bool:
    """Whether an isolation policy or an anti-affinity group concerns a namespace."""
    return (
        namespace in snapshot.anti_affinity_groups
        or isolation.policy_of(namespace, snapshot.isolation_policies) is not None
    )


def _below_topic_limit(
    snapshot: ClusterSnapshot,
    brokers: Sequence[str],
    settings: StrategySettings,
    rejected: dict[str, str],
) -> list[str]:
    """Brokers whose topics, with those of pending placements, do not exceed the maximum; all of
    them if every one does.
    """
    topics = {
        b: snapshot.reports[b].num_topics
        + sum(data.topics for data in snapshot.pending.get(b, {}).values())
        for b in brokers
    }
    able = [broker for broker in brokers if topics[broker] <= settings.broker_topics_max]
    if not able:
        return list(brokers)
    rejected.update(
        (broker, f"MaxTopics: {topics[broker]:g} topics")
        for broker in brokers
        if broker not in able
    )
    return able


def _fewest_of_namespace(
    snapshot: ClusterSnapshot, brokers: Sequence[str], namespace: str, rejected: dict[str, str]
) -> list[str]:
    """Brokers that have the fewest bundles of a namespace, reported and pending."""
    prefix = f"{namespace}/"
    known = served(snapshot)
    counts = {
        broker: len({name for name in known[broker] if name.startswith(prefix)})
        for broker in brokers
    }
    least = min(counts.values(), default=0)
    rejected.update(
        (
            broker,
            (
                f"DistributeEvenly: it has {counts[broker]} bundles of {namespace}, "
                f"another has {least}"
            ),
        )
        for broker in brokers
        if counts[broker] > least
    )
    return [broker for broker in brokers if counts[broker] == least]


class Transferability:
    """Whether a bundle may go from one broker to another in this cycle, by the filters (Pulsar
    `TransferShedder.isTransferable`).

    A cycle asks for many bundles of few namespaces: the answer of the filters is kept for each
    namespace.
    """

    def __init__(self, snapshot: ClusterSnapshot, settings: StrategySettings) -> None:
        self._snapshot = snapshot
        self._settings = settings
        self.transfer_enabled = settings.transfer_enabled
        self._able = lru_cache(maxsize=None)(self._filtered)

    def _filtered(self, namespace: str) -> frozenset[str]:
        return frozenset(extensible(self._snapshot, namespace, self._settings, {}))

    def allows(self, bundle: str, source: str, target: str) -> bool:
        """Without a policy in the way, and with the target among the brokers that the filters leave
        (any other one where no target is chosen).
        """
        namespace = split_bundle_name(bundle)[0]
        if not self._settings.shed_policy_bundles and has_policy(self._snapshot, namespace):
            return False
        able = self._able(namespace)
        return target in able if self.transfer_enabled else len(able) > (source in able)


def pending_usage(snapshot: ClusterSnapshot, usage: Mapping[str, float]) -> dict[str, float]:
    """What the placements under way will add to each broker's usage, a fraction: their throughput
    at the cluster's usage per byte/s.

    Pulsar's resource-based strategies do not see placements under way, so that a burst of lookups
    piles up on one broker.
    """
    if not any(snapshot.pending.values()):
        return {}
    known = [snapshot.reports.get(broker) or snapshot.load_data.get(broker) for broker in usage]
    throughput = sum(
        report.msg_throughput_in + report.msg_throughput_out
        for report in known
        if report is not None
    )
    if throughput <= 0:
        return {}
    per_byte = sum(usage.values()) / throughput
    return {
        broker: per_byte
        * sum(data.short_term_data.throughput for data in snapshot.pending.get(broker, {}).values())
        for broker in usage
    }
