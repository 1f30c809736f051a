"""Chat rooms over websockets: each room is in the memory of one process, which everybody in it is
connected to.

    python examples/chat.py 8090        # one for each process; all on one ZooKeeper
    python examples/chat.py 8091

Connect to `ws://127.0.0.1:8090/kitchen` and send text. A process that does not have the room
answers 307 with the address of the one that has. When a room moves, its sockets are closed with
code 1012: connect again. A line that came back to you is stored, whatever happens then.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import WSCloseCode, WSMsgType, web
from fenced_store import SqliteStore, Store

from loadmanager import Member, Moved, Shard

LINES_KEPT = 100


@dataclass
class Room:
    """What a room has in memory."""

    lines: list[str] = field(default_factory=list)
    sockets: set[web.WebSocketResponse] = field(default_factory=set)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


Rooms = dict[str, Room]


class Chat:
    """The service: opens and closes the rooms of a shard, and says what is said in them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._parting: set[asyncio.Task[None]] = set()

    async def open(self, shard: Shard[Rooms]) -> Rooms:
        """Load the rooms, and keep out who had them before."""
        rows, _ = await self._store.open(str(shard.range), shard.token)
        rooms = {name: Room(json.loads(row)) for name, row in rows.items()}
        parting = asyncio.ensure_future(self._part(shard, rooms))
        self._parting.add(parting)
        parting.add_done_callback(self._parting.discard)
        return rooms

    async def close(self, shard: Shard[Rooms], rooms: Rooms) -> None:
        """Save nothing: `say` stores each line at once."""

    async def say(self, shard: Shard[Rooms], name: str, line: str) -> None:
        """Store a line, then tell all in the room. Raises what the store raises: then it is not
        known whether the line is stored, and this process has to load the room again.
        """
        room = shard.state.setdefault(name, Room())
        async with room.turn:
            shard.check()
            lines = [*room.lines, line][-LINES_KEPT:]
            try:
                await self._store.put(str(shard.range), name, json.dumps(lines), shard.token)
            except Exception:
                rows, _ = await self._store.read(str(shard.range))
                room.lines = json.loads(rows.get(name, "[]"))
                raise
            room.lines = lines
        for socket in list(room.sockets):
            with suppress(ConnectionError, RuntimeError):
                await socket.send_str(line)

    async def _part(self, shard: Shard[Rooms], rooms: Rooms) -> None:
        """The shard has gone: send everybody away, to where it is now."""
        await shard.ended.wait()
        for room in rooms.values():
            for socket in list(room.sockets):
                with suppress(ConnectionError, RuntimeError):
                    await socket.close(code=WSCloseCode.SERVICE_RESTART, message=b"moved")


def application(member: Member[Rooms], chat: Chat) -> web.Application:
    """The routes of one process."""

    async def join(request: web.Request) -> web.StreamResponse:
        name, socket = request.match_info["room"], web.WebSocketResponse(heartbeat=10)
        try:
            with member.own(name) as shard:
                await socket.prepare(request)
                room = shard.state.setdefault(name, Room())
                room.sockets.add(socket)
        except Moved as moved:
            if not moved.owner:
                raise web.HTTPServiceUnavailable(headers={"Retry-After": "1"}) from None
            raise web.HTTPTemporaryRedirect(f"{moved.owner}{request.path_qs}") from None
        try:
            for line in room.lines:
                await socket.send_str(line)
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    with member.own(name) as shard:
                        await chat.say(shard, name, message.data)
        except Exception as error:  # noqa: BLE001 - of the store, or `Moved`: the line was not told to anybody
            await socket.close(code=WSCloseCode.SERVICE_RESTART, message=str(error)[:100].encode())
        finally:
            room.sockets.discard(socket)
        return socket

    app = web.Application()
    app.router.add_get("/{room}", join)
    return app


async def main(port: int, store: str = "zk://127.0.0.1:2181/chat") -> None:
    """Serve until Ctrl-C."""
    chat, address = Chat(SqliteStore(Path("chat.db"))), f"http://127.0.0.1:{port}"
    async with Member(store, chat, address=address, eager=True) as member:
        runner = web.AppRunner(application(member, chat))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1]), *sys.argv[2:]))
