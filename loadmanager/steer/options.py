"""The options of the daemon's process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loadmanager.steer.ports.producing import Producing


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """The options of the process, which are not settings of a cluster."""

    data_dir: Path
    listen: tuple[str, int] = ("127.0.0.1", 8090)
    """Address of the first cluster's HTTP API; each further one has the next port."""
    log_level: str = "info"
    log_format: str | None = None
    own_command: tuple[str, ...] = ()
    """How this daemon was called, for the weekly report; empty: there is none."""
    producing: Producing | None = None
    """Opens the canary's producers; None: there is no canary."""
