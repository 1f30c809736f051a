"""How the load of a thing went over a time, by what is recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from broker.admin.serving import serving
from broker.admin.test_archive import MINUTE, in_folder, written
from cli.test_admin_command import Shell
from hypothesis import given
from hypothesis import strategies as st

from loadmanager.cli.admin.times import clock
from loadmanager.cli.admin.trend import means_of
from loadmanager.engine.history.records import BrokerLoad, BundleLoad, ResourceUsage
from loadmanager.kit.history.archive_answers import ArchivedPoint, ArchivedSeries
from loadmanager.kit.system.clock import SystemClock

NOTHING = ResourceUsage(usage=0.0, limit=100.0)


def a_series(broker: str, points: list[tuple[int, int, float]]) -> ArchivedSeries:
    """Records that end at a time, and last so long, with one figure."""
    shown = [ArchivedPoint(ts=ts, span_ms=lasts, broker=broker, figures=[figure])
             for ts, lasts, figure in points]  # fmt: skip
    return ArchivedSeries(part=broker, recorded=[], columns=["msg_rate_in"], points=shown)


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), max_size=8), max_size=3),
    st.integers(0, 60),
    st.integers(1, 90),
    st.integers(1, 40),
)
def test_a_mean_is_that_of_each_moment(
    brokers: list[list[tuple[int, int]]], begin: int, lasts: int, length: int
) -> None:
    """Moment by moment the brokers' figures are added; those that nobody recorded do not count."""
    series, moments = [], dict[int, float]()
    for number, steps in enumerate(brokers):
        at, points = 0, list[tuple[int, int, float]]()
        for step, figure in steps:
            points.append((at + step, step, float(figure)))
            for moment in range(at, at + step):
                moments[moment] = moments.get(moment, 0.0) + figure
            at += step
        series.append(a_series(f"b{number}", points))
    means = means_of(series, begin, begin + lasts, length)
    assert [it.begin_ms for it in means[1:]] == [it.end_ms for it in means[:-1]]
    assert (means[0].begin_ms, means[-1].end_ms) == (begin, begin + lasts)
    for it in means:
        own = [moments[at] for at in range(it.begin_ms, it.end_ms) if at in moments]
        assert it.recorded_ms == len(own)
        if own:
            assert it.figures["msg_rate_in"] == pytest.approx(sum(own) / len(own))
        assert bool(it.figures) == bool(own)


async def test_the_trend_of_a_broker_a_tenant_and_the_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row a part, the oldest first; a part that is not recorded says so."""
    now = SystemClock().now_ms() // MINUTE * MINUTE
    async with serving(brokers=2, values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        for index in (0, 1):
            for ago, rate in ((5, 10.0), (4, 20.0), (2, 40.0)):
                head = {"ts": now - ago * MINUTE, "broker": served.broker_id(index)}
                cpu = ResourceUsage(usage=rate * (index + 1), limit=100.0)
                usage = cpu.usage / cpu.limit
                await written(
                    served, index,
                    BrokerLoad(
                        **head, interval_ms=MINUTE, usage=usage, cpu=cpu, memory=NOTHING,
                        direct_memory=NOTHING, bandwidth_in=NOTHING, bandwidth_out=NOTHING,
                        msg_rate_in=rate, msg_throughput_in=rate * 1024, bundles=3,
                    ),
                    BundleLoad(
                        **head, interval_ms=MINUTE, msg_rate_in=rate, topics=2,
                        bundle=f"acme/orders/0x{index}0000000_0x{index}8000000",
                    ),
                )  # fmt: skip
        times = ("--since", f"{clock(now - 6 * MINUTE)}".replace(" ", "T"))
        times += ("--until", f"{clock(now - 2 * MINUTE)}".replace(" ", "T"))

        async def rows_of(*name: str) -> list[dict[str, float] | None]:
            answer = json.loads((await shell.run("trend", *name, *times, "--json"))[1])
            assert [it["beginMs"] for it in answer] == [now - ago * MINUTE for ago in (6, 5, 4, 3)]
            return [it["means"] for it in answer]

        rows = await rows_of(served.broker_id(1))
        assert rows[2] is None
        usages = [row["usage"] for row in rows if row]
        assert usages == pytest.approx([0.2, 0.4, 0.8], rel=1e-5)
        for name in ((), ("acme",), ("acme/orders",)):
            rows = await rows_of(*name)
            assert [row and row["msg_rate_in"] for row in rows] == [20.0, 40.0, None, 80.0]
        _, out, _ = await shell.run("trend", served.broker_id(1), *times)
        assert "at most 40.0 in the minute from" in out
        assert f"not all is here: {served.broker_id(1)} recorded nothing from" in out
        assert f"not all is here: {served.broker_id(0)}" not in out
        status, _, err = await shell.run("trend", "nobody", *times)
        assert status == 1
        assert "no tenant nobody is known" in err
