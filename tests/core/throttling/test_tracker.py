"""Why a connection is paused: transitions, counted and on/off causes, buffers."""

from __future__ import annotations

from core.throttling.driven import DrivenClock

from loadmanager.core.throttling.tracker import (
    Cause,
    ConnectionThrottle,
    PauseTotals,
    PublishBuffer,
)


class Connection:
    """A connection that writes down what it was told."""

    def __init__(self, totals: PauseTotals | None = None) -> None:
        self.told: list[str] = []
        self.clock = DrivenClock()
        self.totals = totals or PauseTotals()
        self.throttle = ConnectionThrottle(
            lambda: self.told.append("pause"),
            lambda: self.told.append("resume"),
            clock=self.clock,
            totals=self.totals,
        )


def test_reading_resumes_when_the_last_cause_is_gone() -> None:
    """Two causes pause once, and only the end of the second resumes."""
    connection = Connection()
    connection.throttle.hold(Cause.TOPIC_PUBLISH_RATE)
    connection.throttle.hold(Cause.OUTBOUND_BUFFER)
    connection.throttle.release(Cause.TOPIC_PUBLISH_RATE)
    assert connection.told == ["pause"]
    connection.throttle.release(Cause.OUTBOUND_BUFFER)
    assert connection.told == ["pause", "resume"]


def test_rates_are_counted_and_states_are_not() -> None:
    """Two holds of a rate need two releases; a state set twice is ended by one."""
    connection = Connection()
    for _ in range(2):
        connection.throttle.hold(Cause.BROKER_PUBLISH_RATE)
        connection.throttle.hold(Cause.PUBLISH_BUFFER)
    assert [(hold.cause, hold.count) for hold in connection.throttle.holds()] == [
        (Cause.BROKER_PUBLISH_RATE, 2),
        (Cause.PUBLISH_BUFFER, 1),
    ]
    connection.throttle.release(Cause.PUBLISH_BUFFER)
    connection.throttle.release(Cause.BROKER_PUBLISH_RATE)
    assert connection.throttle.paused
    connection.throttle.release(Cause.BROKER_PUBLISH_RATE)
    connection.throttle.release(Cause.BROKER_PUBLISH_RATE)
    assert connection.told == ["pause", "resume"]


def test_time_by_cause_is_added_up() -> None:
    """Each cause's time counts from its first hold to its last release."""
    connection = Connection()
    connection.throttle.hold(Cause.TOPIC_PUBLISH_RATE)
    connection.clock.forward_ms(5)
    connection.throttle.hold(Cause.TOPIC_PUBLISH_RATE)
    connection.clock.forward_ms(5)
    connection.throttle.release(Cause.TOPIC_PUBLISH_RATE)
    connection.clock.forward_ms(5)
    connection.throttle.release(Cause.TOPIC_PUBLISH_RATE)
    totals = connection.totals.by_cause[Cause.TOPIC_PUBLISH_RATE]
    assert (totals.connections, totals.times, totals.held_ns) == (0, 1, 15_000_000)
    assert connection.throttle.throttled_ns == {Cause.TOPIC_PUBLISH_RATE: 15_000_000}
    assert (
        connection.throttle.throttled_times,
        connection.totals.pauses,
        connection.totals.resumes,
    ) == (1, 1, 1)


def test_a_closed_connection_is_neither_paused_nor_resumed() -> None:
    """Closing ends all holds without a call, and later holds are ignored."""
    connection = Connection()
    connection.throttle.hold(Cause.TOPIC_PUBLISH_RATE)
    connection.throttle.close()
    connection.throttle.release(Cause.TOPIC_PUBLISH_RATE)
    connection.throttle.hold(Cause.TOPIC_PUBLISH_RATE)
    assert connection.told == ["pause"]
    assert (
        connection.totals.paused_connections,
        connection.totals.by_cause[Cause.TOPIC_PUBLISH_RATE].connections,
    ) == (0, 0)


def test_a_full_publish_buffer_holds_those_who_would_add_to_it() -> None:
    """Above the limit, connections that met a limit before are held unless they have something
    waiting; at half of it all go on.
    """
    totals = PauseTotals()
    first, second, idle, late = (Connection(totals) for _ in range(4))
    buffer = PublishBuffer(100)
    buffer.waiting(idle.throttle, 0)
    buffer.waiting(first.throttle, 60)
    assert totals.paused_connections == 0
    buffer.waiting(second.throttle, 60)
    assert (first.told, second.told, idle.told) == ([], [], ["pause"])
    buffer.waiting(late.throttle, 0)
    assert late.told == ["pause"]
    buffer.waiting(first.throttle, 0)
    assert first.told == ["pause"]
    buffer.waiting(second.throttle, 50)
    assert (totals.paused_connections, buffer.pending_bytes) == (0, 50)


def test_connections_that_are_gone_make_room_in_the_publish_buffer() -> None:
    """What a lost connection had waiting counts no more."""
    holder, idle = Connection(), Connection()
    buffer = PublishBuffer(10)
    buffer.waiting(idle.throttle, 0)
    buffer.waiting(holder.throttle, 20)
    buffer.leave(holder.throttle)
    assert idle.told == ["pause", "resume"]


def test_without_a_limit_the_publish_buffer_holds_nobody() -> None:
    """-1 is no limit."""
    connection, idle = Connection(), Connection()
    buffer = PublishBuffer(-1)
    buffer.waiting(idle.throttle, 0)
    buffer.waiting(connection.throttle, 1 << 40)
    assert idle.told == []
