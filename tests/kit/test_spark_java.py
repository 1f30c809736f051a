"""Where Spark's Java is started from."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNSHARE = shutil.which("unshare")
CODE = """
import sys
from pathlib import Path
from loadmanager.kit.spark import java_home
java_home(Path("/bin/true"), Path(sys.argv[1]))
"""


def test_a_folder_from_which_no_program_runs(tmp_path: Path) -> None:
    """As `/tmp` on hardened hosts, and under `docker run --read-only --tmpfs /tmp`."""
    mount = f"mount -t tmpfs -o noexec none {tmp_path}"
    inside = [str(UNSHARE), "--mount", "sh", "-c"]
    if (
        UNSHARE is None
        or subprocess.run([*inside, mount], capture_output=True, check=False).returncode
    ):
        pytest.skip("nothing can be mounted here")
    script = f'{mount} && exec {sys.executable} -c "$0" {tmp_path}'
    done = subprocess.run([*inside, script, CODE], capture_output=True, text=True, check=False)
    assert "ConfigError" in done.stderr
    assert "TMPDIR names another folder" in done.stderr
