"""What a broker costs."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.kit.conf import conf


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSettings:
    """The price by which `what-if` and the bill of tenants say amounts of money."""

    broker_hour: float = conf(
        "loadManagerBrokerHourPrice",
        0.0,
        "What a broker costs an hour, in any currency: `what-if` and bills of tenants say amounts "
        "by it; 0: not known",
        minimum=0,
    )
    gigabyte_month: float = conf(
        "loadManagerStoredGigabyteMonthPrice",
        0.0,
        "What a stored gigabyte costs a month of 30 days, in the same currency: bills of tenants "
        "add it; 0: not known",
        minimum=0,
    )
