"""Certificates for tests: an authority, and what it vouches for."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from loadmanager.kit.security.settings import BrokerClientTlsSettings, TlsSettings
from loadmanager.kit.security.tls import Context, client_context, server_context

LIVES = dt.timedelta(days=2)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


@dataclass(frozen=True)
class Pair:
    """The files of a certificate and of its private key."""

    certificate: Path
    key: Path


class Authority:
    """Vouches for certificates; its own is at `trust`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.trust = folder / f"{name}.pem"
        self.trust.write_bytes(self._certificate(name, self._key.public_key(), (), LIVES))

    def issue(
        self,
        common: str,
        *,
        hosts: tuple[str, ...] = ("localhost", "127.0.0.1"),
        lives: dt.timedelta = LIVES,
    ) -> Pair:
        """A certificate for somebody, who can be reached at these hosts; replaces the last one."""
        key = ec.generate_private_key(ec.SECP256R1())
        pair = Pair(self._folder / f"{common}.pem", self._folder / f"{common}.key")
        pair.certificate.write_bytes(self._certificate(common, key.public_key(), hosts, lives))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return pair

    def _certificate(
        self,
        common: str,
        key: ec.EllipticCurvePublicKey,
        hosts: tuple[str, ...],
        lives: dt.timedelta,
    ) -> bytes:
        now = dt.datetime.now(dt.UTC)
        authority = not hosts
        building = (
            x509.CertificateBuilder()
            .subject_name(_name(common))
            .issuer_name(_name(self._name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=3))
            .not_valid_after(now + lives)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            building = building.add_extension(names, critical=False)
        return building.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def server(self, pair: Pair, *, web: bool = True, clients: bool = False) -> Context:
        """The TLS of a port; with `clients`, only for those whom this authority vouches for."""
        settings = TlsSettings(
            certificate=str(pair.certificate),
            key=str(pair.key),
            trust=str(self.trust) if clients else "",
            require_client=clients,
        )
        return server_context(settings, web=web)

    def client(self, pair: Pair | None = None) -> Context:
        """The TLS of one who trusts this authority, with a certificate if one is given."""
        settings = BrokerClientTlsSettings(
            trust=str(self.trust),
            certificate=str(pair.certificate) if pair else "",
            key=str(pair.key) if pair else "",
        )
        return client_context(settings, TlsSettings())


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
