"""Limits of the admin API."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.kit.conf import conf


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings:
    """The HTTP server."""

    requests_max: int = conf(
        "maxConcurrentHttpRequests",
        1024,
        "HTTP requests at the same time; further ones are answered with 503",
        minimum=1,
    )
    connections_max: int = conf(
        "maxHttpServerConnections",
        2048,
        "HTTP connections at the same time; beyond that, the address with the most of them loses "
        "an idle one",
        minimum=1,
    )
    connections_per_address_max: int = conf(
        "loadManagerMaxHttpConnectionsPerIp",
        512,
        "HTTP connections of one address; beyond that, an idle one is closed; 0: any number",
        minimum=0,
    )
    idle_ms: int = conf(
        "httpServerIdleTimeout",
        30_000,
        "An HTTP connection is closed when no further request came for so long",
        minimum=1000,
    )
    hosts: tuple[str, ...] = conf(
        "loadManagerAllowedHosts",
        (),
        "More names by which the admin API is reached, beside the advertised ones and those "
        "without a dot; *: any name. Matters without authentication, and for pages of other hosts",
    )
    header_bytes_max: int = conf(
        "httpMaxRequestHeaderSize",
        8192,
        "Largest request line, and largest header, in bytes",
        minimum=1024,
        maximum=1 << 20,
    )
