"""How the commands that replay recorded days tell how well they do."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from loadmanager.cli.recorded import reader, used_settings
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.settings import Settings
from loadmanager.lab import candidates
from loadmanager.lab.bill import Bill
from loadmanager.lab.calibration import Calibration, calibration
from loadmanager.lab.closed_loop import run
from loadmanager.lab.measures import measure
from loadmanager.lab.recorded import Recording
from loadmanager.lab.usage_of_traffic import UsageOfTraffic, usage_of_traffic
from loadmanager.leader.strategy_keys import strategies_of


class Replays:
    """Replays dates with the settings that were in force, or these, for the nightly report. Raises
    `ConfigError`.
    """

    def __init__(self, history: str, cluster: str | None, base: Settings) -> None:
        self._days, self._base = reader(), base
        self._source = self._days.history(history)
        self._cluster: str = self._source.chosen(cluster)
        self._last: tuple[str, Recording | None] = ("", None)

    def _recording(self, date: str) -> Recording | None:
        """None: the day cannot be replayed. The last one is at hand."""
        if self._last[0] != date:
            try:
                recording = self._days.recorded_day(self._source, self._cluster, date)
            except BadInputError:
                recording = None
            self._last = date, recording
        return self._last[1]

    def replayed(self, date: str) -> dict[str, Any] | None:
        """How far off the replay of a day is; None: it cannot be replayed."""
        recording = self._recording(date)
        if recording is None:
            return None
        keys = self._days.settings_in_force(self._source, self._cluster, date)
        unweighted = candidates.unweighted(self._base)
        strategies = strategies_of(unweighted.with_overrides(keys or {}))
        replayed = measure(run(recording.day, strategies))
        of_day = calibration(recording, replayed, used_settings(keys, self._base))
        figures = {
            f"{figure}_{side}": getattr(measures, figure)
            for side, measures in (("was", of_day.happened), ("replayed", of_day.replayed))
            for figure in ("spread", "hot_minutes", "moves")
        }
        return {
            **figures,
            "model_error": of_day.error,
            "spread_off": of_day.off,
            "refused": ", ".join(of_day.refused),
            "settings": of_day.used,
        }

    def idle(self, date: str) -> float | None:
        """What brokers use without traffic, as a fraction; None: the day does not tell."""
        recording = self._recording(date)
        if recording is None or not recording.fit.tells_costs:
            return None
        return recording.fit.beside

    def usage_model(self, date: str) -> UsageOfTraffic | None:
        """What traffic makes brokers use; None: the day does not tell."""
        recording = self._recording(date)
        return None if recording is None else usage_of_traffic(recording)

    def costs(self, date: str) -> list[dict[str, Any]]:
        """What each tenant cost on a day; empty without traffic, or if it cannot be replayed."""
        recording = self._recording(date)
        if recording is None:
            return []
        bill = Bill()
        bill.add(date, recording)
        by_model = not bill.by_traffic
        return [
            {
                "tenant": name,
                "share": used.broker_hours / bill.broker_hours if bill.broker_hours else 0.0,
                "shared_by": "model" if by_model else "traffic",
                "core_hours": used.core_hours if by_model else None,
                "broker_hours": used.broker_hours,
                "bytes": used.gigabytes * 1e9,
                "clients": used.clients,
                "stored_gigabyte_days": used.stored_gigabyte_days,
                "model_error": recording.fit.error,
            }
            for name, used in bill.tenants.items()
        ]


def calibration_document(date: str, of_day: Calibration) -> dict[str, Any]:
    """A day beside its replay, for programs."""
    return {
        "calibration": date,
        "settings": of_day.used,
        "happened": asdict(of_day.happened),
        "replayed": asdict(of_day.replayed),
        "modelError": of_day.error,
        "off": of_day.off,
        "farOff": of_day.far_off,
        "refused": of_day.refused,
    }
