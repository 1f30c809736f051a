"""Java and Maven, where this machine has them; Maven's registry is whatever Maven is set up for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

COPY = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy"
"""A later version also wants the parents of the artifact's pom, which are not published."""


def missing() -> str | None:
    """Which of the two is not here."""
    return next((f"no {tool} here" for tool in ("java", "mvn") if shutil.which(tool) is None), None)


def run(*arguments: str, folder: Path | None = None) -> None:
    """Run Maven; what it prints goes to stderr. Raises `CalledProcessError`."""
    command = ["mvn", "--batch-mode", "--quiet", *arguments]
    subprocess.run(command, cwd=folder, check=True, stdout=sys.stderr)


def copy(artifact: str, folder: Path) -> None:
    """Copy an artifact, as `group:artifact:version:type:classifier`, to a folder."""
    run(COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={folder}")
