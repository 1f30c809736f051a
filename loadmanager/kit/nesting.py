"""A bound on the nesting of JSON, so that every reader can decode what is stored."""

from __future__ import annotations

REQUEST_LEVELS_MAX = 100
"""In the body of a request."""
STORED_LEVELS_MAX = 200
"""Levels of a stored document, which holds such bodies a few levels down."""


def nests_deeper(document: object, raw: bytes, levels_max: int) -> bool:
    """True if a decoded JSON document has more than `levels_max` levels; `raw` is its text."""
    if raw.count(b"[") + raw.count(b"{") <= levels_max:
        return False
    level = [document]
    for _ in range(levels_max):
        level = [inner for outer in level for inner in _containers(outer)]
    return any(isinstance(value, dict | list) for value in level)


def _containers(document: object) -> list[object]:
    if isinstance(document, dict):
        inner = list(document.values())
    elif isinstance(document, list):
        inner = document
    else:
        return []
    return [value for value in inner if isinstance(value, dict | list)]
