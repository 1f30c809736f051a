"""A reason as a value: a code, which programs read, and a text for people."""

from __future__ import annotations

import msgspec

UNKNOWN = "Unknown"
"""The code where a sentence does not begin with one."""


class Reason(msgspec.Struct, frozen=True, gc=False):
    """Why something is not done. The code is one word; it means the same in every version. The text
    may be empty.
    """

    code: str
    text: str = ""

    def __str__(self) -> str:
        """For people."""
        return joined(self.code, self.text)


def joined(head: str, text: str) -> str:
    """`head: text`; without a text the head alone."""
    return f"{head}: {text}" if text else head


def from_sentence(sentence: str) -> Reason:
    """The reason in a sentence `Code: text`, as strategies of third parties told it before the code
    was a field. Nothing else takes a sentence apart.
    """
    code, _, text = sentence.partition(":")
    return Reason(code, text.strip()) if code.isidentifier() else Reason(UNKNOWN, sentence)
