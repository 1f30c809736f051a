"""The identity of clients, and their permissions. Without authentication there is no `Access`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.kit.security.identity import Identity


class Access(Protocol):
    """Authentication and authorization of clients, operators and other brokers.

    Methods that take a role raise `ForbiddenError`, with `what` in its text, or return nothing.
    `original`: for whom a proxy asks; then both must be allowed.
    """

    def identify(self, method: str, credentials: str) -> Identity:
        """Verify the credentials of a client. `method`: Pulsar's name of the way, `token` or empty.

        Raises `NotAuthenticatedError`.
        """
        ...

    def left_s(self, identity: Identity) -> float:
        """For how many seconds its proof counts yet; infinity: for ever."""
        ...

    def check_original(self, role: str, original: str) -> None:
        """A client asks for somebody else, as proxies do."""
        ...

    async def require_topic(
        self,
        roles: tuple[str, ...],
        actions: tuple[str, ...],
        topic: TopicName,
        *,
        subscription: str = "",
        what: str,
    ) -> None:
        """Raise `ForbiddenError` unless each role may do one of the actions with a topic."""
        ...

    async def require_namespace(
        self, roles: tuple[str, ...], actions: tuple[str, ...], namespace: NamespaceName, what: str
    ) -> None:
        """Raise `ForbiddenError` unless each role may do one of the actions with all topics."""
        ...

    def knows(
        self,
        roles: tuple[str, ...],
        actions: tuple[str, ...],
        namespace: NamespaceName,
        topic: TopicName | None,
        *,
        subscription: str = "",
        what: str,
    ) -> bool:
        """Check as `require_topic` does (without a topic: `require_namespace`) if everything is in
        memory; False: ask that one. Waits for nothing.
        """
        ...

    async def require_tenant(self, roles: tuple[str, ...], tenant: str, what: str) -> None:
        """Raise `ForbiddenError` unless each role administers a tenant."""
        ...

    def require_superuser(self, roles: tuple[str, ...], what: str) -> None:
        """Raise `ForbiddenError` unless each role is a superuser."""
        ...

    @property
    def changes(self) -> int:
        """Grows whenever permissions may have changed: what was checked before may not hold now."""
        ...

    def refuses(self, identity: Identity) -> bool:
        """True if operators refuse the token now that proved it."""
        ...

    def on_refused(self, listener: Callable[[], None]) -> None:
        """Call `told` when other tokens are refused than before."""
        ...

    def ended(self, roles: tuple[str, ...]) -> int:
        """Grows when the connections of one of the roles are to end."""
        ...

    def end(self, role: str) -> None:
        """What a role has begun is to end now."""
        ...

    def on_permissions(self, listener: Callable[[str, str], None]) -> None:
        """Call `told` with the tenant and namespace whose permissions may have changed: an empty
        namespace stands for all of the tenant, an empty tenant for all of them.
        """
        ...

    @property
    def authorizes(self) -> bool:
        """True if roles may do only what they are permitted to do."""
        ...

    @property
    def anonymous(self) -> bool:
        """True if clients that prove nothing have a role."""
        ...

    @property
    def refresh_s(self) -> float:
        """The interval at which connections whose proof can expire are checked, in seconds."""
        ...
