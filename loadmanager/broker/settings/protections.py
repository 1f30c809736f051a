"""Keys of Pulsar's files that ask for protection which this broker does not have.

A broker that ignored them would serve everybody while its operator believes the opposite.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import make_dataclass
from typing import Any

from loadmanager.kit.conf import conf

_MISSING: dict[str, tuple[bool | str, str]] = {
    "authenticateOriginalAuthData": (False, "this broker takes a proxy's word for its clients"),
    "tlsEnabledWithKeyStore": (False, "certificates are read from PEM files only"),
    "brokerClientTlsEnabledWithKeyStore": (False, "certificates are read from PEM files only"),
    "encryptionRequireOnProducer": (False, "this broker takes messages that are not encrypted"),
}
"""Key → the value that asks for nothing, and what is missing."""

ProtectionSettings = make_dataclass(
    "ProtectionSettings",
    [
        (name, type(default), conf(name, default, f"A broker with another value refuses: {why}"))
        for name, (default, why) in _MISSING.items()
    ],
    namespace={"__doc__": "Protection that this broker does not have."},
    frozen=True,
    kw_only=True,
)


def missing_protections(asked: Any) -> Iterator[tuple[str, str]]:
    """Each key of a `ProtectionSettings` that asks for protection, and the sentence that refuses.

    Yields nothing for the defaults.
    """
    for name, (default, why) in _MISSING.items():
        if getattr(asked, name) != default:
            text = f"{name} is set, but {why}: without this key the broker starts unprotected"
            yield name, text
