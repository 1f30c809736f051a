"""Which keys of broker.conf differ from broker to broker."""

from __future__ import annotations

from collections.abc import Mapping

from loadmanager.cli.terminal import named

OWN_KEYS = frozenset(
    (
        "advertisedAddress",
        "advertisedListeners",
        "bindAddress",
        "bindAddresses",
        "brokerServicePort",
        "brokerServicePortTls",
        "eventLoopUvloop",
        "internalListenerName",
        "loadBalancerOverrideBrokerNicSpeedGbps",
        "loadBalancerOverrideBrokerNics",
        "loadManagerHistoryDirectory",
        "logLevel",
        "tlsCertificateFilePath",
        "tlsKeyFilePath",
        "webServicePort",
        "webServicePortTls",
    )
)
"""Keys that may differ from broker to broker: addresses, and what a machine has."""


def by_key(settings_of: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, list[str]]]:
    """Key → value → the brokers that have it."""
    values: dict[str, dict[str, list[str]]] = {}
    for broker, settings in sorted(settings_of.items()):
        for key, value in settings.items():
            values.setdefault(key, {}).setdefault(value, []).append(broker)
    return values


def differing(settings_of: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, list[str]]]:
    """The same, of the keys that are not the same on all brokers and should be."""
    return {
        key: values
        for key, values in sorted(by_key(settings_of).items())
        if len(values) > 1 and key not in OWN_KEYS
    }


def by_value(values: Mapping[str, list[str]]) -> str:
    """Which brokers have which value."""
    return "; ".join(
        f"{value or 'empty'}: {named(brokers, 3)}" for value, brokers in sorted(values.items())
    )
