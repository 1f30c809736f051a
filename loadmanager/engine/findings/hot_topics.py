"""Topics that carry as much as a broker, and that no split helps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from loadmanager.engine.findings import words
from loadmanager.engine.findings.finding import FindingShown, Lasting, bounded, command
from loadmanager.engine.load.reports import (
    BrokerLoadData,
    LocalBrokerData,
    NamespaceBundleStats,
    TopBundlesLoadData,
)
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.units import MIB

BROKERS_WORTH = 1.0
"""A bundle or topic that alone fills this many brokers' even shares of the traffic is hot."""
LASTING_MS = 600_000
Published = Mapping[str, LocalBrokerData | TopBundlesLoadData]


@dataclass(slots=True)
class TopicFindings:
    """Looks at bundles of one topic, once a minute or so."""

    _hot: Lasting = field(default_factory=Lasting)

    def step(
        self,
        loads: Mapping[str, LocalBrokerData | BrokerLoadData],
        published: Published,
        limits: SplitSettings,
        now_ms: int,
    ) -> list[FindingShown]:
        """The loads of brokers, what they published of their bundles, and what is too big for a
        bundle.
        """
        total = sum(_throughput(load) for load in loads.values())
        brokers = len(loads)
        share_min = BROKERS_WORTH / max(brokers, 1)
        hot = {
            bundle: stats
            for broker in sorted(published)
            for bundle, stats in _too_big(loads.get(broker), published[broker], limits)
            if brokers > 1 and stats.throughput >= share_min * total
        }
        self._hot.step(hot.keys(), now_ms)
        return bounded(
            FindingShown(
                kind="hot topic",
                about=bundle,
                since=since_ms,
                title=words.carried(
                    f"The only topic of {bundle}", hot[bundle].throughput / total, "carries"
                ),
                text=f"It has {hot[bundle].rate:,.0f} messages/s and "
                f"{hot[bundle].throughput / MIB:,.1f} MiB/s in and out; an even share of a broker "
                f"is {share_min:.0%}. {words.ONE_TOPIC}",
                advice=words.PARTITION,
                command=command("loadmanager admin history", bundle),
            )
            for bundle, since_ms in self._hot.after(LASTING_MS, now_ms).items()
        )


def _throughput(load: LocalBrokerData | BrokerLoadData) -> float:
    return load.msg_throughput_in + load.msg_throughput_out


def _too_big(
    load: LocalBrokerData | BrokerLoadData | None,
    published: LocalBrokerData | TopBundlesLoadData,
    limits: SplitSettings,
) -> Iterator[tuple[str, NamespaceBundleStats]]:
    """Bundles of one topic that would be split if they had more of them."""
    rate_max, bytes_max = limits.msg_rate_max, limits.bandwidth_mib_max * MIB
    if load is None:
        return
    if load.msg_rate_in + load.msg_rate_out <= rate_max and _throughput(load) <= bytes_max:
        return  # then none of its bundles is
    bundles = (
        published.last_stats.items()
        if isinstance(published, LocalBrokerData)
        else [(top.bundle_name, top.stats) for top in published.top_bundles_load_data]
    )
    for bundle, stats in bundles:
        if stats.topics == 1 and (stats.rate > rate_max or stats.throughput > bytes_max):
            yield bundle, stats
