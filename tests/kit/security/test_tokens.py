"""Tokens: what counts, and what does not."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import jwt
import pytest
from kit.security.tokens import KEY, SECRET, token, verifier

from loadmanager.kit.errors import (
    BadInputError,
    ConfigError,
    NotAuthenticatedError,
    OperationalError,
)
from loadmanager.kit.security.client import PLUGIN, BrokerCredentials, token_of
from loadmanager.kit.security.settings import BrokerClientSettings, TokenSettings
from loadmanager.kit.security.tokens import (
    PUBLIC_ALGORITHMS,
    SECRET_ALGORITHMS,
    TokenVerifier,
    create_pair,
    create_token,
    read_key,
)

P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Of the group of points of ES256: for each signature (r, s), (r, order - s) counts, too."""


def test_a_role_and_an_end() -> None:
    """The subject is the role; a token may have an end."""
    assert verifier().verify(token("app")).role == "app"
    assert verifier().verify(token("app")).expires_s is None
    expires_s = verifier().verify(token("app", lives_s=100)).expires_s
    assert expires_s is not None
    assert abs(expires_s - time.time() - 100) < 60


def signed(claims: str) -> str:
    """A token of claims that no library would write."""
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=")
    body = base64.urlsafe_b64encode(claims.encode()).rstrip(b"=")
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
        head + b"." + body, SECRET
    )
    return b".".join([head, body, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


def test_an_end_that_is_written_as_text() -> None:
    """It ends a connection, too, and not only what is begun afterwards."""
    end_s = int(time.time()) + 100
    assert verifier().verify(signed(f'{{"sub": "app", "exp": "{end_s}"}}')).expires_s == end_s
    assert verifier().verify(signed(f'{{"sub": "app", "exp": {end_s}.5}}')).expires_s == end_s


def unsigned(role: str) -> str:
    """A token that says it needs no signature."""
    parts = [{"alg": "none", "typ": "JWT"}, {"sub": role}]
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join([*texts, b""]).decode()


def deep_head() -> str:
    """A token whose head is nested deeper than a decoder can follow."""
    head = b'{"alg": "HS256", "x": ' + b"[" * 16_000 + b"]" * 16_000 + b"}"
    return base64.urlsafe_b64encode(head).rstrip(b"=").decode() + ".e30.e30"


@pytest.mark.parametrize(
    "credentials",
    [
        "",
        "x",
        "a.b.c",
        token("app") + "x",
        token("app", lives_s=-5),
        unsigned("admin"),
        jwt.encode({"sub": "admin"}, b"another secret key of 32 bytes..", algorithm="HS256"),
        jwt.encode({"role": "admin"}, SECRET, algorithm="HS256"),
        jwt.encode({"sub": ""}, SECRET, algorithm="HS256"),
        jwt.encode({"sub": "admin", "nbf": 9_999_999_999}, SECRET, algorithm="HS256"),
        signed('{"sub": "app", "exp": "1"}'),
        signed('{"sub": "app", "exp": null}'),
        signed('{"sub": "app", "exp": []}'),
        signed('{"sub": "app", "exp": 1e999}'),
        signed('{"sub": "app", "nbf": {}}'),
        signed('{"sub": "app", "exp": true}'),
        signed('{"sub": ' + "[" * 20_000 + "]" * 20_000 + "}"),
        signed('{"sub": "app", "x": ' + '{"x":' * 8_000 + "1" + "}" * 8_000 + "}"),
        signed('{"sub": "app", "exp": ' + "9" * 400 + "}"),
        signed('{"sub": "app", "exp": ' + "9" * 5_000 + "}"),
        deep_head(),
        "x" * 100_000,
        "\u00e4.\u00f6.\u00fc",
        "\udcff\udcfe",
    ],
    ids=str.__len__,
)
def test_what_does_not_count(credentials: str) -> None:
    """Each is refused, and the text has nothing of it."""
    with pytest.raises(NotAuthenticatedError) as refused:
        verifier().verify(credentials)
    assert len(credentials) < 5 or credentials not in str(refused.value)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "ES512"])
def test_pairs_of_keys(algorithm: str, tmp_path: Path) -> None:
    """The private key signs, the public key checks, by the configured algorithm alone."""
    private, public = create_pair(algorithm)
    (tmp_path / "public").write_bytes(public)
    url = f"file://{tmp_path}/public"
    checking = TokenVerifier(TokenSettings(public_key=url, public_algorithm=algorithm))
    signed = create_token("app", private, algorithm=algorithm)
    assert checking.verify(signed).role == "app"
    other = next(name for name in PUBLIC_ALGORITHMS if name[:2] != algorithm[:2])
    with pytest.raises(NotAuthenticatedError):
        TokenVerifier(TokenSettings(public_key=url, public_algorithm=other)).verify(signed)
    with pytest.raises(NotAuthenticatedError):  # the public key is no secret
        checking.verify(_signed_with_public(public))


def test_a_signature_that_is_written_in_another_way() -> None:
    """It is the same token, with the same fingerprint: the holder cannot undo a refusal."""
    plain = token("app")
    named = verifier().verify(plain).token_id
    assert verifier().verify(plain + "=").token_id == named
    assert verifier().verify(token("other")).token_id != named

    private, public = create_pair("ES256")
    key = "data:;base64," + base64.b64encode(public).decode()
    checking = TokenVerifier(TokenSettings(public_key=key, public_algorithm="ES256"))
    plain = create_token("app", private, algorithm="ES256")
    head, _, signature = plain.rpartition(".")
    raw = base64.urlsafe_b64decode(signature + "==")
    mirrored = raw[:32] + (P256_ORDER - int.from_bytes(raw[32:])).to_bytes(32)
    other = head + "." + base64.urlsafe_b64encode(mirrored).rstrip(b"=").decode()
    assert other != plain
    assert checking.verify(other).token_id == checking.verify(plain).token_id


def _signed_with_public(public: bytes) -> str:
    """A token of an attacker who takes the public key for a secret one."""
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=")
    body = base64.urlsafe_b64encode(b'{"sub":"admin"}').rstrip(b"=")
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
        head + b"." + body, public
    )
    return b".".join([head, body, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


@pytest.mark.parametrize("algorithm", SECRET_ALGORITHMS)
def test_secret_keys_sign_with_each_digest(algorithm: str) -> None:
    """HS256, HS384 and HS512."""
    secret = SECRET * 2
    settings = TokenSettings(secret_key=base64.b64encode(secret).decode())
    signed = create_token("app", secret, algorithm=algorithm)
    assert TokenVerifier(settings).verify(signed).role == "app"


def test_claims() -> None:
    """Role and audience may be other claims; lists count."""
    settings = TokenSettings(
        secret_key=KEY, role_claim="roles", audience_claim="aud", audience="pulsar"
    )
    claims = {"roles": ["app", "other"], "aud": ["pulsar", "x"]}
    assert TokenVerifier(settings).verify(jwt.encode(claims, SECRET, "HS256")).role == "app"
    for wrong in ({"roles": "app"}, {"roles": "app", "aud": "x"}):
        with pytest.raises(NotAuthenticatedError, match="audience"):
            TokenVerifier(settings).verify(jwt.encode(wrong, SECRET, "HS256"))


def test_clock_skew() -> None:
    """A token counts a little longer where clocks differ."""
    late = token("app", lives_s=-30)
    settings = TokenSettings(secret_key=KEY, clock_skew_s=3600)
    assert TokenVerifier(settings).verify(late).role == "app"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (TokenSettings(), "needs tokenSecretKey"),
        (TokenSettings(secret_key="file:///nowhere"), "cannot be read"),
        (TokenSettings(secret_key="data:;base64,c2hvcnQ="), "less than 32 bytes"),
        (TokenSettings(secret_key="?"), "not base64"),
        (TokenSettings(public_key=KEY), "not a public key"),
        (TokenSettings(secret_key=KEY, audience="x"), "need each other"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_keys_that_cannot_be_used(settings: TokenSettings, words: str) -> None:
    """A broker does not start with them; the text has nothing of the key."""
    with pytest.raises(ConfigError, match=words) as refused:
        TokenVerifier(settings)
    assert "c2hvcnQ" not in str(refused.value)


def test_ways_to_name_a_key(tmp_path: Path) -> None:
    """All of Pulsar's."""
    path = tmp_path / "key"
    path.write_bytes(SECRET)
    text = base64.b64encode(SECRET).decode()
    for value in (f"file://{path}", str(path), KEY, text):
        assert read_key(value, "a key") == SECRET


def test_a_key_that_cannot_sign() -> None:
    """A secret key makes no token of a pair."""
    with pytest.raises(BadInputError, match="cannot sign"):
        create_token("app", SECRET, algorithm="RS256")


def test_the_token_of_a_broker(tmp_path: Path) -> None:
    """A file is read for each request, so that a token can be renewed."""
    path = tmp_path / "token"
    path.write_text("one\n")
    credentials = BrokerCredentials(
        BrokerClientSettings(plugin=PLUGIN, parameters=f"file://{path}")
    )
    assert credentials.headers() == {"Authorization": "Bearer one"}
    path.write_text("two")
    assert credentials.headers() == {"Authorization": "Bearer two"}
    path.unlink()
    with pytest.raises(OperationalError, match=f"the token in {path} cannot be read"):
        credentials.headers()
    assert token_of("token:three") == "three"
    assert BrokerCredentials(BrokerClientSettings()).headers() == {}
    with pytest.raises(ConfigError):
        token_of("three")


def test_the_library_itself_refuses_deep_nesting() -> None:
    """Of every version that pyproject.toml allows: an error of its own, not one of the stack."""
    for deep in (deep_head(), signed('{"sub": ' + "[" * 20_000 + "]" * 20_000 + "}")):
        with pytest.raises(jwt.PyJWTError):
            jwt.decode(deep, SECRET, algorithms=["HS256"])
