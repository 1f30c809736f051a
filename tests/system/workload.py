"""Producers and consumers with the stock client, one thread each, that record their messages."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import pulsar

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


def client(service_url: str) -> pulsar.Client:
    """A stock client that logs nothing: a Python logger would need the interpreter lock."""
    return pulsar.Client(service_url, logger=QUIET, operation_timeout_seconds=120)


@dataclass
class Sent:
    """One acknowledged send: its number, and when it began and ended."""

    number: int
    began_s: float
    ended_s: float


@dataclass
class TopicWork:
    """The producer and the consumer of one topic."""

    topic: str
    sent: list[Sent] = field(default_factory=list)
    got: list[int] = field(default_factory=list)
    """Numbers in the order of their first arrival."""
    errors: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    """Set when the producer has sent its last message."""

    def produce(self, producer: pulsar.Producer, stop: threading.Event, pace_s: float) -> None:
        """Send numbered messages, one by one, each after the acknowledgement of the last."""
        number = 0
        self.ended.clear()
        while not stop.is_set():
            began_s = time.monotonic()
            try:
                producer.send(str(number).encode())
                self.sent.append(Sent(number, began_s, time.monotonic()))
            except pulsar.PulsarException as error:
                self.errors.append(f"send {number}: {error}")
            number += 1
            stop.wait(pace_s)
        self.ended.set()

    def consume(self, consumer: pulsar.Consumer, stop: threading.Event) -> None:
        """Receive and acknowledge until stopped."""
        seen: set[int] = set()
        while not stop.is_set():
            try:
                message = consumer.receive(timeout_millis=200)
            except pulsar.Timeout:
                continue
            except pulsar.PulsarException as error:
                self.errors.append(f"receive: {error}")
                continue
            number = int(message.data())
            if number not in seen:
                seen.add(number)
                self.got.append(number)
            consumer.acknowledge(message)

    def missing(self, *, since_s: float = 0.0) -> list[int]:
        """Numbers of messages begun since `since_s`, acknowledged, and never received."""
        got = set(self.got)
        return [
            item.number for item in self.sent if item.began_s >= since_s and item.number not in got
        ]
