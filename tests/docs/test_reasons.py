"""docs/howto/read-a-decision.md explains every code that a reason can have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "howto" / "read-a-decision.md"
AT = {"Reason": 0, "Skip": 1}
"""Where a call has its code."""
ELSEWHERE = {"rule.name", "code", "UNKNOWN"}
"""A placement rule's name, and what is made of a sentence of third parties; no other code is a
variable.
"""


def _codes(source: str) -> Iterator[str]:
    """The codes in calls of `Reason` and `Skip`, but for those that are passed on."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and (at := AT.get(getattr(node.func, "id", ""))) is not None:
            code = node.args[at]
            if isinstance(code, ast.Constant):
                yield str(code.value)
            else:
                text = ast.unparse(code)
                assert text in ELSEWHERE or text.endswith(".code"), ast.unparse(node)


def test_every_reason_is_explained() -> None:
    """The codes of the page's lists are those of the code."""
    sources = [module.read_text() for module in (ROOT / "loadmanager").rglob("*.py")]
    codes = {code for source in sources for code in _codes(source)}
    page = PAGE.read_text()
    told = set(re.findall(r"`([A-Z]\w+)`", page))
    assert codes - told == set()
    assert {code for code in codes if not code.isidentifier()} == set()
    assert {word for word in told if not any(f'"{word}' in text for text in sources)} == set()
