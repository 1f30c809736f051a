"""Writes what a release publishes beside its packages: `python deploy/requirements.py dist`.

`requirements.txt` has the package with the hashes of its wheel and its sdist, and what the images
install with it: `pip install --require-hashes -r requirements.txt` gives exactly that.
`constraints.txt` has the versions that were tested with every extra.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = "broker,otel"
"""Those of the image (`make hashes`)."""


def main(folder: Path) -> None:
    """Write both files into a folder with the wheel, and the sdist if it is there."""
    packages = sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")])
    (wheel,) = folder.glob("*.whl")
    version = wheel.name.split("-")[1]
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in packages]
    own = " \\\n    ".join(
        [f"loadmanager[{EXTRAS}]=={version}", *(f"--hash=sha256:{each}" for each in hashes)]
    )
    others = (ROOT / "deploy" / "requirements.txt").read_text()
    (folder / "requirements.txt").write_text(f"{own}\n{others}")
    shutil.copy(ROOT / "constraints.txt", folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
