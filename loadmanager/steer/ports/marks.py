"""Marks that the daemons of a cluster leave there, so that they notice each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Marks(Protocol):
    """Small texts by key, stored with the cluster. All methods may raise `OperationalError`."""

    async def read(self) -> Mapping[str, str]:
        """All of them."""
        ...

    async def write(self, key: str, value: str) -> None:
        """Set one; both have only letters, digits and hyphens."""
        ...

    async def remove(self, key: str) -> None:
        """Remove one."""
        ...
