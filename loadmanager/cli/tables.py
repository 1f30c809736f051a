"""Aligned tables for people."""

from __future__ import annotations

from collections.abc import Sequence

Cell = str | int | float | None


def table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Rows under headers; numeric columns are aligned to the right, None is shown as `-`."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *texts, strict=True)]
    right = [
        bool(rows) and all(cell is None or isinstance(cell, int | float) for cell in column)
        for column in zip(*rows, strict=True)
    ]
    right = right or [False] * len(headers)

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        )
        return "  ".join(aligned).rstrip()

    return "\n".join(line(cells) for cells in ([header.upper() for header in headers], *texts))


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    return f"{cell:.1f}" if isinstance(cell, float) else str(cell)
