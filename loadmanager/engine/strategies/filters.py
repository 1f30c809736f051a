"""The brokers that may take a bundle: the filters of Pulsar's two load managers.

Modular: `ModularLoadManagerImpl.selectBroker` before it asks the strategy. Extensible: the
`BrokerFilter`s, in order of their registration. Every broker that a filter removes gets a reason,
whose text is made when somebody reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.bundles.ranges import bundles_text
from loadmanager.engine.load.columns import BrokerRows
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.policies import anti_affinity, eligibility, isolation
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.names import SYSTEM_NAMESPACE
from loadmanager.kit.reason import Reason

CORDONED = Reason("Cordoned", "it gets no new bundle")
REFUSES = Reason("CannotOpen", "it could not open the bundle a moment ago")
UNREADABLE = Reason("Version", "a broker does not report a readable version")

Filter = Callable[[Sequence[str]], Mapping[str, Reason]]
"""Takes brokerIds; returns those to leave out, each with its reason."""


class Reasons(Mapping[str, Reason]):
    """brokerId → why it is left out; computed from the parts on first use."""

    __slots__ = ("_parts", "_reasons")

    def __init__(self, *parts: Mapping[str, Reason] | Callable[[], Mapping[str, Reason]]) -> None:
        self._parts = parts
        self._reasons: dict[str, Reason] | None = None

    def _all(self) -> dict[str, Reason]:
        if self._reasons is None:
            self._reasons = {}
            for part in self._parts:
                self._reasons.update(part() if callable(part) else part)
            self._parts = ()
        return self._reasons

    def __getitem__(self, broker: str) -> Reason:
        return self._all()[broker]

    def of(self, broker: str) -> Reason | None:
        """The reason for one broker, without those for the others."""
        if self._reasons is None:
            self._parts = tuple(part() if callable(part) else part for part in self._parts)
            for part in reversed(self._parts):
                assert isinstance(part, Mapping)
                reason = part.of(broker) if isinstance(part, Reasons) else part.get(broker)
                if reason is not None:
                    return reason
            return None
        return self._reasons.get(broker)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


NO_REASONS = Reasons()


def may_serve(snapshot: ClusterSnapshot, namespace: str) -> tuple[BrokerRows, Mapping[str, Reason]]:
    """The available brokers that isolation policies leave to a namespace, in order of name, and why
    the others drop out.
    """
    if snapshot.extensible:
        names = sorted(snapshot.available)
        reasons = _isolation(snapshot, namespace)(names)
        left = [broker for broker in names if broker not in reasons]
        return BrokerRows.listed(left), reasons
    columns = snapshot.columns
    everyone = columns.everyone
    persistent = _all_persistent(snapshot)
    if not snapshot.isolation_policies and persistent:
        return everyone, NO_REASONS
    which = serving_rows(snapshot, namespace)
    if which.all():
        return everyone, NO_REASONS
    if not persistent:  # the reports may be others when somebody reads the reasons
        return everyone.where(which), _isolation(snapshot, namespace)(columns.names)
    names, policies = columns.names, isolation.with_matches(snapshot.isolation_policies)
    return everyone.where(which), Reasons(lambda: policies.rejected(namespace, names, {}))


def serving_rows(snapshot: ClusterSnapshot, namespace: str) -> NDArray[np.bool_]:
    """`may_serve` by row, not to be changed; of the modular manager."""
    policies = isolation.with_matches(snapshot.isolation_policies)
    which = policies.allowed(namespace, snapshot.columns)
    if policies.of(namespace) is None and not _all_persistent(snapshot):
        which = which & snapshot.columns.persistent
    return which


def serving_rows_without(snapshot: ClusterSnapshot, namespace: str, lost: int) -> NDArray[np.bool_]:
    """The same if the broker of a row were lost."""
    policies = isolation.with_matches(snapshot.isolation_policies)
    which = policies.allowed_without(namespace, snapshot.columns, lost)
    if policies.of(namespace) is None and not _all_persistent(snapshot):
        which &= snapshot.columns.persistent
    return which


def uncordoned(
    snapshot: ClusterSnapshot, brokers: BrokerRows, leaving: str | None = None
) -> tuple[BrokerRows, Mapping[str, Reason]]:
    """The brokers that operators have not cordoned, and that do not refuse the bundle.

    All if none is left, and the bundle has no broker that it would be `leaving`: to serve comes
    first.
    """
    wishes, bundle = snapshot.wishes, snapshot.placing
    if not (wishes.cordons or wishes.refusals):
        return brokers, NO_REASONS
    reasons = {broker: CORDONED for broker in brokers if broker in wishes.cordons} | {
        broker: REFUSES for broker in brokers if wishes.refuses(broker, bundle)
    }
    left = brokers.where(np.array([broker not in reasons for broker in brokers], np.bool_))
    if not left and leaving is None:
        return brokers, NO_REASONS
    return left, reasons


def modular(
    snapshot: ClusterSnapshot,
    allowed: Sequence[str],
    namespace: str,
    settings: StrategySettings,
    *,
    leaving: str | None = None,
    evenness: bool = True,
) -> tuple[BrokerRows, Mapping[str, Reason]]:
    """Topic limit, anti-affinity, evenness (if it shall count), load manager class, version.

    If these filters remove every broker, all of `allowed` stay (Pulsar's rule).

    Excludes the broker that the bundle is `leaving`, except when checking whether any broker is
    below the topic limit.
    """
    columns = snapshot.columns
    there = None if leaving is None else columns.row_of.get(leaving)
    allowed = columns.all_of(allowed)
    able, full = _below_topic_limit(snapshot, settings, allowed)
    able = able.without(there)
    if not able:
        return able, full
    rejected = [full]
    if namespace in snapshot.anti_affinity_groups:
        able = _drop(able, _anti_affinity(snapshot, namespace), rejected)
    if evenness and (settings.distribute_evenly or namespace == SYSTEM_NAMESPACE):
        able, reasons = _fewest_of_namespace(snapshot, namespace, able)
        rejected.append(reasons)
    for keep in (_of_our_class, _newest):
        able, reasons = keep(snapshot, settings, able)
        rejected.append(reasons)
    if not able:
        return allowed.without(there), NO_REASONS
    return able, Reasons(*rejected)


def able(
    snapshot: ClusterSnapshot,
    namespace: str,
    settings: StrategySettings,
    *,
    leaving: str | None = None,
) -> tuple[BrokerRows, BrokerRows, Mapping[str, Reason]]:
    """The brokers that all filters of the load manager leave to a bundle of a namespace; those that
    isolation and cordons leave; why the others drop out.
    """
    if snapshot.extensible:
        left, rejected = extensible(snapshot, namespace, settings, leaving=leaving)
        return left, left, rejected
    allowed, isolated = open_to(snapshot, namespace, leaving=leaving)
    left, filtered = modular(snapshot, allowed, namespace, settings, leaving=leaving)
    if leaving is not None:
        allowed = allowed.without(snapshot.columns.row_of.get(leaving))
    return left, allowed, Reasons(isolated, filtered)


def open_to(
    snapshot: ClusterSnapshot, namespace: str, *, leaving: str | None
) -> tuple[BrokerRows, Mapping[str, Reason]]:
    """The brokers that isolation and cordons leave to a namespace in the modular manager, and why
    the others drop out. For a bundle that is `leaving` a broker the answer is the same, whichever
    broker that is.
    """
    allowed, isolated = may_serve(snapshot, namespace)
    allowed, cordoned = uncordoned(snapshot, allowed, leaving)
    return allowed, Reasons(isolated, cordoned)


def fit_all(snapshot: ClusterSnapshot, settings: StrategySettings) -> bool:
    """True if all filters but evenness leave every broker to every bundle; may be False by mistake.
    A cycle over a large cluster asks for thousands (modular manager).
    """
    columns = snapshot.columns
    return (
        not (snapshot.isolation_policies or snapshot.anti_affinity_groups)
        and not (snapshot.wishes.cordons or snapshot.wishes.refusals)
        and _all_persistent(snapshot)
        and len(_of_our_class(snapshot, settings, columns.everyone)[0]) == len(columns.names)
        and len(_newest(snapshot, settings, columns.everyone)[0]) == len(columns.names)
        and columns.topics_max + snapshot.under_way.topics_total <= settings.broker_topics_max
    )


def extensible(
    snapshot: ClusterSnapshot,
    namespace: str,
    settings: StrategySettings,
    *,
    leaving: str | None = None,
    strict: bool = False,
) -> tuple[BrokerRows, Mapping[str, Reason]]:
    """Topic limit, version, anti-affinity (which counts bundles, not namespaces), isolation.

    They may remove every broker: unlike the modular manager, Pulsar's extensible one gives up then.
    While a version is not readable, the filter of versions removes nothing; everyone if `strict`,
    as in Pulsar's TransferShedder. Brokers of another load manager have no report here.
    """

    def over_topic_limit(brokers: Sequence[str]) -> dict[str, Reason]:
        load, pending = snapshot.load_data, snapshot.under_way.topics
        topics = {broker: load[broker].topics + pending(broker) for broker in brokers}
        return {
            broker: Reason("MaxTopics", f"{number:g} topics")
            for broker, number in topics.items()
            if number >= settings.broker_topics_max
        }

    def older(brokers: Sequence[str]) -> Mapping[str, Reason]:
        if not settings.prefer_later_versions:
            return {}
        earlier = eligibility.older_version(brokers, snapshot.versions)
        if earlier is None:
            return dict.fromkeys(brokers, UNREADABLE) if strict else {}
        return earlier

    everyone = BrokerRows.listed(sorted(snapshot.available - {leaving}))
    left, cordoned = uncordoned(snapshot, everyone, leaving)
    able, rejected = list(left), dict(cordoned)
    for drop_outs in (
        over_topic_limit,
        older,
        _anti_affinity(snapshot, namespace),
        _isolation(snapshot, namespace, leaving),
    ):
        reasons = drop_outs(able)
        if reasons:
            rejected.update((broker, reasons[broker]) for broker in able if broker in reasons)
            able = [broker for broker in able if broker not in reasons]
    return BrokerRows.listed(able), rejected


def policies_of(snapshot: ClusterSnapshot, namespace: str) -> tuple[int, str | None]:
    """The isolation policy (as an id) and the anti-affinity group of a namespace: `may_serve` and
    `extensible` look at nothing else of it.
    """
    policy = isolation.with_matches(snapshot.isolation_policies).of(namespace)
    return id(policy), snapshot.anti_affinity_groups.get(namespace)


def has_policy(snapshot: ClusterSnapshot, namespace: str) -> bool:
    """True if an isolation policy or an anti-affinity group concerns a namespace."""
    return (
        namespace in snapshot.anti_affinity_groups
        or isolation.with_matches(snapshot.isolation_policies).of(namespace) is not None
    )


def group_counts(snapshot: ClusterSnapshot, group: str) -> dict[str, int]:
    """The size of an anti-affinity group at each broker, in namespaces; in the extensible manager,
    in bundles.
    """
    members = anti_affinity.members(group, snapshot.anti_affinity_groups)
    served = snapshot.served
    return served.bundles(members) if snapshot.extensible else served.namespaces(members)


def _drop(
    brokers: BrokerRows, drop_outs: Filter, rejected: list[Mapping[str, Reason]]
) -> BrokerRows:
    """The brokers that a filter leaves; its reasons are added to `rejected`."""
    reasons = drop_outs(brokers)
    if not reasons:
        return brokers
    rejected.append(reasons)
    return brokers.where(np.array([broker not in reasons for broker in brokers], np.bool_))


def _all_persistent(snapshot: ClusterSnapshot) -> bool:
    """True if every broker serves persistent topics."""
    return all(persistent for _, persistent in snapshot.columns.traits)


def _none(_brokers: Sequence[str]) -> dict[str, Reason]:
    return {}


def _isolation(snapshot: ClusterSnapshot, namespace: str, leaving: str | None = None) -> Filter:
    """Primaries that other filters removed do not count, so that secondaries take over.

    The broker that a bundle is `leaving` counts: it is there.
    """
    if snapshot.extensible and not snapshot.isolation_policies:
        return _none
    there = () if leaving is None else (leaving,)
    policies = isolation.with_matches(snapshot.isolation_policies)
    return lambda brokers: policies.rejected(
        namespace, sorted({*brokers, *there}), snapshot.reports
    )


def _anti_affinity(snapshot: ClusterSnapshot, namespace: str) -> Filter:
    group = snapshot.anti_affinity_groups.get(namespace)
    if group is None:
        return _none
    return lambda brokers: anti_affinity.not_least_of_group(
        brokers,
        group_counts(snapshot, group),
        snapshot.failure_domains,
        what="bundle" if snapshot.extensible else "namespace",
    )


def _of_our_class(
    snapshot: ClusterSnapshot, settings: StrategySettings, brokers: BrokerRows
) -> tuple[BrokerRows, Mapping[str, Reason]]:
    """The brokers that run our load manager."""
    reports, ours = snapshot.reports, settings.load_manager_class
    if all(eligibility.same_class(name, ours) for name, _ in snapshot.columns.traits):
        return brokers, NO_REASONS
    reasons = eligibility.other_load_manager(brokers, reports, ours)
    return brokers.where(np.array([broker not in reasons for broker in brokers], np.bool_)), reasons


def _newest(
    snapshot: ClusterSnapshot, settings: StrategySettings, brokers: BrokerRows
) -> tuple[BrokerRows, Mapping[str, Reason]]:
    """The brokers of the newest version; none while a version is unreadable (Pulsar's rule)."""
    if not settings.prefer_later_versions or not brokers:
        return brokers, NO_REASONS
    index, versions = snapshot.columns.versions
    among = brokers.of(index)
    ranks = np.array(eligibility.ranks(versions))[among]
    if (ranks < 0).any():
        return brokers.where(ranks < -1), Reasons(lambda: dict.fromkeys(brokers, UNREADABLE))
    newest = ranks == ranks.max()
    if newest.all():
        return brokers, NO_REASONS

    def reasons() -> dict[str, Reason]:
        older = zip(brokers.where(~newest), among[~newest].tolist(), strict=True)
        return {broker: eligibility.older(versions[at]) for broker, at in older}

    return brokers.where(newest), Reasons(reasons)


def _below_topic_limit(
    snapshot: ClusterSnapshot, settings: StrategySettings, brokers: BrokerRows
) -> tuple[BrokerRows, Mapping[str, Reason]]:
    """The brokers that have no more topics than the maximum, those of pending placements included;
    all if every broker has more.
    """
    columns, limit = snapshot.columns, settings.broker_topics_max
    if columns.topics_max + snapshot.under_way.topics_total <= limit:
        return brokers, NO_REASONS
    topics = brokers.of(columns.topics + snapshot.under_way.sums(columns)[0])
    full = topics > limit
    if not full.any() or full.all():
        return brokers, NO_REASONS

    def reasons() -> dict[str, Reason]:
        return {
            broker: Reason("MaxTopics", f"{number:g} topics")
            for broker, number in zip(brokers.where(full), topics[full].tolist(), strict=True)
        }

    return brokers.where(~full), Reasons(reasons)


def _fewest_of_namespace(
    snapshot: ClusterSnapshot, namespace: str, brokers: BrokerRows
) -> tuple[BrokerRows, Mapping[str, Reason]]:
    """The brokers that have the fewest bundles of a namespace, reported and pending."""
    if not brokers:
        return brokers, NO_REASONS
    counts = brokers.of(snapshot.served.counts(namespace, snapshot.columns)).copy()
    least = counts[counts.argmin()]
    fewest = counts == least
    able = brokers.where(fewest)
    if len(able) == len(brokers):
        return brokers, NO_REASONS

    def reasons() -> dict[str, Reason]:
        return {
            broker: Reason(
                "DistributeEvenly",
                f"it has {bundles_text(number)} of {namespace}, another has {least:g}",
            )
            for broker, number in zip(brokers.where(~fewest), counts[~fewest].tolist(), strict=True)
        }

    return able, Reasons(reasons)
