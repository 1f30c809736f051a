"""What brokers change by themselves, among the changes of operators: their own cordon, and the end
of a limit that was set for a time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from loadmanager.engine.history.records import BY_ITSELF, AuditedChange
from loadmanager.kit.clock import Clock
from loadmanager.kit.history.port import History


@dataclass(frozen=True, slots=True)
class OwnChanges:
    """Records such changes of a broker; without a history, none."""

    broker_id: str
    clock: Clock
    history: History | None

    def made(self, what: str, path: str, *, before: Any = None, after: Any = None) -> None:
        """The broker changed a stored document, by itself."""
        if self.history is not None:
            change = AuditedChange(
                ts=self.clock.now_ms(),
                broker=self.broker_id,
                role="",
                address=self.broker_id,
                over=BY_ITSELF,
                what=what,
                path=path,
                before=_text(before),
                after=_text(after),
            )
            self.history.append(change)


def _text(value: Any) -> str | None:
    return None if value is None else json.dumps(value)
