"""JSON web tokens as Pulsar uses them (`AuthenticationProviderToken`, `pulsar tokens`)."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from loadmanager.kit.errors import BadInputError, ConfigError, NotAuthenticatedError
from loadmanager.kit.security.identity import TOKEN_BYTES_MAX, Identity
from loadmanager.kit.security.reading import read_file
from loadmanager.kit.security.settings import TokenSettings

SECRET_ALGORITHMS = ("HS256", "HS384", "HS512")
PUBLIC_ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512")
TOKEN_ID_MAX = 100
"""Characters of `jti`; a longer one does not name the token."""
SECRET_BYTES = 32
"""The size of a new secret key: as long as the digest of HS256."""
RSA_BITS = 2048
KEY_BYTES_MAX = 64 * 1024
CURVES: Mapping[str, type[ec.EllipticCurve]] = {
    "ES256": ec.SECP256R1,
    "ES384": ec.SECP384R1,
    "ES512": ec.SECP521R1,
}


def read_key(value: str, what: str) -> bytes:
    """A key as Pulsar's keys name it: `data:;base64,…`, `file:///path`, a path, or base64.

    Raises `ConfigError`.
    """
    try:
        if value.startswith("data:"):
            head, _, data = value.partition(",")
            return (
                base64.b64decode(data, validate=True)
                if head.endswith(";base64")
                else unquote_to_bytes(data)
            )
        path = Path(value.removeprefix("file://"))
        if value.startswith("file:") or (len(value) < 1000 and path.is_file()):
            return read_file(str(path), KEY_BYTES_MAX)
        return base64.b64decode(value, validate=True)
    except (OSError, ValueError, binascii.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not base64"
        raise ConfigError(
            f"{what} cannot be read ({reason}); file:///path or data:;base64,… is expected"
        ) from None


class TokenVerifier:
    """Implements `kit.security.identity.Verifier`. Raises `ConfigError` for a key that is of no
    use.
    """

    def __init__(self, settings: TokenSettings) -> None:
        self._settings = settings
        if settings.secret_key:
            self._key: Any = read_key(settings.secret_key, "tokenSecretKey")
            self._algorithms = [*SECRET_ALGORITHMS]
            if len(self._key) < SECRET_BYTES:
                raise ConfigError(f"tokenSecretKey has less than {SECRET_BYTES} bytes")
        elif settings.public_key:
            self._key = _public(read_key(settings.public_key, "tokenPublicKey"))
            self._algorithms = [settings.public_algorithm]
        else:
            raise ConfigError("authenticationEnabled needs tokenSecretKey or tokenPublicKey")
        if bool(settings.audience_claim) != bool(settings.audience):
            raise ConfigError("tokenAudienceClaim and tokenAudience need each other")

    def verify(self, credentials: str) -> Identity:
        """The role that a token names. Raises `NotAuthenticatedError` with the reason."""
        settings = self._settings
        if len(credentials) > TOKEN_BYTES_MAX:
            raise NotAuthenticatedError("the token is too long")
        try:
            claims = jwt.decode(
                credentials.strip(),
                self._key,
                algorithms=self._algorithms,
                leeway=settings.clock_skew_s,
                options={"verify_aud": False, "verify_sub": False, "verify_iat": False},
            )
        except jwt.PyJWTError as error:
            raise NotAuthenticatedError(f"invalid token: {error}") from None
        except UnicodeError:
            raise NotAuthenticatedError("invalid token: it is not ASCII") from None
        except (TypeError, ValueError, OverflowError, RecursionError):
            raise NotAuthenticatedError("invalid token: its claims cannot be read") from None
        if settings.audience_claim:
            audience = claims.get(settings.audience_claim)
            if settings.audience not in (audience if isinstance(audience, list) else [audience]):
                raise NotAuthenticatedError("invalid token: it is meant for another audience")
        role = claims.get(settings.role_claim)
        role = role[0] if isinstance(role, list) and role else role
        if not isinstance(role, str) or not role:
            raise NotAuthenticatedError(f"invalid token: it has no {settings.role_claim}")
        # PyJWT has checked that it is a whole number, and takes one that is written as text.
        try:
            expires = None if claims.get("exp") is None else float(int(claims["exp"]))
        except OverflowError:
            raise NotAuthenticatedError("invalid token: its end cannot be read") from None
        return Identity(role, expires, token_id(credentials.strip(), claims.get("jti")))


def token_id(token: str, claim: str | None) -> str:
    """By what operators name a token to refuse it: its claim `jti`, or else its fingerprint.

    The fingerprint is of what is signed alone: whoever has a token can write its signature in other
    ways that count (padded, or for ES256 its mirror image), and would undo a refusal so.
    """
    if claim and len(claim) <= TOKEN_ID_MAX and claim.isprintable():
        return claim
    return "sha256-" + hashlib.sha256(token.rpartition(".")[0].encode()).hexdigest()


def _public(der: bytes) -> Any:
    try:
        if der.lstrip().startswith(b"-----"):
            return serialization.load_pem_public_key(der)
        return serialization.load_der_public_key(der)
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError("tokenPublicKey is not a public key (X.509, DER or PEM)") from None


# Making tokens


def create_secret() -> bytes:
    """A new secret key."""
    return secrets.token_bytes(SECRET_BYTES)


def create_pair(algorithm: str) -> tuple[bytes, bytes]:
    """A new private and public key, both DER: PKCS#8 and X.509."""
    private: Any = (
        ec.generate_private_key(CURVES[algorithm]())
        if algorithm in CURVES
        else rsa.generate_private_key(65537, RSA_BITS)
    )
    return (
        private.private_bytes(
            serialization.Encoding.DER,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        private.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
    )


def public_key_of(key: bytes) -> bytes:
    """The public key of a private one, or of a public one itself, as `create_pair` makes it.

    Raises `BadInputError`.
    """
    try:
        try:
            public: Any = serialization.load_der_private_key(key, password=None).public_key()
        except ValueError:
            public = serialization.load_der_public_key(key)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise BadInputError("a key cannot be read") from None
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return bytes(public.public_bytes(encoding, form))


def create_token(
    role: str,
    key: bytes,
    *,
    algorithm: str,
    expires_s: float | None = None,
    token_id: str | None = None,
) -> str:
    """A token for a role, until `expires_s` (seconds since the epoch); `token_id`: its `jti`.

    Raises `BadInputError` for a key of another kind.
    """
    claims: dict[str, Any] = {"sub": role}
    if token_id is not None:
        claims["jti"] = token_id
    if expires_s is not None:
        claims["exp"] = int(expires_s)
    try:
        signing: Any = key
        if algorithm not in SECRET_ALGORITHMS:
            load = (
                serialization.load_pem_private_key
                if key.lstrip().startswith(b"-----")
                else serialization.load_der_private_key
            )
            signing = load(key, password=None)
        return jwt.encode(claims, signing, algorithm=algorithm)
    except (jwt.PyJWTError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadInputError(f"the key cannot sign with {algorithm}: {error}") from None


def expiry(identity: Identity) -> str:
    """The time at which a proof expires, as text."""
    if identity.expires_s is None:
        return "never"
    return dt.datetime.fromtimestamp(identity.expires_s, dt.UTC).isoformat()
