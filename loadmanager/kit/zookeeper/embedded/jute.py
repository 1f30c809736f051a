"""The bytes of ZooKeeper's records: big-endian numbers, and a length before texts and lists."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TypeVar

from loadmanager.kit.errors import BadInputError

T = TypeVar("T")

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
NO_VALUE = _INT.pack(-1)
"""A text, buffer or list that is null."""


class MalformedRecordError(BadInputError):
    """Bytes that are no record of the expected kind."""


class JuteReader:
    """Reads values in their order. Each method raises `MalformedRecordError`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def at_end(self) -> bool:
        """True if nothing is left."""
        return self._at >= len(self._data)

    def integer(self) -> int:
        """32 bits, signed."""
        return self._number(_INT)

    def long(self) -> int:
        """64 bits, signed."""
        return self._number(_LONG)

    def boolean(self) -> bool:
        """One byte."""
        return self._bytes(1) != b"\0"

    def buffer(self) -> bytes | None:
        """Bytes, or null."""
        length = self.integer()
        return None if length == -1 else self._bytes(length)

    def text(self) -> str | None:
        """UTF-8, or null; what is no UTF-8 becomes U+FFFD, as in Java."""
        data = self.buffer()
        return None if data is None else data.decode("utf-8", "replace")

    def vector(self, item: Callable[[], T]) -> list[T]:
        """A list; null is read as empty."""
        count = self.integer()
        # Each item has a byte at least: a count cannot make us hold more than was sent.
        if count > len(self._data) - self._at:
            raise MalformedRecordError(f"a list of {count} is longer than its record")
        return [item() for _ in range(count)]

    def _number(self, kind: struct.Struct) -> int:
        try:
            (value,) = kind.unpack_from(self._data, self._at)
        except struct.error:
            raise MalformedRecordError("a record is too short") from None
        self._at += kind.size
        return int(value)

    def _bytes(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise MalformedRecordError(f"{length} bytes are not in the record")
        data, self._at = self._data[self._at : end], end
        return data


def integer(value: int) -> bytes:
    """32 bits, signed; a larger number is wrapped, as in Java."""
    return _INT.pack((value + (1 << 31)) % (1 << 32) - (1 << 31))


def long(value: int) -> bytes:
    """64 bits, signed."""
    return _LONG.pack(value)


def boolean(value: bool) -> bytes:
    """One byte."""
    return b"\1" if value else b"\0"


def buffer(value: bytes | None) -> bytes:
    """A length and bytes, or null."""
    return NO_VALUE if value is None else _INT.pack(len(value)) + value


def text(value: str) -> bytes:
    """UTF-8."""
    return buffer(value.encode())


def vector(items: Iterable[bytes]) -> bytes:
    """A count and the items, each already written."""
    listed = list(items)
    return b"".join([_INT.pack(len(listed)), *listed])
