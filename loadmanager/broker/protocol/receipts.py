"""The receipts that a stored topic owes its producers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from loadmanager.broker.messaging.log import Entry
from loadmanager.broker.protocol.hosted import AttachedProducer
from loadmanager.broker.protocol.repeated import Repeat
from loadmanager.broker.wire.frames import DUPLICATE


@dataclass(slots=True)
class Owed:
    """A receipt that is sent once the entries below `end_id` are stored."""

    end_id: int
    producer: AttachedProducer
    sequence_id: int
    entry_id: int | None
    """None: the message was stored before, and where is not known yet."""
    chunk_id: int
    answer: bytes | None = None
    """What is sent instead of a receipt: the answer to its client, which closes the producer."""

    @property
    def repeat(self) -> Repeat:
        """The message, as its producer knows it."""
        return self.producer.core.name, self.sequence_id, self.chunk_id

    def encode(self) -> bytes:
        if self.answer is not None:
            return self.answer
        entry_id = DUPLICATE if self.entry_id is None else self.entry_id
        return self.producer.receipts.encode(self.sequence_id, entry_id)


class Receipts:
    """Receipts in the order of their messages. `all_sent` is set while there are none."""

    def __init__(self) -> None:
        self.all_sent = asyncio.Event()
        self.all_sent.set()
        self._owed: deque[Owed] = deque()

    def owe(
        self,
        end_id: int,
        producer: AttachedProducer,
        sequence_id: int,
        entry: Entry | None,
        chunk_id: int,
    ) -> None:
        """A message was appended, or was there before (None)."""
        producer.connection.owe(1)
        entry_id = None if entry is None else entry.entry_id
        self._owed.append(Owed(end_id, producer, sequence_id, entry_id, chunk_id))
        self.all_sent.clear()

    def owe_answer(self, end_id: int, producer: AttachedProducer, answer: bytes) -> bool:
        """Send this answer after all receipts that are due; returns False if none is."""
        if self._owed:
            producer.connection.owe(1)
            self._owed.append(Owed(end_id, producer, 0, DUPLICATE, 0, answer))
        return bool(self._owed)

    def take(self, end_id: int) -> Iterator[Owed]:
        """Those for entries below `end_id`, up to the first whose entry is not known."""
        owed = self._owed
        while owed and owed[0].end_id <= end_id and owed[0].entry_id is not None:
            receipt = owed.popleft()
            receipt.producer.connection.owe(-1)
            yield receipt
        if not owed:
            self.all_sent.set()

    def unnamed(self, end_id: int) -> list[Owed]:
        """Those for repeated messages, if the next one is, and was stored."""
        if not self._owed or self._owed[0].entry_id is not None or self._owed[0].end_id > end_id:
            return []
        return [owed for owed in self._owed if owed.entry_id is None]

    @staticmethod
    def name(receipts: list[Owed], ids: Mapping[Repeat, int]) -> None:
        """The entries of repeated messages, as far as they are known."""
        for owed in receipts:
            owed.entry_id = ids.get(owed.repeat, DUPLICATE)

    def drop(self) -> list[Owed]:
        """Nobody gets a receipt any more. Returns the other answers, which are due now."""
        for receipt in self._owed:
            receipt.producer.connection.owe(-1)
        answers = [receipt for receipt in self._owed if receipt.answer is not None]
        self._owed.clear()
        self.all_sent.set()
        return answers
