"""The report as one HTML file: findings first, then plots, then the tables behind them.

It loads nothing and follows the reader's light or dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from loadmanager.analysis.day import clock, mib
from loadmanager.analysis.report import svg
from loadmanager.analysis.report.plots import Plots

ROWS_MAX = 25
SERIOUS, NOTABLE = 60.0, 35.0


def render(document: Mapping[str, Any], plots: Plots, *, overloaded: float) -> str:
    """The page's text."""
    title = f"{document['cluster']}, {document['date']}"
    style = files(__package__).joinpath("style.css").read_text()
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>Load of '
        f"{escape(title)}</title><style>{style}</style></head><body><main>"
        f"<header><h1>{escape(title)}</h1><p>What happened, and why. Times are UTC.</p></header>"
        f"{_figures(document)}{_problems(document)}{_findings(document)}"
        f"{_plots(plots, document['tables'], overloaded)}{_tables(document['tables'])}"
        "<footer>loadmanager analyze · the same numbers are in "
        f"{escape(document['date'])}.json</footer></main></body></html>"
    )


def _figures(document: Mapping[str, Any]) -> str:
    totals = document["totals"]
    figures = (
        (totals["brokers"], "brokers"),
        (totals["bundles"], "bundles"),
        (totals["moves"], "moves"),
        (totals["splits"], "splits"),
        (totals["limitsThatHeldClients"], "limits that held clients"),
        (sum(document["records"].values()), "records"),
    )
    return (
        '<section class="figures">'
        + "".join(
            f"<div><b>{'–' if value is None else f'{value:,}'}</b>{escape(name)}</div>"
            for value, name in figures
        )
        + "</section>"
    )


def _problems(document: Mapping[str, Any]) -> str:
    problems: Sequence[str] = document["input"]["problems"]
    if not problems:
        return ""
    return (
        '<section class="problems"><h2>Not everything could be read or answered</h2><ul>'
        + "".join(f"<li>{escape(text)}</li>" for text in problems)
        + "</ul></section>"
    )


def _findings(document: Mapping[str, Any]) -> str:
    findings: Sequence[Mapping[str, Any]] = document["findings"]
    if not findings and any(table["failed"] for table in document["tables"].values()):
        return (
            "<section><h2>Findings</h2><p>Nothing, by the questions that could be "
            "answered.</p></section>"
        )
    if not findings:
        return "<section><h2>Findings</h2><p>Nothing that needs you. A quiet day.</p></section>"
    cards = (
        f"<article "
        f'class="{_grade(finding["importance"])}"><h3>{escape(finding["title"])}</h3><p>{escape(finding["text"])}</p>'
        f'<p class="advice">{escape(finding["advice"])}</p></article>'
        for finding in findings
    )
    return f"<section><h2>Findings</h2>{''.join(cards)}</section>"


def _grade(importance: float) -> str:
    return "serious" if importance >= SERIOUS else "notable" if importance >= NOTABLE else "remark"


def _plots(plots: Plots, tables: Mapping[str, Mapping[str, Any]], overloaded: float) -> str:
    parts = []
    if plots.heat:
        note = (
            "The stronger the colour, the more bytes. <b class='dot'>●</b> a move, <b "
            "class='cross'>✳</b> a split; point at anything for its numbers."
        )
        note += _of(len(plots.heat), tables["hot_bundles"]["total"], "bundles")
        parts.append(_figure("Bundles over the day", svg.heat_map(plots), note))
    if plots.usage:
        parts.append(
            _figure(
                "Usage of the brokers",
                svg.lines(
                    dict(plots.usage),
                    title="Usage of each broker",
                    percent=True,
                    threshold=overloaded,
                ),
                "Means of a quarter of an hour; peaks may be higher."
                + _of(len(plots.usage), tables["broker_usage"]["total"], "brokers"),
            )
        )
    if any(value is not None for value in plots.std):
        series: dict[str, Sequence[float | None]] = {"standard deviation of usage": plots.std}
        parts.append(
            _figure(
                "Imbalance",
                svg.lines(series, title="Imbalance", percent=False),
                "Standard deviation of the brokers' usage; 0 is even.",
            )
        )
    if plots.held:
        parts.append(
            _figure(
                "Limits that held clients",
                svg.bars(plots.held, title="Limits"),
                "Share of the time in which somebody was held.",
            )
        )
        note = (
            "Means of a quarter of an hour. At 100 % clients get all that is configured; "
            "well below it, nobody wants more."
        )
        drawing = svg.lines(
            dict(plots.delivered),
            title="Delivered over configured",
            percent=True,
            threshold=1.0,
            mark="configured",
        )
        parts.append(_figure("What the limits let through", drawing, note))
    return (
        "<section><h2>The day</h2>"
        + ("".join(parts) or "<p>No load was recorded.</p>")
        + "</section>"
    )


def _of(shown: int, total: int, what: str) -> str:
    return f" The {shown} busiest of {total:,} {what}." if shown < total else ""


def _figure(title: str, drawing: str, note: str) -> str:
    return (
        f"<figure><figcaption>{escape(title)}</figcaption><div "
        f'class="wide">{drawing}</div>{f"<p class=note>{note}</p>" if note else ""}</figure>'
    )


def _tables(tables: Mapping[str, Mapping[str, Any]]) -> str:
    parts = []
    for name, table in tables.items():
        rows: Sequence[Mapping[str, Any]] = table["rows"]
        shown = (
            f"<p>Could not be answered: {escape(table['failed'])}</p>"
            if table["failed"]
            else _table(rows[:ROWS_MAX])
        )
        heading = f"{escape(name.replace('_', ' '))} <span>{table['total']:,}</span>"
        parts.append(
            f"<details><summary>{heading}</summary><p>{escape(table['about'])}</p>{shown}{_more(table['total'])}</details>"
        )
    return f"<section><h2>The numbers</h2>{''.join(parts)}</section>"


def _more(total: int) -> str:
    return (
        f"<p class=note>The first {ROWS_MAX} of {total:,}; the JSON has more, the stored "
        "table all.</p>"
        if total > ROWS_MAX
        else ""
    )


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "<p>Nothing.</p>"
    names = list(rows[0])
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(_cell(name, row[name]) for name in names) + "</tr>" for row in rows
    )
    return (
        f"<div "
        f'class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if isinstance(value, list):
        return f"<td>{escape(', '.join(map(str, value)))}</td>"
    if name in ("ts", "bucket") or name.endswith("_ts"):
        return f"<td class=n>{clock(value)}</td>"
    if name.startswith("throughput") or name.endswith("bytes_per_s"):
        return f"<td class=n>{mib(value) if value >= 0 else '–'}</td>"
    if isinstance(value, float):
        return (
            f"<td class=n>{value:,.3f}</td>"
            if abs(value) < 100
            else f"<td class=n>{value:,.0f}</td>"
        )
    return (
        f"<td class=n>{value:,}</td>"
        if isinstance(value, int)
        else f"<td>{escape(str(value))}</td>"
    )
