"""Long work in a process of its own, which gives way to everything else on the machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
from asyncio.subprocess import PIPE
from collections.abc import Container, Sequence

from loadmanager.kit.errors import OperationalError

NICEST = 19
ERROR_MAX = 300


async def answer_of(command: Sequence[str], limit_s: float, fine: Container[int] = (0,)) -> bytes:
    """What a command writes to its standard output; it is killed after this time, and when this is
    cancelled. `fine`: the exit statuses that count as success. Raises `OperationalError`.
    """
    try:
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    except OSError as error:
        raise OperationalError(f"{command[0]} cannot be started: {error.strerror}") from None
    try:
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, process.pid, NICEST)
        async with asyncio.timeout(limit_s):
            answer, said = await process.communicate()
    except TimeoutError:
        raise OperationalError(f"it did not end within {limit_s:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode not in fine:
        last = said.decode(errors="replace").strip()[-ERROR_MAX:]
        raise OperationalError(f"exit status {process.returncode}: {last}")
    return answer
