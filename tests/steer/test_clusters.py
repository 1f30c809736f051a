"""What each cluster's API says of all clusters of its daemon."""

from __future__ import annotations

from pathlib import Path

from kit.security.tokens import KEY, token
from steer.fake_pulsar import failed
from steer.watched import watching

from loadmanager.kit.security.settings import TokenSettings
from loadmanager.kit.security.tokens import TokenVerifier
from loadmanager.kit.system.clock import SystemClock
from loadmanager.steer import settings_file as conf
from loadmanager.steer.clusters import ClusterStanding, FleetClusters
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
            each.leads(works[each.settings.name])
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
