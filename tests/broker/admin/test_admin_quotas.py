"""Resource quotas over HTTP: as Pulsar's admin API has them, and what they do to balancing."""

from __future__ import annotations

import msgspec
from broker.admin.serving import ORDERS, serving

from loadmanager.engine.load.averages import BundleAverages
from loadmanager.engine.load.quotas import Expected, ResourceQuota
from loadmanager.engine.load.reports import NamespaceBundleStats, default_bundle_data
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.leader.quotas import TermQuotas

PATH = "/admin/v2/resource-quotas"
FIRST = "acme/orders/0x00000000_0x40000000"
BUNDLE = f"{PATH}/{FIRST}"
INITIAL = {
    "msgRateIn": 40.0,
    "msgRateOut": 120.0,
    "bandwidthIn": 100000.0,
    "bandwidthOut": 300000.0,
    "memory": 80.0,
    "dynamic": True,
}
HEAVY = {
    "msgRateIn": 9000.0,
    "msgRateOut": 9000.0,
    "bandwidthIn": 5e6,
    "bandwidthOut": 5e6,
    "memory": 10.0,
    "dynamic": False,
}


async def test_get_set_reset() -> None:
    """The leader answers, others redirect to it; a bundle without a quota of its own has the
    default one; the next leader finds what was set.
    """
    async with serving() as served:
        for method in ("GET", "POST", "DELETE"):
            elsewhere = await served.ask(method, BUNDLE, at=1)
            assert (elsewhere.status, elsewhere.headers["Location"]) == (
                307,
                served.url(0) + BUNDLE,
            )
        assert (await served.ask("GET", PATH)).body == INITIAL
        assert (await served.ask("GET", BUNDLE)).body == INITIAL
        default = {**INITIAL, "msgRateIn": 1.0}
        assert (await served.ask("POST", PATH, default)).status == 204
        assert (await served.ask("POST", BUNDLE, HEAVY)).status == 204
        assert (await served.ask("GET", PATH)).body == default
        assert (await served.ask("GET", BUNDLE)).body == HEAVY

        store, corrupt = served.brokers[1].store, Corrupt()
        await store.put("/loadbalance/resource-quota/acme/orders/0x40000000_0x80000000", b"{")
        later = TermQuotas(store, (), corrupt, Expected())
        await later.restore()
        quotas = [later.quota(bundle) for bundle in (None, FIRST, "a/b/c")]
        assert msgspec.to_builtins(quotas) == [default, HEAVY, default]
        assert corrupt.counts["policy"] == 1

        assert (await served.ask("DELETE", BUNDLE)).status == 204
        assert (await served.ask("GET", BUNDLE)).body == default
        assert (await served.ask("DELETE", BUNDLE)).status == 404


async def test_wrong_questions() -> None:
    """Unknown namespaces are 404, unknown bundles 412, wrong figures 400 or 412."""
    async with serving() as served:
        assert (await served.ask("GET", f"{PATH}/acme/none/0x00000000_0xffffffff")).status == 404
        assert (await served.ask("POST", f"{PATH}/acme/orders/0x0_0x1", HEAVY)).status == 412
        for wrong in ({"msgRateIn": -1}, {"msgRateIn": "many"}, {"bandwidthIn": 1e300}, []):
            assert (await served.ask("POST", BUNDLE, wrong)).status in (400, 412), wrong
        assert (await served.ask("GET", BUNDLE)).body == INITIAL


async def test_placement_counts_on_quotas() -> None:
    """One bundle that is expected to be heavy has a broker for itself; three light ones share the
    other.
    """
    values = {
        "loadBalancerLoadPlacementStrategy": "LeastLongTermMessageRate",
        "loadBalancerDistributeBundlesEvenlyEnabled": "false",
    }
    async with serving(values=values) as served:
        assert (await served.ask("POST", BUNDLE, HEAVY)).status == 204
        place = served.brokers[0].use.leading.load_manager.place
        names = list((await served.brokers[0].use.namespaces.bundles(ORDERS)).names)
        heavy, *light = [await place(name) for name in names]
        assert names[0] == FIRST
        (other,) = set(light)
        assert other != heavy


def test_measured_traffic_moves_a_quota() -> None:
    """It counts as ample history, as in Pulsar: each of ten short samples has a tenth."""
    expected = Expected()
    expected.quotas[FIRST] = ResourceQuota(bandwidth_in=1000.0)
    averages = BundleAverages(expected=expected)
    assert averages.expect("a/b/c") == default_bundle_data()
    averages.observe("b1:8080", {FIRST: NamespaceBundleStats(msg_throughput_in=0.0)})
    assert averages[FIRST].short_term_data.msg_throughput_in == 900.0
