"""The addresses of a broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from loadmanager.kit.errors import OperationalError

HOST_MAX = 512
"""Longer brokerIds are none: records that name one count as damaged."""


@dataclass(frozen=True, slots=True)
class AdvertisedListener:
    """The addresses of a broker for some clients, those outside a container network, say."""

    service_url: str = ""
    web_url: str = ""
    """Empty: that of the broker; so is `web_url_tls`."""
    service_url_tls: str = ""
    web_url_tls: str = ""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The addresses of a broker. `broker_id` is Pulsar's `<advertised host>:<web port>`."""

    broker_id: str
    service_url: str
    """`pulsar://host:port`; empty when there is only one with TLS"""
    web_url: str
    """`http://host:port`, or empty likewise"""
    listeners: Mapping[str, AdvertisedListener] = field(default_factory=dict, compare=False)
    """The names of `advertisedListeners`; `service_url` is that of the internal one."""
    service_url_tls: str = field(default="", compare=False)
    """`pulsar+ssl://host:port`; empty without TLS"""
    web_url_tls: str = field(default="", compare=False)
    """`https://host:port`, or empty likewise"""

    def web(self, *, secure: bool) -> str:
        """The address of the admin API for somebody who came over TLS, or without.

        Raises `OperationalError` rather than lead from TLS to a port without.
        """
        if secure and not self.web_url_tls:
            raise OperationalError(f"{self.broker_id} has no webServicePortTls")
        return self.web_url_tls if secure else self.web_url or self.web_url_tls

    def of(self, listener: str) -> BrokerAddress:
        """The address for clients of a listener; empty: for all others.

        Raises `OperationalError`, as Pulsar does, when the broker has no such listener.
        """
        if not listener:
            return self
        advertised = self.listeners.get(listener)
        if advertised is None:
            raise OperationalError(f"the broker do not have {listener} listener")
        return BrokerAddress(
            self.broker_id,
            advertised.service_url,
            advertised.web_url or self.web_url,
            self.listeners,
            service_url_tls=advertised.service_url_tls,
            web_url_tls=advertised.web_url_tls or self.web_url_tls,
        )


def is_address(url: str, schemes: Sequence[str]) -> bool:
    """True for `scheme://host:port` that can be registered, and named by records: printable ASCII,
    with at most `HOST_MAX` characters between the slashes.
    """
    if not url.isascii() or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in schemes
            and bool(parts.hostname)
            and parts.port != 0
            and parts.path in ("", "/")
            and len(parts.netloc) <= HOST_MAX
        )
    except ValueError:  # a port that is no number, or a bracket without another
        return False


_URLS = {
    "brokerServiceUrl": "service_url",
    "brokerServiceUrlTls": "service_url_tls",
    "brokerHttpUrl": "web_url",
    "brokerHttpsUrl": "web_url_tls",
}
"""Pulsar's name of each address of an `AdvertisedListener`."""


def listeners_document(listeners: Mapping[str, AdvertisedListener]) -> dict[str, Any]:
    """Pulsar's JSON of advertised listeners."""
    return {
        name: {
            key: getattr(listener, field)
            for key, field in _URLS.items()
            if getattr(listener, field)
        }
        for name, listener in listeners.items()
    }


def read_listeners(document: object) -> dict[str, AdvertisedListener]:
    """The listeners of a document that another broker wrote; what cannot be used is left out."""
    listeners: dict[str, AdvertisedListener] = {}
    for name, urls in document.items() if isinstance(document, dict) else ():
        if isinstance(urls, dict):
            texts = {
                field: urls[key] for key, field in _URLS.items() if isinstance(urls.get(key), str)
            }
            if texts.get("service_url") or texts.get("service_url_tls"):
                listeners[str(name)] = AdvertisedListener(**texts)
    return listeners


def bracketed(host: str) -> str:
    """A host as URLs have it: a literal IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
