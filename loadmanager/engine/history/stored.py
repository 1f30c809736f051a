"""Records of what is stored, by the leader."""

from __future__ import annotations

from typing import ClassVar

from loadmanager.engine.history.records import Record


class NamespaceStored(Record, kw_only=True):
    """What the topics of a namespace have stored, open or not, as the leader counted it."""

    kind: ClassVar[str] = "stored"
    interval_ms: int
    """Since it last counted, or an hour."""
    namespace: str
    topics: int
    """That have a log."""
    stored_bytes: int
    """In the segments of their logs."""


STORED_KINDS: dict[str, type[Record]] = {NamespaceStored.kind: NamespaceStored}
