"""Settings of TLS that a broker cannot start with."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from loadmanager.kit.errors import ConfigError
from loadmanager.kit.security.settings import BrokerClientTlsSettings, TlsSettings
from loadmanager.kit.security.tls import client_context, server_context
from loadmanager.member.listeners import own_ports, served_schemes
from loadmanager.member.settings import BrokerSettings

PORTS = ("brokerServicePort", "webServicePort", "brokerServicePortTls", "webServicePortTls")
_FILES = ("tlsCertificateFilePath", "tlsKeyFilePath", "tlsTrustCertsFilePath")
_CLIENT = "brokerClientTlsEnabled"

KeysAndText = tuple[tuple[str, ...], str]
"""The keys, and what is wrong."""


def tls_problems(
    broker: BrokerSettings, tls: TlsSettings, client: BrokerClientTlsSettings
) -> Iterator[KeysAndText]:
    """Find what is wrong; reads the certificates that the settings name."""
    yield from _port_problems(broker)
    if client.enabled and broker.web_port_tls is None:
        yield (_CLIENT, PORTS[3]), f"{_CLIENT} needs {PORTS[3]}: there brokers ask each other"
    if not client.enabled and broker.web_port is None:
        yield (_CLIENT, PORTS[1]), f"without {PORTS[1]}, brokers need {_CLIENT} to ask each other"
    try:
        schemes = served_schemes(broker)
    except ConfigError:
        return  # of bindAddresses: another check tells
    try:
        for scheme in sorted(schemes & {"pulsar+ssl", "https"}):
            server_context(tls, web=scheme == "https")
        if client.enabled:
            client_context(client, tls)
    except ConfigError as error:
        yield _FILES, str(error)


def _port_problems(broker: BrokerSettings) -> Iterator[KeysAndText]:
    ports = dict(zip(PORTS, own_ports(broker).values(), strict=True))
    for pair in (PORTS[::2], PORTS[1::2]):
        if all(ports[name] is None for name in pair):
            yield pair, f"{' and '.join(pair)} are both empty"
    for (first, port), (second, other) in combinations(ports.items(), 2):
        if port and port == other:
            yield (first, second), f"{first} and {second} are both {port}"
