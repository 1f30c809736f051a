"""An authority of one's own: certificates for the names of a cluster's servers."""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from loadmanager.kit.errors import BadInputError

AUTHORITY_DAYS = 3650
BEFORE = dt.timedelta(hours=1)
"""A certificate counts from so long before it is made: clocks differ."""
NAME_MAX = 253
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"({_LABEL}\.)*(?![0-9]+\Z){_LABEL}")


@dataclass(frozen=True, slots=True)
class Issued:
    """What a certificate was made for: names and addresses, and for how many days."""

    hosts: tuple[str, ...]
    days: int


class Authority:
    """Vouches for certificates; `certificate` and `key` are PEM."""

    def __init__(self, certificate: bytes, key: bytes) -> None:
        """Raises `BadInputError` for what is no certificate and its key of elliptic curves."""
        self.certificate, self.key = certificate, key
        try:
            self._certificate = x509.load_pem_x509_certificate(certificate)
            private = serialization.load_pem_private_key(key, password=None)
        except (ValueError, TypeError) as error:
            raise BadInputError(f"the authority cannot be read: {error}") from None
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise BadInputError("the authority has a key of another kind than this makes")
        if private.public_key() != self._certificate.public_key():
            raise BadInputError("the key of the authority is not that of its certificate")
        self._key = private

    @classmethod
    def create(cls, name: str, now: dt.datetime) -> Authority:
        """A new one, for ten years."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _named(name)
        made = (
            _building(subject, subject, key, now, AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_use(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(made.public_bytes(serialization.Encoding.PEM), _pem(key))

    def issue(
        self, name: str, hosts: Sequence[str], now: dt.datetime, days: int
    ) -> tuple[bytes, bytes]:
        """A certificate and its key, as PEM, for a server at these names or addresses, which is
        also a client of others.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        uses = x509.ExtendedKeyUsage(
            [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        )
        made = (
            _building(_named(name), self._certificate.subject, key, now, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_use(signs_certificates=False), critical=True)
            .add_extension(x509.SubjectAlternativeName(list(map(_place, hosts))), critical=False)
            .add_extension(uses, critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM), _pem(key)


def _building(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: dt.datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BEFORE)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _use(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def check_host(host: str) -> str:
    """The name or address. Raises `BadInputError` for what no certificate can be for."""
    _place(host)
    return host


def read_issued(certificate: bytes) -> Issued:
    """What `Authority.issue` made this certificate for; `certificate` is PEM, a key may stand
    before it. Raises `BadInputError`.
    """
    try:
        read = x509.load_pem_x509_certificate(certificate)
        places = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound) as error:
        raise BadInputError(f"it is no certificate for names or addresses: {error}") from None
    seconds = (read.not_valid_after_utc - read.not_valid_before_utc - BEFORE).total_seconds()
    return Issued(tuple(str(place.value) for place in places), round(seconds / 86_400))


def _place(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    # A star stands for one label, and clients take none right before a name without a dot.
    name = host.removeprefix("*.")
    dots = 1 if name != host else 0
    if len(host) > NAME_MAX or not _NAME.fullmatch(name) or name.count(".") < dots:
        raise BadInputError(
            f"{host!r} is neither a name nor an address; broker-1.example.org, *.example.org and "
            "192.0.2.1 are, without scheme and port"
        )
    return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
