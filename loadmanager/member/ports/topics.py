"""What a member needs of the records of topics."""

from __future__ import annotations

from typing import Protocol

from loadmanager.kit.names import NamespaceName


class TopicNames(Protocol):
    """The names of topics."""

    async def of_namespace(
        self, namespace: NamespaceName, mode: str, served: list[str]
    ) -> list[str]:
        """Full names of a namespace's topics: the recorded topics, and `served` of the caller.

        `mode`: PERSISTENT, NON_PERSISTENT or ALL.
        """
        ...
