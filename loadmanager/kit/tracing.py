"""Spans: what is done for one request, whichever broker does it.

This is all that the program knows of tracing. Whoever starts the process installs a tracer
(`kit.otlp`); without one, a span is a shared object that does nothing. The present span is a
context variable, which tasks inherit: what they do for a request is part of its trace. From broker
to broker it goes as W3C's `traceparent` (w3.org/TR/trace-context), in a header or a stored order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from enum import Enum
from types import TracebackType
from typing import Protocol

HEADER = "traceparent"
Attribute = str | int | float | bool
_PARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""The version that is defined; ids of zeros mean none."""


class SpanSide(Enum):
    """The side of a call that a span is of."""

    INSIDE = "inside"
    SERVER = "server"
    CLIENT = "client"


class Span(Protocol):
    """Something that is being done."""

    @property
    def traceparent(self) -> str:
        """The name by which what others do for it becomes part of it; empty: it has none."""
        ...

    @property
    def recording(self) -> bool:
        """Whether anybody will see it: not if its trace was not sampled."""
        ...

    def note(self, **attributes: Attribute | None) -> None:
        """Say more about it; None says nothing."""
        ...

    def fail(self, why: str) -> None:
        """It did not succeed."""
        ...

    def end(self) -> None:
        """It is over; called once."""
        ...


class Tracer(Protocol):
    """Makes spans."""

    def start(
        self, name: str, parent: str, kind: SpanSide, attributes: dict[str, Attribute]
    ) -> Span:
        """Begin a span; `parent`: a valid traceparent, or empty for a new trace."""
        ...


class _Nothing:
    """The span of what is not traced, and its block."""

    traceparent = ""
    recording = False

    def note(self, **attributes: Attribute | None) -> None: ...

    def fail(self, why: str) -> None: ...

    def end(self) -> None: ...

    def __enter__(self) -> Span:
        return self

    def __exit__(self, *_: object) -> None: ...


class _Block:
    """Makes a span the present one for a block, and ends it with the block."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span = span
        self._token: Token[Span] | None = None

    def __enter__(self) -> Span:
        self._token = _PRESENT.set(self._span)
        return self._span

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        assert self._token is not None, "a block is entered before it is left"
        _PRESENT.reset(self._token)
        if kind is not None:
            self._span.fail(f"{kind.__name__}: {error}" if str(error) else kind.__name__)
        self._span.end()


_NOTHING = _Nothing()
_PRESENT: ContextVar[Span] = ContextVar("span", default=_NOTHING)
_tracer: Tracer | None = None


def install(tracer: Tracer) -> Callable[[], None]:
    """Trace this process from now on; returns a function that ends this."""
    global _tracer  # noqa: PLW0603 - one for the process, as its logger
    _tracer = tracer

    def uninstall() -> None:
        global _tracer  # noqa: PLW0603
        _tracer = None

    return uninstall


def span(
    name: str, parent: str = "", *, kind: SpanSide = SpanSide.INSIDE, **attributes: Attribute
) -> AbstractContextManager[Span]:
    """A block that is traced: as a part of `parent`, else of the present span, else as a trace of
    its own.
    """
    if _tracer is None:
        return _NOTHING
    if not _valid(parent):
        parent = _PRESENT.get().traceparent
    return _Block(_tracer.start(name, parent, kind, attributes))


def part(
    name: str,
    parent: str | None = None,
    *,
    kind: SpanSide = SpanSide.INSIDE,
    **attributes: Attribute,
) -> AbstractContextManager[Span]:
    """A block that is traced if it is part of something: of `parent`, if one is named that is
    valid, else of the present span.
    """
    if _tracer is None:
        return _NOTHING
    if parent is None:
        present = _PRESENT.get()
        if not present.recording:
            return _NOTHING
        parent = present.traceparent
    elif not _valid(parent):
        return _NOTHING
    return _Block(_tracer.start(name, parent, kind, attributes))


def traceparent() -> str:
    """The present span's name, for others; empty: there is none."""
    return "" if _tracer is None else _PRESENT.get().traceparent


def headers() -> dict[str, str]:
    """What a request to another broker says of the present span."""
    parent = traceparent()
    return {HEADER: parent} if parent else {}


def _valid(parent: str) -> bool:
    """Whether it may be used: others write it."""
    return _PARENT.fullmatch(parent) is not None
