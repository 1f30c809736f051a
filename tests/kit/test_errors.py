"""Texts of errors."""

from __future__ import annotations

from loadmanager.kit.errors import said


def test_an_error_without_a_text_says_its_type() -> None:
    """No sentence about an error ends with a colon."""
    assert said(ConnectionResetError()) == "ConnectionResetError"
    assert said(OSError("no route")) == said("no route") == "no route"
