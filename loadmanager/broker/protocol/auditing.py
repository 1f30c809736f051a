"""Tells the audit log of commands that changed something stored: topics, subscriptions, schemas."""

from __future__ import annotations

from loadmanager.broker.protocol.connection import Connection, Handler
from loadmanager.broker.wire.frames import COMMAND_TYPES, Frame
from loadmanager.kit.audit import Asked, Audit, asking

CHANGING = (
    "producer",
    "subscribe",
    "unsubscribe",
    "partition_metadata",
    "get_or_create_schema",
)
"""Commands that may write: a topic is recorded when the first client uses it."""


def audited(audit: Audit, handlers: dict[int, Handler]) -> dict[int, Handler]:
    """The handlers; those of commands that may change something tell of what they changed."""
    changing = {COMMAND_TYPES[name]: name for name in CHANGING}
    return {
        kind: _telling(audit, changing[kind], handler) if kind in changing else handler
        for kind, handler in handlers.items()
    }


def _telling(audit: Audit, name: str, handler: Handler) -> Handler:
    async def tell(connection: Connection, frame: Frame) -> None:
        asked = Asked(
            roles=connection.roles,
            address=connection.address,
            over="binary",
            what=f"{name.upper()} {_topic(connection, frame, name)}",
        )
        try:
            with asking(asked):
                working = handler(connection, frame)
                if working is not None:
                    await working
        finally:
            if asked.written:
                audit.changed(asked)

    return tell


def _topic(connection: Connection, frame: Frame, name: str) -> str:
    if name != "unsubscribe":
        return str(getattr(frame.command, name).topic)
    consumer = connection.consumers.get(frame.command.unsubscribe.consumer_id)
    return "" if consumer is None else f"{consumer.hosted.name} {consumer.subscription.name}"
