"""Notices other daemons that steer the same cluster: while there are two, none moves anything.

Daemons with a lock in a metadata store take turns, and those of one folder lock it. Others know
nothing of each other. So each that may move something leaves a mark with the cluster, and changes
it with every reading. A mark of another one that changes is that of a daemon that lives.
"""

from __future__ import annotations

import secrets
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.reason import Reason
from loadmanager.steer.files.note import replace_file
from loadmanager.steer.ports.marks import Marks
from loadmanager.steer.settings import FleetSettings

PREFIX = "loadmanager-fleet-"
LIVES_LOOKS = 3.0
"""A daemon whose mark has not changed for so many readings does not live."""
DEAD_S = 3600.0
"""A mark that has not changed for so long is removed."""
ID_BYTES = 6
WRITTEN_MAX = 100
"""Marks of its own that a daemon remembers, so as to know those of a copy of its folder."""

log = get_logger("fleet")


def id_in(folder: Path) -> str:
    """The id of the daemon that has this folder; made on first use. Raises `OperationalError`."""
    path = folder / "daemon-id"
    try:
        stored = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        stored = ""
    if len(stored) == 2 * ID_BYTES and stored.isalnum():
        return stored
    made = secrets.token_hex(ID_BYTES)
    replace_file(path, made.encode())
    return made


@dataclass(slots=True, kw_only=True)
class Rivals:
    """The other daemons of a cluster."""

    marks: Marks
    me: str
    """The id of this daemon."""
    clock: Clock
    settings: Live[FleetSettings]
    _values: dict[str, str] = field(default_factory=dict)
    _changed_s: dict[str, float] = field(default_factory=dict)
    """Key of another daemon → when its mark was seen to change, or was first seen."""
    _living: dict[str, float] = field(default_factory=dict)
    """Key → when its mark was last seen to change."""
    _written: deque[str] = field(default_factory=lambda: deque(maxlen=WRITTEN_MAX))
    """The last marks of this daemon: a reading may be old, and a write may fail."""
    _problem: str = ""

    async def look(self) -> None:
        """Change this daemon's mark, and look at the others."""
        try:
            present = await self.marks.read()
            mine = present.get(PREFIX + self.me)
            if self._written and mine is not None and mine not in self._written:
                # a copy of this folder
                self._living[PREFIX + self.me] = self.clock.monotonic_s()
            self._written.append(f"{self.clock.now_ms()}-{secrets.token_hex(ID_BYTES)}")
            await self.marks.write(PREFIX + self.me, self._written[-1])
            self._take(
                {
                    key: value
                    for key, value in present.items()
                    if key.startswith(PREFIX) and key != PREFIX + self.me
                }
            )
            for key, seen_s in list(self._changed_s.items()):
                if self.clock.monotonic_s() - seen_s > DEAD_S:
                    await self.marks.remove(key)
                    self._changed_s[key] = self.clock.monotonic_s()
        except OperationalError as error:
            if not self._problem:
                log.warning("another daemon on this cluster would not be noticed", why=str(error))
            self._problem = str(error)
            return
        self._problem = ""

    def _take(self, others: dict[str, str]) -> None:
        now_s = self.clock.monotonic_s()
        for key, value in others.items():
            before = self._values.get(key)
            if before != value:
                self._changed_s[key] = now_s
                if before is not None:
                    self._living[key] = now_s
        self._values = others
        self._changed_s = {key: at_s for key, at_s in self._changed_s.items() if key in others}

    async def leave(self) -> None:
        """Remove this daemon's mark."""
        try:
            await self.marks.remove(PREFIX + self.me)
        except OperationalError as error:
            log.debug("the mark was not removed", error=str(error))

    def reason(self) -> Reason | None:
        """Why nothing may move: another daemon lives."""
        oldest_s = self.clock.monotonic_s() - LIVES_LOOKS * self.settings.value.read_interval_s
        living = sorted(key for key, at_s in self._living.items() if at_s >= oldest_s)
        if not living:
            return None
        names = ", ".join(key.removeprefix(PREFIX) for key in living[:5])
        return Reason(
            "SecondDaemon",
            f"{len(living)} more daemons steer this cluster ({names}; this one is {self.me}): stop "
            "all but one, or give them one lock (metadataStoreUrl)",
        )
