"""A new leader moves nothing before it knows the load: the reports of a quorum, since it leads."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass

from loadmanager.engine.moves.settings import MoveSettings
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.kit.reason import Reason
from loadmanager.leader.ports.fleet import LiveBrokers


@dataclass(slots=True, kw_only=True)
class WarmUp:
    """The wait until enough brokers have reported since the term began; once over, it
    stays over.
    """

    brokers: LiveBrokers
    heard: Callable[[], Set[str]]
    """Brokers that have reported since the term began."""
    settings: Live[MoveSettings]
    clock: Clock
    began_s: float
    over: bool = False

    def reason(self) -> Reason | None:
        """Why nothing is moved yet; None once a quorum has reported, or the time is up."""
        if self.over:
            return None
        registered = self.brokers.registered
        quorum = len(registered) // 2 + 1
        fresh = len(registered & self.heard())
        left_s = self.began_s + self.settings.value.warm_up_s - self.clock.monotonic_s()
        if fresh >= quorum or left_s <= 0:
            self.over = True
            return None
        return Reason(
            "WarmUp",
            f"{fresh} of {len(registered)} brokers have reported since the term began; moves begin "
            f"with {quorum}, or in {left_s:.0f} s",
        )
