"""Texts of others in logs, messages and terminals."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with its control characters escaped: it must not forge lines or drive a terminal."""
    return (
        text
        if text.isprintable()
        else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    )
