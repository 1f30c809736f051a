"""Who asks for what, and where the changes that were allowed are told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol
from zlib import crc32

from loadmanager.kit.model import Shape

WRITTEN_MAX = 100
"""Stored documents of one request that are told apart."""
READ_MAX = 1_000
"""Documents that a request read, and may change."""


@dataclass(frozen=True, slots=True)
class Written:
    """A stored document before and after a request; None: it does not exist."""

    path: str
    before: bytes | None
    after: bytes | None


@dataclass(slots=True, kw_only=True)
class Asked:
    """A request that may change something."""

    roles: tuple[str, ...]
    """The role that asks, and the one for which a proxy asks; empty without authentication."""
    address: str
    over: str
    """`http`, `binary` or `fleet`."""
    what: str
    """Method and path, or the command with its topic."""
    body: str = ""
    """What was asked for, if no stored document says it."""
    orders: bool = False
    """Whether it is one of the orders that brokers give each other."""
    note: str = ""
    failed: str = field(default="", init=False)
    """Why it failed, without a change of anything stored."""
    read: dict[str, bytes] = field(default_factory=dict, init=False)
    written: dict[str, Written] = field(default_factory=dict, init=False)
    unnamed: int = field(default=0, init=False)
    """Further documents that were written."""
    idle: bool = field(default=False, init=False)
    """It was allowed, and there was nothing to change."""
    ended: bool = field(default=False, init=False)
    """Tasks that outlive the request, such as those of a topic that it opened, work for nobody."""

    def saw(self, path: str, value: bytes) -> None:
        """The request read a document."""
        if not self.ended and len(self.read) < READ_MAX:
            self.read[path] = value

    def wrote(self, path: str, value: bytes | None) -> None:
        """The request wrote a document, or deleted it."""
        if self.ended:
            return
        written = self.written.get(path)
        if written is None and len(self.written) >= WRITTEN_MAX:
            self.unnamed += 1
            return
        before = written.before if written is not None else self.read.get(path)
        self.written[path] = Written(path, before, value)


ASKED: ContextVar[Asked | None] = ContextVar("asked", default=None)
"""The request on whose behalf this task works."""


@contextmanager
def asking(asked: Asked) -> Iterator[Asked]:
    """While the block runs, what is written is written for this request."""
    token = ASKED.set(asked)
    try:
        yield asked
    finally:
        ASKED.reset(token)
        asked.ended = True
        asked.read.clear()


def asked_by() -> str:
    """Who asks for what this task does: the role, or without authentication the address; empty if
    nobody but a broker does.
    """
    asked = ASKED.get()
    if asked is None or asked.orders:
        return ""
    return " for ".join(asked.roles) or asked.address


def nothing_changed() -> None:
    """What this request asked for is so already: it is not told as a change."""
    asked = ASKED.get()
    if asked is not None:
        asked.idle = True


def note_change(text: str) -> None:
    """What the record of this request's change is to say beside what was asked for."""
    asked = ASKED.get()
    if asked is not None and not asked.ended:
        asked.note = text


DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_CHANGE_ID = re.compile(r"c-([0-9a-z]{1,9})-([0-9a-z]{1,9})([0-9a-z]{2})")


def change_id(at_ms: int, number: int, broker: str) -> str:
    """The id of a change: its time and its number since the broker's start, so that ids can be put
    in order, and two characters for the broker, so that hardly two brokers make the same one.
    """
    return f"c-{_digits(at_ms)}-{_digits(number)}{_mark(broker)}"


def is_id_of(id_: str, broker: str) -> bool:
    """Whether a change with this id may have been made at this broker."""
    return id_.endswith(_mark(broker))


def _mark(broker: str) -> str:
    return _digits(crc32(broker.encode()) % len(DIGITS) ** 2).rjust(2, "0")


def change_order(id_: str) -> tuple[int, int] | None:
    """The time (ms since the epoch) and the number in a change's id; None: it is no such id."""
    match = _CHANGE_ID.fullmatch(id_)
    return None if match is None else (int(match[1], len(DIGITS)), int(match[2], len(DIGITS)))


def _digits(number: int) -> str:
    text = ""
    while number or not text:
        number, digit = divmod(number, len(DIGITS))
        text = DIGITS[digit] + text
    return text


class ChangeShown(Shape):
    """A change that somebody was allowed to make."""

    ts: int
    broker: str
    """Where it was made."""
    role: str
    """Empty without authentication."""
    proxied: str | None
    """The role for which a proxy asked."""
    address: str
    over: str
    """`http`, `binary` (Pulsar's protocol) or `fleet`."""
    what: str
    """Method and path, or the command with its topic."""
    path: str | None
    """The stored document that was changed."""
    before: str | None
    """The fields that were changed, as JSON; cut off after 2,000 characters."""
    after: str | None
    """Without a stored document, what was asked for."""
    note: str | None
    id: str | None = None
    """By which it can be undone; null in what earlier versions recorded."""
    words: str | None = None
    """What was done, in words; null in what earlier versions recorded."""
    failed: bool = False
    """Whether it could not be carried out: `note` says why, and nothing stored became another."""

    def __str__(self) -> str:
        """What was done."""
        return self.words or self.what

    def is_by(self, role: str) -> bool:
        """Whether this role made it; without authentication there is no role, and it is that of an
        address.
        """
        return role == (self.role or self.address)


class ChangesShown(Shape):
    """The last changes of all brokers, the newest first; why some brokers gave no answer."""

    changes: list[ChangeShown]
    not_asked: int
    no_answer: dict[str, str]


class Audit(Protocol):
    """Keeps and tells the changes that were allowed."""

    def changed(self, asked: Asked) -> None:
        """Somebody made a change. Never blocks or raises: what cannot be kept is counted."""
        ...

    async def settle(self) -> None:
        """Wait until the changes so far are there after a kill, for a second at most."""
        ...

    def recent(self, limit: int) -> list[ChangeShown]:
        """The last changes that this broker made, the newest first."""
        ...
