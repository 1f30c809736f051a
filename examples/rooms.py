import asyncio, json, sys
from pathlib import Path
from aiohttp import web
from loadmanager import Member, Moved, Shard


class Rooms:  # in memory while a shard is open here, in a file in between
    async def open(self, shard: Shard[dict[str, list[str]]]) -> dict[str, list[str]]:
        file = Path(f"{shard.range}.json")
        return json.loads(file.read_text()) if file.exists() else {}

    async def close(self, shard: Shard[dict[str, list[str]]], rooms: dict[str, list[str]]) -> None:
        Path(f"{shard.range}.json").write_text(json.dumps(rooms))


async def main(port: int) -> None:
    address = f"http://127.0.0.1:{port}"
    async with Member("zk://127.0.0.1:2181/rooms", Rooms(), address=address, eager=True) as member:

        async def post(request: web.Request) -> web.Response:
            room, message = request.match_info["room"], await request.text()
            try:
                with member.own(room) as shard:  # proven to be ours at this moment
                    shard.state.setdefault(room, []).append(message)
                    return web.json_response(shard.state[room])
            except Moved as moved:
                if moved.owner:
                    raise web.HTTPTemporaryRedirect(f"{moved.owner}/{room}")
                raise web.HTTPServiceUnavailable(headers={"Retry-After": "1"})  # in a moment

        app = web.Application()
        app.router.add_post("/{room}", post)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()  # until Ctrl-C


asyncio.run(main(int(sys.argv[1])))
