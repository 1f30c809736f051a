"""Implements `steer.ports.marks.Marks` by properties of Pulsar's system namespace."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from loadmanager.kit.errors import OperationalError
from loadmanager.steer.pulsar.client import PulsarClient

NAMESPACE = "/admin/v2/namespaces/pulsar/system"
"""Every cluster has it: `initialize-cluster-metadata` makes it."""


class AdminMarks:
    """Properties over Pulsar's admin API (2.9 and later)."""

    def __init__(self, client: PulsarClient) -> None:
        self._client = client

    async def read(self) -> Mapping[str, str]:
        """See the port."""
        raw = await self._client.get(f"{NAMESPACE}/properties")
        try:
            return msgspec.json.decode(raw or b"{}", type=dict[str, str])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise OperationalError(f"the properties of {NAMESPACE} are no texts by key") from None

    async def write(self, key: str, value: str) -> None:
        """See the port."""
        await self._client.send("PUT", f"{NAMESPACE}/property/{key}/{value}")

    async def remove(self, key: str) -> None:
        """See the port."""
        await self._client.send("DELETE", f"{NAMESPACE}/property/{key}")
