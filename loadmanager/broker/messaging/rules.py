"""Retention, backlog quotas and de-duplication: from a namespace's policies (in Pulsar's fields) or
else broker.conf.

Policies come from operators and from metadata, which others may have written. A field that cannot
be read counts as not set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadmanager.broker.messaging.settings import (
    CONSUMER_EVICTION,
    QUOTA_POLICIES,
    REQUEST_HOLD,
    MessagingSettings,
)
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.units import GIB, MIB

RETENTION, QUOTAS, TTL = "retention_policies", "backlog_quota_map", "message_ttl_in_seconds"
DEDUPLICATION = "deduplicationEnabled"
SIZE_QUOTA, AGE_QUOTA = "destination_storage", "message_age"
INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one namespace. −1: no limit."""

    retention_bytes: int
    """Acknowledged messages beyond this size are deleted,"""
    retention_s: int
    """and those older than this."""
    ttl_s: int
    """Messages older than this count as acknowledged; 0: none."""
    quota_bytes: int
    quota_policy: str
    quota_s: int
    """The oldest message that is not acknowledged may be so old; `age_policy` is for that."""
    age_policy: str
    deduplicates: bool
    """Whether a producer's sequence ids must rise, also those of a new one with an old name."""

    @property
    def evicts(self) -> bool:
        """True if the oldest messages go when the backlog is too large."""
        return self.quota_policy == CONSUMER_EVICTION

    @property
    def holds(self) -> bool:
        """True if producers wait when the backlog is too large; else they get an exception."""
        return self.quota_policy == REQUEST_HOLD


def rules_of(policies: Mapping[str, Any], settings: MessagingSettings, *, stored: bool) -> Rules:
    """The rules of a namespace with these policies, for topics that are stored or in memory."""
    retention = _object(policies.get(RETENTION))
    quotas = _object(policies.get(QUOTAS))
    size, age = _object(quotas.get(SIZE_QUOTA)), _object(quotas.get(AGE_QUOTA))
    megabytes = _number(retention.get("retentionSizeInMB"))
    minutes = _number(retention.get("retentionTimeInMinutes"))
    if megabytes is None or minutes is None:
        megabytes, minutes = settings.retention_mb, settings.retention_minutes
    limit = _number(size.get("limitSize", size.get("limit")))
    if limit is None:
        limit = _default_quota(settings, stored=stored)
    default = settings.quota_policy
    age_s = _number(age.get("limitTime"))
    ttl_s, deduplicates = _number(policies.get(TTL)), policies.get(DEDUPLICATION)
    return Rules(
        retention_bytes=-1 if megabytes < 0 else int(megabytes * MIB),
        retention_s=-1 if minutes < 0 else int(minutes * 60),
        ttl_s=max(int(settings.ttl_s if ttl_s is None else ttl_s), 0),
        quota_bytes=int(limit),
        quota_policy=_policy(size.get("policy"), default),
        quota_s=int(settings.quota_s if age_s is None else age_s),
        age_policy=_policy(age.get("policy"), default),
        deduplicates=deduplicates if type(deduplicates) is bool else settings.deduplicates,
    )


def _default_quota(settings: MessagingSettings, *, stored: bool) -> float:
    if not stored:
        return settings.backlog_bytes_max
    return -1 if settings.backlog_gb_max < 0 else settings.backlog_gb_max * GIB


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _policy(value: object, default: str) -> str:
    return value if isinstance(value, str) and value in QUOTA_POLICIES else default


class NamespaceRules:
    """The rules of one namespace as they are in force now."""

    def __init__(self, settings: Live[MessagingSettings]) -> None:
        self._settings = settings
        self._policies: Mapping[str, Any] = {}
        self._rules: dict[bool, Rules] = {}

    def set_policies(self, policies: Mapping[str, Any]) -> None:
        fields = (RETENTION, QUOTAS, TTL, DEDUPLICATION)
        self._policies = {name: policies.get(name) for name in fields}
        self._rules.clear()

    def of(self, *, stored: bool) -> Rules:
        """The rules of topics that are stored, or in memory."""
        rules = self._rules.get(stored)
        if rules is None:
            rules = self._rules[stored] = rules_of(
                self._policies, self._settings.value, stored=stored
            )
        return rules


class MessageRules:
    """The rules of all namespaces of which a topic was opened."""

    def __init__(self, settings: Live[MessagingSettings]) -> None:
        self._settings = settings
        self._namespaces: dict[str, NamespaceRules] = {}

    def of(self, namespace: str) -> NamespaceRules:
        rules = self._namespaces.get(namespace)
        if rules is None:
            rules = self._namespaces[namespace] = NamespaceRules(self._settings)
        return rules

    def set_policies(self, namespace: str, policies: Mapping[str, Any]) -> None:
        self.of(namespace).set_policies(policies)


def retention_policy(document: Mapping[str, Any]) -> dict[str, Any]:
    """A retention policy from the body of a request. Raises `BadInputError`, in Pulsar's words."""
    minutes = _whole(document, "retentionTimeInMinutes", INT_MAX)
    megabytes = _whole(document, "retentionSizeInMB", LONG_MAX)
    if (minutes == 0) != (megabytes == 0):
        raise BadInputError(
            "Invalid retention policy: Setting a single time or size limit to 0 is invalid when "
            "one of the limits has a non-zero value. Use the value of -1 instead of 0 to ignore a "
            "specific limit. To disable retention both limits must be set to 0."
        )
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}


def quota_policy(document: Mapping[str, Any]) -> dict[str, Any]:
    """A backlog quota from the body of a request. Raises `BadInputError`."""
    policy = document.get("policy")
    if policy not in QUOTA_POLICIES:
        raise BadInputError(f"policy must be one of {', '.join(QUOTA_POLICIES)}")
    size = {**document, "limitSize": document.get("limitSize", document.get("limit"))}
    return {
        "limit": _whole(size, "limitSize", LONG_MAX, default=-1),
        "limitSize": _whole(size, "limitSize", LONG_MAX, default=-1),
        "limitTime": _whole(document, "limitTime", INT_MAX, default=-1),
        "policy": policy,
    }


def check_quota_and_retention(policies: Mapping[str, Any]) -> None:
    """Raise `BadInputError` when a backlog quota would be greater than what is retained."""
    retention = _object(policies.get(RETENTION))
    megabytes = _number(retention.get("retentionSizeInMB")) or 0
    minutes = _number(retention.get("retentionTimeInMinutes")) or 0
    if megabytes <= 0 or minutes <= 0:
        return
    quotas = _object(policies.get(QUOTAS))
    size = _number(_object(quotas.get(SIZE_QUOTA)).get("limitSize"))
    age_s = _number(_object(quotas.get(AGE_QUOTA)).get("limitTime"))
    if (size or 0) >= megabytes * MIB or (age_s or 0) >= minutes * 60:
        raise BadInputError("Retention Quota must exceed configured backlog quota for namespace.")


def _whole(
    document: Mapping[str, Any], field: str, maximum: int, *, default: int | None = None
) -> int:
    value = document.get(field, default)
    if value is None and default is not None:
        return default
    if type(value) is not int or not -1 <= value <= maximum:
        raise BadInputError(f"{field} must be a whole number from -1")
    return value
