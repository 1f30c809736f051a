"""What did each tenant's traffic cost the brokers?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loadmanager.nightly.day import NUMBER, TEXT, WHOLE, Columns, Day, Finding, Row

NAME = "tenant_costs"
ABOUT = (
    "What did each tenant's traffic cost the brokers? By the CPU that it takes, as the model has "
    "learned it from the day's usage, with the cost of its messages and of its class: the bill of "
    "one day. The idle part of brokers is divided as the learned CPU is. Where the model explains "
    "less than half of the usage, nobody knows what traffic costs: all is divided by bytes then. "
    "Stored gigabytes are those that the leader counted, or, if none did, those of open topics."
)
COLUMNS: Columns = {
    "tenant": (TEXT, "the tenant"),
    "share": (NUMBER, "its part of the learned CPU of all tenants, or of their bytes"),
    "shared_by": (TEXT, "what says so: model or traffic"),
    "core_hours": (NUMBER, "hours of one core that its traffic took; empty: shared by traffic"),
    "broker_hours": (NUMBER, "its part of the hours of all brokers"),
    "bytes": (NUMBER, "bytes of the day, in and out"),
    "clients": (WHOLE, "producers and consumers, the most at once of each bundle"),
    "stored_gigabyte_days": (
        NUMBER,
        "gigabytes that its topics had stored, times days; empty: not recorded",
    ),
    "model_error": (NUMBER, "the model's mean error of a broker's usage, as a fraction"),
}
CostsOf = Callable[[str], Sequence[Row]]
"""Date → a row for each tenant; empty: a day without traffic, or that cannot be replayed."""


class TenantCosts:
    """The question, with what knows costs."""

    NAME = NAME
    ABOUT = ABOUT
    COLUMNS = COLUMNS

    def __init__(self, costs_of: CostsOf) -> None:
        self._costs_of = costs_of

    def table(self, day: Day) -> list[Row]:
        """The dearest first."""
        return sorted(self._costs_of(day.date), key=lambda row: (-row["share"], row["tenant"]))

    def findings(self, rows: Sequence[Any], day: Day) -> list[Finding]:
        """Empty: a bill is no finding."""
        return []
