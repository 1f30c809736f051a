"""Bundles that are too big: advised, split when approved or in act, and what keeps them whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from steer.fake_pulsar import NAMESPACE, RANGES, failed
from steer.watched import Watching, watching

from loadmanager.engine.history.records import Decision
from loadmanager.kit.errors import ConfigError, ConflictError, OperationalError
from loadmanager.leader.ports.operating import DriftError
from loadmanager.steer import settings_file as conf

TOO_BIG = f"{NAMESPACE}/{RANGES[3]}"
PARTS = [f"{NAMESPACE}/0x30000000_0x38000000", f"{NAMESPACE}/0x38000000_0x40000000"]
ORDER = f"PUT /admin/v2/namespaces/{NAMESPACE}/{RANGES[3]}/split?unload=false"
FEW_TOPICS = {"loadBalancerNamespaceBundleMaxTopics": "10", "settleSeconds": "60"}


async def check(daemon: Watching, *, topics: int = 30, off: bool = True) -> None:
    """Read, with one bundle of many topics, and look for what is too big."""
    pulsar = daemon.pulsar
    if off:
        pulsar.switch_off()
    pulsar.topics_of[TOO_BIG] = topics
    await daemon.work.read()
    await daemon.work.watching.read_policies()
    await daemon.work.splitting.step()


def orders(daemon: Watching) -> list[str]:
    """The orders to split that the cluster got."""
    return [line for line in daemon.pulsar.log if "/split?" in line]


@pytest.mark.parametrize("extensible", [False, True])
async def test_act_splits_and_sees_the_parts(tmp_path: Path, *, extensible: bool) -> None:
    """On both managers, once, and leaves the parts with their owner. Their load counts at once,
    although Pulsar has measured nothing yet.
    """
    settings = {"mode": "act", **FEW_TOPICS}
    async with watching(tmp_path, settings=settings, extensible=extensible) as daemon:
        await check(daemon)
        assert daemon.pulsar.topics_of == dict.fromkeys(PARTS, 15)
        assert orders(daemon) == [ORDER]
        (told,) = [
            one for one in daemon.work.load_manager.records.decisions.last(9) if one.kind == "split"
        ]
        assert told.outcome.text == "split into 0x30000000_0x38000000, 0x38000000_0x40000000"
        owner = daemon.pulsar.owners[PARTS[0]]
        before = sum(daemon.pulsar.rates[part] for part in PARTS)
        for part in PARTS:
            daemon.pulsar.rates[part] = 0.0
        await daemon.work.read()
        stats = daemon.work.load_manager.cluster.view.reports[owner].last_stats
        assert sum(stats[part].msg_rate_in for part in PARTS) == pytest.approx(before)
        records = [one for one in daemon.history.records if isinstance(one, Decision)]
        assert [one.state for one in records if one.action == "split"] == ["running", "done"]


async def test_advise_shows_the_command_and_splits_nothing(tmp_path: Path) -> None:
    """With the figure that is too high."""
    async with watching(tmp_path, settings={"mode": "advise", **FEW_TOPICS}) as daemon:
        await check(daemon, off=False)
        (split,) = daemon.work.advice.shown(None).splits
        assert split.command == (
            f"pulsar-admin namespaces split-bundle {NAMESPACE} --bundle {RANGES[3]}"
        )
        assert split.why == {"topics": 30, "limit": 10}
        assert split.broker == daemon.pulsar.owners[TOO_BIG]
        assert split.plan_id is None
        await check(daemon, off=False)
        assert daemon.work.advice.shown(None).splits == [split]
        await check(daemon, topics=10, off=False)
        assert daemon.work.advice.shown(None).splits == []
        assert orders(daemon) == []


async def test_what_is_not_known_is_not_advised(tmp_path: Path) -> None:
    """While the policies have not been read."""
    async with watching(tmp_path, settings={"mode": "advise", **FEW_TOPICS}) as daemon:
        daemon.pulsar.topics_of[TOO_BIG] = 30
        daemon.pulsar.nonsense["/failureDomains"] = failed
        await daemon.work.read()
        await daemon.work.splitting.step()
        assert daemon.work.advice.shown(None).splits == []


async def test_a_check_is_bounded(tmp_path: Path) -> None:
    """The further ones wait for the next check."""
    settings = {"mode": "act", **FEW_TOPICS, "loadBalancerMaxNumberOfBundlesToSplitPerCycle": "1"}
    async with watching(tmp_path, settings=settings) as daemon:
        daemon.pulsar.topics_of[f"{NAMESPACE}/{RANGES[5]}"] = 16
        await check(daemon, topics=16)
        assert len(orders(daemon)) == 1
        await daemon.work.read()
        await daemon.work.splitting.step()
        assert len(orders(daemon)) == 2


async def test_an_approved_split_is_made_once(tmp_path: Path) -> None:
    """Its plan is the same at each check until it is carried out; its answer says that it is."""
    async with watching(tmp_path, settings={"mode": "approve", **FEW_TOPICS}) as daemon:
        await check(daemon)
        (split,) = daemon.work.advice.shown(None).splits
        await check(daemon)
        assert daemon.work.advice.shown(None).splits == [split]
        assert orders(daemon) == []
        plans = daemon.work.operations.plans
        plan = await plans.execute(split.plan_id)
        assert (plan.state, plan.plan.splits[0].bundle) == ("executed", TOO_BIG)
        assert daemon.pulsar.topics_of == dict.fromkeys(PARTS, 15)
        with pytest.raises(DriftError, match="carried out already"):
            await plans.execute(split.plan_id)
        assert orders(daemon) == [ORDER]


async def test_an_approved_split_is_refused_after_changes(tmp_path: Path) -> None:
    """Pulsar's own splitting is on; the bundle is not too big any more; it was split by somebody
    else; the plan is too old.
    """
    async with watching(tmp_path, settings={"mode": "approve", **FEW_TOPICS}) as daemon:
        await check(daemon, off=False)
        (split,) = daemon.work.advice.shown(None).splits
        plans = daemon.work.operations.plans
        with pytest.raises(ConflictError, match="PulsarBalances"):
            await plans.execute(split.plan_id)
        await check(daemon, topics=10)
        with pytest.raises(DriftError, match="no broker that answers reports it as too big"):
            await plans.execute(split.plan_id)
        daemon.pulsar.edges = sorted([*daemon.pulsar.edges, "0x38000000"])
        with pytest.raises(DriftError, match="it was split or merged"):
            await plans.execute(split.plan_id)
        daemon.clock.pass_s(601)
        await daemon.work.watching.read_settings()
        with pytest.raises(DriftError, match="more than 600 s ago"):
            await plans.execute(split.plan_id)
        assert orders(daemon) == []


async def test_a_split_that_pulsar_does_not_make(tmp_path: Path) -> None:
    """It answers 204 and does nothing, or fails: both are told as they are. In act the order is not
    repeated within the grace period.
    """
    async with watching(tmp_path, settings={"mode": "approve", **FEW_TOPICS}) as daemon:
        daemon.pulsar.divides = False
        await check(daemon)
        (split,) = daemon.work.advice.shown(None).splits
        with pytest.raises(OperationalError, match="found no boundary that divides its topics"):
            await daemon.work.operations.plans.execute(split.plan_id)
    async with watching(tmp_path / "another", settings={"mode": "act", **FEW_TOPICS}) as daemon:
        daemon.pulsar.nonsense["/split"] = failed
        await check(daemon)
        await check(daemon)
        (told,) = [
            one for one in daemon.work.load_manager.records.decisions.last(9) if one.kind == "split"
        ]
        assert "500" in told.outcome.text
        assert daemon.work.load_manager.not_split == len(orders(daemon)) == 1


async def test_what_keeps_act_from_splitting(tmp_path: Path) -> None:
    """Pulsar's own balancing, quiet hours, a pause, and a switch; the advice stays."""
    act = {"mode": "act", **FEW_TOPICS}
    async with watching(tmp_path, settings=act) as daemon:
        await check(daemon, off=False)
        assert orders(daemon) == []
        await daemon.work.operations.pause(60)
        await check(daemon)
        assert len(daemon.work.advice.shown(None).splits) == 1
        assert orders(daemon) == []
        await daemon.work.operations.pause(None)
        await check(daemon)
        assert orders(daemon) == [ORDER]
    for more in ({"quietHours": "00:00-00:00"}, {"loadBalancerAutoBundleSplitEnabled": "false"}):
        async with watching(tmp_path, settings={**act, **more}) as daemon:
            await check(daemon)
            assert orders(daemon) == []


def test_settings_of_splits_that_pulsar_decides_are_refused() -> None:
    """They would do nothing."""
    given = {"pulsar": "http://h:1", "defaultNamespaceBundleSplitAlgorithm": "range_equally_divide"}
    with pytest.raises(ConfigError, match="Pulsar chooses where it splits a bundle"):
        conf.parse("test", given)
