"""Files and folders for this service alone, whatever the umask is, and the careful opening of files
that may be something else than they should be.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Container
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

FILE_MODE = 0o600
FOLDER_MODE = 0o700
UMASK = 0o077
"""For a child process of which we know less."""
NOT_OURS = errno.EPERM
"""The number of the errors that `open_own_folder` and `open_own` raise for what they refuse."""


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing. One that is there keeps its mode.

    Raises `OSError`.
    """
    try:
        folder.mkdir(FOLDER_MODE)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        make_folder(folder.parent)
        folder.mkdir(FOLDER_MODE, exist_ok=True)
    except FileExistsError:
        if not folder.is_dir():
            raise


def open_private(path: Path, mode: str, *, buffering: int = -1) -> IO[Any]:
    """As `Path.open`; a new file has `FILE_MODE`. Raises `OSError`."""
    return open(path, mode, buffering, opener=_opener)


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def write_file(path: Path, data: bytes) -> None:
    """As `Path.write_bytes`; a new file has `FILE_MODE`. Raises `OSError`."""
    with open_private(path, "wb") as file:
        file.write(data)


def open_regular(path: str, flags: int, *, folder: int | None = None) -> int:
    """The descriptor of a regular file; relative to an open folder, if one is given.

    Never waits, as the opening of a pipe may. Raises `OSError`, also for anything else than a file.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, FILE_MODE, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor


def open_own(name: str, flags: int, *, folder: int, sizes: Container[int]) -> int:
    """The descriptor of a file in an open folder that nobody but us has made: a regular one, with
    one name, of our user, with one of these sizes. No symbolic link is followed.

    Raises `OSError`.
    """
    descriptor = open_regular(name, flags | os.O_NOFOLLOW, folder=folder)
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid():
        why = f"it belongs to user {status.st_uid}, not to {os.geteuid()}"
    elif status.st_nlink != 1:
        why = f"it has {status.st_nlink} names, not one"
    elif status.st_size not in sizes:
        why = f"it has {status.st_size} bytes, which is not the size of such a file"
    else:
        return descriptor
    os.close(descriptor)
    raise OSError(NOT_OURS, why, name)


def others_may_read(path: Path) -> bool:
    """True if every user of the machine may read a file; its group is not looked at."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(mode) and bool(mode & stat.S_IROTH)


def open_own_folder(folder: Path) -> int:
    """The descriptor of a folder that only our user can use; made if it is missing.

    No symbolic link is followed to it. Raises `OSError`.
    """
    with suppress(FileExistsError):
        folder.mkdir(FOLDER_MODE)
    descriptor = os.open(
        folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    )
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid():
        why = f"it belongs to user {status.st_uid}, not to {os.geteuid()}"
    elif status.st_mode & UMASK:
        why = f"others may use it: its mode is {stat.S_IMODE(status.st_mode):04o}, not 0700"
    else:
        return descriptor
    os.close(descriptor)
    raise OSError(NOT_OURS, why, str(folder))


def bind_private(path: Path) -> socket.socket:
    """A Unix socket at this path that only our user can use, whatever the umask is.

    Replaces one that an ended process of our user has left there. Raises `OSError`.
    """
    with suppress(FileNotFoundError):
        status = path.lstat()
        if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
            raise OSError(errno.EEXIST, "something else than a socket of ours is there", str(path))
        if _answers(path):
            raise OSError(errno.EADDRINUSE, "another process of ours listens there", str(path))
        path.unlink()
    sock = socket.socket(socket.AF_UNIX)
    try:
        os.fchmod(sock.fileno(), FILE_MODE)  # the file has this mode from its first moment
        sock.bind(str(path))
    except OSError:
        sock.close()
        raise
    return sock


def _answers(path: Path) -> bool:
    """Whether a process listens at a Unix socket. Does not wait."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.setblocking(False)
        try:
            sock.connect(str(path))
        except BlockingIOError:  # so many wait for it already
            return True
        except (ConnectionRefusedError, FileNotFoundError):
            return False
    return True
