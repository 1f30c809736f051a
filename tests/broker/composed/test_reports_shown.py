"""A strategy of third parties sees every report, in both load managers, also between the cycles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from clusters.running import Cluster, a_cluster, until

from loadmanager.engine.load.reports import BrokerLoadData, LocalBrokerData
from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.plan import Skip
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.strategy import Shed, Shedder
from loadmanager.kit.errors import BadInputError
from loadmanager.leader.plugins import checked_shedder
from loadmanager.member.leading.leadership import FAILURES_IN_A_ROW_MAX

NAME = "SeeingShedder"
VALUES = {
    "loadBalancerLoadSheddingStrategy": NAME,
    "loadBalancerHostUsageCheckIntervalMinutes": "0.005",
}
both_managers = pytest.mark.parametrize(
    "manager", ["ModularLoadManagerImpl", "ExtensibleLoadManagerImpl"]
)
Report = LocalBrokerData | BrokerLoadData


@contextmanager
def seeing(observe: Callable[[str, Report], str]) -> Iterator[None]:
    """A registered shedder that remembers what `observe` makes of each report, and says so in the
    plan of a cycle.
    """

    def remember(broker: str, report: Report, _: StrategySettings, memory: Any) -> Any:
        return (*memory, observe(broker, report))

    registry.SHEDDERS[NAME] = checked_shedder(  # as an entry point does
        Shedder(
            name=NAME,
            shed=lambda _snapshot, _settings, memory: Shed(
                (), tuple(Skip("cluster", "Seen", seen) for seen in memory), memory
            ),
            memory=tuple,
            observe=remember,
        )
    )
    try:
        yield
    finally:
        del registry.SHEDDERS[NAME]


def usage_of(broker: str, report: Report) -> str:
    """The memory of the test's shedder after a report."""
    return f"{broker} {report.cpu.usage:.0f}"


def remembered(cluster: Cluster) -> set[str]:
    """The reasons of skips, in which the leader's shedder tells its memory."""
    plans = cluster.brokers[0].operations.plans
    return {
        skip.reason.removeprefix("Seen: ") for skip in plans.dry_run(None, None, {}).plan.skipped
    }


def failures(cluster: Cluster) -> float:
    """The number of times that the leader failed to show a report to the strategies."""
    (count,) = (
        sample.value
        for sample in cluster.brokers[0].parts.telemetry.collect()
        if sample.name == "pulsar_lb_step_failures" and ("step", "observe") in sample.labels
    )
    return count


def remembers(cluster: Cluster, *reports: str) -> bool:
    """True if the leader's shedder remembers these reports."""
    return remembered(cluster) >= set(reports)


@both_managers
async def test_every_report_is_seen_between_the_cycles(manager: str) -> None:
    """The reports that exist when the term begins, and every later one; the first cycle is a minute
    away.
    """
    with seeing(usage_of):
        async with a_cluster({**VALUES, "loadManagerClassName": manager}, brokers=2) as cluster:
            await until(partial(remembers, cluster, "b0:8080 10", "b1:8080 10"))
            cluster.brokers[1].sampler.cpu_percent = 90
            await until(partial(remembers, cluster, "b1:8080 90"))
            assert failures(cluster) == 0


@both_managers
@pytest.mark.parametrize("error", [RuntimeError("a bug"), BadInputError("a bug"), SystemExit(3)])
async def test_a_failure_to_see_a_report_is_contained(manager: str, error: BaseException) -> None:
    """It is counted, and costs the strategy that report only: the leader takes the report up, and
    does not take it for corrupt.
    """

    def observe(broker: str, report: Report) -> str:
        if report.cpu.usage > 80:
            raise error
        return usage_of(broker, report)

    with seeing(observe):
        async with a_cluster({**VALUES, "loadManagerClassName": manager}, brokers=2) as cluster:
            leader, other = cluster.brokers
            await until(partial(remembers, cluster, "b1:8080 10"))
            assert failures(cluster) == 0
            other.sampler.cpu_percent = 90
            await until(lambda: failures(cluster) == 1)
            assert remembers(cluster, "b0:8080 10", "b1:8080 10")  # both brokers count
            other.sampler.cpu_percent = 40
            await until(partial(remembers, cluster, "b1:8080 40"))
            assert failures(cluster) == 1
            assert all(
                sample.value == 0
                for sample in leader.parts.telemetry.collect()
                if sample.name == "loadmanager_corrupt_data"
            )


@both_managers
async def test_only_failures_in_a_row_cost_the_leadership(manager: str) -> None:
    """A strategy that cannot read a report now and then does not make its leader resign."""

    def observe(broker: str, report: Report) -> str:
        if report.cpu.usage > 80:
            raise RuntimeError("a bug")
        return usage_of(broker, report)

    with seeing(observe):
        async with a_cluster({**VALUES, "loadManagerClassName": manager}, brokers=2) as cluster:
            leader, other = cluster.brokers
            await until(partial(remembers, cluster, "b1:8080 10"))
            elected = leader.use.leading.leader
            for turn in range(1, FAILURES_IN_A_ROW_MAX + 2):
                other.sampler.cpu_percent = 90
                await until(lambda turn=turn: failures(cluster) == turn)
                other.sampler.cpu_percent = 10 + 10 * turn
                await until(partial(remembers, cluster, f"b1:8080 {10 + 10 * turn}"))
            assert leader.use.leading.leader == elected
