"""Which tenants and namespaces exist, as complete lists: a name that is not in its list does not
exist, so that nobody asks the store for it.

To remember each absent name would not do: whoever asks for a new one each time would make the
broker ask the store each time. The lists are bounded by what exists. A watch on `paths.ADMIN`
changes them.
"""

from __future__ import annotations

from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.once import Once
from loadmanager.kit.metadata.store import Change, ChangeKind, Store
from loadmanager.kit.names import NamespaceName

_TENANTS = paths.POLICIES


class KnownNames:
    """The names below `/admin/policies`, as far as they were read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lists: dict[str, set[str]] = {}
        """Path → all names directly below it: of the tenants, and of a tenant's namespaces."""
        self._once: Once[str, None] = Once()
        self._generation = 0

    def lacks_tenant(self, tenant: str) -> bool:
        """True if it is known that a tenant does not exist."""
        tenants = self._lists.get(_TENANTS)
        return tenants is not None and tenant not in tenants

    def lacks(self, namespace: NamespaceName) -> bool:
        """True if it is known that a namespace, or its tenant, does not exist."""
        names = self._lists.get(f"{_TENANTS}/{namespace.tenant}")
        if names is None:
            return self.lacks_tenant(namespace.tenant)
        return namespace.name not in names

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
