"""The page's files, and the routes that only the page needs."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import re
from pathlib import Path

from broker.admin.serving import serving
from clusters.running import until
from kit.security.tokens import ADMIN, VALUES, token, verifier
from limits.driven import Client as Producer
from limits.driven import DrivenClock

from loadmanager.broker.admin.following import FOLLOW
from loadmanager.kit.names import TopicName
from loadmanager.leader.http.page import FOREVER, POLICY

ROOT = Path(__file__).parents[3]
UI, BUILT = ROOT / "ui", ROOT / "loadmanager" / "leader" / "http" / "ui"
TOPIC = TopicName.parse("persistent://acme/orders/new")
FOLLOWING = {FOLLOW: "true"}


def test_the_built_files_come_from_these_sources() -> None:
    """Who changes `ui/` runs `make page`."""
    names = ["build.mjs", "openapi.json", "package-lock.json", "package.json", "tsconfig.json"]
    names += [f"src/{path.name}" for path in (UI / "src").iterdir()]
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(f"{name}\n".encode() + (UI / name).read_bytes())
    assert (BUILT / "sources.sha256").read_text() == f"{digest.hexdigest()}\n", "run `make page`"


def test_it_asks_no_other_host() -> None:
    """Neither the built files nor the lock file name a host."""
    for path in BUILT.iterdir():
        hosts = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+", path.read_text()))
        assert hosts <= {"http://www.w3.org"}, path  # the name of SVG
    named = re.findall(r'"(\w+)": "[\w+]+://', (UI / "package-lock.json").read_text())
    assert set(named) == {"url"}  # of those who collect money


async def test_files_are_served_to_everybody() -> None:
    """Without a token, with a strict policy, and cached as long as they may be."""
    async with serving(1, values=VALUES, verifier=verifier(), token=token(ADMIN)) as served:
        nobody = {"Authorization": ""}
        answer = await served.ask("GET", "/ui", headers=nobody)
        assert answer.status == 200
        assert answer.headers["Content-Security-Policy"] == POLICY
        assert "unsafe" not in POLICY
        assert answer.headers["Cache-Control"] == "no-cache"
        names = re.findall(r'(?:src|href)="(/ui/[\w.-]+)"', answer.body)
        assert len(names) == 3
        for name in names:
            file = await served.ask("GET", name, headers=nobody)
            assert file.status == 200
            assert file.headers["Content-Security-Policy"] == POLICY
            assert (file.headers["Cache-Control"] == FOREVER) is not name.endswith(".svg")
            match = {**nobody, "If-None-Match": file.headers["ETag"]}
            assert (await served.ask("GET", name, headers=match)).status == 304
        for name in ("sources.sha256", "..%2Fpage.py", "nothing.js"):
            assert (await served.ask("GET", f"/ui/{name}", headers=nobody)).status == 404


async def test_files_are_compressed() -> None:
    """For browsers that ask for it; others get them as they are."""
    async with serving(1) as served:
        async with served.session.get(
            served.url() + "/ui", headers={"Accept-Encoding": "identity"}
        ) as answer:
            plain = await answer.read()
        async with served.session.get(
            served.url() + "/ui", headers={"Accept-Encoding": "gzip"}, auto_decompress=False
        ) as answer:
            assert gzip.decompress(await answer.read()) == plain


async def test_browsers_are_sent_to_the_page() -> None:
    """Programs get 404, as before, which says where the page is."""
    async with serving(1) as served:
        browser = await served.ask("GET", "/", headers={"Accept": "text/html,*/*"})
        assert (browser.status, browser.headers["Location"]) == (302, "/ui")
        program = await served.ask("GET", "/")
        assert (program.status, program.reason) == (
            404,
            "there is nothing at /; the page is at /ui",
        )


async def test_heat_is_the_leaders() -> None:
    """The other broker sends it there, or asks there itself for a page."""
    async with serving(2) as served:
        path = "/loadmanager/v1/heat?limit=3"
        bundle = "acme/orders/0x00000000_0x40000000"
        await served.own(bundle, at=1)

        async def shown() -> bool:
            answer = await served.get(path)
            return [series["bundle"] for series in answer["bundles"]] == [bundle]

        async with asyncio.timeout(60):
            while not await shown():
                await asyncio.sleep(0.1)
        assert (await served.get(path))["bundles"][0]["owner"] == served.broker_id(1)
        elsewhere = await served.ask("GET", path, at=1)
        assert elsewhere.status == 307
        followed = await served.ask("GET", path, at=1, headers=FOLLOWING)
        assert (followed.status, len(followed.body["bundles"])) == (200, 1)
        assert (await served.ask("GET", "/loadmanager/v1/heat?limit=0")).status == 412
        await served.depose()
        gone = await served.ask("GET", path, at=1, headers=FOLLOWING)
        assert (gone.status, gone.reason) == (503, "there is no leader now; try again")


async def test_what_a_broker_has_seen_last() -> None:
    """All brokers, each with its last report; also of a time when nobody leads any more."""
    async with serving(2) as served:
        path = "/loadmanager/v1/last-seen"
        names = sorted(served.broker_id(index) for index in range(2))
        leader = served.broker_id(0)
        seen = await served.get(path, at=1)
        assert [it["broker"] for it in seen["brokers"]] == names
        assert all(it["report"]["reportedAt"] for it in seen["brokers"])
        assert (seen["by"], seen["leader"], seen["leads"]) == (served.broker_id(1), leader, True)
        assert (seen["storeSilentMs"], seen["seenAt"]) == (None, seen["at"])
        await served.depose()
        seen = await served.get(f"{path}?limit=1", at=1)
        assert (seen["leader"], seen["leads"], seen["total"]) == (leader, False, 2)
        assert [it["broker"] for it in seen["brokers"]] == names[:1]


async def test_following_passes_body_credentials_and_refusals_on() -> None:
    """The other broker decides by the caller's own token."""
    async with serving(2, values=VALUES, verifier=verifier(), token=token(ADMIN)) as served:
        bundle = "acme/orders/0x00000000_0x40000000"
        await served.own(bundle)
        path = f"/admin/v2/namespaces/{bundle}/unload"
        answer = await served.ask("PUT", path, at=1, headers=FOLLOWING)
        assert answer.status == 204, answer
        await until(lambda: bundle not in served.brokers[0].use.ownership.owned())
        stranger = {**FOLLOWING, "Authorization": f"Bearer {token('stranger')}"}
        heat = "/loadmanager/v1/heat"
        assert (await served.ask("GET", heat, at=1, headers=stranger)).status == 403
        # as if this broker let everybody in: the leader does not
        own = await served.ask("GET", heat, at=1)
        async with served.session.get(own.headers["Location"], headers=stranger) as refused:
            assert refused.status == 403


async def test_following_goes_to_brokers_only() -> None:
    """A broker whose address is not that of a live broker is not asked."""
    async with serving(2) as served:
        leader = served.brokers[1].use.leading.leader
        assert leader is not None
        served.brokers[1].parts.member.cluster.leading.leader = type(leader)(
            broker_id="127.0.0.1:1", service_url="http://127.0.0.1:1", epoch=leader.epoch
        )
        answer = await served.ask("GET", "/loadmanager/v1/heat", at=1, headers=FOLLOWING)
        assert (answer.status, "cannot be reached" in answer.reason) == (502, True)


async def test_headers_of_answers() -> None:
    """Browsers guess no type and keep nothing; they may use a port without TLS if there is one."""
    async with serving(1) as served:
        for method, path, status in (
            ("GET", "/admin/v2/brokers", 200),
            ("GET", "/admin/v2/nothing", 404),
            ("PUT", "/admin/v2/tenants/acme", 409),
        ):
            answer = await served.ask(method, path)
            assert answer.status == status
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Cache-Control"] == "no-store"
            assert answer.headers["Server"] == "loadmanager"
            assert "Strict-Transport-Security" not in answer.headers


async def test_throttled_topics_of_all_brokers() -> None:
    """Any broker says which limits hold whom, wherever that is; a broker that is dead is named."""
    async with serving(2) as served:
        await served.ask("PUT", f"/admin/v2/{TOPIC.domain}/acme/orders/new")
        await served.ask(
            "POST",
            "/admin/v2/namespaces/acme/orders/publishRate",
            {"publishThrottlingRateInMsg": 7},
        )
        broker = served.brokers[1]
        await broker.serve(TOPIC)
        topic = broker.throttling.topics[str(TOPIC)]
        await until(lambda: bool(topic.publish))
        clock = DrivenClock(broker.clock.monotonic_ns())
        Producer(clock, broker.throttling, topic, 100, 10, cap=2).go_on()
        answer = await served.get("/loadmanager/v1/throttled")
        assert list(answer["brokers"]) == [served.broker_id(1)]
        (limit,) = answer["brokers"][served.broker_id(1)]["limits"]
        assert limit["waiters"][0]["topic"] == str(TOPIC)
        assert (answer["notAsked"], answer["noAnswer"]) == (0, {})
        assert json.dumps(await served.get("/loadmanager/v1/throttled?local=true"))
        await served.servers[1].stop()
        assert await served.get("/loadmanager/v1/throttled") == answer  # kept for a while
        served.servers[0]._heat._next_s = 0.0
        answer = await served.get("/loadmanager/v1/throttled")
        assert "cannot be reached" in answer["noAnswer"][served.broker_id(1)]
