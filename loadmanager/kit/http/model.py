"""What all shapes of the API have in common."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

NAME_MAX = 500


class Model(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A JSON object; other fields than its own are refused."""


Name = Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]


class Reason(Model):
    """Why a request failed: Pulsar's body of errors."""

    reason: str


class Shape(msgspec.Struct, rename="camel", kw_only=True):
    """A JSON object."""
