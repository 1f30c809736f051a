"""The metadata store on ZooKeeper, through kazoo.

kazoo's callbacks run in its own thread; all they do is pass events to the loop. An operation costs
200 to 500 µs of CPU. So callers cache, and this adapter pipelines: concurrent operations share
the connection without waiting for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from loadmanager.kit.bounded_queue import BoundedQueue
from loadmanager.kit.errors import ConflictError, OperationalError
from loadmanager.kit.metadata.lease import Lease
from loadmanager.kit.metadata.starting import answered
from loadmanager.kit.metadata.store import (
    Change,
    ChangeKind,
    Check,
    Create,
    Delete,
    Node,
    Operation,
    Put,
    SessionState,
    StoreAwayError,
    VersionConflictError,
    check_operations,
    check_size,
)
from loadmanager.kit.zookeeper.client import TreeWatchingClient
from loadmanager.kit.zookeeper.heartbeat import Heartbeat
from loadmanager.kit.zookeeper.outage import REFUSED, OutageLog
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings, ZooKeeperTlsSettings

REQUESTS_AT_ONCE_MAX = 32
"""Further requests wait for their turn; heartbeats do not. kazoo sends requests in order and needs
0.3 ms or more for each, much more beside a busy event loop: a heartbeat behind thousands of
requests would come too late. A turn ends with the answer, even if nobody waits for it any more.
"""
READS_AT_ONCE_MAX = 16
"""The reads that one operation may send at once."""
SLICE_S = 0.2
"""So long a thread waits at once for the first connection: it cannot be cancelled."""

_KINDS = {
    EventType.CREATED: ChangeKind.CREATED,
    EventType.CHANGED: ChangeKind.CHANGED,
    EventType.DELETED: ChangeKind.DELETED,
}
_CONFLICTS = (
    BadVersionError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
_LOST = (ConnectionLoss, OperationTimeoutError, KazooTimeoutError)
_DEAD = (KeeperState.CLOSED, KeeperState.AUTH_FAILED)
_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}


class ZooKeeperStore:
    """Implements `kit.metadata.store.Store`.

    An asynchronous context manager: entering connects, leaving ends the session.
    """

    def __init__(
        self,
        settings: ZooKeeperSettings,
        url_key: str = "metadataStoreUrl",
        tls: ZooKeeperTlsSettings | None = None,
    ) -> None:
        """`url_key`: the setting that says where the servers are, for messages.

        Raises `ConfigError` for files that cannot be used.
        """
        secure = tls or ZooKeeperTlsSettings()
        secure.context()
        self._settings = settings
        self._url_key = url_key
        self._loop = asyncio.get_running_loop()
        self._watches: dict[str, list[BoundedQueue[Change]]] = {}
        self._states: list[BoundedQueue[SessionState]] = []
        self._state = SessionState.LOST
        self._closed = False
        self._session_id = 0
        self._unheard: dict[BoundedQueue[SessionState], int] = {}
        """How many losses of a session each reader has not dealt with yet."""
        self._turns = asyncio.Semaphore(REQUESTS_AT_ONCE_MAX)
        self._client = TreeWatchingClient(
            hosts=settings.hosts + (f"/{settings.chroot}" if settings.chroot else ""),
            timeout=settings.session_timeout_ms / 1000,
            **_login_of(settings.credentials()),
            tls=secure.context,
            # Retries are frequent, because the lease runs out meanwhile.
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=1.5, max_delay=1.0),
        )
        self._heartbeat = Heartbeat(self._client, OutageLog(settings.hosts))

    async def __aenter__(self) -> ZooKeeperStore:
        """Connect. Raises `OperationalError` if no server answers within the operation timeout."""
        self._client.add_listener(self._on_state_in_thread)
        started, within_s = self._client.start_async(), self._settings.operation_timeout_s
        try:
            try:
                async with asyncio.timeout(within_s):
                    while not await asyncio.to_thread(started.wait, SLICE_S):
                        pass
            except TimeoutError:
                raise OperationalError(
                    f"{self._settings.hosts}: {REFUSED}"
                    if self._client.refused
                    else f"ZooKeeper at {self._settings.hosts} does not answer within "
                    f"{within_s:g} s; is {self._url_key} right?"
                ) from None
            if self._settings.chroot:
                await answered(self._ensure_chroot, "find the root", within_s)
            self._heartbeat.start()
            await answered(partial(self.get, "/"), "read the root", within_s)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the session; its ephemeral nodes are deleted at once."""
        self._closed = True
        self._client.remove_listener(self._on_state_in_thread)
        await asyncio.to_thread(self._stop)
        self._end_readers()

    def _end_readers(self) -> None:
        for states in self._states:
            states.close()
        for changes in self._watches.values():
            for queue in changes:
                queue.close()

    def _stop(self) -> None:
        self._heartbeat.stop()
        self._client.stop()
        self._client.close()

    async def _ensure_chroot(self) -> None:
        rooted, self._client.chroot = self._client.chroot, ""
        try:
            await self.create(rooted, b"")
        finally:
            self._client.chroot = rooted

    # Session

    @property
    def lease(self) -> Lease:
        return self._heartbeat.lease

    @property
    def session_id(self) -> int:
        """The session id; kept while only the connection is lost."""
        return self._session_id

    @property
    def session_timeout_s(self) -> float:
        return self._client.granted_timeout_s

    def _on_state_in_thread(self, state: str) -> None:
        # kazoo forgets the session id when the connection drops again, so it is read here.
        identity = self._client.client_id
        session_id = int(identity[0]) if identity and identity[0] else 0
        self._heartbeat.on_state(state, session_id)
        self._from_thread(self._on_state, _STATES[state], session_id)

    def _on_state(self, state: SessionState, session_id: int) -> None:
        self._state = state
        if state is SessionState.LOST:
            self._session_id = 0
            self._heartbeat.accept(0)
            for queue in self._states:
                self._unheard[queue] = self._unheard.get(queue, 0) + 1
        elif state is SessionState.CONNECTED and session_id:
            self._session_id = session_id
        for queue in self._states:
            queue.put(state)
        if state is SessionState.LOST and self._client.client_state in _DEAD:
            self._end_readers()  # kazoo has given up: no session will follow
        if state is SessionState.CONNECTED:
            self._accept()
            for root in list(self._watches):
                self._install(root)

    def _accept(self) -> None:
        """Prove the session from now on, unless a reader has not dealt with the loss of an earlier
        one: it may still serve what that one owned.
        """
        if self._state is SessionState.CONNECTED and not self._unheard:
            self._heartbeat.accept(self._session_id)

    def _heard(self, queue: BoundedQueue[SessionState], losses: int) -> None:
        left = self._unheard.pop(queue, 0) - losses
        if left > 0:
            self._unheard[queue] = left
        elif left == 0:
            self._accept()

    def _from_thread(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            # A callback may come after the loop was closed.
            if not self._loop.is_closed():
                raise

    async def session_states(self) -> AsyncIterator[SessionState]:
        if self._closed:
            return
        queue: BoundedQueue[SessionState] = BoundedQueue(SessionState.LOST)
        queue.put(self._state)
        self._states.append(queue)
        try:
            async for state in queue:
                yield state
                if state is SessionState.LOST:  # the reader asks for the next: it has dealt with it
                    self._heard(queue, 1)
        finally:
            self._states.remove(queue)
            self._heard(queue, self._unheard.get(queue, 0))

    # Watches

    async def watch(self, root: str) -> AsyncIterator[Change]:
        if self._closed:
            return
        queue = BoundedQueue(Change(ChangeKind.RESYNC, root))
        self._watches.setdefault(root, []).append(queue)
        self._install(root)
        try:
            async for change in queue:
                yield change
        finally:
            self._watches[root].remove(queue)
            if not self._watches[root]:
                del self._watches[root]
                self._client.forget_tree(root)

    def _install(self, root: str) -> None:
        if self._state is not SessionState.CONNECTED:
            return  # `_on_state` installs it after the reconnect
        result = self._client.watch_tree_async(
            root, lambda event: self._from_thread(self._on_event, root, event)
        )
        result.rawlink(lambda answer: self._from_thread(self._installed, root, answer))

    def _installed(self, root: str, answer: Any) -> None:
        # The reader may read the tree once the server notifies changes. A watch that failed is
        # installed again after the next reconnect.
        if answer.successful():
            for queue in self._watches.get(root, []):
                queue.put(Change(ChangeKind.RESYNC, root))

    def _on_event(self, root: str, event: WatchedEvent) -> None:
        kind = _KINDS.get(event.type)
        if kind is not None:
            for queue in self._watches.get(root, []):
                queue.put(Change(kind, event.path))

    # Operations

    async def _answer(self, send: Callable[[], Any]) -> Any:
        (answer,) = await self._answers(send)
        return _value_of(answer, self._url_key)

    async def _answers(self, *sends: Callable[[], Any]) -> list[Any]:
        """Send requests, each when it is its turn, and wait for the answers, some of which may be
        errors.
        """
        timeout_s = self._settings.operation_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                answers = [await self._in_turn(send) for send in sends]
                return [await answer for answer in answers]
        except TimeoutError:
            raise _silent(f"nothing within {timeout_s:g} s", self._url_key) from None

    async def _in_turn(self, send: Callable[[], Any]) -> asyncio.Future[Any]:
        await self._turns.acquire()
        try:
            result = send()
        except BaseException:
            self._turns.release()
            raise
        future: asyncio.Future[Any] = self._loop.create_future()
        result.rawlink(lambda answer: self._from_thread(self._answered, future, answer))
        return future

    def _answered(self, future: asyncio.Future[Any], answer: Any) -> None:
        self._turns.release()
        if not future.done():  # nobody waits any more
            future.set_result(answer)

    async def get(self, path: str) -> Node | None:
        return (await self.get_many([path]))[0]

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        nodes: list[Node | None] = []
        for start in range(0, len(paths), READS_AT_ONCE_MAX):
            answers = await self._answers(
                *(
                    partial(self._client.get_async, path)
                    for path in paths[start : start + READS_AT_ONCE_MAX]
                )
            )
            nodes += [_node_of(answer, self._url_key) for answer in answers]
        return nodes

    async def children(self, path: str) -> list[str]:
        try:
            return sorted(await self._answer(partial(self._client.get_children_async, path)))
        except NoNodeError:
            return []

    async def create(self, path: str, value: bytes, *, ephemeral: bool = False) -> bool:
        check_size(path, value)
        try:
            create = partial(self._client.create_async, path, value, ephemeral=ephemeral)
            await self._answer(create)
        except NodeExistsError:
            return False
        except NoNodeError:
            parent = path.rpartition("/")[0]
            if not parent:
                raise OperationalError(
                    f"the root /{self._settings.chroot} of the metadata was deleted"
                ) from None
            await self.create(parent, b"")
            return await self.create(path, value, ephemeral=ephemeral)
        return True

    async def put(self, path: str, value: bytes, *, version: int | None = None) -> int:
        check_size(path, value)
        try:
            stat = await self._answer(
                partial(self._client.set_async, path, value, -1 if version is None else version)
            )
        except BadVersionError:
            raise VersionConflictError(f"{path} has changed meanwhile") from None
        except NoNodeError:
            if version is not None:
                raise VersionConflictError(f"{path} does not exist") from None
            return 0 if await self.create(path, value) else await self.put(path, value)
        return int(stat.version)

    async def delete(self, path: str, *, version: int | None = None) -> bool:
        try:
            await self._answer(
                partial(self._client.delete_async, path, -1 if version is None else version)
            )
        except NoNodeError:
            return False
        except BadVersionError:
            raise VersionConflictError(f"{path} has changed meanwhile") from None
        except NotEmptyError:
            raise ConflictError(f"{path} has children") from None
        return True

    async def commit(self, operations: Sequence[Operation]) -> int:
        check_operations(operations)
        transaction = self._client.transaction()
        for operation in operations:
            match operation:
                case Create(path, value, ephemeral):
                    transaction.create(path, value, ephemeral=ephemeral)
                case Put(path, value, version):
                    transaction.set_data(path, value, -1 if version is None else version)
                case Delete(path, version):
                    transaction.delete(path, -1 if version is None else version)
                case Check(path, version):
                    transaction.check(path, -1 if version is None else version)
        *results, txid = await self._answer(partial(self._client.commit_async, transaction))
        for operation, result in zip(operations, results, strict=False):
            if isinstance(result, Exception) and not isinstance(
                result, RolledBackError | RuntimeInconsistency
            ):
                kind = VersionConflictError if isinstance(result, _CONFLICTS) else OperationalError
                raise kind(
                    f"{type(operation).__name__.lower()} {operation.path}: {type(result).__name__}"
                )
        return int(txid)


def _login_of(credentials: str) -> dict[str, Any]:
    """kazoo's arguments for a user: what it creates is for that user only."""
    if not credentials:
        return {}
    return {"auth_data": [("digest", credentials)], "default_acl": CREATOR_ALL_ACL}


def _value_of(answer: Any, url_key: str) -> Any:
    """The value of an answer. Raises kazoo's error that callers handle, or one of ours."""
    if answer.successful():
        return answer.value
    error = answer.exception
    if isinstance(error, NoNodeError | NodeExistsError | BadVersionError | NotEmptyError):
        raise error
    if isinstance(error, NoChildrenForEphemeralsError):
        raise ConflictError("an ephemeral node has no children")
    if isinstance(error, NoAuthError):
        raise OperationalError(
            "ZooKeeper does not permit this: the nodes belong to another user than "
            "loadManagerZooKeeperAuthFile names"
        )
    if isinstance(error, _LOST):
        raise _silent(type(error).__name__, url_key)
    if isinstance(error, SessionExpiredError):
        raise StoreAwayError("this broker's session with ZooKeeper has ended; try again")
    if isinstance(error, KazooException):
        raise OperationalError(f"ZooKeeper: {type(error).__name__} {error}".rstrip())
    raise error


def _silent(how: str, url_key: str) -> StoreAwayError:
    return StoreAwayError(
        f"ZooKeeper does not answer ({how}): check that the servers of {url_key} run and "
        "can be reached"
    )


def _node_of(answer: Any, url_key: str) -> Node | None:
    try:
        value, stat = _value_of(answer, url_key)
    except NoNodeError:
        return None
    return Node(value, stat.version, stat.ephemeralOwner, stat.czxid, stat.mzxid)
