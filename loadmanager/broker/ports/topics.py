"""The questions and orders of operators to a host of Pulsar's topics.

Only the owner of a topic's bundle answers. Coroutines open the topic if need be, so that figures
are those of the moment; the caller checks before that the topic exists. They raise
`OperationalError` when the bundle is not served here, and those that name a subscription raise
`NotFoundError` when the topic has no such subscription.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec

from loadmanager.kit.model import Shape
from loadmanager.kit.names import TopicName

Document = dict[str, Any]
ClientKind = Literal["producer", "consumer", "subscription"]


class ClientFound(Shape):
    """A producer, a consumer, or a subscription that has its own name."""

    kind: ClientKind
    name: str
    topic: str
    bundle: str
    broker: str
    subscription: str | None
    """Of a consumer."""
    client: str | None
    """Address and port of its connection; null: a subscription."""
    roles: list[str]
    since: int | None
    """When it was attached, in ms since the epoch."""
    rate: float | None = None
    """Messages/s that it published, or that were delivered to it, in the last stats period; null: a
    subscription.
    """
    throughput: float | None = None
    """The same in bytes/s."""
    held_by: list[str] = msgspec.field(default_factory=list)
    """What keeps the broker from reading its connection now."""
    held_for: list[str] = msgspec.field(default_factory=list)
    """The topics of this connection at whose limits its producers wait: not only its own."""
    held_since: int | None = None
    """When limits began to hold its connection, now or again and again, in ms since the epoch."""


class TopicFound(Shape):
    """An open topic; rates are messages/s of the last stats period."""

    topic: str
    bundle: str
    broker: str
    producers: int
    consumers: int
    rate_in: float
    rate_out: float
    published: int | None = None
    """When its last message came, ms since the epoch; null: none did since its broker opened it,
    nor is one known of before.
    """


class ClientsFound(Shape):
    """Those whose name, address or role has the text in it."""

    clients: list[ClientFound] = msgspec.field(default_factory=list)
    total: int = 0
    """How many there are."""
    topics: list[TopicFound] = msgspec.field(default_factory=list)
    """Open topics whose name has the text in it."""
    topics_total: int = 0
    all_searched: bool = True
    """False: a broker has more clients than it looks at."""
    not_asked: int = 0
    """Brokers beyond those that are asked at once."""
    no_answer: dict[str, str] = msgspec.field(default_factory=dict)
    """Broker → why it gave none."""


def topic_rank(topic: str, wanted: str) -> bool | None:
    """False, which comes first, for a topic of exactly this name, with or without all before it;
    True if the text is in its name, None if not. `wanted` is in lower case.
    """
    name = topic.casefold()
    _, _, path = name.partition("://")
    if wanted in (name, path, path.rpartition("/")[2]):
        return False
    return True if wanted in (name if "://" in wanted else path) else None


@dataclass(frozen=True, slots=True)
class Position:
    """A message id, or with `time_ms` the first message published at or after that time.

    `excluded`: the position after that message; −1 as `batch_index`: all of its batch.
    """

    ledger_id: int = 0
    entry_id: int = 0
    batch_index: int = -1
    excluded: bool = False
    time_ms: int | None = None


class TopicHost(Protocol):
    """Topics of this broker, as operators see them."""

    def is_open(self, topic: TopicName) -> bool:
        """True if the topic is open here."""
        ...

    async def stats(self, topic: TopicName) -> Document:
        """Pulsar's `TopicStats`."""
        ...

    def open_stats(self) -> Mapping[str, Mapping[str, Document]]:
        """Bundle → open topic → Pulsar's `TopicStats`."""
        ...

    async def unload(self, topic: TopicName) -> None:
        """Close the topic, if it is open: its clients are told, and come back. The messages of a
        topic in memory are forgotten.
        """
        ...

    async def subscriptions(self, topic: TopicName) -> list[str]:
        """The names of the topic's subscriptions."""
        ...

    async def create_subscription(self, topic: TopicName, name: str, position: Position) -> None:
        """Create a durable subscription. Raises `ConflictError` if it exists."""
        ...

    async def delete_subscription(self, topic: TopicName, name: str, *, force: bool) -> None:
        """Delete a subscription. Raises `BadInputError` while it has consumers, unless forced."""
        ...

    async def skip(self, topic: TopicName, name: str, entries: int | None) -> None:
        """Acknowledge the oldest entries of a subscription; None: all of them."""
        ...

    async def expire(self, topic: TopicName, name: str | None, older_s: int) -> None:
        """Have entries published so many seconds ago or earlier count as acknowledged, for
        one subscription or all (None). Raises `ConflictError` if there are none.
        """
        ...

    async def reset(self, topic: TopicName, name: str, position: Position) -> None:
        """Have a subscription go on from another position; its consumers reconnect."""
        ...

    async def find_clients(self, text: str, most: int) -> ClientsFound:
        """Producers, consumers and subscriptions by a part of a name, an address or a role."""
        ...

    async def last_message_id(self, topic: TopicName) -> Document:
        """Pulsar's id of the newest message; entry −1 in an empty topic."""
        ...
