"""What each request does, and its answer. Source: ZooKeeper's `FinalRequestProcessor`."""

from __future__ import annotations

from loadmanager.kit.clock import Clock
from loadmanager.kit.zookeeper.embedded import records
from loadmanager.kit.zookeeper.embedded.access import digest_of
from loadmanager.kit.zookeeper.embedded.client import StoreClient
from loadmanager.kit.zookeeper.embedded.codes import ErrorCode, Opcode, RefusedRequestError
from loadmanager.kit.zookeeper.embedded.commits import TreeCommits
from loadmanager.kit.zookeeper.embedded.jute import JuteReader, MalformedRecordError
from loadmanager.kit.zookeeper.embedded.reading import Handler, TreeReads
from loadmanager.kit.zookeeper.embedded.sessions import TreeSession, TreeSessions
from loadmanager.kit.zookeeper.embedded.transactions import (
    Transaction,
    TransactionRefusedError,
    TreeCaller,
)
from loadmanager.kit.zookeeper.embedded.tree import NodeTree
from loadmanager.kit.zookeeper.embedded.watches import TreeWatches
from loadmanager.kit.zookeeper.embedded.watching import TreeWatching

IDENTITIES_MAX = 64
"""As how many a connection can be known."""
_CHANGES = (
    *records.CREATIONS,
    Opcode.DELETE,
    Opcode.SET_DATA,
    Opcode.SET_ACL,
    Opcode.CHECK,
)


class TreeService:
    """Does what clients ask for. Answers and events go through `commits`."""

    def __init__(
        self, tree: NodeTree, sessions: TreeSessions, commits: TreeCommits, clock: Clock
    ) -> None:
        self.tree = tree
        self.sessions = sessions
        self.watches = TreeWatches()
        self._commits = commits
        self._clock = clock
        self._watching = TreeWatching(tree, self.watches, commits)
        self._handlers: dict[int, Handler] = {
            **TreeReads(tree, self.watches).handlers,
            **self._watching.handlers,
            **{kind: self._changing(kind) for kind in _CHANGES},
            Opcode.MULTI: self._multi,
        }

    # Sessions

    def connect(self, client: StoreClient, wanted: records.ConnectRequest) -> bool:
        """Give the client a new session, or the one that it names, and answer it. False: it has
        ended, or there are too many; the client is told so, and has to be hung up on.
        """
        now_s = self._clock.monotonic_s()
        if wanted.session_id:
            session = self.sessions.resume(
                wanted.session_id, wanted.password, wanted.timeout_ms, now_s
            )
        else:
            session = self.sessions.begin(wanted.timeout_ms, now_s)
            self.tree.zxid += session is not None  # as every change of what is durable
        client.session_id = session.id if session else 0
        answer = records.connect_answer(session, says_read_only=wanted.says_read_only)
        self._commits.send(client, answer)
        return session is not None

    def session_of(self, client: StoreClient) -> TreeSession | None:
        """The client's session, if it has not ended."""
        return self.sessions.get(client.session_id)

    def end_session(self, session_id: int) -> None:
        """Delete what ends with a session, and forget it."""
        transaction = self._transaction(TreeCaller(session_id, ()))
        transaction.end_session()
        self.sessions.end(session_id)
        self._finish(transaction)

    def sweep(self) -> None:
        """Delete containers and nodes whose time is over."""
        for path in self.tree.over(self._clock.now_ms()):
            transaction = self._transaction(TreeCaller(0, ()))
            transaction.end_node(path)
            self._finish(transaction)

    # Requests

    def answer(self, client: StoreClient, frame: bytes) -> None:
        """Do what a request of a client with a session asks for.

        Raises `MalformedRecordError` if not even its header can be read.
        """
        reader = JuteReader(frame)
        xid, kind = reader.integer(), reader.integer()
        if kind == Opcode.AUTH:
            self._authenticate(client, xid, reader)
        elif kind == Opcode.CLOSE_SESSION:
            self.end_session(client.session_id)
            self._reply(client, xid, ErrorCode.OK, b"")
            self._commits.send(client, None)
        elif kind == Opcode.PING:
            self._reply(client, xid, ErrorCode.OK, b"")
        elif kind == Opcode.RECONFIG:
            self._reply(client, xid, ErrorCode.RECONFIG_DISABLED, b"")
        elif kind in self._handlers:
            self._handle(client, xid, self._handlers[kind], reader)
        else:
            self._reply(client, xid, ErrorCode.UNIMPLEMENTED, b"")
            self._commits.send(client, None)

    def _handle(self, client: StoreClient, xid: int, handler: Handler, reader: JuteReader) -> None:
        try:
            body = handler(client, reader)
        except RefusedRequestError as refusal:
            self._reply(client, xid, refusal.code, b"")
        except MalformedRecordError:
            self._reply(client, xid, ErrorCode.MARSHALLING_ERROR, b"")
        else:
            self._reply(client, xid, ErrorCode.OK, body)

    def _reply(self, client: StoreClient, xid: int, code: ErrorCode, body: bytes) -> None:
        self._commits.send(client, records.header(xid, self.tree.zxid, code) + body)

    def _authenticate(self, client: StoreClient, xid: int, reader: JuteReader) -> None:
        reader.integer()  # a type, always 0
        scheme, credentials = reader.text(), reader.buffer()
        code = ErrorCode.AUTH_FAILED
        if scheme == "digest" and credentials is not None:
            identity = digest_of(credentials)
            if identity not in client.identities:
                client.identities.append(identity)
            if len(client.identities) <= IDENTITIES_MAX:
                code = ErrorCode.OK
        elif scheme == "ip":
            code = ErrorCode.OK
        self._commits.send(client, records.header(xid, 0, code))
        if code is not ErrorCode.OK:
            self._commits.send(client, None)

    # Changes

    def _changing(self, kind: int) -> Handler:
        def change(client: StoreClient, reader: JuteReader) -> bytes:
            operation = records.operation(kind, reader)
            transaction = self._transaction(TreeCaller(client.session_id, client.identities))
            try:
                (done,) = transaction.run([operation])
            except TransactionRefusedError as refusal:
                raise RefusedRequestError(refusal.code) from None
            self._finish(transaction)
            return records.result(done)

        return change

    def _multi(self, client: StoreClient, reader: JuteReader) -> bytes:
        kinds, operations = [], []
        for kind in records.multi_kinds(reader):
            kinds.append(kind)
            operations.append(records.multi_operation(kind, reader))
        transaction = self._transaction(TreeCaller(client.session_id, client.identities))
        try:
            results = transaction.run(operations)
        except TransactionRefusedError as refusal:
            return records.multi_refusals(len(kinds), refusal.index, refusal.code)
        self._finish(transaction)
        return records.multi_results(kinds, results)

    def _transaction(self, caller: TreeCaller) -> Transaction:
        return Transaction(self.tree, caller, self._clock.now_ms())

    def _finish(self, transaction: Transaction) -> None:
        self._watching.send_events(transaction.events)
        self._commits.wanted()
