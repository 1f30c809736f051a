"""How far a running cluster is secured, point by point of the page on security."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.doctor.asking import BrokerFacts
from loadmanager.cli.doctor.findings import Diagnosis, fine, problem, warning
from loadmanager.kit.errors import OperationalError

PART = "security"
DAY_S = 86_400
ENDS_DAYS_MIN = 14
CLOSED = (401, 403)

Make = Callable[[str, str, str, str], Diagnosis]


@dataclass(frozen=True, slots=True)
class Point:
    """One point: whether it is so, what is so then, what else, and what to do about that."""

    subject: str
    ok: bool
    so: str
    else_: str
    advice: str
    made: Make = warning

    def diagnosis(self) -> Diagnosis:
        """The finding."""
        if self.ok:
            return fine(PART, self.subject, self.so)
        return self.made(PART, self.subject, self.else_, self.advice)


def check(
    values: Mapping[str, str], brokers: Mapping[str, BrokerFacts], stranger: AdminClient, token: str
) -> Iterator[Diagnosis]:
    """`values`: the settings of a broker; `stranger`: a client without a token; `token`: that of
    whoever asks, empty for none.
    """
    yield from (point.diagnosis() for point in _of_settings(values))
    yield from (point.diagnosis() for point in _of_certificates(brokers))
    yield _of_token(token).diagnosis()
    for path in ("/admin/v2/tenants", "/metrics"):
        yield _of_stranger(stranger, path).diagnosis()


def score(findings: list[Diagnosis]) -> str:
    """How many points are as they should be."""
    points = [finding for finding in findings if finding.part == PART]
    good = sum(finding.advice == "" for finding in points)
    return f"security: {good} of {len(points)} points are as they should be"


def _of_settings(values: Mapping[str, str]) -> Iterator[Point]:
    def on(key: str) -> bool:
        return values.get(key, "") == "true"

    yield Point(
        "authenticationEnabled",
        on("authenticationEnabled"),
        "who comes must prove who he is",
        "whoever reaches a port may do everything",
        "`loadmanager tokens bootstrap` makes what it needs",
        problem,
    )
    yield Point(
        "authorizationEnabled",
        on("authorizationEnabled"),
        "roles may do what they are permitted to do",
        "every role may do everything",
        "authorizationEnabled=true, and grants for clients",
        problem,
    )
    yield Point(
        "anonymousUserRole",
        not values.get("anonymousUserRole"),
        "nobody comes without a token",
        "who proves nothing has a role",
        "remove it, unless that role may do nothing that matters",
    )
    roles = [role for role in values.get("superUserRoles", "").split(",") if role]
    yield Point(
        "superUserRoles",
        len(roles) > 1,
        "brokers and operators have roles of their own",
        "brokers and operators cannot be told apart",
        "give each a role and a token: the audit log names roles",
    )
    yield Point(
        "tokenPublicKey",
        bool(values.get("tokenPublicKey")),
        "brokers cannot make tokens",
        "whoever reads a broker's key can make a token for anybody",
        "sign tokens with a private key that brokers do not have",
    )
    for key, what in (("brokerServicePort", "clients"), ("webServicePort", "operators")):
        yield Point(
            key,
            not values.get(key),
            f"{what} come over TLS only",
            f"the port without TLS is open: tokens of {what} can be read on the way",
            f"set {key}= (empty), and {key}Tls",
            problem,
        )
    yield Point(
        "brokerClientTlsEnabled",
        on("brokerClientTlsEnabled"),
        "brokers ask each other over TLS",
        "the brokers' own token can be read between them",
        "brokerClientTlsEnabled=true, and brokerClientTrustCertsFilePath",
        problem,
    )
    yield Point(
        "authenticateMetricsEndpoint",
        on("authenticateMetricsEndpoint"),
        "/metrics needs a token",
        "/metrics names every tenant, namespace and topic to everybody",
        "authenticateMetricsEndpoint=true, and a token for Prometheus",
    )
    yield Point(
        "loadManagerZooKeeperTlsEnabled",
        on("loadManagerZooKeeperTlsEnabled"),
        "brokers speak TLS to ZooKeeper",
        "what brokers tell ZooKeeper can be read and changed on the way",
        "loadManagerZooKeeperTlsEnabled=true, with ZooKeeper's secureClientPort",
    )
    known = bool(values.get("loadManagerZooKeeperAuthFile"))
    yield Point(
        "loadManagerZooKeeperAuthFile",
        known or bool(values.get("loadManagerZooKeeperTlsCertificateFilePath")),
        "ZooKeeper knows the brokers",
        "whoever reaches ZooKeeper can do everything with the cluster",
        "a user for the brokers, or their certificate; keep others away from its port",
        problem,
    )
    yield Point(
        "backlogQuotaDefaultLimitGB",
        float(values.get("backlogQuotaDefaultLimitGB") or -1) > 0,
        "a namespace fills the disk up to a limit only",
        "whoever may produce may fill the disk",
        "set backlogQuotaDefaultLimitGB, or a quota for each namespace",
    )


def _of_certificates(brokers: Mapping[str, BrokerFacts]) -> Iterator[Point]:
    for name, broker in sorted(brokers.items()):
        ends = broker.metrics.get("loadmanager_tls_certificate_ends_seconds", {})
        now_s = broker.value("loadmanager_time_seconds")
        if ends and now_s is not None:
            left_days = (min(ends.values()) - now_s) / DAY_S
            yield Point(
                name,
                left_days > ENDS_DAYS_MIN,
                f"its certificates count for {left_days:.0f} days",
                f"a certificate ends in {left_days:.0f} days",
                "write new ones over the files: `loadmanager tokens bootstrap --renew`",
            )


def _of_token(token: str) -> Point:
    claims: dict[str, Any] = {}
    parts = token.split(".")
    if len(parts) == 3:
        try:
            read = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
            claims = read if isinstance(read, dict) else {}
        except (ValueError, binascii.Error):
            claims = {}
    return Point(
        "your token",
        "exp" in claims,
        "it has an end",
        "it has none" if token else "you have none",
        "`loadmanager tokens create --expires 30d`",
    )


def _of_stranger(stranger: AdminClient, path: str) -> Point:
    try:
        stranger.send("GET", path)
        answer = "answers"
        closed = False
    except AnsweredError as error:
        answer, closed = f"answers {error.status}", error.status in CLOSED
    except OperationalError:  # it hangs up on who has no certificate
        answer, closed = "does not answer", True
    return Point(
        f"GET {path}",
        closed,
        f"{answer} without a token",
        f"{answer} without a token",
        "see authenticationEnabled" if path != "/metrics" else "see authenticateMetricsEndpoint",
        problem if path != "/metrics" else warning,
    )
