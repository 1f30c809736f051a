"""Finds settings that are allowed one by one, and together do what nobody can have meant."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from loadmanager.broker.messaging.settings import StorageSettings
from loadmanager.broker.settings import problems
from loadmanager.broker.settings.secrets import read_by_others
from loadmanager.broker.topics.access import AccessSettings
from loadmanager.cli.doctor.findings import Diagnosis, problem, warning
from loadmanager.engine.load.manager import Manager
from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.errors import ConfigError
from loadmanager.kit.settings import Settings
from loadmanager.kit.system.settings import SamplerSettings
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
from loadmanager.leader import plugins
from loadmanager.member.settings import BrokerSettings

PART = "configuration"
SESSION_MS_MIN, SESSION_MS_MAX = 4_000, 60_000
FILES = frozenset(
    (
        "tokenSecretKey",
        "tokenPublicKey",
        "tlsCertificateFilePath",
        "tlsKeyFilePath",
        "tlsTrustCertsFilePath",
        "brokerClientAuthenticationParameters",
        "brokerClientTrustCertsFilePath",
        "brokerClientCertificateFilePath",
        "brokerClientKeyFilePath",
        "loadManagerZooKeeperAuthFile",
    )
)
"""Keys that name files of the brokers' machines: running brokers have read them."""
GRACE_MINUTES_MAX = 24 * 60.0


def check(
    settings: Settings, brokers: int | None = None, hidden: Collection[str] = ()
) -> Iterator[Diagnosis]:
    """Findings about these settings, in a cluster of that many brokers, if the number is known.

    `hidden` keys have values that running brokers do not tell, and started with.
    """
    not_here = {*hidden, *FILES} if brokers is not None else {*hidden}
    for bad in problems(settings):
        if not any(name in not_here for name in bad.names):
            advice = "mend it: no broker starts with it"
            yield problem(PART, ", ".join(bad.names), bad.text, advice)
    yield from _given(settings)
    yield from _plug_ins(settings)
    access = settings.leaf(AccessSettings)
    if access.open and not access.authentication:
        yield warning(
            PART,
            "loadManagerAllowUnauthenticatedAccess",
            "whoever reaches a port of a broker may do everything",
            "authenticationEnabled=true, or keep the ports within a network that you trust",
        )
    for key, path in read_by_others(settings) if brokers is None else ():
        text = f"every user of this machine can read the secret in {path}"
        yield warning(PART, key, text, f"chmod o-r {path}")
    yield from _strategies(settings)
    yield from _times(settings)
    yield from _bundles(settings, brokers)
    if not settings.leaf(StorageSettings).directory:
        yield warning(
            PART,
            "loadManagerStorageDirectory",
            "persistent topics are kept in memory: a move loses what was not consumed",
            "name a folder that all brokers share, unless that is meant",
        )


def _given(settings: Settings) -> Iterator[Diagnosis]:
    for key in settings.unknown:
        if not key.of_others:
            advice = f"did you mean {key.nearest}?" if key.nearest else "remove it"
            yield warning(PART, key.name, "there is no such key; it does nothing", advice)
    values = settings.runtime()
    for name, reason in settings.changed_without_effect().items():
        text = f"{values.get(name)} has no effect: {reason}"
        yield warning(PART, name, text, "remove it, so that nobody relies on it")


def _plug_ins(settings: Settings) -> Iterator[Diagnosis]:
    """Those that cannot be used: a problem where settings choose one."""
    chosen = {registry.short_name(text) for text in settings.given.values()}
    for (group, name), why in plugins.left_out().items():
        if name in chosen:
            advice = "mend it, or choose another one: all that it is to decide fails"
            yield problem(PART, name, why, advice)
        else:
            yield warning(PART, name or group, why, "mend or remove it; nothing else is affected")


def _strategies(settings: Settings) -> Iterator[Diagnosis]:
    strategies, broker = settings.leaf(StrategySettings), settings.leaf(BrokerSettings)
    try:
        shedder = registry.shedder(strategies.shedder)
        placement = registry.placement(strategies.placement).name
    except ConfigError:
        return  # `problems` has it
    extensible = Manager.of(strategies.load_manager_class) is Manager.EXTENSIBLE
    acting, _ = registry.acting(strategies, extensible=extensible)
    try:
        yield from [problem(PART, *never) for never in acting.never_sheds(strategies)]
    except Exception as error:  # noqa: BLE001 - whatever a third party's strategy raises
        text = f"{acting.name} cannot check its settings: {error!r}"
        yield problem(PART, "loadBalancerLoadSheddingStrategy", text, "tell its author")
    wanted = shedder.goes_with
    if wanted is not None and placement != wanted and not extensible:
        yield warning(
            PART,
            "loadBalancerLoadPlacementStrategy",
            f"{shedder.name} sheds by one score, and {placement} places by another: a bundle may "
            "come back to the broker that it left",
            f"set it to {wanted}",
        )
    if extensible and not shedder.extensible:
        yield warning(
            PART,
            "loadBalancerLoadSheddingStrategy",
            f"{shedder.name} cannot read the reports of the extensible load manager, which sheds "
            f"with {registry.EXTENSIBLE_SHEDDER.name} instead",
            f"set it to {registry.EXTENSIBLE_SHEDDER.name}, so that the file says what is done",
        )
    for name, on in (
        ("loadBalancerEnabled", broker.load_balancer_enabled),
        ("loadBalancerSheddingEnabled", strategies.shedding_enabled),
    ):
        if not on:
            yield warning(PART, name, "no load is moved by itself", "set it to true to balance")
    if strategies.moves_per_cycle_max == 0:
        text = "0: no cycle may move a bundle"
        yield warning(PART, "loadManagerMovesPerCycleMax", text, "raise it, or -1 for any number")


def _times(settings: Settings) -> Iterator[Diagnosis]:
    strategies, broker = settings.leaf(StrategySettings), settings.leaf(BrokerSettings)
    sampled_s = settings.leaf(SamplerSettings).interval_minutes * 60
    known_s = max(sampled_s, broker.report_interval_min_ms / 1000)
    shed_s = strategies.shedding_interval_minutes * 60
    if shed_s < known_s:
        yield warning(
            PART,
            "loadBalancerSheddingIntervalMinutes",
            f"load is shed every {shed_s:g} s, and measured anew every {known_s:g} s: several "
            "cycles act on one report, and move too much",
            "make it as long as loadBalancerHostUsageCheckIntervalMinutes at least",
        )
    grace = strategies.grace_period_minutes
    if grace * 60 < 2 * shed_s:
        yield warning(
            PART,
            "loadBalancerSheddingGracePeriodMinutes",
            f"{grace:g}: a bundle may move again in the next cycle, before its move shows in the "
            "reports",
            "make it longer than some shedding intervals; Pulsar has 30",
        )
    elif grace > GRACE_MINUTES_MAX:
        text = f"{grace:g}: a bundle that was moved stays for more than a day, however hot it gets"
        advice = "it is in minutes; Pulsar has 30"
        yield warning(PART, "loadBalancerSheddingGracePeriodMinutes", text, advice)
    longest_s = broker.report_interval_max_minutes * 60
    if strategies.report_ttl_s < longest_s:
        yield problem(
            PART,
            "loadBalancerBrokerLoadDataTTLInSeconds",
            f"reports are too old after {strategies.report_ttl_s} s, and a steady broker publishes "
            f"one every {longest_s:g} s: it is left out of balancing in between",
            "make it longer than loadBalancerReportUpdateMaxIntervalMinutes",
        )
    session_ms = settings.leaf(ZooKeeperSettings).session_timeout_ms
    if session_ms < SESSION_MS_MIN:
        text = f"{session_ms}: a short pause of a machine ends the session, and all bundles move"
        advice = "use 4000 at least outside of tests; Pulsar has 30000"
        yield warning(PART, "metadataStoreSessionTimeoutMillis", text, advice)
    elif session_ms > SESSION_MS_MAX:
        text = f"{session_ms}: the bundles of a dead broker are away for so long"
        yield warning(PART, "metadataStoreSessionTimeoutMillis", text, "30000 is Pulsar's")


def _bundles(settings: Settings, brokers: int | None) -> Iterator[Diagnosis]:
    broker, splits = settings.leaf(BrokerSettings), settings.leaf(SplitSettings)
    if splits.enabled and broker.default_bundles >= splits.bundles_max:
        yield warning(
            PART,
            "loadBalancerNamespaceMaximumBundles",
            f"{splits.bundles_max}: a namespace begins with {broker.default_bundles} bundles, so "
            "that no hot one is ever split",
            "raise it above defaultNumberOfNamespaceBundles",
        )
    if brokers is not None and broker.default_bundles < brokers:
        yield warning(
            PART,
            "defaultNumberOfNamespaceBundles",
            f"{broker.default_bundles}: a new namespace has fewer bundles than there are brokers "
            f"({brokers}), so that some serve none of it",
            f"set it to {4 * brokers} or so: a few for each broker",
        )
