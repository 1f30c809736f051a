"""Reads a small file, here or behind an fsspec URL."""

from __future__ import annotations

from pathlib import Path

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.failures import first_line


def read_small(url: str, bytes_max: int) -> bytes | None:
    """The file; None: it is not there. Blocks. Raises `OperationalError`, also for one that is
    larger, and without fsspec for a URL.
    """
    try:
        data = _read(url, bytes_max + 1)
    except FileNotFoundError:
        return None
    except Exception as error:  # noqa: BLE001 - each file system raises its own
        raise OperationalError(f"{url}: {first_line(error)}") from None
    if len(data) > bytes_max:
        raise OperationalError(f"{url}: larger than {bytes_max} bytes")
    return data


def _read(url: str, size: int) -> bytes:
    if "://" not in url:
        with Path(url).open("rb") as file:
            return file.read(size)
    import fsspec  # an extra

    with fsspec.open(url, "rb") as file:
        data: bytes = file.read(size)
        return data
