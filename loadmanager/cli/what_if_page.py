"""The answer of `what-if` as one HTML file, which loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from loadmanager.cli.terminal import Cell
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.text import printable

STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.6rem; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
section { overflow-x: auto; }
"""


class PageSection(NamedTuple):
    """A day: its table, and what it says in words."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    sentences: Sequence[str]


def written(
    path: Path, title: str, words: Sequence[str], sections: Sequence[PageSection], *, notes: str
) -> None:
    """Write the page: `words`, the sections, and the notes. Raises `BadInputError` where it cannot
    be written.
    """
    name = _safe(title)
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>{name}</title>'
        f"<style>{STYLE}</style></head><body><h1>{name}</h1>"
    )
    parts = [
        head,
        _list(words),
        *map(_section, sections),
        f"<pre>{escape(notes)}</pre></body></html>",
    ]
    try:
        path.write_text("".join(parts), encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"the page cannot be written: {error}") from error


def _section(section: PageSection) -> str:
    head = "".join(f"<th>{_safe(header)}</th>" for header in section.headers)
    rows = "".join(
        f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in section.rows
    )
    return (
        f"<section><h2>{_safe(section.title)}</h2><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table>{_list(section.sentences)}</section>"
    )


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{_safe(line)}</li>' for line in lines)}</ul>" if lines else ""


def _cell(cell: Cell) -> str:
    if cell is None:
        return "–"
    return f"{cell:.1f}" if isinstance(cell, float) else _safe(str(cell))


def _safe(text: str) -> str:
    return escape(printable(text))
