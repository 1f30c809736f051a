"""A cluster that the daemon watches, as its HTTP API shows it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from msgspec import convert, structs

from loadmanager.kit.addresses import BrokerAddress
from loadmanager.steer.documents import AdviceShown, FleetShown, Mode
from loadmanager.steer.settings_file import ClusterSettings
from loadmanager.steer.snapshot_line import snapshot_line
from loadmanager.steer.work import FleetWork


@dataclass(frozen=True, slots=True)
class WatchedCluster:
    """Implements `steer.http.fleet_routes.Watched`."""

    settings: ClusterSettings
    work: FleetWork
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A snapshot reads the boundaries of every namespace from the cluster."""

    def picture(self) -> FleetShown:
        """What the daemon last read of it, and what keeps the daemon from acting."""
        pause, hold = self.work.moves.cluster.wishes.pause(), self.work.hold.shown_reason()
        return FleetShown(
            **structs.asdict(self.work.picture.shown()),
            name=self.settings.name,
            mode=convert(self.settings.fleet.mode, Mode),
            held=None if hold is None else str(hold),
            held_code=None if hold is None else hold.code,
            paused_until=None if pause is None else pause.until_ms,
            decides_by=dict(self.settings.decides_by),
            canary=None if self.work.canary is None else self.work.canary.shown(),
            cost=self.work.watching.reader.cost,
        )

    def leader(self) -> BrokerAddress | None:
        """The broker that leads it; None: it is not known, or does not answer."""
        return self.work.picture.address(self.work.picture.leader or "")

    def advice(self) -> AdviceShown:
        """The moves and splits that the daemon would make."""
        return self.work.advice.shown(self.work.hold.shown_reason())

    async def snapshot(self) -> dict[str, Any]:
        """Its line for `decide`, as it is now."""
        async with self.one_at_a_time:
            return await snapshot_line(self.work.picture, self.work.watching.reader)
