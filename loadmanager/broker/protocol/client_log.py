"""Records which clients come, leave and are refused, so that the story of one can be told. When
many come at once, some are counted only: other records must not suffer.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from loadmanager.broker.protocol.admission import Comer
from loadmanager.broker.protocol.hosted import AttachedConsumer, AttachedProducer
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import COMMAND_TYPES
from loadmanager.engine.history.clients import REFUSED_AGAIN_S, ClientStep
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.clock import Clock
from loadmanager.kit.history.port import History

AT_ONCE = 1_000
"""Records that may come at once."""
EVERY_S = 4.0
"""After these, one is recorded in this time."""
REFUSALS_AT_ONCE, REFUSALS_EVERY_S = 100, 300.0
"""So many new refusals are recorded in this time, whatever the other records are."""
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


class ClientLog:
    """Records the clients of one broker."""

    broker: str = ""
    history: History | None = None
    """None: nothing is recorded."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._room, self._room_s = float(AT_ONCE), clock.monotonic_s()
        self._refusals, self._refusals_s = 0, float("-inf")
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
        """A producer or consumer is gone."""
        if self.history is None or not self._has_room(self._clock.monotonic_s()):
            return
        step = self._step("left", client)
        step.reason = why[:TEXT_MAX]
        step.destination = None if destination is None else destination.broker_id
        step.attached_ms = max(0, step.ts - client.since_ms)
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
        if before is not None and now_s < before.recorded_s + REFUSED_AGAIN_S:
            before.times += 1
            before.last_s, before.client = now_s, connection.peer
            return
        if now_s >= self._refusals_s + REFUSALS_EVERY_S:
            self._refusals, self._refusals_s = 0, now_s
        too_many = before is None and reasons is not None and len(reasons) >= REASONS_MAX
        if too_many or self._refusals >= REFUSALS_AT_ONCE:
            self._unrecorded += 1
            return
        self._refusals += 1
        if reasons is None:
            if len(self._refused) >= REFUSALS_MAX:
                del self._refused[next(iter(self._refused))]
            reasons = self._refused[who] = {}
        what, name, topic, subscription = wanted
        times = before.times if before else 0
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
            times=times + 1,
        )
        reasons[reason] = Repeats(step, now_s, now_s, connection.peer)
        self._record(step)

    def unrecorded(self) -> list[ClientStep]:
        """Refusals that came again since they were recorded, as they will be."""
        now_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
        return [
            structs.replace(
                it.step,
                ts=now_ms - round(1000 * (now_s - it.last_s)),
                client=it.client,
                times=it.times,
            )
            for reasons in self._refused.values()
            for it in reasons.values()
            if it.times
        ]

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
