"""Why a connection is paused: transitions, counted and on/off causes, buffers."""

from __future__ import annotations

from limits.driven import DrivenClock

from loadmanager.limits.schedule import Ready
from loadmanager.limits.tracker import (
    ConnectionThrottle,
    HoldCause,
    Holder,
    PauseTotals,
    PublishBuffer,
)


class Connection:
    """A connection on a clock of its own."""

    def __init__(self, totals: PauseTotals | None = None) -> None:
        self.clock = DrivenClock()
        self.totals = totals or PauseTotals()
        self.ready = Ready()
        self.throttle = ConnectionThrottle(self, self.totals, self.ready)

    def topics(self) -> set[str]:
        return set()

    def subscriptions(self, _topic: str) -> set[str]:
        return set()

    def stop_reading(self) -> None:
        raise AssertionError("throttling calls nobody")

    go_on = stop_reading

    def waits(self, _holder: Holder | None = None) -> bool:
        return True

    def hold(self, cause: HoldCause) -> None:
        self.throttle.hold(cause, self.clock())

    def release(self, cause: HoldCause) -> None:
        self.throttle.release(cause, self.clock())

    @property
    def resumed(self) -> bool:
        """True if it was handed out since the last look."""
        return self.ready.take() is self


def test_reading_resumes_when_the_last_cause_is_gone() -> None:
    """Two causes pause once, and only the end of the second resumes."""
    connection = Connection()
    connection.hold(HoldCause.TOPIC_PUBLISH_RATE)
    connection.hold(HoldCause.OUTBOUND_BUFFER)
    connection.release(HoldCause.TOPIC_PUBLISH_RATE)
    assert connection.throttle.paused
    assert not connection.resumed
    connection.release(HoldCause.OUTBOUND_BUFFER)
    assert not connection.throttle.paused
    assert connection.resumed
    assert (connection.totals.pauses, connection.totals.resumes) == (1, 1)


def test_rates_are_counted_and_states_are_not() -> None:
    """Two holds of a rate need two releases; a state set twice is ended by one."""
    connection = Connection()
    for _ in range(2):
        connection.hold(HoldCause.BROKER_PUBLISH_RATE)
        connection.hold(HoldCause.PUBLISH_BUFFER)
    holds = connection.throttle.holds(connection.clock())
    assert [(hold.cause, hold.count) for hold in holds] == [
        (HoldCause.BROKER_PUBLISH_RATE, 2),
        (HoldCause.PUBLISH_BUFFER, 1),
    ]
    connection.release(HoldCause.PUBLISH_BUFFER)
    connection.release(HoldCause.BROKER_PUBLISH_RATE)
    assert connection.throttle.paused
    connection.release(HoldCause.BROKER_PUBLISH_RATE)
    connection.release(HoldCause.BROKER_PUBLISH_RATE)
    assert (connection.totals.pauses, connection.totals.resumes) == (1, 1)
    assert connection.resumed


def test_a_connection_that_is_held_again_is_not_resumed() -> None:
    """Its last hold ended and another began before anybody looked: it is handed out once, after
    the second.
    """
    connection = Connection()
    for _ in range(2):
        connection.hold(HoldCause.TOPIC_PUBLISH_RATE)
        connection.release(HoldCause.TOPIC_PUBLISH_RATE)
    connection.hold(HoldCause.OUTBOUND_BUFFER)
    assert not connection.resumed
    connection.release(HoldCause.OUTBOUND_BUFFER)
    assert connection.resumed
    assert not connection.resumed


def test_time_by_cause_is_added_up() -> None:
    """Each cause's time counts from its first hold to its last release."""
    connection = Connection()
    connection.hold(HoldCause.TOPIC_PUBLISH_RATE)
    connection.clock.forward_ms(5)
    connection.hold(HoldCause.TOPIC_PUBLISH_RATE)
    connection.clock.forward_ms(5)
    connection.release(HoldCause.TOPIC_PUBLISH_RATE)
    connection.clock.forward_ms(5)
    connection.release(HoldCause.TOPIC_PUBLISH_RATE)
    totals = connection.totals.by_cause[HoldCause.TOPIC_PUBLISH_RATE]
    assert (totals.connections, totals.times, totals.held_ns) == (0, 1, 15_000_000)
    assert connection.throttle.throttled_ns == {HoldCause.TOPIC_PUBLISH_RATE: 15_000_000}
    assert connection.throttle.throttled_times == 1


def test_a_closed_connection_is_neither_paused_nor_resumed() -> None:
    """Closing ends all holds, and later holds are ignored."""
    connection = Connection()
    connection.hold(HoldCause.TOPIC_PUBLISH_RATE)
    connection.throttle.close(connection.clock())
    connection.release(HoldCause.TOPIC_PUBLISH_RATE)
    connection.hold(HoldCause.TOPIC_PUBLISH_RATE)
    assert not connection.throttle.paused
    assert not connection.resumed
    assert (
        connection.totals.paused_connections,
        connection.totals.by_cause[HoldCause.TOPIC_PUBLISH_RATE].connections,
    ) == (0, 0)


def test_a_full_publish_buffer_holds_those_who_would_add_to_it() -> None:
    """Above the limit, connections that met a limit before are held unless they have something
    waiting; at half of it all go on.
    """
    totals = PauseTotals()
    first, second, idle, late = (Connection(totals) for _ in range(4))
    buffer = PublishBuffer(100)
    assert buffer.waiting(idle.throttle, 0, 1) == []
    assert buffer.waiting(first.throttle, 60, 1) == []
    assert totals.paused_connections == 0
    assert buffer.waiting(second.throttle, 60, 1) == [idle.throttle]
    assert [c.throttle.paused for c in (first, second, idle)] == [False, False, True]
    assert buffer.waiting(late.throttle, 0, 1) == [late.throttle]
    assert buffer.waiting(first.throttle, 0, 1) == [first.throttle]
    assert [c.throttle.paused for c in (first, late)] == [True, True]
    assert buffer.waiting(second.throttle, 50, 1) == []
    assert [c.resumed for c in (first, second, idle, late)] == [True, False, True, True]
    assert (totals.paused_connections, buffer.pending_bytes) == (0, 50)


def test_connections_that_are_gone_make_room_in_the_publish_buffer() -> None:
    """Bytes that waited on a lost connection do not count any more."""
    holder, idle = Connection(), Connection()
    buffer = PublishBuffer(10)
    buffer.waiting(idle.throttle, 0, 1)
    buffer.waiting(holder.throttle, 20, 1)
    assert idle.throttle.paused
    buffer.leave(holder.throttle, 2)
    assert idle.resumed


def test_without_a_limit_the_publish_buffer_holds_nobody() -> None:
    """-1 is no limit."""
    connection, idle = Connection(), Connection()
    buffer = PublishBuffer(-1)
    buffer.waiting(idle.throttle, 0, 1)
    assert buffer.waiting(connection.throttle, 1 << 40, 1) == []
    assert not idle.throttle.paused
