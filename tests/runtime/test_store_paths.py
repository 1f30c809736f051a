"""Names that clients choose, as elements of a path."""

from __future__ import annotations

import pytest

from loadmanager.runtime.shared.paths import decode, encode


@pytest.mark.parametrize(
    "name", [".", "..", "...", "a/b", "a b+c", "%2E", "ü", "a\x00b", "*-._", "a\nb"]
)
def test_any_name_is_one_allowed_element(name: str) -> None:
    """What clients call a topic or subscription comes back from the path, and is never an element
    that the store refuses.
    """
    element = encode(name)
    assert decode(element) == name
    assert element not in (".", "..")
    assert "/" not in element
    assert element.isprintable()
    assert element.isascii()
