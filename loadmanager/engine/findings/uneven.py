"""Load that stays uneven because pins and grace periods keep bundles where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loadmanager.engine.findings import words
from loadmanager.engine.findings.finding import FindingShown, Lasting, command
from loadmanager.kit.units import MINUTE_MS

CODES = ("Pinned", "GracePeriod")
"""Of the reasons for which a bundle stays that could move without them."""
FAR = 0.1
"""So far above the mean a broker must be, as a fraction of what there is."""
LASTS_MS = 10 * MINUTE_MS
NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class Stay:
    """Why a bundle or a broker stayed as it was, as a decision says it."""

    what: str
    code: str
    reason: str


@dataclass(slots=True)
class UnevenFindings:
    """Remembers since when it is so."""

    _lasting: Lasting = field(default_factory=Lasting)

    def step(
        self, usages: Mapping[str, float], stays: Sequence[Stay], now_ms: int
    ) -> list[FindingShown]:
        """`usages`: broker → what it uses, as a fraction; `stays`: why bundles stayed in the last
        cycle, if that moved nothing.
        """
        keeping = [stay for stay in stays if stay.code in CODES]
        mean = sum(usages.values()) / len(usages) if usages else 0.0
        most = max(usages, key=lambda name: (usages[name], name), default="")
        far = usages and keeping and usages[most] - mean >= FAR
        self._lasting.step({most} if far else set(), now_ms)
        return [
            _finding(broker, since_ms, (usages[broker], mean), keeping)
            for broker, since_ms in self._lasting.after(LASTS_MS, now_ms).items()
        ]


def _finding(
    broker: str, since_ms: int, used: tuple[float, float], keeping: Sequence[Stay]
) -> FindingShown:
    some = [f"{stay.what}: {stay.reason}" for stay in keeping[:NAMED_MAX]]
    more = f"; and {len(keeping) - NAMED_MAX} more" if len(keeping) > NAMED_MAX else ""
    return FindingShown(
        kind="uneven",
        about=broker,
        since=since_ms,
        title=words.uneven(broker, *used),
        text=f"The last cycle moved nothing: {'; '.join(some)}{more}.",
        advice=words.KEPT_BACK,
        command=command("loadmanager admin decisions --broker", broker),
    )
