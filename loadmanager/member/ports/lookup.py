"""The answer of a lookup."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.kit.addresses import BrokerAddress


@dataclass(frozen=True, slots=True)
class Lookup:
    """The answer of a lookup: the owner, or with `redirect` the broker to ask next.

    In that case the client passes `authoritative` on to that broker.
    """

    broker: BrokerAddress
    redirect: bool = False
    authoritative: bool = False
