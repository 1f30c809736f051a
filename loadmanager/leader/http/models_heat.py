"""The shapes of heat and of who is throttled, as the OpenAPI document has them."""

from __future__ import annotations

from typing import Literal

from loadmanager.kit.http.model import Model


class HeatSeries(Model):
    """A bundle: bytes/s in each sample, null where it was not among the hottest or not measured
    yet; `owners` has the number of the first sample of each owner.
    """

    bundle: str
    owner: str | None
    rate: float | None
    throughput: list[int | None]
    owners: list[tuple[int, str]]
    exists: bool
    """False: it was split, merged or unloaded."""


class HeatShown(Model):
    """The hottest bundles over time, in order of name; `kept`: each sample has so many."""

    interval_seconds: float
    times: list[int]
    total: int
    """Bundles that were reported last."""
    kept: int
    bundles: list[HeatSeries]


class WaiterShown(Model):
    """A producer or a subscription that a limit held; `waits`: it does so now."""

    kind: Literal["producer", "subscription"]
    topic: str
    name: str
    client: str | None
    waits: bool
    held_ago_ms: float


class HoldingLimit(Model):
    """A limit that held somebody. Rates are per second, −1 where it has none."""

    name: str
    level: str
    configured_messages_per_s: float
    configured_bytes_per_s: float
    delivered_messages_per_s: float
    delivered_bytes_per_s: float
    window_s: float
    error: float | None
    queue_length: int
    next_ms: float
    messages: int
    size_bytes: int
    held: int
    waited_ms: float
    wakeups: int
    forgiven_tokens: int
    topics: list[str]
    waiters: list[WaiterShown]
    waiters_total: int


class BrokerHolds(Model):
    """A broker's limits that held somebody; `causes`: connections that each cause holds now."""

    paused_connections: int
    causes: dict[str, int]
    limits: list[HoldingLimit]
    limits_total: int


class ThrottledShown(Model):
    """The brokers that held somebody; why others gave no answer, and how many were not asked."""

    brokers: dict[str, BrokerHolds]
    not_asked: int
    no_answer: dict[str, str]
