"""Changes of subscriptions. Durable ones are recorded before anybody hears that they exist."""

from __future__ import annotations

from loadmanager.broker.messaging.cursor import Cursor, write_cursor
from loadmanager.broker.messaging.subscription import Subscription, SubscriptionType
from loadmanager.broker.protocol.hosted import HostedTopic
from loadmanager.broker.protocol.serving import Serving


async def create_durable(
    server: Serving, hosted: HostedTopic, name: str, kind: SubscriptionType, start_id: int
) -> HostedTopic:
    """Record a durable subscription and add it to the topic, if it is absent.

    Returns the topic, which another life of its bundle may have opened meanwhile. Raises
    `BadInputError` when the topic has its maximum of subscriptions.
    """
    creating, ledger_id = hosted.creating, hosted.core.ledger_id
    hosted.core.check_subscription(name, creating=len(creating))
    creating[name] = None
    try:
        cursor = b"" if hosted.stored is None else write_cursor(Cursor(start_id))[0]
        await server.directory.record_subscription(hosted.name, name, cursor)
        hosted = await server.topics.host(hosted.name)
    finally:
        creating.pop(name, None)
    if hosted.core.ledger_id != ledger_id:  # it was deleted meanwhile, and created again
        start_id = min(start_id, hosted.core.log.end_id)
    hosted.core.subscribe(name, kind, start_id, durable=True)
    if hosted.stored is not None:
        hosted.stored.moved()
    server.dispatcher.touch(hosted)
    return hosted


def close_consumers(server: Serving, hosted: HostedTopic, subscription: Subscription) -> None:
    """Have the clients of a subscription come back."""
    for core in list(subscription.consumers):
        server.attachments.close_consumer(hosted.attached[core], None, "its subscription was moved")


def seek(server: Serving, hosted: HostedTopic, subscription: Subscription, entry_id: int) -> None:
    """Have a subscription go on from an entry. Its consumers are closed first: with messages of
    before, they could not know which ones to drop.
    """
    close_consumers(server, hosted, subscription)
    hosted.core.subscriptions[subscription.name] = subscription  # without consumers it may be gone
    if not subscription.durable:
        hosted.sought[subscription] = server.clock.monotonic_s()
    subscription.rewind_to(entry_id)
    if hosted.stored is not None:
        hosted.stored.moved()
