"""Who a client is, as it proved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

TOKEN_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Identity:
    """A role that a client proved."""

    role: str
    expires_s: float | None = None
    """When the proof ends, in seconds since the epoch; None: never."""
    token_id: str = ""
    """By which operators refuse the token; empty without one."""


class Verifier(Protocol):
    """Checks what clients prove themselves with."""

    def verify(self, credentials: str) -> Identity:
        """Raises `NotAuthenticatedError`."""
        ...
