"""The memory of all open topics of a broker, and the share of each namespace."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

from loadmanager.kit.errors import BadInputError

if TYPE_CHECKING:
    from loadmanager.broker.messaging.log import Entry

ENTRY_OVERHEAD_BYTES = 128
"""Memory of one entry beside its bytes: its objects and its place in the log."""
DELAYED_ENTRIES_MAX = 500_000
DELAYED_SHARE = 10
DELAYED_RESERVED = 1_000
"""How many entries may wait for their time, of all subscriptions together (about 65 MB), and of one
subscription: a tenth of that, and so many even when the others take all the rest. At most so many
are passed over; later entries of a subscription wait, too, then.
"""


SHARE_OF_FREE = 3
"""A namespace may hold so many times what is free, of memory and of topics: three quarters of all
if it is alone, three sevenths each if there are two. So something is left for whoever comes, and
whoever holds most is the first to wait (Choudhury and Hahne's dynamic thresholds for buffers).
"""


class Memory(Protocol):
    """What logs and subscriptions take memory from."""

    def add(self, size_bytes: int) -> None:
        """So many bytes more are held; negative: fewer."""
        ...

    def delay(self, entries: int) -> None:
        """So many entries more wait for their time; negative: fewer."""
        ...

    def delayed_full(self, entries: int) -> bool:
        """True if a subscription that already holds this many entries may hold no more."""
        ...

    def open(self, topics: int) -> None:
        """So many topics more are open; negative: fewer."""
        ...

    @property
    def full(self) -> bool:
        """True if nothing more may be stored."""
        ...

    @property
    def refusal(self) -> str:
        """Why not."""
        ...


@dataclass(slots=True)
class TopicMemory:
    """The memory of all topics. Running sums, so that a publish need not add up topics."""

    limit_bytes: int
    used_bytes: int = 0
    topics_max: int = 0
    """How many topics may be open when another one is created; 0: any number."""
    topics: int = 0
    delayed_entries: int = 0
    delayed_entries_max: int = DELAYED_ENTRIES_MAX
    delayed_reserved: int = DELAYED_RESERVED
    _parts: WeakValueDictionary[str, NamespaceMemory] = field(default_factory=WeakValueDictionary)

    def set_limits(self, limit_bytes: int, topics_max: int) -> None:
        self.limit_bytes, self.topics_max = limit_bytes, topics_max

    def part(self, namespace: str) -> NamespaceMemory:
        """What the topics of a namespace hold."""
        part = self._parts.get(namespace)
        if part is None:
            part = self._parts[namespace] = NamespaceMemory(namespace, self)
        return part

    def check_new_topic(self, namespace: str) -> None:
        """Raise `BadInputError` if the namespace has its share of topics: a new one is not made."""
        part, most = self.part(namespace), self.topics_max
        if most > 0 and part.topics >= SHARE_OF_FREE * (most - self.topics):
            raise BadInputError(
                f"Exceed maximum number of topics in namespace: {namespace} has {part.topics} open "
                f"topics here, {SHARE_OF_FREE} times what is left for others of "
                "loadManagerMaxTopicsPerBroker"
            )

    def add(self, size_bytes: int) -> None:
        self.used_bytes += size_bytes

    def open(self, topics: int) -> None:
        self.topics += topics

    def delay(self, entries: int) -> None:
        self.delayed_entries += entries

    def delayed_full(self, entries: int) -> bool:
        if entries < self.delayed_reserved:
            return False
        share = self.delayed_entries_max // DELAYED_SHARE
        return entries >= share or self.delayed_entries >= self.delayed_entries_max

    @property
    def full(self) -> bool:
        return self.used_bytes >= self.limit_bytes

    @property
    def refusal(self) -> str:
        return (
            f"the topics of this broker hold {self.limit_bytes} bytes, all that "
            "topicsMemoryLimitMB allows"
        )


class NamespaceMemory:
    """The memory of the topics of one namespace, a part of `pot`."""

    __slots__ = ("__weakref__", "_namespace", "pot", "topics", "used_bytes")

    def __init__(self, namespace: str, pot: TopicMemory) -> None:
        self._namespace = namespace
        self.pot = pot
        self.used_bytes = self.topics = 0

    def add(self, size_bytes: int) -> None:
        self.used_bytes += size_bytes
        self.pot.used_bytes += size_bytes

    def open(self, topics: int) -> None:
        self.topics += topics
        self.pot.topics += topics

    def delay(self, entries: int) -> None:
        self.pot.delayed_entries += entries

    def delayed_full(self, entries: int) -> bool:
        return self.pot.delayed_full(entries)

    @property
    def full(self) -> bool:
        pot = self.pot
        return self.used_bytes >= SHARE_OF_FREE * (pot.limit_bytes - pot.used_bytes)

    @property
    def refusal(self) -> str:
        if self.pot.full:
            return self.pot.refusal
        return (
            f"the topics of namespace {self._namespace} hold {self.used_bytes} bytes of this "
            f"broker's memory, {SHARE_OF_FREE} times what is left for others of "
            "topicsMemoryLimitMB"
        )


class EntryCache:
    """Entries of durable topics that were written or read last, at most `limit_bytes` of them."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._entries: OrderedDict[tuple[int, int], Entry] = OrderedDict()

    def put(self, key: tuple[int, int], entry: Entry) -> None:
        """Keep an entry; the oldest make room. The newest is always kept."""
        size = len(entry.tail) + ENTRY_OVERHEAD_BYTES
        replaced = self._entries.pop(key, None)
        if replaced is not None:
            self.used_bytes -= len(replaced.tail) + ENTRY_OVERHEAD_BYTES
        self._entries[key] = entry
        self.used_bytes += size
        while self.used_bytes > self.limit_bytes and len(self._entries) > 1:
            _, oldest = self._entries.popitem(last=False)
            self.used_bytes -= len(oldest.tail) + ENTRY_OVERHEAD_BYTES

    def get(self, key: tuple[int, int]) -> Entry | None:
        """An entry, if it is here."""
        return self._entries.get(key)
