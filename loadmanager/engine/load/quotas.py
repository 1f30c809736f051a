"""Resource quotas: what an operator expects a bundle to carry that nobody has measured.

As in Pulsar's `ModularLoadManagerImpl.getBundleDataOrDefault`, a quota counts as ample history of a
bundle that has none. What brokers report moves it from there on.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from loadmanager.engine.load.reports import (
    NUM_LONG_SAMPLES,
    NUM_SHORT_SAMPLES,
    NUMBER_MAX,
    BundleData,
    Json,
    TimeAverageMessageData,
    default_bundle_data,
)

Amount = Annotated[float, msgspec.Meta(ge=0, le=NUMBER_MAX)]


class ResourceQuota(Json):
    """Pulsar's `ResourceQuota`; the defaults are its initial quota.

    As in Pulsar's modular load manager, `memory` and `dynamic` weigh nothing.
    """

    msg_rate_in: Amount = 40.0
    """Messages/s."""
    msg_rate_out: Amount = 120.0
    bandwidth_in: Amount = 100_000.0
    """Bytes/s."""
    bandwidth_out: Amount = 300_000.0
    memory: Amount = 80.0
    """MB."""
    dynamic: bool = True

    def averages(self, samples: int) -> TimeAverageMessageData:
        """Averages with these figures, of so many samples."""
        return TimeAverageMessageData(
            max_samples=samples,
            num_samples=samples,
            msg_throughput_in=self.bandwidth_in,
            msg_throughput_out=self.bandwidth_out,
            msg_rate_in=self.msg_rate_in,
            msg_rate_out=self.msg_rate_out,
        )


_UNSEEN = default_bundle_data()


class Expected:
    """The expected load of each bundle without averages."""

    def __init__(self) -> None:
        self.quotas: dict[str, ResourceQuota] = {}
        """By bundle."""
        self.default: ResourceQuota | None = None
        """The quota of the other bundles."""

    def copy(self) -> Expected:
        """The same quotas; changes of one do not show in the other."""
        other = Expected()
        other.quotas, other.default = dict(self.quotas), self.default
        return other

    def quota(self, bundle: str | None) -> ResourceQuota:
        """The quota of a bundle; the default one of a bundle without one, and for None."""
        return self.quotas.get(bundle or "", self.default or ResourceQuota())

    def of(self, bundle: str) -> BundleData:
        """The averages to begin with: by a quota that was set, or Pulsar's `defaultStats`. Not to
        be changed: others may have the same object.
        """
        quota = self.quotas.get(bundle, self.default)
        if quota is None:
            return _UNSEEN
        return BundleData(
            short_term_data=quota.averages(NUM_SHORT_SAMPLES),
            long_term_data=quota.averages(NUM_LONG_SAMPLES),
        )
