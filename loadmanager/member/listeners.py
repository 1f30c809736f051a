"""The addresses that one broker has for different clients: `advertisedListeners`,
`internalListenerName`, `bindAddresses`, as Pulsar reads them (`MultipleListenerValidator`,
`BindAddressValidator`); wrong values are refused where Pulsar ignores them.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from loadmanager.kit.addresses import AdvertisedListener, bracketed
from loadmanager.kit.errors import ConfigError
from loadmanager.member.settings import BrokerSettings

SCHEMES = ("pulsar", "http", "pulsar+ssl", "https")


@dataclass(frozen=True, slots=True)
class Bind:
    """One more address to listen on, for the clients of a listener."""

    listener: str
    scheme: str
    host: str
    port: int


def advertised(settings: BrokerSettings) -> dict[str, AdvertisedListener]:
    """Name → addresses, the internal listener first; empty without `advertisedListeners`.

    Raises `ConfigError`.
    """
    key, urls_of, taken = "advertisedListeners", dict[str, dict[str, str]](), dict[str, str]()
    for entry in settings.advertised_listeners:
        name, scheme, host, port = _entry(key, entry)
        urls = urls_of.setdefault(name, {})
        if scheme in urls:
            raise ConfigError(f"{key}: listener {name} has two {scheme} addresses")
        if taken.setdefault(f"{host}:{port}", name) != name:
            raise ConfigError(f"{key}: {host}:{port} belongs to two listeners")
        urls[scheme] = f"{scheme}://{bracketed(host)}:{port}"
    for name, urls in urls_of.items():
        if "pulsar" not in urls and "pulsar+ssl" not in urls:
            raise ConfigError(f"{key}: listener {name} has no pulsar:// or pulsar+ssl:// address")
    internal = settings.internal_listener or next(iter(urls_of), "")
    if urls_of and internal not in urls_of:
        raise ConfigError(f"internalListenerName = {internal!r} is not among the {key}")
    return {
        name: AdvertisedListener(*(urls_of[name].get(scheme, "") for scheme in SCHEMES))
        for name in sorted(urls_of, key=lambda name: name != internal)
    }


def binds(settings: BrokerSettings) -> list[Bind]:
    """The addresses of `bindAddresses`. Raises `ConfigError`."""
    key, names = "bindAddresses", advertised(settings)
    addresses = [Bind(*_entry(key, entry)) for entry in settings.bind_addresses]
    for bind in addresses:
        if bind.listener not in names:
            raise ConfigError(f"{key}: listener {bind.listener} is not among advertisedListeners")
    ports = [*own_ports(settings).values(), *(bind.port for bind in addresses)]
    for port in ports:
        if port and ports.count(port) > 1:
            raise ConfigError(
                f"{key}, brokerServicePort, webServicePort and those for TLS: port {port} is "
                "there twice"
            )
    return addresses


def own_ports(settings: BrokerSettings) -> dict[str, int | None]:
    """Scheme → the broker's own port for it; None: it has none."""
    ports = (
        settings.broker_port,
        settings.web_port,
        settings.broker_port_tls,
        settings.web_port_tls,
    )
    return dict(zip(SCHEMES, ports, strict=True))


def served_schemes(settings: BrokerSettings) -> set[str]:
    """The schemes that a broker listens to."""
    own = {scheme for scheme, port in own_ports(settings).items() if port is not None}
    return own | {bind.scheme for bind in binds(settings)}


def _entry(key: str, text: str) -> tuple[str, str, str, int]:
    """Name, scheme, host and port of `name:scheme://host:port`."""
    name, _, url = (part.strip() for part in text.partition(":"))
    form = f"{key}: {text!r} is not of the form name:pulsar://host:port"
    if not name or not url or "/" in name:
        raise ConfigError(form)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigError(form) from None
    if parts.scheme not in SCHEMES or not host or not port or parts.path.strip("/"):
        raise ConfigError(form)
    return name, parts.scheme, host, port
