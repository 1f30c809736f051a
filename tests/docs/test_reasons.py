"""docs/howto/read-a-decision.md explains every reason that a decision can begin with."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from loadmanager.core.strategies import registry

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "howto" / "read-a-decision.md"
CODE = ("core/strategies", "core/policies", "runtime/leader")
REASON = re.compile(r"^([A-Z][A-Za-z]+): ")


def _reasons(source: str) -> Iterator[str]:
    """The words that texts of a module begin with, a colon after them, without docstrings and the
    texts of settings, which begin with a strategy's name; and the reasons of skips without a colon.
    """
    tree = ast.parse(source)
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node not in docstrings:
            yield from REASON.findall(str(node.value))
        if (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", "") == "Skip"
            and isinstance(text := node.args[1], ast.Constant)
        ):
            yield str(text.value).partition(":")[0]


def test_every_reason_is_explained() -> None:
    """The words of the page are those of the code."""
    sources = [
        module.read_text()
        for folder in CODE
        for module in sorted((ROOT / "loadmanager" / folder).rglob("*.py"))
    ]
    strategies = {*registry.SHEDDERS, *registry.PLACEMENTS}
    reasons = {word for source in sources for word in _reasons(source)} - strategies
    told = set(re.findall(r"`([A-Z]\w+)`", PAGE.read_text()))
    assert reasons - told == set()
    assert {word for word in told if not any(f'"{word}' in text for text in sources)} == set()
