"""`python -m bench NAME [options]` runs bench/NAME.py; without a name it lists them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

NAMES = sorted(
    path.stem.replace("_", "-")
    for path in Path(__file__).parent.glob("*.py")
    if not path.stem.startswith("_")
)


def _module(name: str) -> Any:
    return importlib.import_module(f"bench.{name.replace('-', '_')}")


def main(argv: list[str]) -> int:
    """Run one benchmark; returns 2 for an unknown name."""
    if not argv or argv[0] not in NAMES:
        for name in NAMES:
            print(f"{name:16} {(_module(name).__doc__ or '').splitlines()[0]}")
        return 2 if argv and not argv[0].startswith("-") else 0
    status: int = _module(argv[0]).main(argv[1:])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
