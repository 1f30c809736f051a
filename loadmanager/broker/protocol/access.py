"""The identity of a connection, and the permissions that its commands need.

A command whose check needs only what is in memory is checked, and refused, at once. Any other
waits for its check; the commands behind it do not. Clients send nothing that relies on a
producer or consumer before they have the answer that it was attached.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from loadmanager.broker.ports.access import Access
from loadmanager.broker.protocol.connection import Connection, Handler
from loadmanager.broker.protocol.lookups import SERVER_VERSION, code_of
from loadmanager.broker.protocol.refusing import refuse
from loadmanager.broker.protocol.rights import Rights
from loadmanager.broker.protocol.serving import Serving
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import COMMAND_TYPES, REQUEST_ID_NONE, Frame, encode
from loadmanager.engine.policies.permissions import CONSUME, PRODUCE
from loadmanager.kit.errors import ForbiddenError, LoadManagerError, NotAuthenticatedError
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.kit.refused_clients import ClientRefusals

Roles = tuple[str, ...]
_Use = tuple[Roles, NamespaceName, TopicName | None, str, str]
"""Actions of which one is needed, with what, of which subscription, and the name of the use."""
TOKEN = "token"
REFRESH = b"PulsarAuthRefresh"
"""The challenge that asks a client to renew its proof, as Pulsar spells it."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a command needs: one of the actions, with the topic or namespace that it names. A
    producer that creates a subscription needs what a consumer of it needs, as in Pulsar's
    `ServerCnx.handleProducer`.
    """

    field: str
    actions: Roles
    what: str

    def knows(self, access: Access, roles: Roles, command: pb.BaseCommand) -> bool:
        """Check it if everything is in memory; False: `check` must. Raises `ForbiddenError`, or
        `BadInputError` for an invalid name.
        """
        return all(
            access.knows(roles, actions, namespace, topic, subscription=subscription, what=what)
            for actions, namespace, topic, subscription, what in self._named(command)
        )

    async def check(self, access: Access, roles: Roles, command: pb.BaseCommand) -> None:
        """Check it; raises as `knows`."""
        for actions, namespace, topic, subscription, what in self._named(command):
            if topic is None:
                await access.require_namespace(roles, actions, namespace, what)
            else:
                await access.require_topic(
                    roles, actions, topic, subscription=subscription, what=what
                )

    def _named(self, command: pb.BaseCommand) -> Iterator[_Use]:
        request = getattr(command, self.field)
        if self.field == "get_topics":
            yield self.actions, NamespaceName.parse(request.namespace), None, "", self.what
            return
        topic = TopicName.parse(request.topic)
        subscription = getattr(request, "subscription", "")
        yield self.actions, topic.namespace, topic, subscription, self.what
        if name := getattr(request, "initial_subscription_name", ""):
            yield (CONSUME,), topic.namespace, topic, name, "Subscribe"


_ANY = (PRODUCE, CONSUME)
_ATTACHING = {COMMAND_TYPES["producer"], COMMAND_TYPES["subscribe"]}
NEEDS = {
    COMMAND_TYPES[field]: Need(field, actions, what)
    for field, actions, what in (
        ("lookup", _ANY, "Lookup"),
        ("partition_metadata", _ANY, "Get Partition Metadata"),
        ("producer", (PRODUCE,), "Produce"),
        ("subscribe", (CONSUME,), "Subscribe"),
        ("get_schema", _ANY, "Get Schema"),
        ("get_or_create_schema", (PRODUCE,), "Create Schema"),
        ("get_topics", _ANY, "Get Topics of Namespace"),
    )
}
"""Type of a command → what it needs. All others concern what was attached, or nothing."""


@dataclass(slots=True)
class ClientAccess:
    """Asks clients who they are, and checks what they may do."""

    access: Access
    serving: Serving
    refusals: ClientRefusals = field(default_factory=lambda: ClientRefusals("binary"))
    rights: Rights = field(init=False)
    _challenged: set[Connection] = field(default_factory=set)
    """Connections that were asked for a new proof."""

    def __post_init__(self) -> None:
        """Be told when permissions change."""
        self.rights = Rights(self.access, self.serving, self.refusals)
        self.access.on_refused(self._end_refused)

    def around(self, handlers: dict[int, Handler]) -> dict[int, Handler]:
        """The handlers with their checks."""
        checked = {
            kind: self._checking(NEEDS[kind], handler) if kind in NEEDS else handler
            for kind, handler in handlers.items()
        }
        connect = handlers[COMMAND_TYPES["connect"]]
        checked[COMMAND_TYPES["connect"]] = self._connecting(connect)
        checked[COMMAND_TYPES["auth_response"]] = self._on_auth_response
        return checked

    # Authentication

    def _connecting(self, connect: Handler) -> Handler:
        def on_connect(connection: Connection, frame: Frame) -> None:
            request = frame.command.connect
            if self._identify(
                connection, request.auth_method_name, request.auth_data, request.original_principal
            ):
                connection.refreshes = request.feature_flags.supports_auth_refresh
                connect(connection, frame)

        return on_connect

    def _identify(
        self, connection: Connection, method: str, credentials: bytes, original: str
    ) -> bool:
        """Learn who a client is; refuse it, and return False, if that is not proven."""
        try:
            identity = self.access.identify(method, credentials.decode(errors="replace"))
            self.access.check_original(identity.role, original)
        except (NotAuthenticatedError, ForbiddenError) as error:
            self.refusals.not_authenticated(connection.address, str(error))
            text = f"Failed to authenticate: {error}"
            self.serving.clients.refused(connection, pb.AuthenticationError, text)
            connection.error(REQUEST_ID_NONE, pb.AuthenticationError, text)
            connection.close(text)
            return False
        connection.identity = identity
        connection.roles = (identity.role, original) if original else (identity.role,)
        return True

    def _on_auth_response(self, connection: Connection, frame: Frame) -> None:
        """AUTH_RESPONSE: a client renews its proof, for the same role."""
        response, before = frame.command.auth_response.response, connection.roles
        original = before[1] if len(before) > 1 else ""
        if not self._identify(connection, response.auth_method_name, response.auth_data, original):
            return
        self._challenged.discard(connection)
        if connection.roles != before:
            connection.close("a renewed proof must be of the same role")

    def _end_refused(self) -> None:
        """Hang up on those who came with a token that is refused by now."""
        for connection in list(self.serving.attachments.connections):
            identity = connection.identity
            if identity is not None and self.access.refuses(identity):
                connection.close("its token is refused")

    def disconnect(self, role: str) -> int:
        """Hang up on the clients of a role, and on the proxies that ask for it; returns how many
        these are. They may come back, if their proof still counts.
        """
        connections = [each for each in self.serving.attachments.connections if role in each.roles]
        for connection in connections:
            connection.close(f"an operator ended the connections of {role}")
        return len(connections)

    def refresh(self) -> None:
        """Ask clients whose proof has ended for another one; they have until the next time."""
        now_s = self.serving.clock.now_ms() / 1000
        asked, self._challenged = self._challenged, set()
        for connection in list(self.serving.attachments.connections):
            if not isinstance(connection, Connection):
                continue
            identity = connection.identity
            if identity is None or identity.expires_s is None or now_s < identity.expires_s:
                continue
            if connection in asked or not connection.refreshes:
                connection.close("its proof of who it is has ended")
                continue
            self._challenged.add(connection)
            challenge = pb.CommandAuthChallenge(
                server_version=SERVER_VERSION,
                challenge=pb.AuthData(auth_method_name=TOKEN, auth_data=REFRESH),
                protocol_version=connection.protocol_version,
            )
            connection.send(encode(auth_challenge=challenge))
            connection.flush()

    # Authorization

    def _checking(self, need: Need, handler: Handler) -> Handler:
        def checked(connection: Connection, frame: Frame) -> Coroutine[Any, Any, None] | None:
            before = self.access.changes
            try:
                proven = need.knows(self.access, connection.roles, frame.command)
            except LoadManagerError as error:
                self._refuse(connection, frame.command, error)
                return None
            if not proven:
                return asked(connection, frame)
            working = handler(connection, frame)
            if working is None or frame.command.type not in _ATTACHING:
                return working
            return self._attached(connection, frame.command, working, before)

        async def asked(connection: Connection, frame: Frame) -> None:
            before = self.access.changes
            try:
                await need.check(self.access, connection.roles, frame.command)
            except LoadManagerError as error:
                self._refuse(connection, frame.command, error)
                return
            working = handler(connection, frame) if connection.open else None
            if working is not None:
                await self._attached(connection, frame.command, working, before)

        return checked

    def _refuse(
        self, connection: Connection, command: pb.BaseCommand, error: LoadManagerError
    ) -> None:
        code = code_of(error)
        if isinstance(error, ForbiddenError):
            self.refusals.forbidden(connection.address, str(error))
            code = pb.AuthorizationError
        refuse(connection, command, code, str(error))
        connection.refused()

    async def _attached(
        self,
        connection: Connection,
        command: pb.BaseCommand,
        working: Coroutine[Any, Any, None],
        changes: int,
    ) -> None:
        """Answer a command. If permissions changed meanwhile, what it attached may not stay."""
        await working
        if self.access.changes == changes:
            return
        if command.type == COMMAND_TYPES["producer"]:
            producer = connection.producers.get(command.producer.producer_id)
            if producer is not None:
                await self.rights.check_producer(producer)
        elif command.type == COMMAND_TYPES["subscribe"]:
            consumer = connection.consumers.get(command.subscribe.consumer_id)
            if consumer is not None:
                await self.rights.check_consumer(consumer)
