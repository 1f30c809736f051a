"""The connections of clients, and the producers and consumers that came through them."""

from __future__ import annotations

from itertools import count

from loadmanager.broker.protocol.admission import Admission
from loadmanager.broker.protocol.exclusive import promote
from loadmanager.broker.protocol.hosted import (
    AttachedConsumer,
    AttachedProducer,
    Client,
    HostedTopic,
    tell_where,
)
from loadmanager.broker.protocol.server_state import ServerState
from loadmanager.broker.protocol.topic_telemetry import ConnectionCounts
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import REQUEST_ID_NONE, encode
from loadmanager.engine.history.clients import CLOSED_HERE
from loadmanager.kit.addresses import BrokerAddress

CAME_AGAIN = "its client came again"
CLOSED_IT = "its client closed it"


class Attachments:
    """Admits connections, and detaches what is gone or has to go."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self.admission = Admission(
            state.settings, state.clock, state.connections_cap, state.clients.refused
        )
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections: dict[Client, None] = {}
        self.counts = ConnectionCounts()
        self._names = count()

    def opened(self, connection: Client) -> None:
        """Count a new connection; beyond the limits, it or another one is closed."""
        self.connections[connection] = None
        self.counts.created += 1
        self.admission.enter(connection)

    def closed(self, connection: Client) -> None:
        """A connection is gone, and with it what was attached through it."""
        if connection in self.connections:
            del self.connections[connection]
            self.admission.leave(connection)
            self.counts.closed += 1
            self.counts.failed += not connection.connected
        for producer in list(connection.producers.values()):
            self.detach_producer(producer, connection.ended, for_good=False)
        for consumer in list(connection.consumers.values()):
            self.detach_consumer(consumer, connection.ended)
        connection.producers.clear()
        connection.consumers.clear()
        self._state.dispatcher.deliver()

    def next_producer_name(self) -> str:
        """A name that no producer of the cluster has."""
        broker = self._state.directory.self_address.broker_id.replace(":", "-")
        return f"{broker}-{self._state.clock.now_ms():x}-{next(self._names)}"

    def detach_producer(
        self,
        producer: AttachedProducer,
        why: str,
        destination: BrokerAddress | None = None,
        *,
        for_good: bool,
    ) -> None:
        """A producer is gone; `destination`: where it was sent."""
        hosted = producer.hosted
        if hosted.producers.get(producer.core.name) is producer:
            del hosted.producers[producer.core.name]
            self._state.clients.left(producer, why, destination)
            self._state.dispatcher.touch(hosted)
        hosted.limits.leave(producer.sender, self._state.clock.monotonic_ns())
        promoted = hosted.core.detach_publisher(
            producer.core, self._state.clock.monotonic_s(), for_good=for_good
        )
        if promoted is not None and not hosted.fenced:
            running = self._promote(hosted.producers[promoted.name])
            try:
                self._state.spawn(running, "exclusive-producer")
            except RuntimeError:  # the broker is stopping: no task is started any more
                running.close()

    async def _promote(self, producer: AttachedProducer) -> None:
        if await promote(self._state.directory, producer):
            self._state.clients.attached(producer)
        self._state.dispatcher.written(producer.connection)
        self._state.dispatcher.deliver()

    def detach_consumer(
        self, consumer: AttachedConsumer, why: str, destination: BrokerAddress | None = None
    ) -> None:
        """A consumer is gone; what it had not acknowledged goes to others, or waits for it."""
        hosted, subscription = consumer.hosted, consumer.subscription
        if hosted.attached.pop(consumer.core, None) is None:
            return
        self._state.clients.left(consumer, why, destination)
        active = subscription.active
        hosted.core.detach_consumer(subscription, consumer.core)
        if not subscription.durable and not subscription.consumers:
            hosted.core.unsubscribe(subscription.name)
            hosted.limits.close_gate(subscription.name, self._state.clock.monotonic_ns())
        self._state.dispatcher.announce_active(hosted, subscription, active)
        self._state.dispatcher.touch(hosted, subscription)

    def close_producer(
        self, producer: AttachedProducer, destination: BrokerAddress | None, why: str
    ) -> None:
        """CLOSE_PRODUCER by the broker: the client reconnects, to `destination` if it is given."""
        connection = producer.connection
        producer.is_closed = True
        if connection.producers.get(producer.producer_id) is producer:
            connection.close_producer(producer.producer_id)
        self.detach_producer(producer, why, destination, for_good=False)
        command = pb.CommandCloseProducer(
            producer_id=producer.producer_id, request_id=REQUEST_ID_NONE
        )
        tell_where(command, connection, destination)
        connection.send(encode(close_producer=command))
        self._state.dispatcher.written(connection)

    def close_consumer(
        self, consumer: AttachedConsumer, destination: BrokerAddress | None, why: str
    ) -> None:
        """CLOSE_CONSUMER by the broker: the client reconnects, to `destination` if it is given."""
        connection = consumer.connection
        if connection.consumers.get(consumer.consumer_id) is consumer:
            del connection.consumers[consumer.consumer_id]
        self.detach_consumer(consumer, why, destination)
        command = pb.CommandCloseConsumer(
            consumer_id=consumer.consumer_id, request_id=REQUEST_ID_NONE
        )
        tell_where(command, connection, destination)
        connection.send(encode(close_consumer=command))
        self._state.dispatcher.written(connection)

    def close_all(self, hosted: HostedTopic, destination: BrokerAddress | None) -> None:
        """Tell all clients of a topic to come back, to `destination` if it is given."""
        for producer in list(hosted.producers.values()):
            self.close_producer(producer, destination, CLOSED_HERE)
        for consumer in list(hosted.attached.values()):
            self.close_consumer(consumer, destination, CLOSED_HERE)
