"""Implements `steer.ports.note.Note` in a file."""

from __future__ import annotations

import os
from pathlib import Path

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.private_files import make_folder, open_private
from loadmanager.steer.ports.note import NOTE_BYTES_MAX, check_size


class FileNote:
    """A file that is replaced as a whole, and is on the disk when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def name(self) -> str:
        return str(self._path)

    async def read(self) -> bytes | None:
        try:
            with self._path.open("rb") as file:
                return file.read(NOTE_BYTES_MAX)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise OperationalError(f"{self._path} cannot be read: {error.strerror}") from None

    async def write(self, value: bytes) -> None:
        check_size(self.name, value)
        replace_file(self._path, value)


def replace_file(path: Path, value: bytes) -> None:
    """Replace a file as a whole. Raises `OperationalError`."""
    new = path.with_suffix(".new")
    try:
        make_folder(path.parent)
        with open_private(new, "wb") as file:
            file.write(value)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise OperationalError(f"{path} cannot be written: {error.strerror}") from None
