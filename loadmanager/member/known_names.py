"""Which tenants and namespaces exist, as complete lists: most questions for a name that is not in
its list are answered without the store.

To remember each absent name would not do: whoever asks for a new one each time would make the
broker ask the store each time. The lists are bounded by what exists. A watch on `paths.ADMIN`
changes them, a moment after another broker, or this one, created or deleted a name: so some
questions in a second, and no more, go to the store although the list lacks their name.
"""

from __future__ import annotations

from collections.abc import Callable

from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.once import Once
from loadmanager.kit.metadata.store import Change, ChangeKind, Store
from loadmanager.kit.names import NamespaceName

LOOKS_PER_S = 10
"""Questions for names that are in no list, of which the store decides; one request asks a few."""
_TENANTS = paths.POLICIES


class KnownNames:
    """The names below `/admin/policies`, as far as they were read."""

    def __init__(self, store: Store, now_s: Callable[[], float]) -> None:
        self._store = store
        self._now_s = now_s
        self._lists: dict[str, set[str]] = {}
        """Path → all names directly below it: of the tenants, and of a tenant's namespaces."""
        self._once: Once[str, None] = Once()
        self._generation = 0
        self._second_s, self._looks = 0.0, 0
        """When the present second began, and the looks in it."""

    def lacks_tenant(self, tenant: str) -> bool:
        """True if a tenant does not exist, by its list. Takes one of the looks of this second, if
        any is left: then it is False, so that the caller asks the store.
        """
        tenants = self._lists.get(_TENANTS)
        return tenants is not None and tenant not in tenants and not self._look()

    def lacks(self, namespace: NamespaceName) -> bool:
        """The same of a namespace, or its tenant."""
        names, name = self._lists.get(f"{_TENANTS}/{namespace.tenant}"), namespace.name
        if names is None:
            names, name = self._lists.get(_TENANTS), namespace.tenant
        return names is not None and name not in names and not self._look()

    def _look(self) -> bool:
        now_s = self._now_s()
        if now_s - self._second_s >= 1:
            self._second_s, self._looks = now_s, 0
        self._looks += 1
        return self._looks <= LOOKS_PER_S

    async def learn(self, tenant: str) -> None:
        """Read the lists of tenants and of this tenant's namespaces, unless they are known."""
        if _TENANTS not in self._lists:
            await self._once.run(_TENANTS, lambda: self._read(_TENANTS))
        path = f"{_TENANTS}/{tenant}"
        if path not in self._lists and tenant in self._lists.get(_TENANTS, ()):
            await self._once.run(path, lambda: self._read(path))

    async def _read(self, path: str) -> None:
        generation = self._generation
        names = await self._store.children(path)
        if generation == self._generation:
            self._lists[path] = set(names)

    def on_change(self, change: Change) -> None:
        """Note what a change below /admin concerns."""
        if change.kind is ChangeKind.RESYNC:
            self._generation += 1
            self._lists.clear()
        elif change.path.startswith(f"{_TENANTS}/"):
            self._generation += 1
            if change.kind is ChangeKind.DELETED:
                self._gone(change.path)
            else:
                self._there(change.path)

    def created(self, tenant: str, name: str = "") -> None:
        """This broker created a tenant, or a namespace: its watch tells so, too, but later."""
        self._generation += 1
        self._there(f"{_TENANTS}/{tenant}")
        if name:
            self._there(f"{_TENANTS}/{tenant}/{name}")

    def _there(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        if parent in self._lists:
            self._lists[parent].add(name)

    def _gone(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        if parent in self._lists:
            self._lists[parent].discard(name)
        self._lists.pop(path, None)
