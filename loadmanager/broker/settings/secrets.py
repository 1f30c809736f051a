"""Files with secrets that every user of the machine can read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from loadmanager.kit.private_files import others_may_read
from loadmanager.kit.security.settings import (
    BrokerClientSettings,
    BrokerClientTlsSettings,
    TlsSettings,
    TokenSettings,
)
from loadmanager.kit.settings import Settings
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings, ZooKeeperTlsSettings


def read_by_others(settings: Settings) -> Iterator[tuple[str, Path]]:
    """The keys that name such files, and the files. Files that are missing are not among them."""
    for key, name in (
        ("tokenSecretKey", settings.leaf(TokenSettings).secret_key),
        ("brokerClientAuthenticationParameters", settings.leaf(BrokerClientSettings).parameters),
        ("tlsKeyFilePath", settings.leaf(TlsSettings).key),
        ("brokerClientKeyFilePath", settings.leaf(BrokerClientTlsSettings).key),
        ("loadManagerZooKeeperAuthFile", settings.leaf(ZooKeeperSettings).auth_file),
        ("loadManagerZooKeeperTlsKeyFilePath", settings.leaf(ZooKeeperTlsSettings).key),
    ):
        kind, colon, rest = name.partition(":")
        if colon and kind != "file":
            continue  # the secret itself
        path = Path(rest.removeprefix("//") if colon else name)
        if name and others_may_read(path):
            yield key, path
