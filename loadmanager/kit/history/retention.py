"""How old days may become, and what says that older ones were deleted: `retention.json` in a
cluster's folder of the history.
"""

from __future__ import annotations

import msgspec

FILE = "retention.json"
SETTING = "loadManagerHistoryMaxDays"


class Retention(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """The days that the last deletion left."""

    before: str
    """Earlier days than this one were deleted."""
    max_days: int
    """The setting, then."""
    removing: tuple[str, ...] = ()
    """Days of which a part may be deleted already: nobody reads what is left of them."""

    def sentence(self, date: str) -> str:
        """Why a day is not there; empty if the setting is not why."""
        if date >= self.before and date not in self.removing:
            return ""
        return (
            f"{date} is gone: analyze deleted the days before {self.before}, for {SETTING} was "
            f"{self.max_days}"
        )


def encode(retention: Retention) -> bytes:
    """The file."""
    return msgspec.json.encode(retention) + b"\n"


def decode(data: bytes) -> Retention | None:
    """What a file says; None: nothing that can be read."""
    try:
        return msgspec.json.decode(data, type=Retention)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
