"""What the shapes of the API have in common: each thing that is shown, sent or read over HTTP is
one `Struct`, from which its JSON, the OpenAPI document and the page's types are made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Annotated, Any

import msgspec
from msgspec import Meta

NAME_MAX = 500


class Model(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A body that is sent; other fields than its own are refused."""


class Shape(msgspec.Struct, rename="camel", kw_only=True):
    """An answer. Whoever reads it passes over the fields of a later version. A field that is new
    has a default, for those who read the answers of an earlier one.
    """


Name = Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]


class ErrorReason(Shape):
    """Why a request failed: Pulsar's body of errors."""

    reason: str


def encoded(value: object) -> bytes:
    """A value as JSON. Raises `TypeError` for what has none."""
    return msgspec.json.encode(value, enc_hook=plain)


def plain(value: object) -> Any:
    """Convert mappings and sequences that compute their values, and numbers of numpy, into plain
    ones, for `msgspec`.
    """
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise NotImplementedError(type(value))
