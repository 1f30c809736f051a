"""The topics that a broker serves now, by name and by namespace."""

from __future__ import annotations

from collections.abc import Iterator

from loadmanager.broker.protocol.hosted import HostedTopic
from loadmanager.kit.names import NamespaceName


class OpenTopics(dict[str, HostedTopic]):
    """Full name → open topic. Change it with `[]`, `del` and `clear` only."""

    def __init__(self) -> None:
        super().__init__()
        self._namespaces: dict[NamespaceName, dict[str, HostedTopic]] = {}

    def __setitem__(self, name: str, hosted: HostedTopic) -> None:
        super().__setitem__(name, hosted)
        self._namespaces.setdefault(hosted.name.namespace, {})[name] = hosted

    def __delitem__(self, name: str) -> None:
        namespace = self[name].name.namespace
        super().__delitem__(name)
        siblings = self._namespaces[namespace]
        del siblings[name]
        if not siblings:
            del self._namespaces[namespace]

    def clear(self) -> None:
        super().clear()
        self._namespaces.clear()

    def below(self, tenant: str, namespace: str) -> Iterator[HostedTopic]:
        """The topics of a namespace; of all of its tenant if it is empty, or of all tenants.

        Takes time in their number, and for a tenant in the number of namespaces with open topics.
        The topics may change meanwhile.
        """
        if namespace:
            chosen = [NamespaceName(tenant, namespace)]
        else:
            chosen = [name for name in self._namespaces if tenant in ("", name.tenant)]
        for name in chosen:
            yield from list(self._namespaces.get(name, {}).values())
