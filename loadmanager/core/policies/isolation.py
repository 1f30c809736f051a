"""Namespace isolation: which brokers may serve a namespace (Pulsar `NamespaceIsolationPolicies`, `LoadManagerShared.applyNamespacePolicies`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from loadmanager.core.errors import BadInputError
from loadmanager.core.load.reports import LocalBrokerData, decode_tolerant

DIGITS_MAX = 9
_PORT = re.compile(r"(.+):\d+")


class AutoFailover(msgspec.Struct):
    """`min_available`: secondaries help out while fewer than `min_limit` primaries are there."""

    policy_type: str = "min_available"
    parameters: dict[str, str | int] = {}

    @property
    def min_limit(self) -> int:
        """How many primaries are enough."""
        return int(self.parameters.get("min_limit", 1))


class IsolationPolicy(msgspec.Struct):
    """Regular expressions, each of which must match in full: namespaces, and hosts of primary and secondary brokers."""

    namespaces: list[str] = []
    primary: list[str] = []
    secondary: list[str] = []
    auto_failover_policy: AutoFailover = msgspec.field(default_factory=AutoFailover)


_DECODER = msgspec.json.Decoder(dict[str, IsolationPolicy])


def decode_policies(raw: bytes) -> dict[str, IsolationPolicy]:
    """Policies by name from their JSON, in order of name. Raises `BadInputError` for a wrong type or an expression that is none."""
    try:
        policies = decode_tolerant(_DECODER, raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(f"isolation policies: {error}") from None
    for name, policy in policies.items():
        for expression in (*policy.namespaces, *policy.primary, *policy.secondary):
            try:
                re.compile(expression)
            except re.error as error:
                raise BadInputError(f"isolation policy {name!r}: {expression!r} is no regular expression: {error}") from None
        limit = str(policy.auto_failover_policy.parameters.get("min_limit", 1))
        if not limit.isdecimal() or len(limit) > DIGITS_MAX:
            raise BadInputError(f"isolation policy {name!r}: min_limit must be a whole number of at most {DIGITS_MAX} digits")
    return dict(sorted(policies.items()))


@lru_cache(maxsize=100_000)
def _matches(expression: str, text: str) -> bool:
    return re.fullmatch(expression, text) is not None


def matches_broker(expressions: Sequence[str], broker: str) -> bool:
    """Whether a broker is meant: by its id, or by its host alone."""
    port = _PORT.fullmatch(broker)
    host = port[1] if port else broker
    return any(_matches(expression, broker) or _matches(expression, host) for expression in expressions)


def policy_of(namespace: str, policies: Mapping[str, IsolationPolicy]) -> IsolationPolicy | None:
    """The first policy, in order of name, that covers a namespace. (Pulsar takes the first in hash order.)"""
    for policy in policies.values():
        if any(_matches(expression, namespace) for expression in policy.namespaces):
            return policy
    return None


def allowed(
    namespace: str,
    brokers: Sequence[str],
    policies: Mapping[str, IsolationPolicy],
    reports: Mapping[str, LocalBrokerData],
    rejected: dict[str, str],
) -> list[str]:
    """The brokers that may serve a namespace; the others get their reason."""
    policy = policy_of(namespace, policies)
    if policy is None:
        able = []
        for broker in brokers:
            if any(matches_broker(other.primary, broker) for other in policies.values()):
                rejected[broker] = "Isolation: it is primary for other namespaces"
            elif broker in reports and not reports[broker].persistent_topics_enabled:
                rejected[broker] = "PersistentTopicsDisabled"
            else:
                able.append(broker)
        return able
    primaries = [broker for broker in brokers if matches_broker(policy.primary, broker)]
    secondaries = [broker for broker in brokers if broker not in primaries and matches_broker(policy.secondary, broker)]
    able = primaries + secondaries if len(primaries) < policy.auto_failover_policy.min_limit else primaries
    for broker in brokers:
        if broker not in able:
            rejected[broker] = (
                "Isolation: a secondary, and there are enough primaries"
                if broker in secondaries
                else "Isolation: the policy does not name it"
            )
    return sorted(able)
