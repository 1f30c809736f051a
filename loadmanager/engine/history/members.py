"""Records of brokers that come and go, by the leader."""

from __future__ import annotations

from typing import ClassVar

from loadmanager.engine.history.records import Record


class MemberChange(Record, kw_only=True):
    """A broker came, left or came back, or what it had owned is served again."""

    kind: ClassVar[str] = "member"
    of: str
    """The broker."""
    event: str
    """`left`, `back` or `placed` (all its bundles are served again)."""
    how: str = ""
    """Of `left`: `stopped`, `drained` or `lost`."""
    version: str | None = None
    started_at: int | None = None
    """When its process began, milliseconds since the epoch."""
    bundles: int = 0
    """Those that it had owned."""
    took_ms: int | None = None
    """Of `placed`: until the last one was served. Of `back`: how long it was away."""
    same_process: bool | None = None
    """Of `back`: false if it was restarted."""


MEMBER_KINDS: dict[str, type[Record]] = {MemberChange.kind: MemberChange}
