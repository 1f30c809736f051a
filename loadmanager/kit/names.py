"""Names of namespaces and topics, as Pulsar spells them (`NamespaceName`, `TopicName`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from loadmanager.kit.errors import BadInputError

DOMAINS = ("persistent", "non-persistent")
_PART = re.compile(r"[-=:.\w]+", re.ASCII)
_PARTITION = re.compile(r"(.+)-partition-([0-9]+)")
_NAME_LENGTH_MAX = 1024
SYSTEM_NAMESPACE = "pulsar/system"
MONITORING_PREFIXES = ("sla-monitor/", "pulsar/")
_MONITORING_NAMESPACES = re.compile(r"(?:sla-monitor|pulsar)/(?:[^/]+/)?[^:]+:[0-9]+")

# Limits of the names that clients send, in bytes of UTF-8. In a path of the metadata store, a name
# takes at most three times as many, so the path of a topic and one of its subscriptions stays below
# 5 KB. ZooKeeper closes the connection of a broker that sends a packet of 1 MB.
TOPIC_NAME_BYTES_MAX = 1_000
"""A full topic name, its partition's suffix included."""
NAME_BYTES_MAX = 512
"""The name of a subscription, producer or consumer."""
PARTITION_INDEX_MAX = (1 << 31) - 1
"""The largest index in the protocol's message ids."""


def check_name(text: str, what: str, *, bytes_max: int = NAME_BYTES_MAX) -> str:
    """Return `text`, which may be empty; raise `BadInputError` if it is too long or not valid
    Unicode.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadInputError(f"invalid {what} {clip(text)}: it cannot be written as UTF-8") from None
    if size > bytes_max:
        raise BadInputError(
            f"invalid {what} {clip(text)}: {size} bytes, at most {bytes_max} are allowed"
        )
    return text


def clip(text: str) -> str:
    """The beginning of a name, quoted, so that error messages stay short."""
    return ascii(text[:80]) + ("…" if len(text) > 80 else "")


def check_part(text: str, what: str) -> str:
    """Return `text`; raise `BadInputError` if it may not name a tenant, namespace or cluster
    (Pulsar's `NamedEntity`).

    Deviation: `.` and `..` are refused, because a path of the metadata store cannot hold them.
    """
    if not _PART.fullmatch(text) or len(text) > _NAME_LENGTH_MAX or text in (".", ".."):
        raise BadInputError(
            f"invalid {what} {text[:80]!r}: letters, digits and -=:._ are allowed, at most "
            f"{_NAME_LENGTH_MAX} characters, not . and .."
        )
    return text


@lru_cache(maxsize=100_000)
def is_monitoring_namespace(namespace: str) -> bool:
    """True if a namespace belongs to one broker: its heartbeat or its SLA monitor.

    With a cluster's name between tenant and broker (until Pulsar 4.0) and without (from 4.2 on).
    """
    return _MONITORING_NAMESPACES.fullmatch(namespace) is not None


def is_monitoring_bundle(bundle: str) -> bool:
    """True if a bundle belongs to a monitoring namespace; fast for all others."""
    return bundle.startswith(MONITORING_PREFIXES) and is_monitoring_namespace(
        bundle.rpartition("/")[0]
    )


def no_monitoring_bundle(bundles: Iterable[str]) -> bool:
    """True if none of these is a monitoring bundle; may be False by mistake. One search for
    thousands.
    """
    text = " ".join(bundles)
    for prefix in MONITORING_PREFIXES:  # noqa: SIM110 - a generator takes twice the time
        if prefix in text:
            return False
    return True


def is_system_namespace(namespace: str) -> bool:
    """True if a namespace serves Pulsar itself: the system namespace, heartbeats, SLA monitors."""
    return namespace == SYSTEM_NAMESPACE or is_monitoring_namespace(namespace)


@dataclass(frozen=True, slots=True, order=True)
class NamespaceName:
    """`tenant/namespace`."""

    tenant: str
    name: str

    @staticmethod
    @lru_cache(maxsize=10_000)
    def parse(text: str) -> NamespaceName:
        """Parse `tenant/namespace`. Raises `BadInputError`."""
        parts = text.split("/")
        if len(parts) != 2:
            raise BadInputError(f"invalid namespace {clip(text)}: tenant/namespace is expected")
        return NamespaceName(check_part(parts[0], "tenant"), check_part(parts[1], "namespace"))

    def __str__(self) -> str:
        return f"{self.tenant}/{self.name}"


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """`domain://tenant/namespace/local`, where local may end in `-partition-<i>`."""

    domain: str
    namespace: NamespaceName
    local: str

    @staticmethod
    @lru_cache(maxsize=20_000)
    def parse(text: str) -> TopicName:
        """Parse a full topic name, or Pulsar's short forms `topic` and `tenant/ns/topic`.

        Raises `BadInputError`.
        """
        domain, separator, rest = text.partition("://")
        if not separator:
            domain, rest = "persistent", text if "/" in text else f"public/default/{text}"
        check_name(f"{domain}://{rest}", "topic", bytes_max=TOPIC_NAME_BYTES_MAX)
        parts = rest.split("/", 2)
        if domain not in DOMAINS:
            raise BadInputError(
                f"invalid topic {clip(text)}: the domain is persistent or non-persistent"
            )
        if len(parts) != 3 or not parts[2]:
            raise BadInputError(
                f"invalid topic {clip(text)}: domain://tenant/namespace/topic is expected"
            )
        topic = TopicName(domain, NamespaceName.parse(f"{parts[0]}/{parts[1]}"), parts[2])
        if topic.partition > PARTITION_INDEX_MAX:
            raise BadInputError(
                f"invalid topic {clip(text)}: its partition's index is beyond {PARTITION_INDEX_MAX}"
            )
        return topic

    def __str__(self) -> str:
        return f"{self.domain}://{self.namespace}/{self.local}"

    @property
    def persistent(self) -> bool:
        """True if the topic's domain is `persistent`."""
        return self.domain == "persistent"

    @property
    def partition(self) -> int:
        """Index of the partition that this name denotes; −1 for a topic without partitions."""
        match = _PARTITION.fullmatch(self.local)
        return int(match[2]) if match else -1

    @property
    def partitioned_topic(self) -> TopicName:
        """The topic to which this partition belongs; this topic if it is not a partition."""
        match = _PARTITION.fullmatch(self.local)
        return TopicName(self.domain, self.namespace, match[1]) if match else self

    def partition_name(self, index: int) -> TopicName:
        """Name of partition `index` of this topic."""
        return TopicName(self.domain, self.namespace, f"{self.local}-partition-{index}")
