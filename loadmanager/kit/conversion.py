"""Documents in their shapes, from any thread."""

from __future__ import annotations

import threading
from typing import TypeVar

import msgspec

T = TypeVar("T")

_CONVERTING = threading.Lock()


def converted(document: object, shape: type[T]) -> T:
    """A decoded document in this shape. At the first use of a shape `msgspec` learns it, and the
    process crashes if two threads have it do so at once. Raises `msgspec.ValidationError`.
    """
    with _CONVERTING:
        return msgspec.convert(document, shape)
