"""Which connections watch which nodes, and whom an event is sent. Source: ZooKeeper's
`WatchManager` and `DataTree`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from loadmanager.kit.zookeeper.embedded.codes import (
    ErrorCode,
    EventKind,
    RefusedRequestError,
    WatchMode,
)
from loadmanager.kit.zookeeper.embedded.paths import ROOT
from loadmanager.kit.zookeeper.embedded.transactions import NodeEvent

COST_BYTES_MAX = 128 << 20
"""About how much memory all watches may take."""
WATCH_COST_BYTES = 300
"""About what a watch takes in memory beside its path."""

Watcher = Hashable


@dataclass(frozen=True, slots=True, eq=False)
class WatchersAlike:
    """Those who watched a path when an event came. The same object as long as they are the same,
    so that thousands of events cost no more than one.
    """

    watchers: tuple[Watcher, ...]


@dataclass(frozen=True, slots=True)
class _PathWatchers:
    """All watchers of a path, and those of two modes among them."""

    all: WatchersAlike
    once: tuple[Watcher, ...]
    recursive: WatchersAlike | None


class WatchTable:
    """Watches of one sort, of data or of children: path → watcher → modes."""

    def __init__(self) -> None:
        self._watchers: dict[str, dict[Watcher, WatchMode]] = {}
        self._paths: dict[Watcher, set[str]] = {}
        self._groups: dict[str, _PathWatchers] = {}
        """Of paths at which nothing has changed since they were looked at."""
        self._recursive = 0
        self.cost = 0

    def __len__(self) -> int:
        return sum(map(len, self._watchers.values()))

    def add(self, path: str, watcher: Watcher, mode: WatchMode) -> None:
        """Watch a path, which need not exist."""
        watchers = self._watchers.setdefault(path, {})
        if watcher not in watchers:
            self.cost += _cost(path)
            self._paths.setdefault(watcher, set()).add(path)
        self._put(path, watcher, watchers.get(watcher, WatchMode(0)) | mode)

    def has(self, path: str, watcher: Watcher, modes: WatchMode) -> bool:
        """True if it watches the path in one of the modes."""
        return bool(self._watchers.get(path, {}).get(watcher, WatchMode(0)) & modes)

    def remove(self, path: str, watcher: Watcher, modes: WatchMode) -> bool:
        """End the watches of these modes; False if there is none."""
        if not self.has(path, watcher, modes):
            return False
        self._put(path, watcher, self._watchers[path][watcher] & ~modes)
        return True

    def forget(self, watcher: Watcher) -> None:
        """End all its watches."""
        for path in list(self._paths.get(watcher, ())):
            self._put(path, watcher, WatchMode(0))

    def trigger(self, path: str) -> list[WatchersAlike]:
        """Those whom an event of a path concerns; what lasts for one event ends."""
        concerned = []
        if path in self._watchers:
            here = self._group(path)
            concerned.append(here.all)
            for watcher in here.once:
                self._put(path, watcher, self._watchers[path][watcher] & ~WatchMode.ONCE)
        if self._recursive:
            concerned += (
                whole
                for above in _above(path)
                if above in self._watchers and (whole := self._group(above).recursive)
            )
        return concerned

    def _group(self, path: str) -> _PathWatchers:
        group = self._groups.get(path)
        if group is None:
            modes = self._watchers[path]
            recursive = tuple(each for each in modes if modes[each] & WatchMode.RECURSIVE)
            group = self._groups[path] = _PathWatchers(
                WatchersAlike(tuple(modes)),
                tuple(each for each in modes if modes[each] & WatchMode.ONCE),
                WatchersAlike(recursive) if recursive else None,
            )
        return group

    def _put(self, path: str, watcher: Watcher, modes: WatchMode) -> None:
        self._groups.pop(path, None)
        watchers = self._watchers[path]
        before = watchers.get(watcher, WatchMode(0))
        self._recursive += bool(modes & WatchMode.RECURSIVE) - bool(before & WatchMode.RECURSIVE)
        if modes:
            watchers[watcher] = modes
            return
        del watchers[watcher]
        self.cost -= _cost(path)
        self._paths[watcher].discard(path)
        if not self._paths[watcher]:
            del self._paths[watcher]
        if not watchers:
            del self._watchers[path]


class TreeWatches:
    """All watches."""

    def __init__(self) -> None:
        self.data = WatchTable()
        self.children = WatchTable()

    def add(self, table: WatchTable, path: str, watcher: Watcher, mode: WatchMode) -> None:
        """Watch a path. Raises `RefusedRequestError` if there are too many watches."""
        if self.data.cost + self.children.cost + _cost(path) > COST_BYTES_MAX:
            raise RefusedRequestError(ErrorCode.QUOTA_EXCEEDED)
        table.add(path, watcher, mode)

    def add_lasting(self, path: str, watcher: Watcher, mode: WatchMode) -> None:
        """Watch a path, or all that is at and below it, until the watch is removed. Raises
        `RefusedRequestError` if there are too many.
        """
        self.add(self.data, path, watcher, mode)
        if mode is WatchMode.PERSISTENT:
            self.add(self.children, path, watcher, mode)

    def forget(self, watcher: Watcher) -> None:
        """End all watches of a connection."""
        self.data.forget(watcher)
        self.children.forget(watcher)

    def concerned(self, event: NodeEvent) -> list[WatchersAlike]:
        """Those who are sent an event. Whoever is in several groups is sent it once."""
        if event.kind is EventKind.CHILDREN:
            return self.children.trigger(event.path)
        concerned = self.data.trigger(event.path)
        if event.kind is EventKind.DELETED:
            concerned += self.children.trigger(event.path)
        return concerned


def _above(path: str) -> Iterator[str]:
    """The paths of all that a node is below of."""
    while path != ROOT:
        path = path.rpartition(ROOT)[0] or ROOT
        yield path


def _cost(path: str) -> int:
    return WATCH_COST_BYTES + len(path)
