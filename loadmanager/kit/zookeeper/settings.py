"""Settings of the metadata store: its address and timeouts."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass

from loadmanager.kit.conf import conf
from loadmanager.kit.errors import ConfigError
from loadmanager.kit.security.reading import read_file

AUTH_BYTES_MAX = 4096
_HOST = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\])(:\d{1,5})?", re.ASCII)


def _masked(url: str) -> str:
    """A URL without what stands before an @: it may be a password."""
    _, at, rest = url.rpartition("@")
    return f"*****@{rest}" if at else url


def _address(url: str) -> str:
    """`host:port,…/chroot`."""
    scheme, separator, rest = url.partition(":")
    return rest if separator and scheme in ("zk", "zookeeper") else url


def check_url(key: str, url: str) -> None:
    """Raise `ConfigError`, naming the key, if the URL is not that of a ZooKeeper ensemble."""
    for host in _address(url).partition("/")[0].split(","):
        if not _HOST.fullmatch(host.strip()):
            raise ConfigError(
                f"{key} = {_masked(url)!r}: zk:host:port,host2:port/chroot is allowed (ZooKeeper "
                "is the only store, and loadManagerZooKeeperAuthFile the place of a password)"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSettings:
    """The metadata store."""

    url: str = conf(
        "metadataStoreUrl",
        "zk:127.0.0.1:2181",
        "ZooKeeper ensemble: zk:host:2181,host2:2181/chroot",
        aliases=("zookeeperServers", "zooKeeperServers"),
    )
    session_timeout_ms: int = conf(
        "metadataStoreSessionTimeoutMillis",
        30_000,
        "Session timeout; a dead broker's bundles are free after it",
        minimum=500,
        maximum=600_000,
        aliases=("zooKeeperSessionTimeoutMillis",),
        older_first=True,
    )
    operation_timeout_s: float = conf(
        "metadataStoreOperationTimeoutSeconds",
        30.0,
        "How long one operation may take",
        minimum=0.1,
        maximum=600,
        aliases=("zooKeeperOperationTimeoutSeconds",),
        older_first=True,
    )

    session_expired_policy: str = conf(
        "zookeeperSessionExpiredPolicy",
        "reconnect",
        "When the session expires: begin a new one, or end the process",
        choices=("reconnect", "shutdown"),
    )

    auth_file: str = conf(
        "loadManagerZooKeeperAuthFile",
        "",
        "A file with user:password, as which this broker is known to ZooKeeper (digest). What it "
        "creates then is for that user only; all brokers of a cluster need the same. Empty: nobody",
    )

    tls: bool = conf(
        "loadManagerZooKeeperTlsEnabled",
        False,
        "Speak TLS to ZooKeeper: metadataStoreUrl has its secureClientPort then. A server needs a "
        "certificate for its name there",
    )
    trust: str = conf(
        "loadManagerZooKeeperTlsTrustCertsFilePath",
        "",
        "Who vouches for the servers' certificates, as PEM. Empty: whom the system trusts",
    )
    certificate: str = conf(
        "loadManagerZooKeeperTlsCertificateFilePath",
        "",
        "This broker's own certificate for ZooKeeper, as PEM: servers want one by default",
    )
    key: str = conf("loadManagerZooKeeperTlsKeyFilePath", "", "Its private key, as PEM")

    def tls_context(self) -> ssl.SSLContext | None:
        """How the servers are spoken to; None without TLS. Raises `ConfigError`."""
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.trust or None)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key or None)
        except OSError as error:
            files = ", ".join(file for file in (self.trust, self.certificate, self.key) if file)
            raise ConfigError(
                f"loadManagerZooKeeperTls…: {files}: {error.strerror or 'no PEM'}"
            ) from None
        return context

    def credentials(self) -> str:
        """`user:password`; empty without a file. Raises `ConfigError`."""
        if not self.auth_file:
            return ""
        try:
            text = read_file(self.auth_file, AUTH_BYTES_MAX).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"loadManagerZooKeeperAuthFile cannot be read: {error}") from None
        user, _, password = text.partition(":")
        if not user or not password or not text.isprintable():
            raise ConfigError("loadManagerZooKeeperAuthFile: one line user:password is expected")
        return text

    def __post_init__(self) -> None:
        """Raise `ConfigError` if the URL is not that of a ZooKeeper ensemble."""
        check_url("metadataStoreUrl", self.url)

    @property
    def hosts(self) -> str:
        """`host:port,…` without scheme and chroot."""
        return _address(self.url).partition("/")[0]

    @property
    def chroot(self) -> str:
        """The path of the root of all nodes, without slashes at its ends; empty for ZooKeeper's."""
        return _address(self.url).partition("/")[2].strip("/")
