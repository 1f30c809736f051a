"""Settings of token authentication, with Pulsar's names."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.core.conf import conf

PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSettings:
    """JSON web tokens."""

    secret_key: str = conf(
        "tokenSecretKey",
        "",
        "The key that signs tokens: file:///path, or data:;base64,…",
        secret=True,
    )
    public_key: str = conf(
        "tokenPublicKey", "", "The public key of the one that signs tokens, instead"
    )
    public_algorithm: str = conf(
        "tokenPublicAlg",
        "RS256",
        "How that key signs",
        choices=("RS256", "RS384", "RS512", "ES256", "ES384", "ES512"),
    )
    role_claim: str = conf("tokenAuthClaim", "sub", "Which claim of a token is the role")
    audience_claim: str = conf(
        "tokenAudienceClaim", "", "Which claim must have tokenAudience; empty: none"
    )
    audience: str = conf("tokenAudience", "", "For whom a token must be meant")
    clock_skew_s: int = conf(
        "tokenAllowedClockSkewSeconds",
        0,
        "A token counts for so long after its end",
        minimum=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerClientSettings:
    """How this broker proves to others who it is."""

    plugin: str = conf(
        "brokerClientAuthenticationPlugin",
        "",
        "How: org.apache.pulsar.client.impl.auth.AuthenticationToken",
    )
    parameters: str = conf(
        "brokerClientAuthenticationParameters",
        "",
        "With what: token:…, or file:///path, which is read again for each request",
        secret=True,
    )
