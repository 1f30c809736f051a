"""The protocol server at its limits, with a clock that the test drives and a transport that records
its calls.
"""

from __future__ import annotations

import asyncio

import pytest
from broker.protocol.driven_broker import BUNDLE, ERROR, MESSAGE, PONG, RECEIPT, Broker
from limits.driven import TOPIC
from system.raw import a_send

from loadmanager.broker.messaging.subscription import SubscriptionType
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode
from loadmanager.limits.policies import DispatchRate, PublishRate, SubscribeRate
from loadmanager.limits.tracker import HoldCause


async def test_one_read_with_many_frames_is_taken_frame_by_frame(broker: Broker) -> None:
    """Of 1000 SENDs in one read, each second takes a hundred, the first second included; reading
    resumes when the last was taken.
    """
    broker.limit("publishRate", PublishRate(messages_per_s=100))
    connection, wire = await broker.producer()
    await broker.say(connection, *(a_send(number) for number in range(1000)))
    assert not wire.reading
    seconds = []
    for _ in range(9):
        before = wire.count(RECEIPT) if seconds else 0
        broker.forward(1000)
        seconds.append(wire.count(RECEIPT) - before)
    assert all(95 <= got <= 105 for got in seconds), seconds
    broker.forward(2000)
    assert wire.count(RECEIPT) == 1000
    assert wire.reading


async def test_what_a_limit_let_go_is_not_served_when_the_lease_has_run_out(broker: Broker) -> None:
    """A process that was paused wakes up with SENDs that it read before: none is stored or
    answered, and nobody gets a message.
    """
    broker.limit("publishRate", PublishRate(messages_per_s=100))
    broker.limit("subscriptionDispatchRate", DispatchRate(messages=50))
    await broker.producer()
    _, reader = await broker.consumer(permits=1000)
    connection, wire = await broker.producer()
    await broker.say(connection, *(a_send(number) for number in range(1000)))
    broker.forward(1000)
    before = wire.count(RECEIPT), reader.count(MESSAGE)
    broker.server.serving.directory.lease.valid_until_s = broker.clock.monotonic_s()
    broker.clock.now_ns += 10_000_000_000  # nothing ran meanwhile
    broker.server.limits_changed()
    assert 0 < before[1] <= before[0] < 1000
    assert (wire.count(RECEIPT), reader.count(MESSAGE)) == before
    assert wire.closed
    assert reader.closed


async def test_a_held_connection_is_read_until_something_comes(broker: Broker) -> None:
    """While nothing comes, its limit holds nobody up; what comes is not taken before the limit lets
    it, and from then on nothing is read, and the limit holds.
    """
    broker.limit("publishRate", PublishRate(messages_per_s=1))
    connection, wire = await broker.producer()
    await broker.say(connection, a_send(0))
    assert connection.throttle.paused
    assert wire.reading
    (limit,) = broker.throttling.limits()
    assert limit.snapshot(broker.clock()).queue_length == 0
    broker.forward(500)
    await broker.say(connection, a_send(1))
    assert (wire.count(RECEIPT), wire.reading) == (1, False)
    assert limit.snapshot(broker.clock()).queue_length == 1
    broker.forward(1_000)
    assert (wire.count(RECEIPT), wire.reading) == (2, True)
    figures = limit.snapshot(broker.clock())
    assert (figures.held, figures.queue_length) == (1, 0), "the second message holds up nobody"
    assert figures.waited_ms >= 1_000
    broker.forward(10_000)
    assert limit.snapshot(broker.clock()).held == 1


ACK = encode(
    ack=pb.CommandAck(
        consumer_id=7,
        ack_type=0,
        message_id=[pb.MessageIdData(ledgerId=0, entryId=0)],
    )
)
LOOKUP = encode(lookup=pb.CommandLookupTopic(topic=str(TOPIC), request_id=9))


async def test_an_acknowledgement_that_waits_is_no_publish_that_waits(broker: Broker) -> None:
    """A producer that waits for each receipt shares its connection with a consumer, whose
    acknowledgements come while a limit holds them: they wait, no publish does. It is read on, so
    that a publish that comes behind them is seen, which counts.
    """
    broker.limit("publishRate", PublishRate(messages_per_s=50))
    connection, wire = await broker.producer()
    (limit,) = broker.throttling.limits()
    for number in range(20):
        await broker.say(connection, a_send(number))
        await broker.say(connection, ACK)
        assert connection.throttle.paused
        assert wire.reading
        assert limit.snapshot(broker.clock()).queue_length == 0
        broker.forward(200)
        assert not connection.unprocessed_bytes
    assert wire.count(RECEIPT) == 20
    assert limit.snapshot(broker.clock()).held == 0
    assert connection.throttle.limited_since_ns(broker.clock()) is None
    assert (connection.throttle.throttled_times, connection.throttle.waited_ns) == (20, 0)
    await broker.say(connection, a_send(20))
    await broker.say(connection, ACK)
    await broker.say(connection, a_send(21))
    assert not wire.reading
    broker.forward(200)
    assert wire.count(RECEIPT) == 22
    assert limit.snapshot(broker.clock()).held == 1


async def test_whose_publish_waits(broker: Broker) -> None:
    """Two producers share a connection: the hold of a limit is counted for the one whose publish
    waits, not for the one that sent nothing until its turn came.
    """
    broker.limit("publishRate", PublishRate(messages_per_s=50))
    connection, wire = await broker.producer()
    other = pb.CommandProducer(topic=f"{TOPIC}-other", producer_id=2, request_id=2)
    await broker.say(connection, encode(producer=other))
    own, others = (connection.producers[each].sender for each in (1, 2))
    await broker.say(connection, a_send(0))
    await broker.say(connection, a_send(0, producer_id=2))
    broker.forward(200)
    assert wire.count(RECEIPT) == 2
    assert (own.times_held_up, others.times_held_up) == (0, 0)
    assert connection.throttle.waited_ns > 0, "the connection was held up, for the other one"
    await broker.say(connection, a_send(1), a_send(1, producer_id=2), a_send(2))
    broker.forward(200)
    assert (own.times_held_up, others.times_held_up) == (1, 0)


async def test_a_lookup_that_waits_for_long_is_held_up(broker: Broker) -> None:
    """A large batch holds its connection for seconds: a lookup on it waits as long."""
    broker.limit("publishRate", PublishRate(messages_per_s=1))
    connection, _wire = await broker.producer()
    (limit,) = broker.throttling.limits()
    await broker.say(connection, a_send(0, batch=5, payload=b"x" * 50))
    await broker.say(connection, LOOKUP)
    broker.forward(500)
    assert limit.snapshot(broker.clock()).queue_length == 0
    broker.forward(1_000)
    assert limit.snapshot(broker.clock()).queue_length == 1
    broker.forward(10_000)
    assert limit.snapshot(broker.clock()).held == 1


async def test_what_comes_while_a_connection_is_held_fills_the_publish_buffer(
    broker: Broker,
) -> None:
    """What it was read for once more counts, too."""
    broker.limit("publishRate", PublishRate(messages_per_s=1))
    connection, _wire = await broker.producer()
    await broker.say(connection, a_send(0))
    assert broker.throttling.publish_buffer.pending_bytes == 0
    await broker.say(connection, a_send(1))
    pending_bytes = broker.throttling.publish_buffer.pending_bytes
    assert 0 < pending_bytes == connection.unprocessed_bytes


async def test_a_full_publish_buffer_ends_the_reading_of_held_connections(broker: Broker) -> None:
    """Of those for which nothing has come yet, too, until it is down to half."""
    broker.throttling.publish_buffer.limit_bytes = 10_000
    broker.limit("publishRate", PublishRate(messages_per_s=100))
    modest, modest_wire = await broker.producer()
    while not modest.throttle.paused:
        await broker.say(modest, a_send(0))
    assert modest_wire.reading
    greedy, greedy_wire = await broker.producer()
    await broker.say(greedy, *(a_send(number) for number in range(500)))
    assert (modest_wire.reading, greedy_wire.reading) == (False, False)
    assert HoldCause.PUBLISH_BUFFER in {
        hold.cause for hold in modest.throttle.holds(broker.clock())
    }
    broker.forward(6_000)
    assert (modest_wire.reading, greedy_wire.reading) == (True, True)


async def test_without_a_limit_nothing_is_held(broker: Broker) -> None:
    """A thousand SENDs pass at once, and nobody waits for the timer."""
    connection, wire = await broker.producer()
    await broker.say(connection, *(a_send(number) for number in range(1000)))
    assert wire.count(RECEIPT) == 1000
    assert broker.throttling.next_wakeup_ns() is None


async def test_other_connections_have_their_turn_after_a_thousand_publishes(broker: Broker) -> None:
    """maxPendingPublishRequestsPerConnection: after so many SENDs the receipts are written, and the
    rest is taken a turn of the loop later.
    """
    connection, wire = await broker.producer()
    connection.data_received(b"".join(a_send(number) for number in range(1500)))
    assert (wire.count(RECEIPT), wire.reading) == (1000, False)
    assert [hold.cause for hold in connection.throttle.holds(broker.clock())] == [
        HoldCause.PENDING_PUBLISH_REQUESTS
    ]
    await asyncio.sleep(0)
    assert (wire.count(RECEIPT), wire.reading) == (1500, True)


async def test_a_full_publish_buffer_stops_those_who_would_fill_it(broker: Broker) -> None:
    """Above maxMessagePublishBufferSizeInMB a producer that met a limit before is not read from
    until the waiting ones are down to half.
    """
    broker.throttling.publish_buffer.limit_bytes = 10_000
    broker.limit("publishRate", PublishRate(messages_per_s=100))
    modest, modest_wire = await broker.producer()
    await broker.say(modest, *(a_send(number) for number in range(5)))
    broker.forward(1000)
    assert modest_wire.reading
    greedy, _ = await broker.producer()
    await broker.say(greedy, *(a_send(number) for number in range(500)))
    assert [hold.cause for hold in modest.throttle.holds(broker.clock())] == [
        HoldCause.PUBLISH_BUFFER
    ]
    broker.forward(6000)
    assert modest_wire.reading
    assert greedy.throttle.paused is (greedy.unprocessed_bytes > 0)


async def test_what_a_lost_connection_had_sent_is_dropped(broker: Broker) -> None:
    """Frames of a held connection that is lost are not stored later, and nothing waits for it."""
    broker.limit("publishRate", PublishRate(messages_per_s=10))
    connection, _ = await broker.producer()
    await broker.say(connection, *(a_send(number) for number in range(100)))
    hosted = broker.server.serving.topics.served(str(TOPIC))
    assert hosted is not None
    stored = hosted.core.messages_in
    connection.connection_lost(None)
    broker.forward(60_000)
    assert hosted.core.messages_in == stored < 5
    assert broker.throttling.next_wakeup_ns() is None
    assert broker.throttling.pauses.paused_connections == 0


async def test_removing_the_limit_lets_everything_pass_at_once(broker: Broker) -> None:
    """Waiting frames are taken at the moment that the limit is removed."""
    broker.limit("publishRate", PublishRate(messages_per_s=1))
    connection, wire = await broker.producer()
    await broker.say(connection, *(a_send(number) for number in range(50)))
    broker.limit("publishRate", PublishRate())
    assert wire.count(RECEIPT) == 50
    assert wire.reading


async def test_unloading_the_bundle_in_the_middle_lets_the_connection_go_on(broker: Broker) -> None:
    """After the fence nothing of the topic is stored, and its connection serves its other requests
    again.
    """
    broker.limit("publishRate", PublishRate(messages_per_s=1))
    connection, wire = await broker.producer()
    await broker.say(
        connection, *(a_send(number) for number in range(50)), encode(ping=pb.CommandPing())
    )
    before = wire.count(RECEIPT)
    broker.server.fence_bundle(BUNDLE, 1)
    assert wire.reading
    assert (wire.count(RECEIPT), wire.count(PONG)) == (before, 1)
    await broker.server.close_bundle(BUNDLE, 1, destination=None, timeout_s=1)
    assert broker.throttling.topics == {}


async def test_closing_a_held_producer_frees_its_connection(broker: Broker) -> None:
    """A producer that the broker closes while it waits leaves nothing behind."""
    broker.limit("publishRate", PublishRate(messages_per_s=1))
    connection, _wire = await broker.producer()
    await broker.say(connection, *(a_send(number) for number in range(5)))
    gone = connection.producers.pop(1)
    broker.server.serving.attachments.detach_producer(gone, "it is closed", for_good=True)
    connection.close_producer(1)
    broker.forward(10)
    assert connection.throttle.holds(broker.clock()) == []


async def test_a_held_connection_hears_from_the_broker(broker: Broker) -> None:
    """While its PINGs are not read, a client gets PONGs, so that it does not hang up."""
    broker.limit("publishRate", PublishRate(messages_per_s=1))
    connection, wire = await broker.producer()
    await broker.say(connection, *(a_send(number) for number in range(50)))
    connection.last_heard_s -= 16
    broker.server._keep_alive()
    assert wire.count(PONG) == 1
    assert not wire.closed


async def test_two_limits_and_a_full_outbound_buffer_must_all_let_go(broker: Broker) -> None:
    """Reading resumes when topic limit, broker limit and outbound buffer have all released the
    connection.
    """
    broker.configure(broker_publish_messages_per_s=2)
    broker.limit("publishRate", PublishRate(messages_per_s=1))
    connection, wire = await broker.producer()
    await broker.say(connection, a_send(0), a_send(1))
    connection.pause_writing()
    assert {hold.cause for hold in connection.throttle.holds(broker.clock())} == {
        HoldCause.TOPIC_PUBLISH_RATE,
        HoldCause.BROKER_PUBLISH_RATE,
        HoldCause.OUTBOUND_BUFFER,
    }
    broker.forward(60_000)
    assert not wire.reading
    connection.resume_writing()
    broker.forward(60_000)
    assert wire.reading
    assert wire.count(RECEIPT) == 2


@pytest.mark.parametrize("entries", [[1] * 200, [2] * 100, [1] * 9 + [30] + [1] * 160])
async def test_dispatch_delivers_the_limit_every_second(broker: Broker, entries: list[int]) -> None:
    """At 10/s ten messages a second go out; an entry that exceeds it is paid back by the seconds
    after it.
    """
    connection, _ = await broker.producer()
    hosted = broker.server.serving.topics.served(str(TOPIC))
    assert hosted is not None
    publisher = connection.producers[1].core
    for number, messages in enumerate(entries):
        hosted.core.publish(publisher, number, a_send(number), messages)
    broker.limit("dispatchRate", DispatchRate(messages=10))
    await broker.consumer(1000)
    seconds = [hosted.core.messages_out]
    for _ in range(10):
        broker.forward(1000)
        seconds.append(hosted.core.messages_out)
    each = [after - before for before, after in zip([0, *seconds[1:]], seconds[1:], strict=False)]
    if 30 in entries:
        assert each == [39, 0, 0, 1, 10, 10, 10, 10, 10, 10]
    else:
        assert each == [10] * 10


async def test_caught_up_subscriptions_are_limited_only_if_the_broker_says_so(
    broker: Broker,
) -> None:
    """With dispatchThrottlingOnNonBacklogConsumerEnabled=false a subscription without backlog gets
    everything at once.
    """
    broker.configure(dispatch_limits_caught_up=False)
    broker.limit("dispatchRate", DispatchRate(messages=10))
    _, wire = await broker.consumer(1000)
    connection, _ = await broker.producer()
    await broker.say(connection, *(a_send(number) for number in range(100)))
    assert wire.count(MESSAGE) == 100
    broker.configure()
    await broker.say(connection, *(a_send(number) for number in range(100, 200)))
    assert wire.count(MESSAGE) < 115


async def test_subscribes_beyond_the_limit_are_refused(broker: Broker) -> None:
    """The third SUBSCRIBE of one consumer within the window is answered with NotAllowedError."""
    broker.limit("subscribeRate", SubscribeRate(subscribes=2, period_s=30))
    connection, wire = await broker.connect()
    for request_id in range(3):
        asked = pb.CommandSubscribe(
            topic=str(TOPIC),
            subscription="s",
            subType=1,
            consumer_id=1,
            request_id=request_id,
            consumer_name="n",
        )
        await broker.say(connection, encode(subscribe=asked))
    errors = [frame.command.error for frame in wire.frames if frame.command.type == ERROR]
    assert [(error.request_id, error.error) for error in errors] == [(2, pb.NotAllowedError)]


@pytest.mark.parametrize("idle", [0, 40])
async def test_idle_subscriptions_do_not_keep_others_waiting(broker: Broker, idle: int) -> None:
    """At 10/s for the whole broker, one consumer gets 10/s, although other subscriptions exist that
    nothing can be sent to.
    """
    connection, _ = await broker.producer()
    hosted = broker.server.serving.topics.served(str(TOPIC))
    assert hosted is not None
    for number in range(idle):
        hosted.core.subscribe(f"idle-{number}", SubscriptionType.SHARED, 0, durable=True)
    broker.configure(broker_dispatch_messages_per_s=10)
    await broker.consumer(1000)
    await broker.say(connection, *(a_send(number) for number in range(100)))
    seconds = []
    for _ in range(5):
        before = hosted.core.messages_out
        broker.forward(1000)
        await broker.say(connection, a_send(1000))
        seconds.append(hosted.core.messages_out - before)
    assert all(9 <= got <= 11 for got in seconds), seconds
    assert all(
        not gate.blocked and not gate.throttled_by
        for name, gate in hosted.limits.gates.items()
        if name.startswith("idle")
    )


async def test_a_subscription_that_lost_its_consumer_leaves_the_queue(broker: Broker) -> None:
    """Without a consumer nothing waits, and no timer runs."""
    connection, _ = await broker.producer()
    broker.limit("dispatchRate", DispatchRate(messages=10))
    consumer, _ = await broker.consumer(1000)
    await broker.say(connection, *(a_send(number) for number in range(100)))
    assert broker.throttling.next_wakeup_ns() is not None
    consumer.connection_lost(None)
    broker.server.serving.dispatcher.deliver()
    assert broker.throttling.next_wakeup_ns() is None


async def test_exempting_caught_up_subscriptions_lets_them_go_at_once(broker: Broker) -> None:
    """dispatchThrottlingOnNonBacklogConsumerEnabled, set to false on the running broker, acts on
    subscriptions that wait.
    """
    connection, _ = await broker.producer()
    broker.limit("dispatchRate", DispatchRate(messages=1, period_s=3600))
    _, wire = await broker.consumer(1000)
    await broker.say(connection, *(a_send(number) for number in range(3)))
    assert wire.count(MESSAGE) == 1
    broker.configure(dispatch_limits_caught_up=False)
    assert wire.count(MESSAGE) == 3
