"""What each cluster's API says of all clusters of its daemon."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.security.tokens import KEY, token
from steer.fake_pulsar import failed
from steer.watched import watching

from loadmanager.engine.history.archived import ARCHIVED, RESOURCES
from loadmanager.engine.history.records import BrokerLoad
from loadmanager.engine.load.reports import ResourceUsage
from loadmanager.kit.history.archive import Archive
from loadmanager.kit.history.settings import HistorySettings
from loadmanager.kit.security.settings import TokenSettings
from loadmanager.kit.security.tokens import TokenVerifier
from loadmanager.kit.system.clock import SystemClock
from loadmanager.steer import settings_file as conf
from loadmanager.steer.clusters import NOT_HERE, NOT_THEN, ClusterStanding, FleetClusters
from loadmanager.steer.http.fleet_access import FleetApiSettings, FleetGuard


def standing(
    name: str, *, allows: bool = True, waits: str = "", problem: str = "", mode: str = "observe"
) -> ClusterStanding:
    """A cluster that this daemon does not lead."""
    settings = conf.parse(name, {"pulsar": "http://one:8080", "mode": mode})
    made = ClusterStanding(settings=settings, port=8090, allows=lambda _token: allows)
    made.waits, made.problem = waits or made.waits, problem
    return made


async def test_the_worst_is_first(tmp_path: Path) -> None:
    """Trouble, what nothing may be moved in, the fullest broker, those that wait, those of which
    the token may read nothing.
    """
    secret, broken = standing("a", allows=False), standing("z", problem="no certificate")
    async with (
        watching(tmp_path / "calm", (6, 5, 5), settings={"mode": "advise"}) as calm,
        watching(tmp_path / "held", (6, 5, 5), settings={"mode": "act"}) as held,
    ):
        works = {"calm": calm.work, "held": held.work}
        leading = [standing("calm", mode="advise"), standing("held", mode="act")]
        together = FleetClusters([secret, standing("w", waits="in use"), *leading, broken])
        for each in leading:
            each.leads(works[each.settings.name], None)
        for daemon in (calm, held):
            await daemon.work.read()
        told = together.shown("calm", "")
        assert told.name == "calm"
        assert [each.name for each in told.clusters] == ["z", "held", "calm", "w", "a"]
        states = [each.state for each in told.clusters]
        assert states == ["problem", "leads", "leads", "waits", None]
        first, second, third, waiting, last = told.clusters
        assert (first.why, waiting.why) == ("no certificate", "in use")
        assert "PulsarBalances" in (second.held or "")
        assert (third.mode, third.brokers, third.open_goals) == ("advise", 3, 0)
        assert third.read_at == calm.clock.now_ms()
        assert 0 < (third.lowest_usage or 0) <= (third.highest_usage or 0)
        assert (last.port, last.mode, last.why) == (8090, None, None)
        assert together.shown("a", "").clusters[-1].mode == "observe"  # it was asked itself
        calm.pulsar.nonsense["/admin/v2/brokers"] = failed
        calm.clock.pass_s(30)
        await calm.work.read()
        assert together.shown("held", "").clusters[0].name == "calm"


def test_each_cluster_has_its_own_tokens() -> None:
    """A token says nothing to a cluster with another key; without a key everybody may read."""
    settings, clock = FleetApiSettings(), SystemClock()
    verifier = TokenVerifier(TokenSettings(secret_key=KEY))
    guard = FleetGuard(settings=settings, verifier=verifier, clock=clock)
    assert guard.allows(token("anybody"))
    assert not guard.allows("")
    assert not guard.allows(token("anybody")[:-2])
    assert FleetGuard(settings=settings, verifier=None, clock=clock).allows("")


async def test_the_clusters_of_a_moment(tmp_path: Path) -> None:
    """By what this daemon recorded: brokers and usage of then, without those whose loads had ended
    before; of a cluster that it may not read, or does not lead, nothing.
    """
    clock = SystemClock()
    folder = HistorySettings(directory=str(tmp_path))
    archive = Archive(folder, ARCHIVED, cluster="calm", broker="calm", clock=clock)
    archive.start()
    try:
        unused = {name: ResourceUsage() for name in RESOURCES}

        async def recorded(at_ms: int, broker: str, usage: float) -> None:
            head = {"ts": at_ms, "broker": broker, "interval_ms": 60_000}
            archive.append(BrokerLoad(**head, usage=usage, **unused))
            await archive.settle(20)

        await recorded(clock.now_ms() - 600_000, "b3", 0.9)
        now = clock.now_ms()  # it records by then, and goes on
        for broker, usage in (("b1", 0.4), ("b2", 0.7)):
            await recorded(now - 60_000, broker, usage)
        led, other, secret = standing("calm"), standing("w"), standing("a", allows=False)
        led.archive = archive
        together = FleetClusters([secret, other, led])
        told = await together.shown_then("calm", "", now)
        assert [it.name for it in told.clusters] == ["calm", "w", "a"]
        first, waits, last = told.clusters
        assert (first.state, first.brokers, first.read_at) == ("leads", 2, now - 60_000)
        assert (first.lowest_usage, first.highest_usage) == pytest.approx((0.4, 0.7), abs=1e-4)
        assert first.mode is None
        assert (waits.state, waits.why) == ("waits", NOT_HERE)
        assert (last.state, last.port) == (None, 8090)
        (before, *_) = (await together.shown_then("calm", "", now - 3_600_000)).clusters
        assert (before.state, before.why, before.brokers) == ("waits", NOT_THEN, 0)
    finally:
        await archive.close()
