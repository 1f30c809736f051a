"""Declarations of what a route takes and answers, beside its handler: the source of the OpenAPI
document.

A handler without a declaration is not served: `tests/broker/admin/test_openapi.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from loadmanager.kit.errors import BadInputError
from loadmanager.kit.http.answers import RefusedError, body, whole

Handler = TypeVar("Handler", bound=Callable[..., Any])
T = TypeVar("T")

ATTRIBUTE = "operation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One parameter of the query."""

    name: str
    doc: str
    kind: type = str
    """bool, int or str."""
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    default: Any = None
    many: bool = False
    """Whether it may be given several times."""

    def whole(self, request: web.Request) -> int:
        """Its value in a request, or the default. Raises `BadInputError`."""
        assert self.minimum is not None
        assert self.maximum is not None
        return whole(request, self.name, self.default, minimum=self.minimum, maximum=self.maximum)

    def text(self, request: web.Request) -> str | None:
        """Its value in a request; None if it is empty. Raises `BadInputError` if not allowed."""
        value = request.query.get(self.name) or self.default
        if value is not None and self.choices and value not in self.choices:
            allowed = ", ".join(self.choices)
            raise BadInputError(f"{self.name}={value[:40]}: one of {allowed} is allowed")
        text: str | None = value
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The parameters, body and answers of a handler, beyond what its path and method say."""

    answer: Any = None
    """The type of the JSON that 200 has, or a tuple of several; None: 204 without a body."""
    media: str = "application/json"
    """Another media type of 200 than JSON; then `answer` is str."""
    empty: str = ""
    """When the answer is 204 although there is an `answer`."""
    body: Any = None
    """The type of the JSON that is sent."""
    body_required: bool = True
    query: tuple[Query, ...] = ()
    elsewhere: str = ""
    """Which broker answers if not the one that is asked: 307 to it."""
    refusal: Any = None
    """The type of a 409's JSON, if it tells more than the reason."""
    also: Mapping[int, str] = field(default_factory=dict)
    """Further statuses, each with its reason."""


Names = list[str]
Texts = dict[str, str]
Document = dict[str, Any]
AUTHORITATIVE = Query(
    name="authoritative", doc="True if another broker sent the request here.", kind=bool
)
FORCE = Query(name="force", doc="Do it although it is in use.", kind=bool)
TEXT = "text/plain"


def operation(answer: Any = None, **fields: Any) -> Callable[[Handler], Handler]:
    """Declare what a handler takes and answers: the fields of `Operation`."""
    declared = Operation(answer=answer, **fields)

    def declare(handler: Handler) -> Handler:
        setattr(handler, ATTRIBUTE, declared)
        return handler

    return declare


def operation_of(handler: Any) -> Operation | None:
    """The declaration of a handler, if it has one."""
    declared: Operation | None = getattr(handler, ATTRIBUTE, None)
    return declared


def of_leader(answer: Any = None, **fields: Any) -> Callable[[Handler], Handler]:
    """Declare an operation that the leader answers; see `operation`."""
    return operation(answer, elsewhere="the leader", **fields)


def of_owner(answer: Any = None, **fields: Any) -> Callable[[Handler], Handler]:
    """Declare an operation that the owner of a topic's bundle answers; see `operation`."""
    query = (*fields.pop("query", ()), AUTHORITATIVE)
    return operation(answer, elsewhere="the owner", query=query, **fields)


async def body_as(request: web.Request, kind: type[T]) -> T:
    """The JSON body, checked: an empty one counts as `{}`.

    Raises `RefusedError` (400) naming the field that is missing, unknown or of another type.
    """
    document = await body(request)
    try:
        return msgspec.convert({} if document is None else document, kind)
    except msgspec.ValidationError as error:
        raise RefusedError(400, _named(str(error))) from None


def _named(text: str) -> str:
    """msgspec's text with the field in front: `bundle: expected str, got int`."""
    what, _, where = text.partition(" - at `$")
    place = where.rstrip("`").lstrip(".")
    what = what[:1].lower() + what[1:]
    return f"{place}: {what}" if place else f"the body: {what}"
