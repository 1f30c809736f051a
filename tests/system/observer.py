"""Clients outside the cluster that observe which broker serves which topic, and when.

The observer keeps one connection to each broker, and over each tries to attach a producer and a
consumer to every topic. Only the owner of a topic's bundle accepts them. Every attached producer
sends a numbered message every `PACE_S` without waiting for receipts, so that a broker that was
paused finds new messages when it resumes. Topics without receipts are looked up through every
broker.

How it proves two owners: a receipt contains the ledger of the message, and each time a broker opens
a topic, the topic gets a new ledger from a counter of the whole cluster. So all receipts with one
ledger come from one life of the topic's bundle on one broker. A life has no gaps, because a broker
that lost a bundle closes its topics. The broker stored a message after it was sent and before its
receipt arrived. So the life of a ledger covers at least the time from the arrival of its first
receipt to the sending of the last message with a receipt, both read from one monotonic clock. If
such spans of two brokers overlap for one bundle, the bundle had two owners. A broker that goes on
serving after another broker has begun is detected at the first message that was sent after the
other's first receipt. An overlap shorter than a round trip may remain undetected.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import threading
import time
from dataclasses import dataclass

from system.raw import CONNECT, a_send

from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import DUPLICATE, Frame, FrameReader, encode

PACE_S = 0.05
RETRY_S = 0.25
QUIET_S = 0.3
"""A topic without a receipt for this long is looked up."""
ANSWER_TIMEOUT_S = 3.0
"""A request without an answer for this long is sent again."""
PERMITS = 1_000
SUBSCRIPTION = "observer"
SHARED, EARLIEST = 1, 1
REDIRECT, CONNECT_THERE = 0, 1


@dataclass(slots=True)
class Life:
    """The receipts of one ledger."""

    broker: str
    topic: str
    ledger: int
    first_received_s: float
    last_sent_s: float
    receipts: int = 1

    def overlaps(self, other: Life) -> bool:
        """True if both lives certainly existed at the same moment."""
        begun_s = max(self.first_received_s, other.first_received_s)
        return begun_s <= min(self.last_sent_s, other.last_sent_s)


@dataclass(slots=True)
class Receipt:
    """A receipt of one message."""

    number: int
    broker: str
    sent_s: float
    received_s: float
    delivered_s: float = 0.0
    """When a consumer got it; 0: not yet."""


@dataclass(slots=True)
class Notice:
    """A producer was closed: by CLOSE_PRODUCER, or by the end of its connection."""

    at_s: float
    broker: str
    topic: str
    by: str


@dataclass(slots=True)
class _Attachment:
    """One topic at one broker."""

    attached: bool = False
    consuming: bool = False
    asked_s: float = 0.0
    """When it was last tried; 0: try at once."""
    waiting: bool = False
    lookup_asked_s: float = 0.0
    lookup_waiting: bool = False
    delivered: int = 0


class Observer:
    """Observes in a thread, within `with`; `topics` maps topic to bundle."""

    def __init__(self, topics: dict[str, str], brokers: dict[str, tuple[str, int]]) -> None:
        self.topics = topics
        self.receipts: dict[str, list[Receipt]] = {topic: [] for topic in topics}
        self.lives: dict[tuple[str, str, int], Life] = {}
        self.notices: list[Notice] = []
        self.entries: dict[tuple[str, int, int], str] = {}
        """Topic, ledger and entry of each receipt → the broker that sent it."""
        self.doubled: list[str] = []
        """Entries with receipts of two brokers: both own the ledger. A stored topic has one ledger
        for good.
        """
        self.faults: list[str] = []
        """Bugs of brokers: unreadable frames, answers without a request."""
        self._names = list(topics)
        self._brokers = brokers
        self._links: dict[str, _Link] = {}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="observer")

    def __enter__(self) -> Observer:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def watch(self, broker: str, host: str, port: int) -> None:
        """Observe another broker."""
        self._loop.call_soon_threadsafe(self._add, broker, host, port)

    def look_up_everything(self) -> None:
        """Ask each broker for the owner of each topic, though all have one: a broker to which the
        owner looks dead takes its bundles then.
        """

        def look_up() -> None:
            for link in self._links.values():
                for index in range(len(self._names)):
                    link.lookup(index, time.monotonic(), authoritative=False)

        self._loop.call_soon_threadsafe(look_up)

    # What was seen

    def twice_owned(self, since_s: float = 0.0) -> list[str]:
        """Bundles with two owners at once, since then; see the docstring of this module."""
        by_bundle: dict[str, list[Life]] = {}
        for life in list(self.lives.values()):
            if life.last_sent_s >= since_s:
                by_bundle.setdefault(self.topics[life.topic], []).append(life)
        return [
            _proof(bundle, one, other)
            for bundle, lives in by_bundle.items()
            for one, other in itertools.combinations(lives, 2)
            if one.broker != other.broker and one.overlaps(other)
        ]

    def unserved(self, since_s: float) -> list[str]:
        """Topics without a receipt for a message that was sent at or after `since_s`."""
        last = {name: taken[-1] if taken else None for name, taken in self.receipts.items()}
        return [name for name, one in last.items() if one is None or one.sent_s < since_s]

    def served_again_s(self, since_s: float) -> float:
        """The time from `since_s` until every topic had a receipt for a message sent since then."""
        every = self.receipts.values()
        first_s = (next(r.received_s for r in taken if r.sent_s >= since_s) for taken in every)
        return max(first_s) - since_s

    def longest_pause_s(self, since_s: float, until_s: float) -> float:
        """The longest time without a receipt that overlaps this span, of the worst topic."""
        longest_s = 0.0
        for receipts in self.receipts.values():
            marks = [r.received_s for r in list(receipts) if r.received_s < until_s] + [until_s]
            gaps_s = (b - a for a, b in itertools.pairwise(marks) if b > since_s)
            longest_s = max(longest_s, max(gaps_s, default=0.0))
        return longest_s

    def latencies_s(self, since_s: float, until_s: float) -> list[float]:
        """The times from sending to receipt of the messages sent in a span, ascending."""
        every = itertools.chain.from_iterable(self.receipts.values())
        return sorted(r.received_s - r.sent_s for r in every if since_s <= r.sent_s < until_s)

    def undelivered(self, since_s: float, until_s: float) -> list[Receipt]:
        """Messages of a span that have a receipt and have not reached the consumer."""
        every = itertools.chain.from_iterable(map(list, self.receipts.values()))
        return [r for r in every if since_s <= r.sent_s < until_s and not r.delivered_s]

    # The thread

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        for broker, (host, port) in self._brokers.items():
            self._add(broker, host, port)
        self._ready.set()
        while not self._stop.is_set():
            now_s = time.monotonic()
            quiet = self._quiet(now_s)
            for link in list(self._links.values()):
                link.step(now_s, quiet)
            await asyncio.sleep(PACE_S)
        for link in self._links.values():
            link.stop()
        await asyncio.sleep(0.01)  # the connections go

    def _add(self, broker: str, host: str, port: int) -> None:
        self._links[broker] = _Link(self, broker, host, port, self._names)

    def _quiet(self, now_s: float) -> set[int]:
        return {
            index
            for index, topic in enumerate(self._names)
            if not self.receipts[topic] or self.receipts[topic][-1].received_s < now_s - QUIET_S
        }

    def redirect(self, index: int, service_url: str, now_s: float) -> None:
        """A lookup was sent on to another broker."""
        port = int(service_url.rpartition(":")[2])
        for link in self._links.values():
            if link.port == port:
                link.lookup(index, now_s, authoritative=True)

    def found(self, index: int, service_url: str) -> None:
        """A lookup found the owner: attach there at once."""
        port = int(service_url.rpartition(":")[2])
        for link in self._links.values():
            if link.port == port:
                link.attach_soon(index)

    def took(self, receipt: Receipt, topic: str, ledger: int, entry: int) -> None:
        """A receipt arrived."""
        before = self.entries.setdefault((topic, ledger, entry), receipt.broker)
        if before != receipt.broker and entry != DUPLICATE:
            self.doubled.append(f"{topic} {ledger}:{entry}: {before} and {receipt.broker}")
        self.receipts[topic].append(receipt)
        key = (receipt.broker, topic, ledger)
        life = self.lives.get(key)
        if life is None:
            life = Life(receipt.broker, topic, ledger, receipt.received_s, receipt.sent_s)
            self.lives[key] = life
            return
        life.receipts += 1
        life.last_sent_s = max(life.last_sent_s, receipt.sent_s)


@dataclass(slots=True)
class _Sent:
    index: int
    number: int
    at_s: float


class _Link(asyncio.Protocol):
    """The connection to one broker, opened again whenever it ends."""

    _numbers = itertools.count()

    def __init__(
        self,
        observer: Observer,
        broker: str,
        host: str,
        port: int,
        topics: list[str],
    ) -> None:
        self.port = port
        self._observer = observer
        self._broker = broker
        self._host = host
        self._topics = topics
        self._transport: asyncio.Transport | None = None
        self._greeted = False
        self._connecting: asyncio.Task[None] | None = None
        self._out: list[bytes] = []
        self._reset()

    def _reset(self) -> None:
        self._reader = FrameReader(1 << 24)
        self._attachments = [_Attachment() for _ in self._topics]
        self._sent: dict[int, _Sent] = {}
        self._taken: dict[int, Receipt] = {}
        self._requests: dict[int, tuple[str, int]] = {}
        self._request_ids = itertools.count(1)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._reset()
        transport.write(CONNECT)

    def connection_lost(self, _exc: Exception | None) -> None:
        now_s = time.monotonic()
        for topic, attachment in zip(self._topics, self._attachments, strict=True):
            if attachment.attached:
                self._observer.notices.append(Notice(now_s, self._broker, topic, "hang-up"))
        self._transport, self._greeted = None, False
        self._reset()

    def data_received(self, data: bytes) -> None:
        now_s = time.monotonic()
        self._reader.feed(data)
        try:
            while (frame := self._reader.take()) is not None:
                self._handle(frame, now_s)
        except Exception as error:
            # A test must see this; the event loop would only log it.
            self._observer.faults.append(f"{self._broker}: {error!r}")
            raise
        self._flush()

    # Steps

    def step(self, now_s: float, quiet: set[int]) -> None:
        """Connect, attach, look up and send, as each is due."""
        if self._transport is None:
            if self._connecting is None or self._connecting.done():
                self._connecting = asyncio.create_task(self._connect())
            return
        if not self._greeted:
            return
        for index, attachment in enumerate(self._attachments):
            if attachment.attached:
                self._send(index, now_s)
            else:
                self._attach(index, attachment, now_s)
            if index in quiet:
                self._lookup_if_due(index, attachment, now_s)
        self._flush()

    def stop(self) -> None:
        """Hang up."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self._transport is not None:
            self._transport.abort()

    async def _connect(self) -> None:
        try:
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await loop.create_connection(lambda: self, self._host, self.port)
        except (OSError, TimeoutError):
            await asyncio.sleep(RETRY_S)

    def _flush(self) -> None:
        if self._out and self._transport is not None:
            self._transport.write(b"".join(self._out))
        self._out.clear()

    def _request(self, what: str, index: int) -> int:
        request_id = next(self._request_ids)
        self._requests[request_id] = (what, index)
        return request_id

    def attach_soon(self, index: int) -> None:
        """The next step attaches."""
        if not self._attachments[index].waiting:
            self._attachments[index].asked_s = 0.0

    def _attach(self, index: int, attachment: _Attachment, now_s: float) -> None:
        wait_s = ANSWER_TIMEOUT_S if attachment.waiting else RETRY_S
        if now_s - attachment.asked_s < wait_s:
            return
        attachment.asked_s, attachment.waiting = now_s, True
        asked = pb.CommandProducer(
            topic=self._topics[index],
            producer_id=index,
            request_id=self._request("producer", index),
        )
        self._out.append(encode(producer=asked))

    def _subscribe(self, index: int) -> None:
        asked = pb.CommandSubscribe(
            topic=self._topics[index],
            subscription=SUBSCRIPTION,
            subType=SHARED,
            consumer_id=index,
            request_id=self._request("subscribe", index),
            initialPosition=EARLIEST,
        )
        self._out.append(encode(subscribe=asked))

    def _send(self, index: int, now_s: float) -> None:
        number = next(self._numbers)
        self._sent[number] = _Sent(index, number, now_s)
        self._out.append(a_send(number, str(number).encode(), producer_id=index))

    def _lookup_if_due(self, index: int, attachment: _Attachment, now_s: float) -> None:
        wait_s = ANSWER_TIMEOUT_S if attachment.lookup_waiting else RETRY_S
        if now_s - attachment.lookup_asked_s >= wait_s:
            self.lookup(index, now_s, authoritative=False)

    def lookup(self, index: int, now_s: float, *, authoritative: bool) -> None:
        """Ask this broker which broker serves a topic."""
        if not self._greeted:
            return
        attachment = self._attachments[index]
        attachment.lookup_asked_s, attachment.lookup_waiting = now_s, True
        asked = pb.CommandLookupTopic(
            topic=self._topics[index],
            request_id=self._request("lookup", index),
            authoritative=authoritative,
        )
        self._out.append(encode(lookup=asked))
        self._flush()

    # Answers

    def _handle(self, frame: Frame, now_s: float) -> None:
        command = frame.command
        match command.type:
            case 3:
                self._greeted = True
            case 7:
                self._on_receipt(command.send_receipt, now_s)
            case 9:
                self._on_message(command.message, frame.tail, now_s)
            case 13:
                self._on_success(command.success.request_id)
            case 14:
                self._on_error(command.error)
            case 15:
                self._on_close(command.close_producer.producer_id, now_s)
            case 16:
                self._on_close(command.close_consumer.consumer_id, now_s)
            case 17:
                self._on_producer(command.producer_success)
            case 18:
                self._out.append(encode(pong=pb.CommandPong()))
            case 24:
                self._on_lookup(command.lookup_response, now_s)

    def _on_receipt(self, receipt: pb.CommandSendReceipt, now_s: float) -> None:
        sent = self._sent.pop(receipt.sequence_id, None)
        if sent is None:
            self._observer.faults.append(f"{self._broker}: receipt of nothing: {receipt}")
            return
        taken = Receipt(sent.number, self._broker, sent.at_s, now_s)
        self._taken[sent.number] = taken
        message_id = receipt.message_id
        topic = self._topics[sent.index]
        self._observer.took(taken, topic, message_id.ledgerId, message_id.entryId)

    def _on_message(self, message: pb.CommandMessage, tail: bytes, now_s: float) -> None:
        (size,) = struct.unpack_from(">I", tail, 6)
        taken = self._taken.pop(int(tail[10 + size :]), None)
        if taken is not None:
            taken.delivered_s = now_s
        index = message.consumer_id
        ack = pb.CommandAck(consumer_id=index, ack_type=0, message_id=[message.message_id])
        self._out.append(encode(ack=ack))
        attachment = self._attachments[index]
        attachment.delivered += 1
        if attachment.delivered % (PERMITS // 2) == 0:
            self._permit(index, PERMITS // 2)

    def _permit(self, index: int, permits: int) -> None:
        self._out.append(encode(flow=pb.CommandFlow(consumer_id=index, messagePermits=permits)))

    def _on_producer(self, success: pb.CommandProducerSuccess) -> None:
        what, index = self._requests.pop(success.request_id)
        assert what == "producer"
        attachment = self._attachments[index]
        attachment.attached, attachment.waiting = True, False
        if not attachment.consuming:
            self._subscribe(index)

    def _on_success(self, request_id: int) -> None:
        what, index = self._requests.pop(request_id, ("", 0))
        if what == "subscribe":
            self._attachments[index].consuming = True
            self._permit(index, PERMITS)

    def _on_error(self, error: pb.CommandError) -> None:
        what, index = self._requests.pop(error.request_id, ("", 0))
        if what == "producer":
            self._attachments[index].waiting = False
        elif what == "subscribe":
            self._leave(index)

    def _on_close(self, index: int, now_s: float) -> None:
        if self._attachments[index].attached:
            notice = Notice(now_s, self._broker, self._topics[index], "CLOSE_PRODUCER")
            self._observer.notices.append(notice)
        self._leave(index)

    def _leave(self, index: int) -> None:
        """Attach the producer and the consumer again."""
        asked_s = self._attachments[index].lookup_asked_s
        self._attachments[index] = _Attachment(lookup_asked_s=asked_s)

    def _on_lookup(self, answer: pb.CommandLookupTopicResponse, now_s: float) -> None:
        _, index = self._requests.pop(answer.request_id)
        self._attachments[index].lookup_waiting = False
        if answer.response == REDIRECT and answer.authoritative:
            self._observer.redirect(index, answer.brokerServiceUrl, now_s)
        elif answer.response == CONNECT_THERE:
            self._observer.found(index, answer.brokerServiceUrl)


def _proof(bundle: str, one: Life, other: Life) -> str:
    first, second = sorted((one, other), key=lambda life: life.first_received_s)
    late_s = first.last_sent_s - second.first_received_s
    return (
        f"{bundle}: {first.broker} took a message of {first.topic} that was sent"
        f" {late_s:.3f} s after the first receipt of {second.broker} for {second.topic}"
    )
