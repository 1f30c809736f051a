"""Tables for people.

A table on a terminal has its width: cells are folded, never cut. In a pipe or a file a row is one
line. rich decides about colours (NO_COLOR, FORCE_COLOR, TERM).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

T = TypeVar("T")
Cell = str | int | float | None
Shown = str | Table
_WIDE = 1_000_000


def table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Table:
    """Rows under headers; numeric columns are aligned to the right, None is shown as `-`."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for header, *cells in zip(headers, *rows, strict=True):
        numeric = bool(cells) and all(
            cell is None or isinstance(cell, int | float) for cell in cells
        )
        made.add_column(
            Text(header.upper()), justify="right" if numeric else "left", overflow="fold"
        )
    for row in rows:
        made.add_row(*(Text(_text(cell)) for cell in row))
    return made


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    return f"{cell:.1f}" if isinstance(cell, float) else str(cell)


def show(*parts: Shown) -> None:
    """Print texts and tables on standard output, with empty lines between."""
    console = Console(width=None if sys.stdout.isatty() else _WIDE)
    texts = []
    for part in parts:
        if isinstance(part, Table):
            with console.capture() as captured:
                console.print(part)
            texts.append("\n".join(line.rstrip() for line in captured.get().splitlines()))
        else:
            texts.append(part)
    print("\n\n".join(texts))


def track(things: Sequence[T], text: str) -> Iterable[T]:
    """The things, one after another; a bar on standard error says how far it is, on a terminal."""
    if not sys.stderr.isatty():
        return things
    from rich.progress import track as tracked

    return tracked(things, text, console=Console(stderr=True), transient=True)
