"""A folder for one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.private_files import make_folder, open_private

HOLDER_BYTES_MAX = 200


@contextlib.contextmanager
def locked(folder: Path, name: str, advice: str) -> Iterator[None]:
    """Make the folder, and hold its file `name` locked; the lock ends with the process.

    Raises `OperationalError` with the advice if another process holds the lock, whose id is in the
    file, or if the folder cannot be written.
    """
    try:
        make_folder(folder)
        opened = open_private(folder / name, "a+b", buffering=0)
    except OSError as error:
        raise OperationalError(f"{folder} cannot be written: {error.strerror}; {advice}") from None
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read(HOLDER_BYTES_MAX).decode(errors="replace").strip()
            raise OperationalError(
                f"{folder} is in use by {holder or 'another process'}: stop that first, or {advice}"
            ) from None
        with contextlib.suppress(OSError):  # a full disk: the lock is held without a name
            file.truncate(0)
            file.write(f"process {os.getpid()} (loadmanager {Path(name).stem})\n".encode())
        yield
