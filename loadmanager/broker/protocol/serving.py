"""What connections are served with."""

from __future__ import annotations

from loadmanager.broker.protocol.attachments import Attachments
from loadmanager.broker.protocol.hosted_topics import HostedTopics
from loadmanager.broker.protocol.server_state import ServerState


class Serving(ServerState):
    """The state of a server, its topics, and what clients have attached to them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.attachments = Attachments(self)
        self.topics = HostedTopics(self, self.attachments)
