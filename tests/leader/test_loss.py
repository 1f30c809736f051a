"""Where the bundles of a broker would go if it were lost: as placement would decide."""

from __future__ import annotations

import pytest
from clusters.led import Led, led_fleet
from clusters.members import NS

from loadmanager.cli.admin.what_if import losses_text
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.load.wishes import Pin
from loadmanager.kit.errors import BadInputError
from loadmanager.leader.documents.loss import LossShown

BUNDLES = [f"{NS}/0x{low}0000000_0x{high}" for low, high in (("0", "40000000"), ("4", "80000000"))]
LATER = 10**15
ISOLATED = {
    "namespaces": [str(NS)],
    "primary": ["b2"],
    "secondary": [],
    "auto_failover_policy": {
        "policy_type": "min_available",
        "parameters": {"min_limit": "1", "usage_threshold": "100"},
    },
}


async def of_broker_1(led: Led, limit: int = 10) -> LossShown:
    """Broker 1 has two bundles, the first of which is busier; the others have none."""
    for bundle in BUNDLES:
        if not led.owners.by_bundle.get(bundle):
            await led.fleet.brokers[1].acquire(bundle)
    stats = [NamespaceBundleStats(msg_rate_in=rate, msg_throughput_in=1 << 20) for rate in (9, 4)]
    for index, of in enumerate(({}, dict(zip(BUNDLES, stats, strict=True)), {})):
        await led.report(index, of, at_ms=1)
    await led.until(lambda: len(led.owners.by_bundle) == len(BUNDLES))
    return await led.overview.loss(["b1:8080"], limit)


async def test_each_bundle_counts_as_placed_for_the_next() -> None:
    """So they are spread; nothing is moved, and the next answer is the same."""
    async with led_fleet(3) as led:
        loss = await of_broker_1(led)
        assert [each.bundle for each in loss.bundles] == BUNDLES
        assert {each.destination for each in loss.bundles} == {"b0:8080", "b2:8080"}
        assert [(it.broker, it.bundles) for it in loss.destinations] == [
            ("b0:8080", 1),
            ("b2:8080", 1),
        ]
        assert (loss.total, loss.homeless) == (2, 0)
        assert {led.owners.by_bundle[bundle].broker for bundle in BUNDLES} == {"b1:8080"}
        assert (await led.overview.loss(["b1:8080"], 10)).bundles == loss.bundles
        (first,) = (await led.overview.loss(["b1:8080"], 1)).bundles
        assert first == loss.bundles[0]


async def test_pins_and_rules_are_told() -> None:
    """A pin to another broker counts, one to the lost broker does not; isolation does."""
    async with led_fleet(3) as led:
        for bundle, broker in zip(BUNDLES, ("b0:8080", "b1:8080"), strict=True):
            await led.wishes.pin(bundle, Pin(broker, LATER), ())
        await led.until(lambda: len(led.wishes.pins) == len(BUNDLES))
        loss = await of_broker_1(led)
        assert (loss.bundles[0].destination, loss.bundles[0].pinned_to) == ("b0:8080", "b0:8080")
        assert loss.bundles[1].pinned_to == "b1:8080"
        text = list(losses_text(loss))
        assert text[0] == "of b1:8080 now: 2 bundles, which placement would send"
        assert any(line.endswith("another order may place some elsewhere") for line in text)
        assert any("what the others would use then is not known" in line for line in text)
        assert f"  {BUNDLES[0]} to b0:8080 (9 messages/s; pinned there)" in text
        assert "1 bundle pinned to a lost broker: such a pin does not count then" in text
        await led.policies.set_isolation_policy("gold", {**ISOLATED, "unload_scope": "none"})
        isolated = await led.overview.loss(["b1:8080"], 10)
        assert [each.rules for each in isolated.bundles] == [["Isolation"], ["Isolation"]]
        assert {each.destination for each in isolated.bundles} == {"b2:8080"}
        assert "rules leave only some brokers to 2 bundles" in list(losses_text(isolated))
        nowhere = await led.overview.loss(["b1:8080", "b2:8080"], 10)
        assert [each.destination for each in nowhere.bundles] == [None, None]
        assert nowhere.homeless == 2
        assert "  2 bundles NOWHERE: no other broker qualifies" in list(losses_text(nowhere))


async def test_what_cannot_be_asked() -> None:
    """A broker that is not there, and the loss of all."""
    async with led_fleet(2) as led:
        for index in range(2):
            await led.report(index, {}, at_ms=1)
        with pytest.raises(BadInputError, match="no broker b7; there are b0:8080, b1:8080"):
            await led.overview.loss(["b7"], 10)
        with pytest.raises(BadInputError, match="no other broker would be left"):
            await led.overview.loss(["b0:8080", "b1:8080"], 10)
        nothing = await led.overview.loss(["b1:8080"], 10)
        assert list(losses_text(nothing)) == [
            "of b1:8080 now: no bundle, so that none needs another owner"
        ]
