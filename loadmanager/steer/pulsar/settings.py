"""Settings of the connection to a Pulsar cluster's admin API."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.kit.conf import conf

METADATA_URL = "pulsarMetadataStoreUrl"


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarSettings:
    """The Pulsar cluster."""

    urls: tuple[str, ...] = conf(
        "pulsar", (), "HTTP addresses of some brokers (`http://host:8080`); the others are learned"
    )
    token_file: str = conf(
        "tokenFile", "", "File with a superuser's token; read again for each request"
    )
    basic_file: str = conf(
        "basicFile", "", "File with `user:password` for Basic authentication, instead of a token"
    )
    ca_file: str = conf(
        "caFile", "", "Certificates that https addresses are checked against; empty: the system's"
    )
    metadata_url: str = conf(
        METADATA_URL,
        "",
        "`zk:host:2181/chroot` of Pulsar's own ZooKeeper: the load reports of the modular load "
        "manager are read there, not from the brokers. They may be 15 minutes old, so `mode` must "
        "be `observe` or `advise`",
    )
    timeout_s: float = conf(
        "requestTimeoutSeconds", 10.0, "A request that takes longer has failed", minimum=0.1
    )
    requests_per_s: float = conf(
        "requestsPerSecondMax", 20.0, "Most requests/s to all brokers together", minimum=0.1
    )
    answer_bytes_max: int = conf(
        "answerBytesMax",
        64 << 20,
        "An answer with more bytes has failed",
        minimum=1024,
    )
