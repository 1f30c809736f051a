"""How far a running cluster is secured, point by point of the page on security."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.doctor.asking import BrokerFacts
from loadmanager.cli.doctor.findings import Diagnosis, fine, problem, warning
from loadmanager.kit.errors import OperationalError

PART = "security"
DAY_S = 86_400
ENDS_DAYS_MIN = 14
CLOSED = (401, 403)
NAMES_MAX = 5
AUTHENTICATE = "see authenticationEnabled"
NOBODY = "nobody has a role"
PLAIN = ("pulsar:", "http:")

Make = Callable[[str, str, str, str], Diagnosis]


@dataclass(frozen=True, slots=True)
class SecurityPoint:
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
    brokers: Mapping[str, BrokerFacts], stranger: AdminClient, token: str, left_out: int
) -> Iterator[Diagnosis]:
    """`stranger`: a client without a token; `token`: that of whoever asks, empty for none;
    `left_out`: so many brokers were not asked.
    """
    yield _of_answers(brokers, left_out).diagnosis()
    points = {
        name: list(_of_settings(broker.settings))
        for name, broker in sorted(brokers.items())
        if broker.settings
    }
    if not points:
        return
    for same in zip(*points.values(), strict=True):
        yield _of_all(dict(zip(points, same, strict=True))).diagnosis()
    yield from (point.diagnosis() for point in _of_certificates(brokers))
    yield _of_token(token).diagnosis()
    for path in ("/admin/v2/tenants", "/metrics"):
        yield _of_stranger(stranger, path).diagnosis()


def _of_answers(brokers: Mapping[str, BrokerFacts], left_out: int) -> SecurityPoint:
    silent = sorted(name for name, broker in brokers.items() if not broker.settings)
    text = (
        f"{_listed(silent)} did not say what its settings are" if silent else "no broker answered"
    )
    if left_out:
        text = f"{left_out} brokers were not asked for their settings"
    return SecurityPoint(
        "settings",
        bool(brokers) and not silent and not left_out,
        f"all brokers say what theirs are: {len(brokers)}",
        text,
        "the points below do not count for these brokers: ask again when they answer",
        problem,
    )


def _of_all(points: Mapping[str, SecurityPoint]) -> SecurityPoint:
    """One point of all brokers, which names those that differ from the others."""
    wrong = [name for name, point in points.items() if not point.ok]
    if not wrong:
        return next(iter(points.values()))
    first = points[wrong[0]]
    if len(wrong) == len(points):
        return first
    return replace(first, else_=f"{first.else_}; so on {_listed(wrong)}, not on all brokers")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_MAX])
    return f"{shown} and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else shown


def score(findings: list[Diagnosis]) -> str:
    """How many points are as they should be."""
    points = [finding for finding in findings if finding.part == PART]
    good = sum(finding.advice == "" for finding in points)
    return f"security: {good} of {len(points)} points are as they should be"


def _of_settings(values: Mapping[str, str]) -> Iterator[SecurityPoint]:
    yield from _of_roles(values)
    yield from _of_ports(values)
    yield from _of_stores(values)


def _on(values: Mapping[str, str], key: str) -> bool:
    return values.get(key, "") == "true"


def _number(text: str) -> float:
    """What a broker says; below zero for what is no number."""
    try:
        return float(text)
    except ValueError:
        return -1


def _of_roles(values: Mapping[str, str]) -> Iterator[SecurityPoint]:
    proved = _on(values, "authenticationEnabled")
    yield SecurityPoint(
        "authenticationEnabled",
        proved,
        "who comes must prove who he is",
        "whoever reaches a port may do everything",
        "`loadmanager tokens bootstrap` makes what it needs",
        problem,
    )
    yield SecurityPoint(
        "authorizationEnabled",
        proved and _on(values, "authorizationEnabled"),
        "roles may do what they are permitted to do",
        "every role may do everything" if proved else NOBODY,
        "authorizationEnabled=true, and grants for clients" if proved else AUTHENTICATE,
        problem,
    )
    yield SecurityPoint(
        "anonymousUserRole",
        proved and not values.get("anonymousUserRole"),
        "nobody comes without a token",
        "who proves nothing has a role" if proved else "everybody comes without a token",
        "remove it, unless that role may do nothing that matters" if proved else AUTHENTICATE,
    )
    named = map(str.strip, values.get("superUserRoles", "").split(","))
    roles = sorted({role for role in named if role})
    yield SecurityPoint(
        "superUserRoles",
        proved and len(roles) > 1,
        f"{_listed(roles)} may do everything: see that brokers and operators do not share one",
        "brokers and operators cannot be told apart",
        "give each a role and a token: the audit log names roles" if proved else AUTHENTICATE,
    )
    yield SecurityPoint(
        "tokenPublicKey",
        bool(values.get("tokenPublicKey")),
        "brokers cannot make tokens",
        "whoever reads a broker's key can make a token for anybody",
        "sign tokens with a private key that brokers do not have",
    )


def _of_ports(values: Mapping[str, str]) -> Iterator[SecurityPoint]:
    for key, what in (("brokerServicePort", "clients"), ("webServicePort", "operators")):
        yield SecurityPoint(
            key,
            not values.get(key),
            f"{what} come over TLS only",
            f"the port without TLS is open: tokens of {what} can be read on the way",
            f"set {key}= (empty), and {key}Tls",
            problem,
        )
    listeners = [entry.strip() for entry in values.get("bindAddresses", "").split(",")]
    plain = [
        entry for entry in listeners if entry.partition(":")[2].strip().lower().startswith(PLAIN)
    ]
    yield SecurityPoint(
        "bindAddresses",
        not plain,
        "no further address without TLS",
        f"{_listed(plain)} is without TLS: tokens can be read on the way",
        "give each address of bindAddresses pulsar+ssl:// or https://",
        problem,
    )
    yield SecurityPoint(
        "brokerClientTlsEnabled",
        _on(values, "brokerClientTlsEnabled"),
        "brokers ask each other over TLS",
        "the brokers' own token can be read between them",
        "brokerClientTlsEnabled=true, and brokerClientTrustCertsFilePath",
        problem,
    )
    yield SecurityPoint(
        "authenticateMetricsEndpoint",
        _on(values, "authenticationEnabled") and _on(values, "authenticateMetricsEndpoint"),
        "/metrics needs a token",
        "/metrics names every tenant, namespace and topic to everybody",
        "authenticateMetricsEndpoint=true, and a token for Prometheus",
    )


def _of_stores(values: Mapping[str, str]) -> Iterator[SecurityPoint]:
    yield SecurityPoint(
        "loadManagerZooKeeperTlsEnabled",
        _on(values, "loadManagerZooKeeperTlsEnabled"),
        "brokers speak TLS to ZooKeeper",
        "what brokers tell ZooKeeper can be read and changed on the way",
        "loadManagerZooKeeperTlsEnabled=true, with ZooKeeper's secureClientPort",
    )
    yield SecurityPoint(
        "loadManagerZooKeeperAuthFile",
        any(
            values.get(f"loadManagerZooKeeper{key}")
            for key in ("AuthFile", "TlsCertificateFilePath")
        ),
        "ZooKeeper knows the brokers",
        "whoever reaches ZooKeeper can do everything with the cluster",
        "a user for the brokers, or their certificate; keep others away from its port",
        problem,
    )
    yield SecurityPoint(
        "backlogQuotaDefaultLimitGB",
        _number(values.get("backlogQuotaDefaultLimitGB", "")) > 0,
        "a namespace fills the disk up to a limit only",
        "whoever may produce may fill the disk",
        "set backlogQuotaDefaultLimitGB, or a quota for each namespace",
    )


def _of_certificates(brokers: Mapping[str, BrokerFacts]) -> Iterator[SecurityPoint]:
    for name, broker in sorted(brokers.items()):
        ends = broker.metrics.get("loadmanager_tls_certificate_ends_seconds", {})
        now_s = broker.value("loadmanager_time_seconds")
        if ends and now_s is not None:
            left_days = (min(ends.values()) - now_s) / DAY_S
            yield SecurityPoint(
                name,
                left_days > ENDS_DAYS_MIN,
                f"its certificates count for {left_days:.0f} days",
                f"a certificate ends in {left_days:.0f} days",
                "write new ones over the files: `loadmanager tokens bootstrap --renew`",
            )


def _of_token(token: str) -> SecurityPoint:
    claims: dict[str, Any] = {}
    parts = token.split(".")
    if len(parts) == 3:
        try:
            read = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
            claims = read if isinstance(read, dict) else {}
        except (ValueError, binascii.Error):
            claims = {}
    return SecurityPoint(
        "your token",
        "exp" in claims,
        "it has an end",
        "it has none" if token else "you have none",
        "`loadmanager tokens create --expires 30d`",
    )


def _of_stranger(stranger: AdminClient, path: str) -> SecurityPoint:
    try:
        stranger.send("GET", path)
        answer = "answers"
        closed = False
    except AnsweredError as error:
        answer, closed = f"answers {error.status}", error.status in CLOSED
    except OperationalError:  # it hangs up on who has no certificate
        answer, closed = "does not answer", True
    return SecurityPoint(
        f"GET {path}",
        closed,
        f"{answer} without a token",
        f"{answer} without a token",
        "see authenticationEnabled" if path != "/metrics" else "see authenticateMetricsEndpoint",
        problem if path != "/metrics" else warning,
    )
