"""Tables for people.

A table on a terminal has its width: texts are folded between words. Words, such as the names of
bundles and brokers, stay whole, so that they can be copied: a table that would be too wide is shown
as a block for each row, with a line for each column. In a pipe or a file a row is one line. Control
characters in names are escaped, line ends, too: they must neither drive the terminal nor forge a
line. rich decides about colours (NO_COLOR, FORCE_COLOR, TERM).
"""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from loadmanager.kit.text import printable

if TYPE_CHECKING:  # rich takes time, and help needs none of it
    from rich.table import Table

T = TypeVar("T")
Cell = str | int | float | None
Shown: TypeAlias = "str | list[str] | Table"
"""A line, several lines, or a table."""
_WIDE = 1_000_000
_PLAIN = re.compile(r"[\w.:/@%+=,~-]+")
TEXT_MIN = 20
"""Columns of longer texts do not become narrower."""


def table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Table:
    """Rows under headers, for `show`; numeric columns are aligned to the right, None is shown as
    `-`.
    """
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold")
    for header, *cells in zip(headers, *rows, strict=True):
        numeric = bool(cells) and all(
            cell is None or isinstance(cell, int | float) for cell in cells
        )
        made.add_column(
            Text(header),
            justify="right" if numeric else "left",
            min_width=max(_least(header, 0), *(_least(_text(cell), TEXT_MIN) for cell in cells), 0),
            overflow="fold",
        )
    for row in rows:
        made.add_row(*(Text(_text(cell)) for cell in row))
    return made


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    return f"{cell:.1f}" if isinstance(cell, float) else printable(str(cell))


def _least(text: str, least: int) -> int:
    """The width that a text needs: of its longest word, and `least` if it is that long."""
    return max(*map(len, text.split()), min(len(text), least), 0)


def _fit(made: Table, width: int) -> int:
    """Give columns their widths; returns that of the table, which is `width` if possible."""
    from rich.console import Console

    console = Console(width=_WIDE)
    widths = [
        max(console.measure(cell).maximum for cell in (column.header, *column.cells))
        for column in made.columns
    ]
    gaps = 2 * (len(widths) - 1)
    while sum(widths) + gaps > width:
        spare = [
            now - (column.min_width or 0) for now, column in zip(widths, made.columns, strict=True)
        ]
        if max(spare) <= 0:
            break
        widest = max(range(len(widths)), key=lambda index: (spare[index] > 0, widths[index]))
        widths[widest] -= 1
    for column, now in zip(made.columns, widths, strict=True):
        column.width = now
    return sum(widths) + gaps


def _blocks(made: Table, width: int) -> str:
    """Rows as blocks: the first cell, and below it the other cells that are not empty."""
    headers = [_capitalized(str(column.header)) for column in made.columns]
    wide = max(map(len, headers[1:]), default=0)
    rows = zip(*(column.cells for column in made.columns), strict=True)
    return "\n".join("\n".join(_block(headers, list(map(str, row)), wide, width)) for row in rows)


def _capitalized(header: str) -> str:
    """With the case of units."""
    return header[:1].upper() + header[1:]


def _block(headers: list[str], row: list[str], wide: int, width: int) -> Iterator[str]:
    yield row[0]
    for header, text in zip(headers[1:], row[1:], strict=True):
        if text not in ("", "-"):
            yield textwrap.fill(
                text,
                max(width, wide + TEXT_MIN),
                initial_indent=f"  {header:<{wide}}  ",
                subsequent_indent=" " * (wide + 4),
                break_long_words=False,
                break_on_hyphens=False,
            )


def show(*parts: Shown) -> None:
    """Print lines and tables on standard output, with empty lines between. Here all control
    characters are escaped that others wrote.
    """
    texts = []
    for part in parts:
        if isinstance(part, str | list):
            lines = [part] if isinstance(part, str) else part
            texts += ["\n".join(map(printable, lines))] if part else []
        else:
            texts.append(_drawn(part))
    print("\n\n".join(texts))


def _drawn(part: Table) -> str:
    from rich.console import Console
    from rich.text import Text

    most = Console().width if sys.stdout.isatty() else _WIDE
    width = _fit(part, most)
    if width > most:
        return _blocks(part, most)
    for column in part.columns:
        column.header = Text(str(column.header).upper())
    console = Console(width=max(width, 1))
    with console.capture() as captured:
        console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def named(names: Iterable[str], most: int = 5) -> str:
    """Names for a sentence; the number of those that are left out."""
    listed = sorted(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def word(name: str) -> str:
    """A name for a list of names: `xargs`, and a shell, read it as one word, and never as another
    name. One of other characters than those of most topics is quoted. With control characters it
    begins with `$`: bash reads it as it is, and for `xargs` it names nothing.
    """
    if _PLAIN.fullmatch(name):
        return name
    if name.isprintable():
        return shlex.quote(name)
    return f"$'{''.join(map(_escaped, name))}'"


def _escaped(char: str) -> str:
    if char.isprintable() and char not in "\\'":
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def track(things: Sequence[T], text: str) -> Iterable[T]:
    """The things, one after another; a bar on standard error says how far it is, on a terminal."""
    if not sys.stderr.isatty():
        return things
    from rich.console import Console
    from rich.progress import track as tracked

    return tracked(things, text, console=Console(stderr=True), transient=True)
