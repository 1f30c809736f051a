"""A command in a process of its own, with lines of JSON on its standard input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence


def piped(
    *arguments: str, lines: Sequence[object] = (), path: str = "", seed: str = "0"
) -> subprocess.CompletedProcess[str]:
    """Run `loadmanager` with `arguments`; each line that is not a string is encoded."""
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    return subprocess.run(
        [sys.executable, "-m", "loadmanager", *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
        timeout=60,
    )
