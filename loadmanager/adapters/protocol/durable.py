"""Durable subscriptions, which are recorded before anybody hears that they exist."""

from __future__ import annotations

from loadmanager.adapters.protocol.hosted import HostedTopic
from loadmanager.adapters.protocol.registry import TopicRegistry
from loadmanager.core.messaging.subscription import SubscriptionType


async def create_durable(
    server: TopicRegistry, hosted: HostedTopic, name: str, kind: SubscriptionType, start_id: int
) -> HostedTopic:
    """Record a durable subscription and add it to the topic, if it is absent.

    Returns the topic, which another life of its bundle may have opened meanwhile. Raises
    `BadInputError` when the topic has its maximum of subscriptions.
    """
    creating = hosted.creating
    hosted.core.check_subscription(name, creating=len(creating))
    creating[name] = None
    try:
        await server.directory.record_subscription(hosted.name, name)
        hosted = await server.host(hosted.name)
    finally:
        creating.pop(name, None)
    hosted.core.subscribe(name, kind, start_id, durable=True)
    server.dispatcher.touch(hosted)
    return hosted
