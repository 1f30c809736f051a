"""Settings of the metrics page."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.kit.conf import conf
from loadmanager.kit.telemetry import Detail


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """The metrics page."""

    bundles: bool = conf(
        "exposeBundlesMetricsInPrometheus",
        False,
        "Add the traffic of every served bundle to the metrics page",
    )
    topics: bool = conf(
        "exposeTopicLevelMetricsInPrometheus",
        True,
        "Show topics and subscriptions on the metrics page, instead of their namespaces",
    )
    consumers: bool = conf(
        "exposeConsumerLevelMetricsInPrometheus",
        False,
        "Show the consumers of the topics on the metrics page, too",
    )
    shown_max: int = conf(
        "loadManagerMetricsMaxTopics",
        1000,
        "How many namespaces, topics, subscriptions and consumers the metrics page shows, of "
        "each; those "
        "opened first are shown, the others are summed",
        minimum=1,
    )

    @property
    def detail(self) -> Detail:
        """The numbers of things that get samples of their own."""
        topics = self.shown_max if self.topics else 0
        return Detail(self.shown_max, topics, topics if self.consumers else 0)
