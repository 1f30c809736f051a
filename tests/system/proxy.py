"""A TCP proxy on loopback that can fail as networks do.

`Proxy(port)` passes bytes between its clients and `port`. Its modes are

* `cut()`: close every connection, and each new one at once;
* `hold()`: a black hole. Connections stay, new ones are accepted, no byte arrives. `restore()` lets
  the bytes through late, as TCP does when a network comes back;
* `forget_next()`: close every connection; accept the next one and pass nothing on, ever;
* `flap(low_s, high_s)`: close every connection, and each new one after a random life;
* `restore()`: pass bytes again, at once.

`delay_s` is how long each byte takes.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable

ORDER_S = 1e-5
"""Between bytes that are delayed, which a loop takes in the order of their times."""


class Proxy:
    """A proxy in a thread of its own, within `with`; listens on `port`."""

    def __init__(self, target_port: int, seed: int = 1, host: str = "127.0.0.1") -> None:
        self.port = 0
        self.target_host = host
        self.target_port = target_port
        self.refusing = False
        self.holding = False
        self.forgetting = False
        self.delay_s = 0.0
        self.lives_s: tuple[float, float] | None = None
        self.rng = random.Random(seed)
        self.sides: set[_Side] = set()
        self.connections = 0
        """Number of connections accepted so far."""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="proxy")

    def __enter__(self) -> Proxy:
        self._thread.start()
        assert self._ready.wait(60), "the proxy does not listen"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await self._loop.create_server(lambda: _Side(self, None), "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        self._abort_all()
        await asyncio.sleep(0)  # the aborted connections go

    # Modes

    def cut(self) -> None:
        """Close every connection, and refuse new ones."""
        self._change(self._abort_all, refusing=True)

    def hold(self) -> None:
        """Pass nothing on, in either direction."""
        self._change(self._apply_hold, holding=True)

    def forget_next(self) -> None:
        """Close every connection; the next one stays open without a byte."""
        self._change(self._abort_all, forgetting=True)

    def flap(self, low_s: float, high_s: float) -> None:
        """Close every connection; new connections live between `low_s` and `high_s`."""
        self._change(self._abort_all, lives_s=(low_s, high_s))

    def restore(self) -> None:
        """Pass bytes again."""
        self.delay_s = 0.0
        self._change(self._apply_hold)

    def _change(
        self,
        then: Callable[[], None],
        *,
        refusing: bool = False,
        holding: bool = False,
        forgetting: bool = False,
        lives_s: tuple[float, float] | None = None,
    ) -> None:
        done = threading.Event()

        def change() -> None:
            self.refusing, self.holding, self.lives_s = refusing, holding, lives_s
            self.forgetting = forgetting
            then()
            done.set()

        self._loop.call_soon_threadsafe(change)
        assert done.wait(60), "the proxy does not answer"

    def _abort_all(self) -> None:
        for side in list(self.sides):
            side.transport.abort()

    def _apply_hold(self) -> None:
        for side in self.sides:
            side.read_if_allowed()


class _Side(asyncio.Protocol):
    """One end of a connection; `peer` is the other end, None until it is connected."""

    transport: asyncio.Transport

    def __init__(self, proxy: Proxy, peer: _Side | None) -> None:
        self._proxy = proxy
        self._peer = peer
        self._due_s = 0.0
        """When the last bytes that were delayed are passed on; none overtake them."""
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._proxy.sides.add(self)
        if self._peer is not None:
            self._peer._peer = self
            self._peer.read_if_allowed()
            self.read_if_allowed()
            return
        self._proxy.connections += 1
        if self._proxy.refusing:
            transport.abort()
            return
        if self._proxy.lives_s is not None:
            life_s = self._proxy.rng.uniform(*self._proxy.lives_s)
            asyncio.get_running_loop().call_later(life_s, transport.abort)
        transport.pause_reading()
        if self._proxy.forgetting:
            self._proxy.forgetting = False
            return
        self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        loop, proxy = asyncio.get_running_loop(), self._proxy
        host, port = proxy.target_host, proxy.target_port
        try:
            await loop.create_connection(lambda: _Side(proxy, self), host, port)
        except OSError:
            self.transport.abort()
        else:
            if self.transport.is_closing() and self._peer is not None:
                self._peer.transport.abort()

    def read_if_allowed(self) -> None:
        """Read while there is another end and nothing is held."""
        if self._proxy.holding or self._peer is None:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._peer is None:
            return
        loop, write = asyncio.get_running_loop(), self._peer.transport.write
        now_s = loop.time()
        due_s = max(now_s + self._proxy.delay_s, self._due_s + ORDER_S)
        if due_s <= now_s:
            write(data)
        else:
            self._due_s = due_s
            loop.call_at(due_s, write, data)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._proxy.sides.discard(self)
        if self._peer is not None:
            self._peer.transport.close()
