"""Records which clients come, leave and are refused, and whose connections limits hold, so that the
story of one can be told. When many come at once, some are counted only: other records must not
suffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec import structs

from loadmanager.broker.protocol.admission import Comer
from loadmanager.broker.protocol.hosted import AttachedConsumer, AttachedProducer
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import COMMAND_TYPES
from loadmanager.engine.history.clients import HELD_S, REFUSED_AGAIN_S, ClientStep
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.clock import Clock
from loadmanager.kit.history.port import History
from loadmanager.limits.held_connection import HeldConnection

AT_ONCE = 1_000
"""Records that may come at once."""
EVERY_S = 4.0
"""After these, one is recorded in this time."""
REFUSALS_AT_ONCE, REFUSALS_EVERY_S = 100, 300.0
"""So many new refusals are recorded in this time, whatever the other records are; as many that came
again, and as many connections that limits begin to hold.
"""
FORGOTTEN_S = 600
"""A refusal that has not come again for so long is a new one when it does."""
REFUSALS_MAX = 10_000
REASONS_MAX = 8
"""Reasons that are recorded of one refusal; what has others, too, is counted only."""
LOOKUP = COMMAND_TYPES["lookup"]
TEXT_MAX = 500
"""Characters that are recorded of what a client says."""


@dataclass(slots=True)
class Repeats:
    """A refusal that was recorded, and what came of it since."""

    step: ClientStep
    """As it was recorded."""
    recorded_s: float
    last_s: float
    client: str
    """Who was refused last."""
    times: int = 0
    """How often since the record."""


class _Allowance:
    """Lets so many refusals be recorded in a time."""

    def __init__(self) -> None:
        self._used, self._since_s = 0, float("-inf")

    def take(self, now_s: float) -> bool:
        """Whether one more may be recorded."""
        if now_s >= self._since_s + REFUSALS_EVERY_S:
            self._used, self._since_s = 0, now_s
        if self._used >= REFUSALS_AT_ONCE:
            return False
        self._used += 1
        return True


class ClientLog:
    """Records the clients of one broker."""

    broker: str = ""
    history: History | None = None
    """None: nothing is recorded."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._room, self._room_s = float(AT_ONCE), clock.monotonic_s()
        self._new, self._repeated, self._holds = _Allowance(), _Allowance(), _Allowance()
        self._holding: dict[str, ClientStep] = {}
        """Connection → that limits hold it, as it was seen last; of those that are recorded."""
        self._unrecorded = 0
        self._refused: dict[tuple[object, ...], dict[str, Repeats]] = {}
        """Address, code and what was wanted → reason → what came of it."""

    def attached(self, client: AttachedProducer | AttachedConsumer) -> None:
        """A producer or consumer is served now."""
        if self.history is not None and self._has_room(self._clock.monotonic_s()):
            self._record(self._step("attached", client))

    def left(
        self,
        client: AttachedProducer | AttachedConsumer,
        why: str,
        destination: BrokerAddress | None = None,
    ) -> None:
        """A producer or consumer is gone. A producer that waits to be exclusive was not served, and
        goes on waiting elsewhere, as far as anybody knows.
        """
        if isinstance(client, AttachedProducer) and not client.core.ready:
            return
        if self.history is None or not self._has_room(self._clock.monotonic_s()):
            return
        step = self._step("left", client)
        step.reason = why[:TEXT_MAX]
        step.destination = None if destination is None else destination.broker_id
        step.attached_ms = max(0, step.ts - client.since_ms)
        if (fenced_ns := client.hosted.fenced_ns) is not None:
            step.fenced_ms = (self._clock.monotonic_ns() - fenced_ns) // 1_000_000
        if isinstance(client, AttachedProducer):
            step.messages = client.core.messages_in
        else:
            step.messages = client.core.delivered_messages
        self._record(step)

    def refused(
        self,
        connection: Comer,
        code: pb.ServerError.ValueType,
        text: str,
        command: pb.BaseCommand | None = None,
    ) -> None:
        """A client was refused something; without a command, its connection."""
        if self.history is None:
            return
        now_s = self._clock.monotonic_s()
        # Floods come here: what a lookup costs is counted in calls.
        if command is not None and command.type == LOOKUP:
            wanted = "lookup", "", command.lookup.topic[:TEXT_MAX], ""
        else:
            wanted = _wanted(command)
        who = (connection.address, code, wanted)
        reasons, reason = self._refused.get(who), text[:TEXT_MAX]
        before = None if reasons is None else reasons.get(reason)
        if before is not None:
            before.times += 1
            before.last_s, before.client = now_s, connection.peer
            return
        too_many = reasons is not None and len(reasons) >= REASONS_MAX
        if too_many or not self._new.take(now_s):
            self._unrecorded += 1
            return
        if reasons is None:
            if len(self._refused) >= REFUSALS_MAX:
                del self._refused[next(iter(self._refused))]
            reasons = self._refused[who] = {}
        what, name, topic, subscription = wanted
        step = ClientStep(
            ts=self._clock.now_ms(),
            broker=self.broker,
            event="refused",
            client=connection.peer,
            address=connection.address,
            roles=[role for role in connection.roles if role],
            what=what,
            name=name,
            topic=topic or None,
            subscription=subscription or None,
            reason=reason,
            code=pb.ServerError.Name(code),
        )
        reasons[reason] = Repeats(step, now_s, now_s, connection.peer)
        self._record(step)

    def unrecorded(self) -> list[ClientStep]:
        """Refusals that came again since they were recorded, as they will be."""
        return [self._again(it) for it in self._repeats() if it.times]

    def record_repeats(self) -> None:
        """Record refusals that came again, and forget those that do not: called from time to time.
        Those that were recorded longest ago are the first.
        """
        now_s = self._clock.monotonic_s()
        again = [it for it in self._repeats() if it.times]
        for it in sorted(again, key=lambda each: each.recorded_s):
            if now_s < it.recorded_s + REFUSED_AGAIN_S or not self._repeated.take(now_s):
                break
            self._record(self._again(it))
            it.times, it.recorded_s = 0, now_s
        for who, reasons in list(self._refused.items()):
            for reason, it in list(reasons.items()):
                if not it.times and now_s >= it.last_s + FORGOTTEN_S:
                    del reasons[reason]
            if not reasons:
                del self._refused[who]

    def record_held(self, connections: Sequence[HeldConnection]) -> None:
        """Record the connections that limits hold for some seconds by now, and those of before that
        they hold no more: called from time to time.
        """
        if self.history is None:
            return
        now_ms, now_s, before = self._clock.now_ms(), self._clock.monotonic_s(), self._holding
        self._holding = {}
        for it in connections:
            if it.held_ago_ms < 1_000 * HELD_S:
                continue
            step = self._held_step(it, now_ms)
            if it.client not in before:
                if not self._holds.take(now_s):
                    continue  # at the next look, if it is held then
                self._record(step)
            self._holding[it.client] = step
        for client, last in before.items():
            if client not in self._holding:
                self._record(structs.replace(last, event="freed"))

    def _held_step(self, connection: HeldConnection, now_ms: int) -> ClientStep:
        return ClientStep(
            ts=now_ms,
            broker=self.broker,
            event="held",
            client=connection.client,
            address=connection.client.rpartition(":")[0],
            what="connection",
            reason=" and ".join(connection.limits)[:TEXT_MAX],
            held_ms=round(connection.held_ago_ms),
        )

    def _repeats(self) -> Iterator[Repeats]:
        for reasons in self._refused.values():
            yield from reasons.values()

    def _again(self, it: Repeats) -> ClientStep:
        ago_ms = round(1000 * (self._clock.monotonic_s() - it.last_s))
        ts = self._clock.now_ms() - ago_ms
        return structs.replace(it.step, ts=ts, client=it.client, times=it.times)

    def _step(self, event: str, client: AttachedProducer | AttachedConsumer) -> ClientStep:
        connection, within = client.connection, None
        if isinstance(client, AttachedConsumer):
            within = client.subscription.name
        return ClientStep(
            ts=self._clock.now_ms(),
            broker=self.broker,
            event=event,
            client=connection.peer,
            address=connection.address,
            roles=[role for role in connection.roles if role],
            what="consumer" if within else "producer",
            name=client.core.name,
            topic=str(client.hosted.name),
            bundle=client.hosted.bundle,
            subscription=within,
        )

    def _has_room(self, now_s: float) -> bool:
        self._room = min(AT_ONCE, self._room + (now_s - self._room_s) / EVERY_S)
        self._room_s = now_s
        if self._room < 1:
            self._unrecorded += 1
            return False
        self._room -= 1
        return True

    def _record(self, step: ClientStep) -> None:
        assert self.history is not None
        if self._unrecorded:
            self.history.append(
                ClientStep(
                    ts=step.ts, broker=self.broker, event="unrecorded", times=self._unrecorded
                )
            )
            self._unrecorded = 0
        self.history.append(step)


def _wanted(command: pb.BaseCommand | None) -> tuple[str, str, str, str]:
    """What a command is for: the kind of client, its name, its topic and its subscription."""
    if command is None:
        return "connection", "", "", ""
    if command.HasField("producer"):
        asked = command.producer
        return "producer", asked.producer_name[:TEXT_MAX], asked.topic[:TEXT_MAX], ""
    if command.HasField("subscribe"):
        wanted = command.subscribe
        names = (wanted.consumer_name[:TEXT_MAX], wanted.topic[:TEXT_MAX])
        return "consumer", *names, wanted.subscription[:TEXT_MAX]
    for field in ("partition_metadata", "get_schema", "get_or_create_schema"):
        if command.HasField(field):
            return "lookup", "", getattr(command, field).topic[:TEXT_MAX], ""
    return "lookup", "", "", ""
