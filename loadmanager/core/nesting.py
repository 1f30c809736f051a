"""How deeply JSON may nest: whatever is read back must be within every reader's reach."""

from __future__ import annotations

REQUEST_LEVELS_MAX = 100
"""Of a body that a client sends."""
STORED_LEVELS_MAX = 200
"""Of a stored document, which has such bodies a few levels down."""


def nests_deeper(document: object, raw: bytes, levels_max: int) -> bool:
    """Whether a decoded JSON document, whose text is `raw`, has more than so many levels."""
    if raw.count(b"[") + raw.count(b"{") <= levels_max:
        return False
    level = [document]
    for _ in range(levels_max):
        level = [inner for outer in level for inner in _containers(outer)]
    return any(isinstance(item, dict | list) for item in level)


def _containers(document: object) -> list[object]:
    if isinstance(document, dict):
        inner = list(document.values())
    elif isinstance(document, list):
        inner = document
    else:
        return []
    return [item for item in inner if isinstance(item, dict | list)]
