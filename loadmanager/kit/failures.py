"""What to say of an error of a library, in one line."""

from __future__ import annotations

import re

PYTHON_ERROR = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)")


def first_line(error: Exception) -> str:
    """The first line of an error, without the stack of Spark's; if a Python task of Spark failed,
    why that did.
    """
    java = getattr(error, "java_exception", None)
    text = str(java.toString()) if java is not None else str(error)
    if (python := PYTHON_ERROR.search(text)) is not None:
        return f"a Python task of Spark failed: {python[1].strip()}"
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
