"""Copies sealed segments to another file system, each exactly once by its name: under a temporary
name first, then renamed.

Blocking; a thread calls it.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from loadmanager.kit.errors import ConfigError, OperationalError
from loadmanager.kit.history.segment_writer import SHIPPED, SegmentWriter
from loadmanager.kit.private_files import FILE_MODE, make_folder, write_file

PART = ".part"


class Shipper:
    """Ships to one fsspec URL.

    Raises `ConfigError` when fsspec, or what it needs for the URL, is not installed.
    """

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError:
            raise ConfigError(
                "loadManagerHistoryShipUrl needs fsspec: pip install fsspec"
            ) from None
        self._url = url
        try:
            fs, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise ConfigError(f"loadManagerHistoryShipUrl = {url}: {error}") from None
        self._fs: Any = fs
        self._root = PurePosixPath(root)
        self._stopped = False

    def stop(self) -> None:
        """Ship nothing after the present segment."""
        self._stopped = True

    def ship(self, segments: SegmentWriter) -> int:
        """Copy segments that were not shipped yet; returns their number.

        Raises `OperationalError` at the first that fails; it is tried again next time.
        """
        shipped = 0
        for path in segments.complete():
            if self._stopped:
                break
            if not path.exists():
                continue  # dropped meanwhile, to keep within the limit
            marker = path.with_name(path.name + SHIPPED)
            if not marker.exists():
                self._copy(path, path.relative_to(segments.root.parent))
                try:
                    marker.touch(FILE_MODE)
                except OSError as error:
                    raise OperationalError(
                        f"{path.name} was shipped, but its marker cannot be written: {error}"
                    ) from None
                shipped += 1
        return shipped

    def _copy(self, path: Path, name: Path) -> None:
        target = str(self._root / name.as_posix())
        try:
            if self._fs.exists(target) and self._fs.size(target) == path.stat().st_size:
                return  # shipped, but a crash came before the marker was written
            if "file" in self._fs.protocol:
                make_folder(Path(target).parent)
                write_file(Path(target + PART), b"")  # the copy is written into this file
            else:
                self._fs.makedirs(str(PurePosixPath(target).parent), exist_ok=True)
            self._fs.put_file(str(path), target + PART)
            self._fs.mv(target + PART, target)
        except Exception as error:  # noqa: BLE001 - every file system raises its own; all mean that it did not work now
            raise OperationalError(f"{name} was not shipped to {self._url}: {error}") from None
