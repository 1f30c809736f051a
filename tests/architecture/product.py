"""The product's modules as trees, parsed once for all rules."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "loadmanager"


@cache
def modules() -> dict[str, ast.Module]:
    """Path below the package → tree, in order; what is generated is left out."""
    return {
        str(path.relative_to(PACKAGE)): ast.parse(path.read_text())
        for path in sorted(PACKAGE.rglob("*.py"))
        if not path.name.endswith("_pb2.py")
    }
