"""The sign of life of a daemon: a file that is touched."""

from __future__ import annotations

from pathlib import Path

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.private_files import FILE_MODE

SIGN = "alive"
"""Its name, in the folder of a cluster."""


def give_sign(folder: Path) -> None:
    """Give a sign of life. Raises `OperationalError`."""
    sign = folder / SIGN
    try:
        sign.touch(FILE_MODE)
    except OSError as error:
        raise OperationalError(f"no sign of life: {sign}: {error.strerror}") from None
