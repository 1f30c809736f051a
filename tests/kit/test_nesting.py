"""The bound on the nesting of JSON."""

from __future__ import annotations

import json

import pytest

from loadmanager.kit.nesting import nests_deeper


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("1", 0),
        ('"[[[[[[[["', 0),
        ("[]", 1),
        ("[1, 2, {}]", 2),
        ('{"a": {"b": [1]}, "c": 1}', 3),
        ("[[],[],[],[],[],[],[],[]]", 2),
        ("[" * 300 + "]" * 300, 300),
        ('{"a":' * 300 + "{}" + "}" * 300, 301),
    ],
    ids=lambda value: str(value)[:20],
)
def test_levels_are_those_of_containers(text: str, levels: int) -> None:
    """A list or an object is a level, however many are beside it; brackets in texts are none."""
    document = json.loads(text)
    assert not nests_deeper(document, text.encode(), levels)
    assert levels == 0 or nests_deeper(document, text.encode(), levels - 1)
