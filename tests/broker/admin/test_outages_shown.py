"""What any broker answers of outages, for all: by the archives of all brokers."""

from __future__ import annotations

from pathlib import Path

from broker.admin.serving import serving
from broker.admin.test_archive import ROOT, in_folder, recorded_in, written
from cli.test_past import UNUSED, forget_file

from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import BrokerLoad
from loadmanager.kit.system.clock import SystemClock
from loadmanager.kit.text import moment

MINUTE = 60_000


async def test_outages_and_what_is_not_known_for_them(tmp_path: Path) -> None:
    """When a broker could not prove its session, when all were down, and of which no load of a
    moment is known; whoever is asked. A broker without an archive answers 404.
    """
    begun = SystemClock().now_ms() // 1_000 * 1_000 - 60 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        names = [served.broker_id(index) for index in range(2)]
        load = {"interval_ms": MINUTE, "usage": 0.1, **UNUSED}
        for index, broker in enumerate(names):
            own = {"broker": broker, "of": broker}
            loads = [
                BrokerLoad(ts=begun + at, broker=broker, **load) for at in (0, MINUTE, 2 * MINUTE)
            ]
            again = MemberChange(ts=begun + 30 * MINUTE, event="starts", **own)
            await written(served, index, *loads, again)
        outage = MemberChange(
            ts=begun + 57_000, broker=names[1], of=names[1], event="proven", took_ms=47_000,
            unheard_ms=5_000,
        )  # fmt: skip
        await written(served, 1, outage)
        runs = [
            (1, begun - MINUTE, begun + 5 * MINUTE),
            (2, begun + 30 * MINUTE, begun + 50 * MINUTE),
        ]
        recorded_in(tmp_path, runs)
        for at in range(2):
            between = f"since={begun}&until={begun + 40 * MINUTE}"
            answer = await served.get(f"{ROOT}/outages?{between}", at=at)
            (lapse,), (down,) = answer["lapses"], answer["downs"]
            assert (lapse["brokers"], lapse["isUnproven"]) == ([names[1]], True)
            times = [lapse[name] - begun for name in ("since", "begin", "end", "until")]
            assert times == [5_000, 10_000, 57_000, 57_000]
            ends = {"begin": begun + 5 * MINUTE, "end": begun + 30 * MINUTE}
            assert down == {**ends, "inOrder": False}
            assert (await served.get(f"{ROOT}/outages?since={down['end'] + 1}", at=at))[
                "downs"
            ] == []
            unknown = await served.get(f"{ROOT}/unknown?at={begun + 20_000}", at=at)
            assert list(unknown["brokers"]) == [names[1]]
            why = unknown["brokers"][names[1]]
            assert why.startswith("an outage or standstill lies between then and the next record")
            for known in (begun + 90_000, begun - 10_000):
                answer = await served.get(f"{ROOT}/unknown?at={known}", at=at)
                assert (answer["brokers"], answer["missing"]) == ({}, [])
        lost = MemberChange(
            ts=begun + 35 * MINUTE, broker=names[0], of=names[1], event="left", how="lost",
            unheard_ms=6_000,
        )  # fmt: skip
        await written(served, 0, lost)
        recorded_in(tmp_path, [runs[0], (2, begun + 30 * MINUTE, lost.ts - 4_000)])
        answer = await served.get(f"{ROOT}/unknown?at={lost.ts - 2_000}")
        signs = moment(lost.ts - 4_000), moment(lost.ts)
        told = "its last sign was at {} and its session ended at {}".format(*signs)
        assert answer["lost"] == {names[1]: told}
        assert (await served.get(f"{ROOT}/unknown?at={lost.ts - 5_000}"))["lost"] == {}
        await served.servers[1].stop()
        forget_file(tmp_path, names[1])
        answer = await served.get(f"{ROOT}/unknown?at={begun + 20_000}")
        assert (answer["brokers"], answer["missing"]) == ({}, [names[1]])
    async with serving(brokers=1) as served:
        for what in ("outages", "unknown"):
            assert (await served.ask("GET", f"{ROOT}/{what}")).status == 404
