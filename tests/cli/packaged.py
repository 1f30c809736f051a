"""The package of the tests, as an installer leaves it."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "packages" / "busiest"


def install(folder: Path) -> None:
    """Put its modules and its metadata into a folder that will be on some path."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    for module in PACKAGE.glob("*.py"):
        shutil.copy(module, folder)
    info = folder / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in names.items())
        for group, names in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups))
