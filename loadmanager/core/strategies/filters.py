"""Which brokers may take a bundle: the filters of Pulsar's two load managers.

Modular: `ModularLoadManagerImpl.selectBroker` before it asks the strategy. Extensible: the
`BrokerFilter`s, in order of their registration. Every broker that a filter removes gets a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from loadmanager.core.bundles.names import SYSTEM_NAMESPACE
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.policies import anti_affinity, eligibility, isolation
from loadmanager.core.strategies.settings import StrategySettings

Filter = Callable[[Sequence[str]], Mapping[str, str]]
"""brokerIds → those that drop out of them, each with its reason."""


def _through(brokers: Sequence[str], filters: Iterable[Filter]) -> tuple[list[str], dict[str, str]]:
    """The brokers that pass every filter, and why the others do not."""
    able = list(brokers)
    rejected: dict[str, str] = {}
    for drop_outs in filters:
        reasons = drop_outs(able)
        rejected.update((broker, reasons[broker]) for broker in able if broker in reasons)
        able = [broker for broker in able if broker not in reasons]
    return able, rejected


def may_serve(snapshot: ClusterSnapshot, namespace: str) -> tuple[list[str], dict[str, str]]:
    """The available brokers that isolation policies leave to a namespace, in order of name, and why
    the others drop out.
    """
    return _through(sorted(snapshot.available), [_isolation(snapshot, namespace)])


def modular(
    snapshot: ClusterSnapshot,
    allowed: Sequence[str],
    namespace: str,
    settings: StrategySettings,
    *,
    leaving: str | None = None,
) -> tuple[list[str], dict[str, str]]:
    """Topic limit, anti-affinity, evenness, load manager class, version.

    If these filters remove every broker, all of `allowed` stay (Pulsar's rule).

    Excludes the broker that the bundle is `leaving`, except when checking whether any broker is
    below the topic limit.
    """
    able, full = _through(allowed, [partial(_over_topic_limit, snapshot, settings)])
    destinations = [broker for broker in able if broker != leaving]
    if not destinations:
        return [], full
    evenly = settings.distribute_evenly or namespace == SYSTEM_NAMESPACE
    able, rejected = _through(
        destinations,
        [
            _anti_affinity(snapshot, namespace),
            partial(_not_fewest_of_namespace, snapshot, namespace) if evenly else _none,
            *_of_our_kind(snapshot, settings),
        ],
    )
    if not able:
        return [broker for broker in allowed if broker != leaving], {}
    return able, {**full, **rejected}


def unfit(snapshot: ClusterSnapshot, settings: StrategySettings) -> dict[str, str]:
    """Brokers to which the modular manager sends no bundle of any namespace, and why.

    Empty if every broker would be excluded.
    """
    able, reasons = _through(
        sorted(snapshot.available),
        [partial(_over_topic_limit, snapshot, settings), *_of_our_kind(snapshot, settings)],
    )
    if not able:
        reasons = {}
    if snapshot.isolation_policies:
        return reasons
    return {**reasons, **isolation.rejected("", sorted(snapshot.reports), {}, snapshot.reports)}


def extensible(
    snapshot: ClusterSnapshot,
    namespace: str,
    settings: StrategySettings,
    *,
    leaving: str | None = None,
) -> tuple[list[str], dict[str, str]]:
    """Topic limit, anti-affinity (which counts bundles, not namespaces), isolation.

    They may remove every broker: unlike the modular manager, Pulsar's extensible one gives up then.
    """

    def over_topic_limit(brokers: Sequence[str]) -> dict[str, str]:
        topics = {
            broker: snapshot.load_data[broker].topics + snapshot.pending_topics(broker)
            for broker in brokers
        }
        return {
            broker: f"MaxTopics: {topics[broker]:g} topics"
            for broker in brokers
            if topics[broker] >= settings.broker_topics_max
        }

    return _through(
        sorted(snapshot.available - {leaving}),
        [
            over_topic_limit,
            _anti_affinity(snapshot, namespace),
            _isolation(snapshot, namespace, leaving),
        ],
    )


def served(snapshot: ClusterSnapshot) -> dict[str, list[str]]:
    """brokerId → its bundles: those of its report (in the extensible manager, those that it
    published) and those on their way to it.

    Where `owners` names another broker, the bundle counts there.
    """
    if snapshot.reports:
        reported: dict[str, Sequence[str]] = {
            broker: report.bundles for broker, report in snapshot.reports.items()
        }
    else:
        reported = {
            broker: [bundle.bundle_name for bundle in top.top_bundles_load_data]
            for broker, top in snapshot.top_bundles.items()
        }
    bundles = {
        broker: [*reported.get(broker, ()), *snapshot.pending.get(broker, {})]
        for broker in sorted(snapshot.available)
    }
    if snapshot.owners:
        bundles = {
            broker: [name for name in names if snapshot.owners.get(name, broker) == broker]
            for broker, names in bundles.items()
        }
        for bundle, owner in snapshot.owners.items():
            if owner in bundles and bundle not in bundles[owner]:
                bundles[owner].append(bundle)
    return bundles


def has_policy(snapshot: ClusterSnapshot, namespace: str) -> bool:
    """Whether an isolation policy or an anti-affinity group concerns a namespace."""
    return (
        namespace in snapshot.anti_affinity_groups
        or isolation.policy_of(namespace, snapshot.isolation_policies) is not None
    )


def _none(_brokers: Sequence[str]) -> dict[str, str]:
    return {}


def _isolation(snapshot: ClusterSnapshot, namespace: str, leaving: str | None = None) -> Filter:
    """Primaries that other filters removed do not count, so that secondaries take over.

    The broker that a bundle is `leaving` counts: it is there.
    """
    there = () if leaving is None else (leaving,)
    return lambda brokers: isolation.rejected(
        namespace,
        sorted({*brokers, *there}),
        snapshot.isolation_policies,
        snapshot.reports,
    )


def _anti_affinity(snapshot: ClusterSnapshot, namespace: str) -> Filter:
    group = snapshot.anti_affinity_groups.get(namespace)
    if group is None:
        return _none
    count, what = (
        (anti_affinity.bundles_of_group, "bundles")
        if snapshot.extensible
        else (anti_affinity.namespaces_of_group, "namespaces")
    )
    return lambda brokers: anti_affinity.not_least_of_group(
        brokers,
        count(group, snapshot.anti_affinity_groups, served(snapshot)),
        snapshot.failure_domains,
        what=what,
    )


def _of_our_kind(snapshot: ClusterSnapshot, settings: StrategySettings) -> list[Filter]:
    """Load manager class and version."""
    reports = snapshot.reports
    return [
        lambda brokers: eligibility.other_load_manager(
            brokers, reports, settings.load_manager_class
        ),
        lambda brokers: (
            eligibility.older_version(brokers, reports) if settings.prefer_later_versions else {}
        ),
    ]


def _over_topic_limit(
    snapshot: ClusterSnapshot, settings: StrategySettings, brokers: Sequence[str]
) -> dict[str, str]:
    """Brokers that have more topics than the maximum, those of pending placements included.

    Empty if every broker has.
    """
    topics = {
        broker: snapshot.reports[broker].num_topics + snapshot.pending_topics(broker)
        for broker in brokers
    }
    full = {
        broker: f"MaxTopics: {topics[broker]:g} topics"
        for broker in brokers
        if topics[broker] > settings.broker_topics_max
    }
    return full if len(full) < len(brokers) else {}


def _not_fewest_of_namespace(
    snapshot: ClusterSnapshot, namespace: str, brokers: Sequence[str]
) -> dict[str, str]:
    """Brokers that have more bundles of a namespace, reported and pending, than another."""
    prefix = f"{namespace}/"
    bundles = served(snapshot)
    counts = {
        broker: len({name for name in bundles[broker] if name.startswith(prefix)})
        for broker in brokers
    }
    least = min(counts.values(), default=0)
    return {
        broker: f"DistributeEvenly: it has {counts[broker]} bundles of {namespace}, "
        f"another has {least}"
        for broker in brokers
        if counts[broker] > least
    }
