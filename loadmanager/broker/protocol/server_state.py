"""What all that serves clients has in common: clock, limits, memory, storage, and what is open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from loadmanager.broker.messaging.memory import TopicMemory
from loadmanager.broker.messaging.rules import MessageRules
from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.broker.ports.directory import Directory
from loadmanager.broker.protocol.client_log import ClientLog
from loadmanager.broker.protocol.dispatcher import Dispatcher
from loadmanager.broker.protocol.failures import Failures
from loadmanager.broker.protocol.hosted import OpenBundle
from loadmanager.broker.protocol.open_topics import OpenTopics
from loadmanager.broker.protocol.resumer import Resumer
from loadmanager.broker.protocol.storing import Storing
from loadmanager.broker.protocol.turns import LoopTurns
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.kit.units import MIB
from loadmanager.limits.broker import BrokerThrottling


@dataclass(eq=False, kw_only=True)
class ServerState:
    """Bundles and topics that are open, and what works on them.

    `connections_cap`: how many connections the process can serve at most, 0 for any number.
    """

    settings: Live[MessagingSettings]
    clock: Clock
    spawn: Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]]
    throttling: BrokerThrottling
    connections_cap: int = 0
    directory: Directory = field(init=False)
    """What the member answers. Set before the first connection (`BrokerServer.begin`)."""

    def __post_init__(self) -> None:
        settings, throttling, clock = self.settings, self.throttling, self.clock
        self.failures = Failures()
        self.clients = ClientLog(clock)
        self.resumer = Resumer(throttling, clock, self.failures.report)
        self.dispatcher = Dispatcher(
            settings,
            throttling,
            self.resumer,
            clock=clock,
            failed=self.failures.report,
            may_serve=lambda: self.may_deliver(clock.monotonic_s()),
        )
        self.turns = LoopTurns(settings, clock, self.failures.report)
        self.rules = MessageRules(settings)
        self.memory = TopicMemory(settings.value.topics_memory_mb * MIB)
        self.storing: Storing | None = None
        """Opens stored topics; None: topics are in memory."""
        self.open_bundles: dict[str, OpenBundle] = {}
        self.open_topics = OpenTopics()
        self._apply(settings.value)
        settings.listen(self._apply)

    def _apply(self, settings: MessagingSettings) -> None:
        limit_bytes = settings.publish_buffer_mb * MIB
        self.throttling.publish_buffer.set_limit(limit_bytes, self.clock.monotonic_ns())
        self.resumer.settle()
        self.memory.set_limits(settings.topics_memory_mb * MIB, settings.topics_max)

    def may_serve(self, now_s: float) -> bool:
        """True if the session is proven. If it is not, all that has no fence of its own is fenced
        before this returns; True if something is left.
        """
        if self.directory.lease.held(now_s):
            return True
        self.directory.fence()
        return bool(self.open_bundles)

    def may_deliver(self, now_s: float) -> bool:
        """True if the session is proven, or the storage has proven the topics that are left."""
        if not self.may_serve(now_s):
            return False
        leased = self.directory.lease.held(now_s)
        return leased or (self.storing is not None and self.storing.proof.holds(now_s))
