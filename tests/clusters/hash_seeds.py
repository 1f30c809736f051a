"""The same program in processes that hash strings otherwise: sets are in another order there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def outputs_of(program: str) -> set[str]:
    """What three processes say, of which each has another seed; one output if they agree."""
    path = os.pathsep.join((str(TESTS), str(TESTS.parent)))
    return {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "99")
    }
