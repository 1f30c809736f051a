"""Notices reach a chat, once each, whatever that answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace
from steer.fake_pulsar import a_pulsar
from steer.watched import beside

from loadmanager.engine.plans.goals import NO_LIMITS, Emptied, Even, PlanLimits
from loadmanager.engine.plans.order import GoalOrder, Progress, Promise
from loadmanager.kit.errors import ConfigError
from loadmanager.kit.reason import Reason
from loadmanager.kit.system.clock import SystemClock
from loadmanager.kit.tasks import Scope
from loadmanager.leader.goals import LAPSED
from loadmanager.steer.http.webhooks import WAITING_MAX, Webhooks, body, check
from loadmanager.steer.notices import Notices

APPROVE = {"mode": "approve", "loadManagerMovesPerMinuteMax": "-1"}


class Chat:
    """Takes notices, and answers as it is told."""

    def __init__(self) -> None:
        self.notices: list[Any] = []
        self.answers: list[int] = []
        self.port = 0
        self._came = asyncio.Event()
        self.awake = asyncio.Event()
        self.awake.set()

    async def _take(self, request: web.Request) -> web.Response:
        self.notices.append(json.loads(await request.read()))
        self._came.set()
        await self.awake.wait()
        return web.Response(status=self.answers.pop(0) if self.answers else 200)

    async def __aenter__(self) -> Chat:
        application = web.Application()
        application.add_routes([web.post("/hook/{secret}", self._take)])
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def until(self, count: int) -> None:
        """Wait for so many."""
        async with asyncio.timeout(60):
            while len(self.notices) < count:
                self._came.clear()
                await self._came.wait()


def hooks(port: int, template: str = "") -> Webhooks:
    """To that chat, without long waits."""
    return Webhooks(
        cluster="c",
        urls=(f"http://127.0.0.1:{port}/hook/secret",),
        template=template,
        clock=SystemClock(),
        again_s=(0.01, 0.01),
    )


async def test_notices_are_delivered() -> None:
    """Again, if they are not taken; an address that takes none costs that notice."""
    async with Chat() as chat, Scope("test") as scope:
        sender = hooks(chat.port, '{"text": "{cluster}: {text}"}')
        scope.spawn(sender.run(), "webhooks")
        chat.answers = [500, 302, 200, 500, 500, 500]
        for kind, text in (("hold", 'a "quoted" reason\n'), ("plan", "lost"), ("goal", "last")):
            sender.tell(kind, text)
        await chat.until(7)
        assert [notice["text"] for notice in chat.notices] == [
            *['c: a "quoted" reason\n'] * 3,
            *["c: lost"] * 3,
            "c: last",
        ]
        while sender.posted < 2:
            await asyncio.sleep(0.01)
        assert (sender.posted, sender.failed) == (2, 1)
        scope.cancel()


async def test_a_silent_address_delays_no_other() -> None:
    """The pager gets its notices while the chat takes connections and answers nothing."""
    async with Chat() as silent, Chat() as pager, Scope("test") as scope:
        silent.awake.clear()
        sender = Webhooks(
            cluster="c",
            urls=tuple(f"http://127.0.0.1:{chat.port}/hook/1" for chat in (silent, pager)),
            template="",
            clock=SystemClock(),
        )
        scope.spawn(sender.run(), "webhooks")
        sender.tell("hold", "first")
        sender.tell("hold", "second")
        await pager.until(2)
        assert sender.failed == 0  # the silent one has not failed yet: that takes its timeout
        scope.cancel()
        silent.awake.set()


def test_what_nobody_is_told() -> None:
    """What is configured, an ordinary restart, what lasts for one reading; of plans, more than one
    an hour.
    """
    notices: list[tuple[str, str]] = []
    looking = Notices(lambda kind, text: notices.append((kind, text)))

    def look(code: str | None, plan_moves: int = 0, now_ms: int = 0) -> list[tuple[str, str]]:
        hold = None if code is None else Reason(code, "why")
        notices.clear()
        looking.look(hold, plan_moves, {}, "admin", now_ms=now_ms)
        return list(notices)

    for code in ("RivalsUnknown", None, "QuietHours", "QuietHours", "BrokersLeft", None):
        assert look(code) == []
    assert look("CircuitBreaker") == [("hold", "nothing is moved: CircuitBreaker: why")]
    over = "that is over; moves wait for something ordinary: QuietHours: why"
    assert look("QuietHours") == [("hold", over)]
    assert look(None) == []
    assert look("PulsarBalances") == []
    assert look("PulsarBalances") == [("hold", "nothing is moved: PulsarBalances: why")]
    assert look(None) == [("hold", "moves go on")]
    assert look("PulsarBalances", plan_moves=2) == []  # nobody could approve it
    plans = [minute for minute in range(125) if look(None, minute % 7, minute * 60_000)]
    assert plans == [1, 61, 121]


async def test_too_many_are_dropped() -> None:
    """And an address where nobody listens ends nothing."""
    sender = hooks(1)
    for number in range(WAITING_MAX + 5):
        sender.tell("hold", str(number))
    assert sender.failed == 5
    async with Scope("test") as scope:
        scope.spawn(sender.run(), "webhooks")
        while sender.failed < 8:
            await asyncio.sleep(0.01)
        scope.cancel()


def test_bodies() -> None:
    """An object without a template; with one, the places are filled in as JSON."""
    given: dict[str, Any] = {"cluster": "c", "kind": "hold", "text": 'x "y"', "at_ms": 5}
    plain = {"cluster": "c", "kind": "hold", "text": 'x "y"', "at": 5}
    plain["time"] = "1970-01-01T00:00:00Z"
    assert json.loads(body("", **given)) == plain
    made = json.loads(body('{"a": "{kind} {at} {time}", "b": {"c": "{text}"}}', **given))
    assert made == {"a": "hold 5 1970-01-01T00:00:00Z", "b": {"c": 'x "y"'}}
    assert json.loads(body('["{text}"]', **{**given, "text": "{at} {kind}"})) == ["{at} {kind}"]


@pytest.mark.parametrize(
    ("urls", "template"),
    [
        (("ftp://x/y",), ""),
        (("chat.example",), ""),
        (("http://[x/y",), ""),
        (("http://x:99999/y",), ""),
        (("http://x/y",), "{text}"),
        ((), '{"a": '),
    ],
)
def test_senseless_settings_are_refused(urls: tuple[str, ...], template: str) -> None:
    """At the start."""
    with pytest.raises(ConfigError, match="webhook"):
        check(urls, template)


def test_a_goal_that_goes_on_is_told() -> None:
    """It had ended, and was told as such; its second end is told, too."""
    notices: list[str] = []
    looking = Notices(lambda kind, text: notices.append(f"{kind}: {text}"))
    promise = Promise.nothing(Reason("Limits"))
    order = GoalOrder(
        id="1-g1", goal=Even(5), limits=NO_LIMITS, state="approved", made_ms=1, promise=promise
    )
    came = Progress(arrived=2, farthest=0.031)
    ended = replace(order, state="ended", ended=Reason("Reached"), progress=came)
    for state in (order, ended, ended, order, order, ended):
        looking.look(None, 0, {order.id: state}, "admin", now_ms=1)
    for state in (replace(order, state="proposed"), replace(order, state="ended", ended=LAPSED)):
        looking.look(None, 0, {"1-g2": state}, "admin", now_ms=1)
    assert [text.partition(";")[0] for text in notices] == [
        "goal: goal 1-g1 has ended: Reached",
        "goal: goal 1-g1 goes on: it is not reached any more",
        "goal: goal 1-g1 has ended: Reached",
    ]
    assert notices[0].endswith("; farthest from the mean: 3.1 points, 0.0 promised")


async def test_what_is_told(tmp_path: Path) -> None:
    """Each change once: a hold, its end, a plan that waits, a goal that has ended."""
    async with a_pulsar(3) as pulsar, beside(pulsar, tmp_path, APPROVE) as daemon:
        pulsar.spread([12, 2, 2])
        notices: list[tuple[str, str]] = []
        daemon.work.notices = Notices(lambda kind, text: notices.append((kind, text)))
        await daemon.cycle()
        await daemon.work.read()
        kind, text = notices[0]
        assert (kind, text.startswith("nothing is moved: PulsarBalances")) == ("hold", True)
        pulsar.switch_off()
        for _ in range(3):
            await daemon.cycle()
        assert ("hold", "moves go on") in notices
        (plan,) = [text for kind, text in notices if kind == "plan"]
        assert plan.endswith("plans list")
        goals = daemon.work.operations.goals
        order = await goals.propose(Emptied(pulsar.brokers[0]), PlanLimits(moves=1), approve=True)
        await daemon.work.read()
        for _ in range(4):
            await daemon.goal_step()
        (goal,) = [text for kind, text in notices if kind == "goal"]
        assert f"goal {order.id} has ended: Limits" in goal
