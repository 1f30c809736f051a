"""Which metrics the page shows."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.core.conf import conf


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """The metrics page."""

    bundles: bool = conf(
        "exposeBundlesMetricsInPrometheus",
        False,
        "Add the traffic of every served bundle to the metrics page",
    )
