"""Settings of token authentication, with Pulsar's names."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.kit.conf import conf

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
    role_claim: str = conf("tokenAuthClaim", "sub", "The claim of a token that is the role")
    audience_claim: str = conf(
        "tokenAudienceClaim", "", "The claim that must have tokenAudience; empty: none"
    )
    audience: str = conf("tokenAudience", "", "The audience that a token must be made for")
    clock_skew_s: int = conf(
        "tokenAllowedClockSkewSeconds",
        0,
        "A token counts for so long after its end",
        minimum=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerClientSettings:
    """The credentials with which this broker connects to others."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """TLS of brokerServicePortTls and webServicePortTls."""

    certificate: str = conf(
        "tlsCertificateFilePath", "", "This broker's certificate and its chain (PEM)"
    )
    key: str = conf("tlsKeyFilePath", "", "The certificate's private key (PEM)")
    trust: str = conf(
        "tlsTrustCertsFilePath",
        "",
        "The authorities that sign clients' certificates (PEM); empty: clients are asked for none",
    )
    require_client: bool = conf(
        "tlsRequireTrustedClientCertOnConnect",
        False,
        "Clients must have a certificate that an authority in tlsTrustCertsFilePath signed",
    )
    refresh_s: float = conf(
        "tlsCertRefreshCheckDurationSec",
        300.0,
        "How often changed files of certificates are looked for, also those of brokerClient…; 0: "
        "every second",
        minimum=0,
    )
    protocols: tuple[str, ...] = conf("tlsProtocols", (), "TLSv1.2, TLSv1.3 or both; empty: both")
    ciphers: tuple[str, ...] = conf(
        "tlsCiphers",
        (),
        "Cipher suites of TLS 1.2, by Java's or OpenSSL's names; empty: OpenSSL's choice. Those of "
        "TLS 1.3 always count",
    )
    web_protocols: tuple[str, ...] = conf(
        "webServiceTlsProtocols", (), "As tlsProtocols, for webServicePortTls; empty: tlsProtocols"
    )
    web_ciphers: tuple[str, ...] = conf(
        "webServiceTlsCiphers", (), "As tlsCiphers, for webServicePortTls; empty: tlsCiphers"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerClientTlsSettings:
    """TLS between brokers."""

    enabled: bool = conf(
        "brokerClientTlsEnabled", False, "Brokers ask each other over webServicePortTls"
    )
    trust: str = conf(
        "brokerClientTrustCertsFilePath",
        "",
        "The authorities that sign brokers' certificates (PEM); empty: tlsTrustCertsFilePath, or "
        "else those that the system trusts",
    )
    verify_host: bool = conf(
        "tlsHostnameVerificationEnabled",
        True,
        "A broker's certificate must be for the name by which it is asked",
    )
    certificate: str = conf(
        "brokerClientCertificateFilePath",
        "",
        "The certificate that this broker shows to others (PEM); empty: none",
    )
    key: str = conf("brokerClientKeyFilePath", "", "The private key of that certificate (PEM)")
    protocols: tuple[str, ...] = conf("brokerClientTlsProtocols", (), "As tlsProtocols")
    ciphers: tuple[str, ...] = conf("brokerClientTlsCiphers", (), "As tlsCiphers")
