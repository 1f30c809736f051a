"""A folder for one process at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.system.folder_lock import locked


def test_the_second_one_is_told_who_holds_it(tmp_path: Path) -> None:
    """Until the first one ends."""
    folder = tmp_path / "data"
    with locked(folder, "x.lock", "wait"):
        holder = rf"in use by process {os.getpid()} \(loadmanager x\)"
        with pytest.raises(OperationalError, match=holder), locked(folder, "x.lock", "wait"):
            pass
    with locked(folder, "x.lock", "wait"):
        pass


def test_a_full_disk(tmp_path: Path) -> None:
    """The lock is held, and given back, without a name in it."""
    (tmp_path / "x.lock").symlink_to("/dev/full")
    with locked(tmp_path, "x.lock", "wait"):
        pass


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """The advice is part of the error."""
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "data"
    with pytest.raises(OperationalError, match="wait here"), locked(folder, "x", "wait here"):
        pass
