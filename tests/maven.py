"""Java and Maven, where this machine has them; Maven's registry is whatever Maven is set up for."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

COPY = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy"
"""A later version also wants the parents of the artifact's pom, which are not published."""


JAVA_MIN = 17
TIMEOUT_S = 480.0


def missing() -> str | None:
    """The part that is missing: a JDK, new enough, or Maven; None: nothing is."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            return f"no {tool} here"
    said = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=False)
    version = re.match(r"javac (\d+)", said.stdout)
    if version is None or int(version[1]) < JAVA_MIN:
        return f"no Java {JAVA_MIN} or newer here"
    return None


def run(*arguments: str, folder: Path | None = None) -> None:
    """Run Maven; what it prints goes to stderr. Raises `SubprocessError`, also if it takes too long
    because the registry does not answer.
    """
    command = ["mvn", "--batch-mode", "--quiet", *arguments]
    subprocess.run(command, cwd=folder, check=True, stdout=sys.stderr, timeout=TIMEOUT_S)


def copy(artifact: str, folder: Path) -> None:
    """Copy an artifact, as `group:artifact:version:type:classifier`, to a folder."""
    run(COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={folder}")
