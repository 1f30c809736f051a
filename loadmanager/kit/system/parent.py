"""Ends this process together with its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PARENT = "LOADMANAGER_PARENT"
"""The environment variable in which a parent may give its process id."""
_PR_SET_PDEATHSIG = 1


def stop_with_parent() -> None:
    """Have the kernel send SIGTERM to this process when its parent ends, or has ended already, as
    far as that can be told. Works on Linux only.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.environ.get(PARENT) or str(os.getppid())
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if str(os.getppid()) != parent:  # it ended before the call
        os.kill(os.getpid(), signal.SIGTERM)
