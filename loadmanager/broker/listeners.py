"""The ports of a broker process: bound first, because the broker's name contains one."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from dataclasses import dataclass, replace

from loadmanager.broker.admin.server import AdminServer
from loadmanager.broker.service import BrokerService
from loadmanager.broker.topics.access import AccessSettings
from loadmanager.kit.addresses import HOST_MAX, BrokerAddress, bracketed, is_address
from loadmanager.kit.errors import ConfigError, OperationalError
from loadmanager.kit.free_port import family_of
from loadmanager.kit.logger import get_logger
from loadmanager.kit.security.settings import BrokerClientTlsSettings, TlsSettings
from loadmanager.kit.security.tls import Context, client_context, server_context
from loadmanager.kit.settings import Settings
from loadmanager.member.listeners import advertised, binds, own_ports, served_schemes
from loadmanager.member.settings import BrokerSettings

log = get_logger("broker")

TLS_SCHEMES = {"pulsar+ssl", "https"}


@dataclass(frozen=True, slots=True)
class Port:
    """A bound socket."""

    scheme: str
    sock: socket.socket
    listener: str = ""
    """The advertised listener whose clients come to it; empty: all others."""

    @property
    def web(self) -> bool:
        return self.scheme.startswith("http")

    @property
    def number(self) -> int:
        return int(self.sock.getsockname()[1])


@dataclass(frozen=True, slots=True)
class TlsContexts:
    """The TLS of a process; None: none."""

    pulsar: Context | None
    web: Context | None
    client: Context | None

    def of(self, port: Port) -> Context | None:
        if port.scheme not in TLS_SCHEMES:
            return None
        return self.web if port.web else self.pulsar


def tls_contexts(settings: Settings) -> TlsContexts:
    """Read the certificates that are needed. Raises `ConfigError`."""
    tls, client = settings.leaf(TlsSettings), settings.leaf(BrokerClientTlsSettings)
    schemes = served_schemes(settings.leaf(BrokerSettings))
    return TlsContexts(
        server_context(tls, web=False) if "pulsar+ssl" in schemes else None,
        server_context(tls, web=True) if "https" in schemes else None,
        client_context(client, tls) if client.enabled else None,
    )


def restricted(broker: BrokerSettings, access: AccessSettings) -> BrokerSettings:
    """The broker's addresses to listen on: without authentication loopback only, unless the
    operator allows open access. On loopback it also advertises that address, unless another one is
    set.
    """
    if access.authentication or access.open:
        return broker
    host = _loopback(broker.bind_address)
    return replace(
        broker,
        bind_address=host,
        advertised_address=broker.advertised_address
        or ("" if host == broker.bind_address else host),
        bind_addresses=tuple(
            f"{bind.listener}:{bind.scheme}://{bracketed(_loopback(bind.host))}:{bind.port}"
            for bind in binds(broker)
        ),
    )


def _loopback(host: str) -> str:
    """The host if it is this machine alone, else the address that is."""
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return host  # to listen there will fail, and say so
    if addresses and all(ipaddress.ip_address(address).is_loopback for address in addresses):
        return host
    return "::1" if ":" in host else "127.0.0.1"


def bind_all(broker: BrokerSettings, stack: contextlib.ExitStack) -> list[Port]:
    """All ports of a broker; leaving the stack closes them. Raises `OperationalError`."""
    ports = [
        Port(scheme, stack.enter_context(_listen(broker.bind_address, number)))
        for scheme, number in own_ports(broker).items()
        if number is not None
    ]
    return ports + [
        Port(bind.scheme, stack.enter_context(_listen(bind.host, bind.port)), bind.listener)
        for bind in binds(broker)
    ]


def warn_if_restricted(asked: BrokerSettings, broker: BrokerSettings) -> None:
    """Say that the broker does not listen where it was asked to."""
    if (asked.bind_address, asked.bind_addresses) == (broker.bind_address, broker.bind_addresses):
        return
    log.warning(
        "there is no authentication, so this broker can be reached from its own machine only: "
        "authenticationEnabled=true protects it, loadManagerAllowUnauthenticatedAccess=true opens "
        "it to everybody",
        bindAddress=asked.bind_address,
        listens_on=broker.bind_address,
    )


def address_of(broker: BrokerSettings, ports: list[Port]) -> BrokerAddress:
    """The address at which others reach the broker of these ports. Raises `ConfigError` for one
    that they could not read.
    """
    host = bracketed(broker.advertised_address or socket.getfqdn())
    urls = {
        port.scheme: f"{port.scheme}://{host}:{port.number}" for port in ports if not port.listener
    }
    for scheme, url in urls.items():
        if not is_address(url, (scheme,)):
            raise ConfigError(
                f"advertisedAddress = {url[:100]!r}: a host name or an address of at most "
                f"{HOST_MAX} characters, with its port, is expected"
            )
    listeners = advertised(broker)
    internal = next(iter(listeners.values()), None)
    return BrokerAddress(
        (urls.get("http") or urls["https"]).partition("://")[2],
        internal.service_url if internal else urls.get("pulsar", ""),
        urls.get("http", ""),
        listeners,
        service_url_tls=internal.service_url_tls if internal else urls.get("pulsar+ssl", ""),
        web_url_tls=urls.get("https", ""),
    )


async def listen_on(
    ports: list[Port], tls: TlsContexts, hosting: BrokerService, admin: AdminServer
) -> None:
    """Have the service and the admin API accept what comes to their ports."""
    for port in ports:
        listen = admin.listen if port.web else hosting.listen
        context = tls.of(port)
        if context is None:
            await listen(port.sock, port.listener)
        else:
            await listen(port.sock, port.listener, context)


def urls_of(broker: BrokerAddress) -> dict[str, str]:
    """The addresses that a broker has, for its log."""
    urls = {
        "service_url": broker.service_url,
        "service_url_tls": broker.service_url_tls,
        "web_url": broker.web_url,
        "web_url_tls": broker.web_url_tls,
    }
    return {name: url for name, url in urls.items() if url}


def _listen(host: str, port: int) -> socket.socket:
    family = family_of(host)
    try:
        return socket.create_server((host, port), family=family, reuse_port=False)
    except OSError as error:
        raise OperationalError(f"cannot listen on {host}:{port}: {error.strerror}") from None
