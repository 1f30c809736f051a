"""Records of clients that come, leave and are refused, each by the broker that they came to."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from loadmanager.engine.history.records import Record

CLOSED_HERE = "its topic was closed here"
"""Why a client left whose broker gave up the bundle, closed the topic, or stopped."""
HUNG_UP = "the broker ended the connection"
REFUSED_AGAIN_S = 60
"""A refusal that goes on is recorded again after this time."""
REPEATS_EVERY_S = 15
"""Time between two looks for refusals that came again."""
HELD_S = 5
"""Connections that limits hold are recorded after this time, which is also that between two looks.
"""


class ClientStep(Record, kw_only=True):
    """A producer or consumer was attached or left, a client was refused something, or limits held
    its connection.
    """

    kind: ClassVar[str] = "client"
    event: str
    """`attached`, `left`, `refused`, `held` (limits hold its connection, for some seconds already),
    `freed` (they did until then, or it was closed), or `unrecorded`: there were more of these than
    are recorded.
    """
    client: str = ""
    """Address and port of its connection."""
    address: str = ""
    roles: list[str] = msgspec.field(default_factory=list)
    what: str = ""
    """`producer` or `consumer`; of `refused` also `lookup` and `connection`; of `held` and `freed`
    `connection`.
    """
    name: str = ""
    topic: str | None = None
    bundle: str | None = None
    """The bundle of the topic; None where a client was refused."""
    subscription: str | None = None
    reason: str = ""
    """Why it left or was refused, for people; of `held` and `freed`: the limits."""
    code: str | None = None
    """Of `refused`: Pulsar's name of the error."""
    destination: str | None = None
    """Of `left`: the broker to which it was sent, because its bundle goes there."""
    attached_ms: int | None = None
    """Of `left`: how long it was attached."""
    fenced_ms: int | None = None
    """Of `left`: for how long its topic had not been served by then, as its bundle was to move;
    None: it was served until then.
    """
    messages: int | None = None
    """Of `left`: those that it had published, or that were delivered to it."""
    held_ms: int | None = None
    """Of `held` and `freed`: for how long by then."""
    times: int = 1
    """Of `refused`: how often since the last record of the same. Of `unrecorded`: how many."""


REFUSED = f"{ClientStep.kind}.refused"
"""The kind under which archives have those that were refused."""
CLIENT_KINDS: dict[str, type[Record]] = {ClientStep.kind: ClientStep}
