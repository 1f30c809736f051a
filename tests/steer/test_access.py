"""Who may read from the daemon, and who may give it orders."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import stat
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kit.security.tokens import ADMIN, KEY, token
from steer.test_daemon import over
from steer.test_http import a_cluster, planned

from loadmanager import cli
from loadmanager.kit.errors import ConfigError
from loadmanager.kit.private_files import bind_private
from loadmanager.steer import settings_file as conf

PAUSE = "/loadmanager/v1/moves/pause"
FLEET = "/loadmanager/v1/fleet"
TOKENS = {"tokenSecretKey": KEY, "superUserRoles": ADMIN}


async def asked(
    session: aiohttp.ClientSession, method: str, url: str, bearer: str = "", **more: Any
) -> tuple[int, str]:
    """Status and text of an answer."""
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    async with session.request(method, url, headers=headers, **more) as answer:
        return answer.status, await answer.text()


async def listening(session: aiohttp.ClientSession, url: str) -> None:
    """Wait until the daemon listens."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                await asked(session, "GET", f"{url}/admin/v2/brokers/health")
                return
            await asyncio.sleep(0.05)


async def test_without_tokens_there_are_no_orders_over_tcp(tmp_path: Path) -> None:
    """Reads are answered; an order is refused, with the keys to set."""
    async with a_cluster(tmp_path) as url, aiohttp.ClientSession() as session:
        await planned(session, url)
        for method in ("PUT", "POST", "DELETE"):
            status, text = await asked(session, method, url + PAUSE, json={"seconds": 9})
            assert status == 401
            assert "tokenSecretKey" in text
            assert "apiSocket" in text
        assert (await asked(session, "GET", url + FLEET))[0] == 200
        assert (await asked(session, "GET", f"{url}/metrics"))[0] == 200
        status, _ = await asked(session, "PUT", url + PAUSE, token(ADMIN), json={"seconds": 9})
        assert status == 401


async def test_with_tokens(tmp_path: Path) -> None:
    """A superuser may order, every role may read, and nobody else may do anything."""
    async with a_cluster(tmp_path, **TOKENS) as url, aiohttp.ClientSession() as session:
        await listening(session, url)
        order: dict[str, Any] = {"json": {"seconds": 9}}
        for bearer in ("", "nonsense", token(ADMIN, lives_s=-5), token(ADMIN) + "x"):
            assert (await asked(session, "GET", url + FLEET, bearer))[0] == 401
        for method, path, body in (("GET", FLEET, {}), ("PUT", PAUSE, order)):
            status, text = await asked(session, method, url + path, **body)
            assert status == 401
            assert "a token is missing: send one as `Authorization: Bearer TOKEN`" in text
            assert "LOADMANAGER_TOKEN" in text
            assert (await asked(session, "PUT", url + PAUSE, bearer, **order))[0] == 401
        assert (await asked(session, "GET", url + FLEET, token("reader")))[0] == 200
        status, text = await asked(session, "PUT", url + PAUSE, token("reader"), **order)
        assert (status, "superUserRoles" in text) == (403, True)
        assert (await asked(session, "PUT", url + PAUSE, token(ADMIN), **order))[0] == 200
        _, text = await asked(session, "GET", f"{url}/loadmanager/v1/changes", token("reader"))
        assert f'"{ADMIN}"' in text
        for ended in (1, 1):  # the second one ends nothing, and is not told
            assert (await asked(session, "DELETE", url + PAUSE, token(ADMIN)))[0] == 204
            _, text = await asked(session, "GET", f"{url}/loadmanager/v1/changes", token("reader"))
            assert text.count("DELETE") == ended
        for path, status in (("/metrics", 200), ("/ui", 200), ("/loadmanager/v1/clusters", 401)):
            assert (await asked(session, "GET", url + path))[0] == status
        for path in ("health", "ready"):
            assert (await asked(session, "GET", f"{url}/admin/v2/brokers/{path}"))[0] != 401


async def test_metrics_may_ask_for_a_token(tmp_path: Path) -> None:
    """As those of a broker."""
    settings = {**TOKENS, "authenticateMetricsEndpoint": "true"}
    async with a_cluster(tmp_path, **settings) as url, aiohttp.ClientSession() as session:
        await listening(session, url)
        for path in ("/metrics", "/metrics/"):
            assert (await asked(session, "GET", url + path))[0] in (401, 404)
        assert (await asked(session, "GET", f"{url}/metrics"))[0] == 401
        assert (await asked(session, "GET", f"{url}/metrics", token("reader")))[0] == 200


async def test_whoever_can_use_the_socket_may_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is for the daemon's user only, replaces that of a daemon that was killed, and the commands
    of operators can use it.
    """
    path = tmp_path / "socket"
    bind_private(path).close()
    async with a_cluster(tmp_path, "approve", **TOKENS, apiSocket=str(path)) as url:
        async with aiohttp.ClientSession() as session:
            await listening(session, url)
            assert (await asked(session, "PUT", url + PAUSE, json={"seconds": 9}))[0] == 401
        found = path.stat()
        assert stat.S_ISSOCK(found.st_mode)
        assert found.st_mode & 0o777 == 0o600
        async with over(path) as session:
            order = asked(session, "PUT", f"http://localhost{PAUSE}", json={"seconds": 999})
            assert (await order)[0] == 200
        arguments = ["admin", "moves", "resume", "--url", f"unix:{path}"]
        assert await asyncio.to_thread(cli.main, arguments) == 0, capsys.readouterr()
        arguments = ["admin", "clusters", "list", "--url", f"unix:{path}"]
        assert await asyncio.to_thread(cli.main, arguments) == 0
        assert "approve" in capsys.readouterr().out
        assert await asyncio.to_thread(cli.main, [*arguments, "--at", "1d"]) == 1
        assert "this daemon recorded nothing then" in capsys.readouterr().out
        arguments = ["admin", "tokens", "list", "--url", f"unix:{path}"]
        assert await asyncio.to_thread(cli.main, arguments) == 1
        assert f"unix:{path} answered 404" in capsys.readouterr().err
    assert not path.exists()
    arguments = ["admin", "decisions", "--url", f"unix:{tmp_path / 'nowhere'}"]
    assert await asyncio.to_thread(cli.main, arguments) == 1
    assert str(tmp_path / "nowhere") in capsys.readouterr().err


def test_a_file_is_not_replaced_by_a_socket(tmp_path: Path) -> None:
    """Only a socket of our own is."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="something else"):
        bind_private(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "x"
    with bind_private(tmp_path / "socket") as sock:
        assert sock.family == socket.AF_UNIX


def test_a_socket_in_use_is_not_replaced(tmp_path: Path) -> None:
    """Orders would go to the second daemon, which may be of another cluster."""
    path = tmp_path / "socket"
    with bind_private(path) as first:
        first.listen(0)  # room for one, who then waits: the second try finds no room
        for _ in range(2):
            with pytest.raises(OSError, match="another process of ours"):
                bind_private(path)
    bind_private(path).close()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"superUserRoles": "a"}, "superUserRoles: it needs tokenSecretKey or tokenPublicKey"),
        ({"authenticateMetricsEndpoint": "true"}, "authenticateMetricsEndpoint: it needs"),
        ({"apiSocket": "/" + "x" * 107}, "apiSocket: a path of at most 107 bytes"),
    ],
)
def test_settings_that_do_nothing_are_refused(given: dict[str, str], said: str) -> None:
    """With the key that is missing."""
    with pytest.raises(ConfigError, match=said):
        conf.parse("test", {"pulsar": "http://127.0.0.1:1", **given})


def test_each_cluster_has_a_socket_of_its_own() -> None:
    """A path in the common part of the file counts for all of them."""
    sections = {name: {"pulsar": "http://127.0.0.1:1"} for name in ("east", "west")}
    with pytest.raises(ConfigError, match="a path of its own"):
        conf.clusters(sections, {"apiSocket": "/run/x"})
