"""What a broker shows beyond what its leader does, and some of Pulsar's shapes."""

from __future__ import annotations

from typing import Any

import msgspec

from loadmanager.kit.model import Model, Shape
from loadmanager.kit.settings import SettingOrigin


class Tenant(Shape):
    """The administrators of a tenant, and its clusters: this one."""

    admin_roles: list[str] | None = None
    allowed_clusters: list[str] | None = None


class BundlesData(Shape):
    """Boundaries in hexadecimal notation, one more than there are bundles."""

    boundaries: list[str]
    num_bundles: int


class Partitions(Shape):
    """The number of partitions of a topic; 0: it is not partitioned."""

    partitions: int


class FailureDomain(Shape):
    """The brokers of a domain, `host:port`."""

    brokers: list[str]


class AddressesShown(Shape):
    """The addresses of a broker; an empty one is not served."""

    web_service_url: str
    web_service_url_tls: str
    pulsar_service_url: str
    pulsar_service_url_tls: str


class ReleasedShown(Shape):
    """The answer to the release of a bundle: whether the broker owned it, its clients, and its
    pause.
    """

    released: bool
    clients: int | None = None
    pause_ms: float | None = None
    life: int | None = None


class ClientsBackShown(Shape):
    """The clients of a bundle that are served, and how long after it began to be served here each
    of those that were asked for came and got its first receipt or delivery, if it wanted one: in
    ms, the first one first.
    """

    clients: int | None
    """None: the bundle is not served here."""
    returned_ms: list[float] = msgspec.field(default_factory=list)
    unserved: int | None = None
    """Further ones, which want something and have got nothing yet; null: not known."""
    served_ms: float | None = None
    """For how long it has been served here; null: not known."""


class Disconnected(Shape):
    """How many connections ended on each broker; why others gave no answer."""

    brokers: dict[str, int]
    no_answer: dict[str, str]


class TokenWanted(Model):
    """Until when a token is refused, milliseconds since the epoch, and why."""

    until: int | None = None
    note: str = ""


class LimitEndShown(Shape):
    """A limit that ends by itself."""

    of: str
    """The namespace or topic."""
    limit: str
    until: int
    """Milliseconds since the epoch."""
    then: dict[str, Any] | None
    """The limit afterwards, unless somebody changes it before; null: none of its own."""


class SettingShown(Shape):
    """A key of broker.conf at one broker."""

    value: str
    """In force, as broker.conf spells it; `*****` for a secret."""
    origin: SettingOrigin
    """Where it comes from."""
