"""The records of topics that outlive the owner: existence, partitions, durable subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from loadmanager.broker.ports.directory import TopicRecords
from loadmanager.broker.ports.log import LogRecord, Storage
from loadmanager.broker.topics.topic_logs import TopicLogs
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import (
    BadInputError,
    ConflictError,
    CorruptDataError,
    NotFoundError,
    OperationalError,
)
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt, read_object, update, write_object
from loadmanager.kit.metadata.store import Change, ChangeKind, Node, Store, delete_tree
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.kit.tasks import both, for_each
from loadmanager.member.namespaces import Namespaces
from loadmanager.member.settings import BrokerSettings

PARTITIONS_MAX = 10_000
SYSTEM_TENANT = "pulsar"
CACHED_TOPICS_MAX = 200_000
READS_AT_ONCE_MAX = 100

log = get_logger("topics")

_DOMAINS_OF_MODE = {
    "PERSISTENT": ("persistent",),
    "NON_PERSISTENT": ("non-persistent",),
    "ALL": ("persistent", "non-persistent"),
}


class Topics:
    """The catalogue of topics in the metadata store."""

    def __init__(
        self,
        store: Store,
        namespaces: Namespaces,
        settings: Live[BrokerSettings],
        corrupt: Corrupt | None = None,
        storage: Storage | None = None,
    ) -> None:
        """`storage`: where persistent topics are stored; None: in memory."""
        self.check_new: Callable[[str], None] = lambda namespace: None
        """Raises `BadInputError` if a namespace has its share of this broker's topics."""
        self._store = store
        self._corrupt = corrupt or Corrupt()
        self._namespaces = namespaces
        self._settings = settings
        self._partitions: dict[TopicName, int] = {}
        self._generation = 0
        self._creating = asyncio.Lock()
        self.logs = TopicLogs(store)
        self._storage = storage

    def on_change(self, change: Change) -> None:
        """Forget the numbers of partitions if a change below /admin concerns them."""
        if change.kind is ChangeKind.RESYNC or change.path.startswith(
            (paths.PARTITIONED_TOPICS, paths.POLICIES)
        ):
            self._generation += 1
            self._partitions.clear()

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        """Number of partitions; see `broker.ports.directory.Directory.partitions`."""
        creates = create and self._settings.value.auto_create_topics
        cached = self._partitions.get(topic)
        if cached is not None and (cached or creates):  # 0: it may not exist, or not any more
            return cached
        generation = self._generation
        await self._namespaces.bundles(topic.namespace)
        path = paths.partitioned_topic(topic)
        node, exists = await self._store.get_many([path, paths.managed_ledger(topic)])
        count = self._count(node, path)
        if node is None and exists is None and not creates:
            raise NotFoundError(f"Topic {topic} does not exist")
        if generation == self._generation:
            if len(self._partitions) >= CACHED_TOPICS_MAX:
                self._partitions.clear()
            self._partitions[topic] = count
        return count

    def _count(self, node: Node | None, path: str) -> int:
        """Number of partitions in a record; 0 without a record. Raises `CorruptDataError`."""
        with self._corrupt.counted("topic", path):
            count = read_object(node.value, path).get("partitions", 0) if node else 0
            if not isinstance(count, int) or not 0 <= count <= PARTITIONS_MAX:
                raise BadInputError(
                    f"partitions is {str(count)[:40]}: 0 to {PARTITIONS_MAX} is possible"
                )
            return count

    async def create_partitioned(self, topic: TopicName, partitions: int) -> None:
        """Record a partitioned topic. Raises `BadInputError`, `ConflictError` (exists)."""
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise BadInputError(f"a topic has 1 to {PARTITIONS_MAX} partitions, not {partitions}")
        if topic.partition >= 0:
            raise BadInputError(f"{topic} is the name of a partition, not of a topic")
        names = [str(topic.partition_name(index)) for index in range(partitions)]
        TopicName.parse(names[-1])
        await self._namespaces.bundles(topic.namespace)
        if await self._store.get(paths.managed_ledger(topic)) is not None:
            raise ConflictError("This topic already exists")
        async with self._creating:
            await self._require_room(topic.namespace, names)
            if not await self._store.create(
                paths.partitioned_topic(topic), write_object({"partitions": partitions})
            ):
                raise ConflictError("This topic already exists")
        self._partitions.pop(topic, None)

    async def update_partitioned(self, topic: TopicName, partitions: int) -> None:
        """Add partitions to a partitioned topic; each gets the durable subscriptions of the first
        partition, from its first message on.

        Raises `ConflictError` for a topic without partitions, `BadInputError` for fewer partitions
        than there are, or too many.
        """
        path = paths.partitioned_topic(topic)
        await self._namespaces.bundles(topic.namespace)
        present = self._count(await self._store.get(path), path)
        if present == 0:
            raise ConflictError(f"Topic {topic} is not the partitioned topic.")
        if partitions < present:
            raise BadInputError(
                f"Desired partitions {partitions} can't be less than the current partitions "
                f"{present}."
            )
        if partitions > PARTITIONS_MAX:
            raise BadInputError(
                f"Desired partitions {partitions} can't be greater than the maximum partitions "
                f"per topic {PARTITIONS_MAX}."
            )
        names = [topic.partition_name(index) for index in range(partitions)]
        TopicName.parse(str(names[-1]))
        async with self._creating:
            await self._require_room(topic.namespace, [str(name) for name in names])
            await update(
                self._store,
                path,
                lambda record: {**record, "partitions": max(partitions, record["partitions"])},
            )
        self._partitions.pop(topic, None)
        await self._record(names[present:], await self._subscriptions(names[0]))

    async def create_missed(self, topic: TopicName) -> None:
        """Record the partitions of a topic that were never opened. Raises `NotFoundError`."""
        names = await self.names_of(topic)
        if names == [topic]:
            raise NotFoundError(f"Topic {topic} does not exist")
        await self._record(names, ())

    async def _record(self, topics: list[TopicName], subscriptions: Sequence[str]) -> None:
        async def record(topic: TopicName) -> None:
            await self._store.create(paths.managed_ledger(topic), b"")
            for name in subscriptions:
                await self.record_subscription(topic, name)

        persistent = [topic for topic in topics if topic.persistent]
        await for_each(persistent, record, READS_AT_ONCE_MAX, "record-partitions")

    async def _subscriptions(self, topic: TopicName) -> tuple[str, ...]:
        names = await self._store.children(paths.managed_ledger(topic))
        return tuple(paths.decode(name) for name in names)

    async def exists(self, topic: TopicName) -> bool:
        """True if a topic is recorded: by itself, as partitioned, or as a partition of one that is.

        Non-persistent topics without partitions have no record. Raises `NotFoundError` for a
        missing namespace.
        """
        await self._namespaces.bundles(topic.namespace)
        parent = topic.partitioned_topic
        path = paths.partitioned_topic(parent)
        record, ledger = await self._store.get_many([path, paths.managed_ledger(topic)])
        count = self._count(record, path)
        return ledger is not None or (count > 0 if parent == topic else topic.partition < count)

    async def _require_room(self, namespace: NamespaceName, names: list[str]) -> None:
        """Raise `BadInputError` if `names` would exceed the namespace's maxTopicsPerNamespace.

        Pulsar's own namespaces have no limit. As in Pulsar, brokers that create topics at the same
        moment may exceed the limit together.
        """
        limit = self._settings.value.topics_per_namespace_max
        if limit <= 0 or namespace.tenant == SYSTEM_TENANT:
            return
        present = set(await self.of_namespace(namespace, "PERSISTENT", []))
        if not present.issuperset(names) and len(present.union(names)) > limit:
            raise BadInputError(
                f"Exceed maximum number of topics in namespace: {namespace} may have {limit}"
            )

    async def of_namespace(
        self, namespace: NamespaceName, mode: str, served: list[str]
    ) -> list[str]:
        """Full names of a namespace's topics: the recorded topics, and `served` of the caller.

        Partitions are listed one by one. Raises `BadInputError` for an unknown mode.
        """
        if mode not in _DOMAINS_OF_MODE:
            raise BadInputError(f"mode {mode!r}: PERSISTENT, NON_PERSISTENT or ALL is expected")
        await self._namespaces.bundles(namespace)
        domains, topics = _DOMAINS_OF_MODE[mode], set[str]()
        for domain in domains:
            names = await self._store.children(f"{paths.MANAGED_LEDGERS}/{namespace}/{domain}")
            topics.update(f"{domain}://{namespace}/{paths.decode(name)}" for name in names)
            topics.update(await self._partitions_of(namespace, domain))
        prefixes = tuple(f"{domain}://{namespace}/" for domain in domains)
        topics.update(name for name in served if name.startswith(prefixes))
        return sorted(topics)

    async def _partitions_of(self, namespace: NamespaceName, domain: str) -> list[str]:
        root = f"{paths.PARTITIONED_TOPICS}/{namespace}/{domain}"
        elements = await self._store.children(root)
        nodes = await self._store.get_many([f"{root}/{element}" for element in elements])
        names = []
        for element, node in zip(elements, nodes, strict=True):
            with suppress(CorruptDataError):  # `_count` has logged it
                count = self._count(node, f"{root}/{element}")
                names += [
                    f"{domain}://{namespace}/{paths.decode(element)}-partition-{index}"
                    for index in range(count)
                ]
        return names

    async def opened(self, topic: TopicName) -> TopicRecords:
        """Record that a topic exists; returns what is recorded of it.

        Clients wait for this whenever a bundle moved: everything is read at once, and nothing is
        written for a topic that was open before. Raises `BadInputError` if its namespace is full,
        and for a partition beyond those of its topic.
        """
        if not topic.persistent:
            self.check_new(str(topic.namespace))
            await self._require_partition(topic)
            return TopicRecords()
        (exists, subscriptions), log_record = await both(
            both(self._exists(topic), self._subscriptions(topic)), self._log_record(topic)
        )
        if not exists:
            await self._create(topic)
        return TopicRecords(subscriptions, log_record)

    async def _exists(self, topic: TopicName) -> bool:
        """True if a topic is recorded. Raises `BadInputError` as `_require_partition`."""
        await self._require_partition(topic)
        return await self._store.get(paths.managed_ledger(topic)) is not None

    async def _create(self, topic: TopicName) -> None:
        """Record a topic. Raises `BadInputError` if its namespace is full."""
        self.check_new(str(topic.namespace))
        path = paths.managed_ledger(topic)
        if self._settings.value.topics_per_namespace_max <= 0:
            await self._store.create(path, b"")
            return
        async with self._creating:
            await self._require_room(topic.namespace, [str(topic)])
            await self._store.create(path, b"")

    async def _log_record(self, topic: TopicName) -> LogRecord | None:
        return None if self._storage is None else await self.logs.record(topic)

    async def _require_partition(self, topic: TopicName) -> None:
        """Raise `BadInputError` (Pulsar's words) for a partition that its topic has not.

        A topic may have such a name if the other one is not partitioned.
        """
        parent = topic.partitioned_topic
        if parent == topic or topic.partition < self._partitions.get(parent, 0):
            return
        path = paths.partitioned_topic(parent)  # the number in memory may be older
        count = self._count(await self._store.get(path), path)
        if 0 < count <= topic.partition:
            raise BadInputError(
                f"Illegal topic partition name {topic} with max allowed {count} partitions"
            )

    async def record_subscription(self, topic: TopicName, name: str, cursor: bytes = b"") -> None:
        if topic.persistent:
            await self._store.create(paths.subscription(topic, name), cursor)

    async def forget_subscription(self, topic: TopicName, name: str) -> None:
        """Delete the record of a durable subscription."""
        if topic.persistent:
            await self._store.delete(paths.subscription(topic, name))

    async def epoch(self, topic: TopicName) -> int:
        """The topic epoch: the version of the topic's record. Non-persistent topics have none."""
        node = await self._store.get(paths.managed_ledger(topic)) if topic.persistent else None
        return 0 if node is None else node.version

    async def next_epoch(self, topic: TopicName) -> int:
        return await self._store.put(paths.managed_ledger(topic), b"") if topic.persistent else 0

    async def names_of(self, topic: TopicName) -> list[TopicName]:
        """The partitions of a partitioned topic, else the topic itself."""
        path = paths.partitioned_topic(topic)
        node = await self._store.get(path)
        count = self._count(node, path)
        return [topic.partition_name(index) for index in range(count)] or [topic]

    async def require_unsubscribed(self, topics: list[TopicName]) -> None:
        """Raise `ConflictError` if one of the topics has durable subscriptions."""
        ledgers = [paths.managed_ledger(topic) for topic in topics]
        subscriptions = await for_each(
            ledgers, self._store.children, READS_AT_ONCE_MAX, "subscriptions"
        )
        for topic, names in zip(topics, subscriptions, strict=True):
            if names:
                raise ConflictError(
                    f"Topic {topic} has subscriptions; delete them first, or use force=true"
                )

    async def delete(
        self, topic: TopicName, *, force: bool, close: Callable[[], Awaitable[object]]
    ) -> None:
        """Delete the records of a topic and of its partitions, `close` them where they are open,
        and then delete their files: from then on a client may create the topic again.

        Raises `NotFoundError`, or `ConflictError` with subscriptions unless forced.
        """
        names = await self.names_of(topic)
        ledgers = [paths.managed_ledger(name) for name in names]
        node = await self._store.get(paths.partitioned_topic(topic))
        records = await self._store.get_many(ledgers)
        if node is None and not any(records):
            raise NotFoundError(f"Topic {topic} does not exist")
        if not force:
            await self.require_unsubscribed(names)
        for path, record in zip(ledgers, records, strict=True):
            if record is not None:
                await delete_tree(self._store, path)
        logs = [await self._forget_log(name) for name in names]
        if node is not None:
            await self._store.delete(paths.partitioned_topic(topic))
        if topic.partition < 0:
            await self._store.delete(paths.topic_policies(topic))
            await self._store.delete(paths.schema(topic))
        try:
            await close()
        finally:
            for log_id in logs:
                await self._delete_files(log_id)

    async def _forget_log(self, topic: TopicName) -> int | None:
        return await self.logs.delete(topic) if topic.persistent else None

    async def _delete_files(self, log_id: int | None) -> None:
        if log_id is None:
            return
        try:
            if self._storage is None:
                raise OperationalError("loadManagerStorageDirectory is not set")
            await self._storage.delete(log_id)
        except OperationalError as error:
            folder = f"{log_id:016x}"
            log.warning("the files of a deleted topic are left", folder=folder, error=str(error))

    async def delete_logs(self, namespace: NamespaceName) -> None:
        """Delete what is stored of the topics of a namespace."""
        for name in await self._store.children(f"{paths.LOGS}/{namespace}"):
            topic = TopicName("persistent", namespace, paths.decode(name))
            await self._delete_files(await self._forget_log(topic))

    async def next_ledger_id(self) -> int:
        """A number that increases cluster-wide: the version of one node, plus one."""
        return await self._store.put(paths.LEDGER_COUNTER, b"") + 1
