"""Records of what a leader finds wrong: when it begins, how it goes on, and when it ends."""

from __future__ import annotations

from typing import ClassVar

from loadmanager.engine.history.records import Record


class FindingStep(Record, kw_only=True):
    """Something began to be wrong, still is, or no longer is, as the leader's look found it. A
    finding ends with the leader's term at the latest: the next leader looks anew.
    """

    kind: ClassVar[str] = "finding"
    epoch: int
    """The leader's term."""
    event: str
    """`began`, `again` (it is still so: with other words in its title, at the next look; with other
    words below it, or figures that differ by a quarter, three minutes after the last record at the
    earliest; with figures that hardly differ, ten; a lost broker at once; in the same words once
    an hour), `ended`, or `looked`: the first look of a term, and one each hour.
    """
    what: str = ""
    """The kind of finding; empty for `looked`, as the next four."""
    about: str = ""
    """The broker, bundle, topic, limit or cluster."""
    since: int = 0
    """Since when it is so, as far as this leader knows, milliseconds since the epoch."""
    title: str = ""
    text: str = ""
    advice: str = ""
    command: str | None = None


FINDING_KINDS: dict[str, type[Record]] = {FindingStep.kind: FindingStep}
