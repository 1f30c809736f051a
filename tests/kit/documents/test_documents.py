"""Corrupt JSON in the store: errors contain its path; it is left out, logged once and counted."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from loadmanager.kit.errors import BadInputError, CorruptDataError
from loadmanager.kit.metadata.documents import (
    CORRUPT_PATHS_MAX,
    Corrupt,
    read_object,
    stored,
    update,
)
from loadmanager.kit.metadata.memory import MemoryTree
from loadmanager.kit.metadata.store import Node

PATH = "/admin/local-policies/public/default"
NONSENSE = [
    b'{"a":"\xff\xfe"}',
    b'{"a":' * 20_000,
    b'{"a":1',
    b"[1]",
    b"null",
    b"\x00",
    b'{"a":' + b"9" * 5_000 + b"}",
]


@pytest.mark.parametrize("value", NONSENSE, ids=lambda value: repr(value[:12]))
def test_what_is_no_object_is_corrupt_and_named(value: bytes) -> None:
    """The error contains the path and the remedy, whatever the bytes are."""
    with pytest.raises(CorruptDataError, match=f"{PATH} is corrupt: .*repair or delete the node"):
        read_object(value, PATH)


def test_an_empty_value_is_an_empty_object() -> None:
    """Pulsar writes nodes without a value, too."""
    assert read_object(b"", PATH) == {}
    assert read_object(b'{"a":1}', PATH) == {"a": 1}


def test_a_decoders_errors_name_the_path() -> None:
    """The block adds the path to the errors of decoders, which do not know it."""
    with pytest.raises(CorruptDataError, match=f"{PATH} is corrupt: no such range"), stored(PATH):
        raise BadInputError("no such range")
    with pytest.raises(CorruptDataError, match=PATH), stored(PATH):
        int("x")


def test_a_bug_is_no_corrupt_data() -> None:
    """Errors that decoders do not raise pass unchanged."""
    with pytest.raises(ZeroDivisionError), Corrupt().left_out("report", PATH), stored(PATH):
        raise ZeroDivisionError


def test_a_corrupt_thing_is_logged_and_counted_once_until_it_is_mended() -> None:
    """Many reads of one corrupt node are logged and counted once, until it is mended."""
    corrupt = Corrupt()
    with capture_logs() as lines:
        for _ in range(3):
            assert corrupt.object_of(Node(b"[", 0), "policy", PATH) == {}
        assert corrupt.paths == [PATH]
        assert corrupt.object_of(Node(b'{"a":1}', 1), "policy", PATH) == {"a": 1}
        assert corrupt.paths == []
        assert corrupt.object_of(Node(b"[", 2), "policy", PATH) == {}
        assert corrupt.object_of(None, "policy", PATH) == {}
    assert [line["event"].partition(" ")[0] for line in lines] == ["stored"] * 4
    assert [line["log_level"] for line in lines] == ["error", "info", "error", "info"]
    assert corrupt.counts == {"policy": 2}


def test_the_register_is_bounded() -> None:
    """A store full of corrupt objects fills neither the memory nor the log."""
    corrupt = Corrupt()
    with capture_logs() as lines:
        for index in range(CORRUPT_PATHS_MAX + 10):
            corrupt.object_of(Node(b"[", 0), "policy", f"{PATH}{index}")
    assert len(lines) == len(corrupt.paths) == CORRUPT_PATHS_MAX
    assert corrupt.counts == {"policy": CORRUPT_PATHS_MAX + 10}


async def test_what_cannot_be_read_is_not_overwritten() -> None:
    """A change of a corrupt object is refused: it would delete what an operator can repair."""
    async with MemoryTree().session() as store:
        for value in NONSENSE:
            await store.put(PATH, value)
            with pytest.raises(CorruptDataError, match=PATH):
                await update(store, PATH, lambda document: {**document, "b": 1})
            node = await store.get(PATH)
            assert node is not None
            assert node.value == value
