"""A proxy before a ZooKeeper server that reads the frames which pass, can hold the answers, and can
lose requests.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MULTI = 14
"""The type of a transaction, such as a heartbeat."""


class Spy:
    """Listens on `port`, in a thread of its own, within `with spying(port)`."""

    def __init__(self, target_port: int) -> None:
        self.target_port, self.port = target_port, 0
        self.connections = 0
        self.ended = 0
        self.heartbeats_s: list[float] = []
        """When transactions came, by the monotonic clock."""
        self.ahead: list[int] = []
        """How many requests were unanswered when each of them came."""
        self.txids: list[int] = []
        """The ids in the answers to them."""
        self.ends_at: list[int] = []
        """The next connections end each at its request of this number, which is lost."""
        self.loop: asyncio.AbstractEventLoop
        self._pending: dict[int, int] = {}
        self._open = asyncio.Event()

    async def serve(self, ready: threading.Event, stop: asyncio.Event) -> None:
        """Until `stop`."""
        self._open.set()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        server.close()

    def hold_answers(self, hold: bool) -> None:
        """From now on pass no answers on, or all, those that were held first; for other threads."""

        async def change() -> None:
            (self._open.clear if hold else self._open.set)()

        asyncio.run_coroutine_threadsafe(change(), self.loop).result(60)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._pending.clear()
        end = self.ends_at.pop(0) if self.ends_at else None
        theirs, ours = await asyncio.open_connection("127.0.0.1", self.target_port)
        answers = asyncio.ensure_future(self._pass(theirs, writer, self._answer, self._open))
        try:
            await self._pass(reader, ours, self._request, None, end)
        finally:
            self.ended += 1
            answers.cancel()
            ours.close()
            writer.close()

    @staticmethod
    async def _pass(
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        see: Callable[[bytes], None],
        gate: asyncio.Event | None,
        end: int | None = None,
    ) -> None:
        try:
            for number in itertools.count():  # the first frame asks for a session
                head = await reader.readexactly(4)
                body = await reader.readexactly(struct.unpack(">i", head)[0])
                if gate is not None:
                    await gate.wait()
                if number == end:
                    return
                if number:
                    see(body)
                writer.write(head + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass

    def _request(self, body: bytes) -> None:
        xid, kind = struct.unpack_from(">ii", body)
        if kind == MULTI:
            self.heartbeats_s.append(time.monotonic())
            self.ahead.append(len(self._pending))
        if xid > 0:
            self._pending[xid] = kind

    def _answer(self, body: bytes) -> None:
        xid, txid = struct.unpack_from(">iq", body)
        if self._pending.pop(xid, 0) == MULTI:
            self.txids.append(txid)


@contextmanager
def spying(target_port: int) -> Iterator[Spy]:
    """A spy that runs."""
    spy, ready = Spy(target_port), threading.Event()

    def run() -> None:
        async def main() -> None:
            nonlocal stop
            spy.loop, stop = asyncio.get_running_loop(), asyncio.Event()
            await spy.serve(ready, stop)

        asyncio.run(main())

    stop: asyncio.Event | None = None
    thread = threading.Thread(target=run, name="spy")
    thread.start()
    assert ready.wait(60), "the spy does not listen"
    try:
        yield spy
    finally:
        assert stop is not None
        spy.loop.call_soon_threadsafe(stop.set)
        thread.join()
