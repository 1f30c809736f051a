"""Names that clients choose, encoded as elements of a path."""

from __future__ import annotations

import pytest

from loadmanager.kit.metadata.paths import decode, encode


@pytest.mark.parametrize(
    "name", [".", "..", "...", "a/b", "a b+c", "%2E", "ü", "a\x00b", "*-._", "a\nb"]
)
def test_any_name_is_one_allowed_element(name: str) -> None:
    """`decode` returns every name of a topic or subscription, and the store accepts the element."""
    element = encode(name)
    assert decode(element) == name
    assert element not in (".", "..")
    assert "/" not in element
    assert element.isprintable()
    assert element.isascii()
