"""Notices other daemons that steer the same cluster: while there are two, none moves anything.

Daemons with one lock in a metadata store take turns, and those of one folder lock it. Others know
nothing of each other. So each that may move something leaves a mark with the cluster, and changes
it with every reading; those that take turns have one mark. A mark of another one that is new, or
changes, is that of a daemon that lives. A daemon without a lock moves nothing before its second
look, nor once its looks have failed for a while: in that time another one sees a mark that stands
still for a live one's, too.
"""

from __future__ import annotations

import hashlib
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
FRESH_LOOKS = 2.5
"""A look counts for so many readings: less than `LIVES_LOOKS`, so that of two daemons that see no
marks any more, one has stopped before the other goes on.
"""
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


def id_of_lock(url: str, cluster: str) -> str:
    """The id of all daemons that take turns by the lock of this name in this metadata store."""
    return hashlib.sha256(f"{url} {cluster}".encode()).hexdigest()[: 2 * ID_BYTES]


@dataclass(slots=True, kw_only=True)
class Rivals:
    """The other daemons of a cluster."""

    marks: Marks
    me: str
    """The id of this daemon."""
    locked: bool = False
    """Whether it has a lock: then it may move something where marks cannot be read."""
    clock: Clock
    settings: Live[FleetSettings]
    _values: dict[str, str] = field(default_factory=dict)
    _looks: int = 0
    """How often the marks were read and this daemon's own was written."""
    _looked_s: float = 0.0
    """When that was done last."""
    _changed_s: dict[str, float] = field(default_factory=dict)
    """Key of another daemon → when its mark was seen to change, or was first seen."""
    _living: dict[str, float] = field(default_factory=dict)
    """Key → when its mark was last seen to change, or was first seen."""
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
        self._problem, self._looked_s = "", self.clock.monotonic_s()
        self._looks += 1

    def _take(self, others: dict[str, str]) -> None:
        now_s = self.clock.monotonic_s()
        for key, value in others.items():
            before = self._values.get(key)
            if before != value:
                self._changed_s[key] = self._living[key] = now_s
        self._values = others
        self._changed_s = {key: at_s for key, at_s in self._changed_s.items() if key in others}

    async def leave(self) -> None:
        """Remove this daemon's mark."""
        try:
            await self.marks.remove(PREFIX + self.me)
        except OperationalError as error:
            log.debug("the mark was not removed", error=str(error))

    def reason(self) -> Reason | None:
        """Why nothing may move: another daemon lives, or that is not known."""
        now_s, interval_s = self.clock.monotonic_s(), self.settings.value.read_interval_s
        living = sorted(
            key for key, at_s in self._living.items() if now_s - at_s <= LIVES_LOOKS * interval_s
        )
        if living:
            names = ", ".join(key.removeprefix(PREFIX) for key in living[:5])
            more = (
                "1 more daemon steers" if len(living) == 1 else f"{len(living)} more daemons steer"
            )
            return Reason(
                "SecondDaemon",
                f"{more} this cluster, or did a moment ago ({names}; "
                f"this one is {self.me}): stop all but one, or give them one lock "
                "(metadataStoreUrl, under one name)",
            )
        if self.locked and (self._looks or self._problem):
            return None
        if self._looks > 1 and now_s - self._looked_s <= FRESH_LOOKS * interval_s:
            return None
        text = "other daemons on this cluster are looked for: this takes two readings"
        if self._problem:
            text = (
                f"other daemons on this cluster would not be noticed: {self._problem}; let this "
                "one change the properties of pulsar/system, or give it a lock (metadataStoreUrl)"
            )
        return Reason("RivalsUnknown", text)
