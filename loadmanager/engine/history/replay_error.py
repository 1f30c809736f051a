"""How far the replay of a recorded day was from what happened, as the nightly analysis leaves it
for the leader: `calibration.json`, beside its reports.
"""

from __future__ import annotations

import msgspec

from loadmanager.kit.errors import CorruptDataError

FILE = "calibration.json"


class ReplayError(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """A day beside its replay with the settings that were in force."""

    date: str
    spread_was: float
    """Standard deviation of the brokers' usage, in points."""
    spread_replayed: float
    model_error: float
    """The mean error of a broker's usage by the model in a minute, as a fraction."""
    refused: tuple[str, ...] = ()
    """What is not to be believed of the day's replays: of `spread`, `hot_minutes` and `moves`."""

    def text(self) -> str:
        """For people."""
        said = (
            f"the replay of {self.date} came to a spread of {self.spread_replayed:.1f} points, and "
            f"{self.spread_was:.1f} were recorded; its model of usage was "
            f"{100 * self.model_error:.1f} points off"
        )
        if not self.refused:
            return said
        figures = ", ".join(name.replace("_", " ") for name in self.refused)
        return f"{said}: believe no absolute figure of {figures}"


def encode(error: ReplayError) -> str:
    """The file."""
    return msgspec.json.format(msgspec.json.encode(error), indent=1).decode() + "\n"


def decode(data: bytes, where: str) -> ReplayError:
    """The figures in a file. Raises `CorruptDataError`."""
    try:
        return msgspec.json.decode(data, type=ReplayError)
    except msgspec.MsgspecError as error:
        raise CorruptDataError(f"{where}: {error}") from None
