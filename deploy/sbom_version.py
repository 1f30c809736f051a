"""Writes into an SBOM which version of this package it is of; pyproject.toml has none to read.

`python deploy/sbom_version.py dist/sbom.json`
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from loadmanager import __version__


def main(path: Path) -> None:
    """Write the version."""
    document = json.loads(path.read_text(encoding="utf-8"))
    document["metadata"]["component"]["version"] = __version__
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
