"""Keeps what a leader remembers in the store, for the next leader: the memories of the configured
strategies, the model of what brokers use, and which bundles were moved when. One small
document each; a corrupt one is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding import balanced
from loadmanager.engine.strategies.strategy import Shedder, Strategy
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.store import VALUE_BYTES_MAX, Check, Create, Put, Store
from loadmanager.kit.model import encoded

FORMAT = 1
"""A document of another format is not read; the next save replaces it."""
AGE_MS_MAX = 3_600_000
"""What a leader remembered longer ago says nothing of the load now."""
MOVES_MAX = 5_000
PAUSE_S_MAX = 3_600.0
"""No client waits longer for a move that is made."""

log = get_logger("memories")


class _Memory(msgspec.Struct, rename="camel"):
    """The stored memory of one strategy."""

    format: int
    saved_ms: int
    memory: msgspec.Raw


class _Cycle(msgspec.Struct, rename="camel"):
    """The stored memory of the cycle itself; times are milliseconds since the epoch."""

    format: int
    saved_ms: int
    planned: dict[str, str] = {}
    moved_bundles: dict[str, int] = {}
    moved_brokers: dict[str, int] = {}
    pause_s: float | None = None
    """What a client of the last moves waited; None: not measured."""


@dataclass(slots=True, kw_only=True)
class MemoryKeeper:
    """The memories of one term."""

    store: Store
    checks: Sequence[Check]
    corrupt: Corrupt
    strategies: Live[StrategySettings]
    clock: Clock
    pause_s: float | None = None
    """What a client of the last moves before this term waited, as far as that was restored."""
    _saved: dict[str, bytes] = field(default_factory=dict)
    """Path → what was last written there, but for the time."""

    def _acting(self, view: ClusterView) -> list[Strategy]:
        """The strategies in force; and `BalancedShedder`, which has the model of what brokers use:
        goals and the page go by that in any case.
        """
        acting = registry.acting(self.strategies.value, extensible=view.knows_owners)
        strategies: Iterable[Strategy] = dict.fromkeys([*acting, balanced.SHEDDER])
        return [strategy for strategy in strategies if strategy.stored is not None]

    async def restore(self, view: ClusterView) -> Memories:
        """Read what the leader before remembered; pass its recent moves to the view."""
        memories = Memories()
        if not await self.store.children(paths.MEMORIES):
            return memories
        for strategy in self._acting(view):
            path = _path(strategy)
            if (value := await self._read(path)) is None:
                continue
            with self.corrupt.left_out("memory", path):
                document = msgspec.json.decode(value, type=_Memory)
                if self._counts(document.format, document.saved_ms):
                    memory = msgspec.json.decode(document.memory, type=strategy.stored)
                    memories = memories.remember(strategy, memory)
        value = await self._read(paths.MEMORY_OF_CYCLES)
        if value is not None:
            with self.corrupt.left_out("memory", paths.MEMORY_OF_CYCLES):
                cycle = msgspec.json.decode(value, type=_Cycle)
                pause_s = cycle.pause_s
                if cycle.format == FORMAT and pause_s is not None and 0 < pause_s < PAUSE_S_MAX:
                    self.pause_s = pause_s  # that of another day is better than none
                if self._counts(cycle.format, cycle.saved_ms):
                    now_ms = self.clock.now_ms()
                    view.know_moves(
                        _not_after(now_ms, cycle.moved_bundles),
                        _not_after(now_ms, cycle.moved_brokers),
                    )
                    memories = msgspec.structs.replace(memories, planned=cycle.planned)
        return memories

    async def _read(self, path: str) -> bytes | None:
        node = await self.store.get(path)
        if node is None:
            self.corrupt.mended(path)
        return None if node is None else node.value

    def _counts(self, number: int, saved_ms: int) -> bool:
        return number == FORMAT and self.clock.now_ms() - saved_ms <= AGE_MS_MAX

    async def save(
        self, memories: Memories, view: ClusterView, pause_s: float | None = None
    ) -> None:
        """Store what changed since it was last stored. `pause_s`: see `ClientPauses.of_moves_s`.

        Raises `VersionConflictError` if the term is over.
        """
        now_ms = self.clock.now_ms()
        for strategy in self._acting(view):
            raw = msgspec.Raw(encoded(memories.of(strategy)))
            document = _Memory(FORMAT, now_ms, raw)
            await self._write(_path(strategy), bytes(raw), msgspec.json.encode(document))
        bundles, brokers = view.recent_moves()
        cycle = _Cycle(
            FORMAT, 0, dict(memories.planned), _newest(bundles), _newest(brokers), pause_s
        )
        unchanged = msgspec.json.encode(cycle)
        cycle.saved_ms = now_ms
        await self._write(paths.MEMORY_OF_CYCLES, unchanged, msgspec.json.encode(cycle))

    async def _write(self, path: str, content: bytes, value: bytes) -> None:
        if self._saved.get(path) == content:
            return
        if len(value) > VALUE_BYTES_MAX:
            log.warning("a memory is too large to be stored", path=path, bytes=len(value))
            return
        if path not in self._saved and await self.store.get(path) is None:
            await self.store.create(paths.MEMORIES, b"")  # a transaction makes no parents
            await self.store.commit([*self.checks, Create(path, value)])
        else:
            await self.store.commit([*self.checks, Put(path, value)])
        self._saved[path] = content


def _path(strategy: Strategy) -> str:
    kind = "shedder" if isinstance(strategy, Shedder) else "placement"
    return f"{paths.MEMORIES}/{kind}-{paths.encode(strategy.name)}"


def _newest(times_ms: Mapping[str, int]) -> dict[str, int]:
    if len(times_ms) <= MOVES_MAX:
        return dict(times_ms)
    newest = sorted(times_ms, key=lambda name: (-times_ms[name], name))[:MOVES_MAX]
    return {name: times_ms[name] for name in newest}


def _not_after(now_ms: int, times_ms: Mapping[str, int]) -> dict[str, int]:
    """A clock that was ahead must not keep a bundle where it is for ever."""
    return {name: min(at_ms, now_ms) for name, at_ms in times_ms.items()}
