"""Java's properties syntax, in which broker.conf is written."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from pathlib import Path

from loadmanager.kit.errors import ConfigError
from loadmanager.kit.private_files import open_private

FILE_BYTES_MAX = 4_000_000
SAFE = frozenset(string.ascii_letters + string.digits)

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SEPARATOR = re.compile(r"(?<!\\)(?:\s*[=:]\s*|\s+)")


def read_properties(path: Path) -> dict[str, str]:
    """Parse a file in Java's properties syntax (comments, `=`, `:` or blanks, continued lines,
    escapes); the last of two equal keys wins.

    Raises `ConfigError` when the file cannot be read.
    """
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ConfigError(f"{path}: larger than {FILE_BYTES_MAX} bytes, so not a broker.conf")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from None
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        name, *rest = _SEPARATOR.split(line, maxsplit=1)
        properties[_unescape(name)] = _unescape(rest[0]) if rest else ""
    return properties


def write_private(path: Path, properties: Mapping[str, str]) -> None:
    """Write a new file in that syntax, which only we can read; what was there before is removed.

    It may be somebody else's, a link, or a pipe. Raises `OSError`.
    """
    text = "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())
    path.unlink(missing_ok=True)
    with open_private(path, "xb") as file:
        file.write(text.encode())


def _escaped(text: str) -> str:
    """Everything but letters and digits as a number, so that nothing has a meaning."""
    return "".join(
        char if char in SAFE or ord(char) > 0xFFFF else f"\\u{ord(char):04x}" for char in text
    )


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for raw in text.splitlines():
        line = raw.lstrip()
        if not pending and (not line or line[0] in "#!"):
            continue
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        return (
            chr(int(code[1:], 16))
            if code[0] == "u" and len(code) == 5
            else _ESCAPES.get(code, code)
        )

    return _ESCAPE.sub(character, text)
