"""The report as one HTML file: headline, findings, plots, and the tables behind them.

It loads nothing and follows the reader's light or dark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from loadmanager.kit.units import MINUTE_MS
from loadmanager.nightly.day import clock, many, mib, size
from loadmanager.nightly.report import svg
from loadmanager.nightly.report.plots import Plots

ROWS_MAX = 25
SERIOUS, NOTABLE = 60.0, 35.0
INVISIBLE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""In a name, these would hide or turn round what stands beside it."""
HARM = (
    "Cards are in order of harm: red, clients had no service or were held back, or brokers were "
    "overloaded; yellow, capacity or moves were wasted, or it will become worse; green, a remark. "
    "Recorded: brokers recorded it; concluded: records were compared; estimated: by a model."
)


def render(document: Mapping[str, Any], plots: Plots, *, overloaded: float) -> str:
    """The page's text."""
    title = f"{document['cluster']}, {document['date']}"
    style = files(__package__).joinpath("style.css").read_text()
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>Load of '
        f"{escape(title)}</title><style>{style}</style></head><body><main>"
        f'<header><h1>{escape(title)}</h1><p class="headline">{escape(document["headline"])}</p>'
        "<p>Times are UTC. Traffic is in and out together.</p></header>"
        f"{_figures(document)}{_findings(document)}{_problems(document)}"
        f"{_plots(plots, document['tables'], overloaded)}{_tables(document['tables'])}"
        f"{_removed(document['removed'])}"
        "<footer>loadmanager analyze · the same numbers are in "
        f"{escape(document['date'])}.json</footer></main></body></html>"
    )
    return INVISIBLE.sub("\N{REPLACEMENT CHARACTER}", page)


def _figures(document: Mapping[str, Any]) -> str:
    totals = document["totals"]
    figures = (
        (totals["brokers"], "brokers"),
        (totals["bundles"], "bundles"),
        (totals["moves"], "moves"),
        (totals["takenOver"], "bundles from brokers that stopped or were lost"),
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


def _removed(sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    entries = "".join(f"<li>{escape(text)}</li>" for text in sentences)
    return f"<section><h2>Old days</h2><ul>{entries}</ul></section>"


def _findings(document: Mapping[str, Any]) -> str:
    findings: Sequence[Mapping[str, Any]] = document["findings"]
    if not findings and any(table["failed"] for table in document["tables"].values()):
        return (
            "<section><h2>Findings</h2><p>Nothing, by the questions that could be "
            "answered.</p></section>"
        )
    if not findings:
        return "<section><h2>Findings</h2><p>Nothing that needs you. A quiet day.</p></section>"
    cards = "".join(map(_card, findings))
    return f'<section><h2>Findings</h2><p class="note">{HARM}</p>{cards}</section>'


def _card(finding: Mapping[str, Any]) -> str:
    plot = finding["plot"]
    links = [f'<a href="#plot-{plot}">plot</a>'] if plot else []
    links.append(f'<a href="#table-{finding["question"]}">numbers</a>')
    place = f"{escape(finding['where'])} · " if finding["where"] else ""
    effects = "".join(f"<li>{escape(text)}</li>" for text in finding["effects"])
    commands = "\n".join(finding["commands"])
    return (
        f'<article class="{_grade(finding["importance"])}"><h3>{escape(finding["title"])}</h3>'
        f'<p class="place">{_time(finding)} · {place}{finding["certainty"]} · '
        f"{' · '.join(links)}</p>"
        f"<p>{escape(finding['text'])}</p>"
        f'<p class="hurt">Who was hurt: {escape(finding["hurt"])}.</p>'
        + (f"<p>It also caused:</p><ul>{effects}</ul>" if effects else "")
        + f'<p class="advice">{escape(finding["advice"])}</p>'
        + (f"<pre><code>{escape(commands)}</code></pre>" if commands else "")
        + "</article>"
    )


def _time(finding: Mapping[str, Any]) -> str:
    begun, ended = finding["at_ms"], finding["until_ms"]
    if begun is None:
        return "all day"
    if ended is None or ended - begun < MINUTE_MS:
        return clock(begun)
    return f"{clock(begun)} to {clock(ended) if clock(ended) != '00:00' else '24:00'}"


def _grade(importance: float) -> str:
    return "serious" if importance >= SERIOUS else "notable" if importance >= NOTABLE else "remark"


def _plots(plots: Plots, tables: Mapping[str, Mapping[str, Any]], overloaded: float) -> str:
    axis = plots.axis
    minutes = f"Means of {many(max(axis.step_ms // 60_000, 5), 'minute')}; peaks may be higher."
    parts = []
    if plots.events:
        note = (
            "<b class='bad-text'>✕</b> a broker or bundle was lost, <b class='gone-text'>●</b> a "
            "broker stopped or was silent, <b class='good-text'>●</b> one came, "
            "<b class='dot'>●</b> a move, <b class='cross'>✳</b> a split, | a leader's term; the "
            "list has their times."
        )
        note += _of(len(plots.events), plots.events_total, "events", "worst")
        drawing = svg.timeline(plots.events, axis)
        parts.append(_figure("timeline", "Timeline", drawing, note) + _events(plots))
    if plots.usage:
        series: dict[str, Sequence[float | None]] = dict(plots.usage)
        drawing = svg.lines(series, axis, title="Usage of each broker", threshold=overloaded)
        note = minutes + _of(len(plots.usage), tables["broker_usage"]["total"], "brokers")
        parts.append(_figure("usage", "Usage of the brokers", drawing, note))
    if any(value is not None for value in plots.std):
        drawing = svg.lines({"standard deviation": plots.std}, axis, title="Imbalance")
        note = "Standard deviation of the brokers' usage, in points; 0 is even."
        parts.append(_figure("imbalance", "Imbalance", drawing, note))
    if plots.heat:
        note = (
            "The stronger the colour, the more bytes. <b class='dot'>●</b> a move, <b "
            "class='cross'>✳</b> a split."
        )
        note += _of(len(plots.heat), tables["hot_bundles"]["total"], "bundles")
        parts.append(_figure("bundles", "Bundles over the day", svg.heat_map(plots), note))
    if plots.hold_shares:
        parts.append(_limits(plots))
    return (
        "<section><h2>The day</h2>"
        + ("".join(parts) or "<p>No load was recorded.</p>")
        + "</section>"
    )


def _limits(plots: Plots) -> str:
    drawing = svg.bars(plots.hold_shares, title="Limits")
    holding = _figure(
        "limits",
        "Limits that held clients",
        drawing,
        "Share of the time in which somebody was held.",
    )
    note = "At 100% clients use the whole limit; well below it, they do not need it."
    drawing = svg.lines(
        dict(plots.delivered),
        plots.axis,
        title="Delivered over configured",
        threshold=1.0,
        mark="configured",
    )
    return holding + _figure("delivered", "What the limits let through", drawing, note)


def _events(plots: Plots) -> str:
    rows = "".join(
        f"<tr><td class=n>{clock(event.ts)}</td><td>{escape(event.lane)}</td>"
        f"<td>{escape(event.text)}</td></tr>"
        for event in plots.events
    )
    return (
        f"<details><summary>What happened when <span>{len(plots.events)}</span></summary>"
        f'<div class="wide"><table><tbody>{rows}</tbody></table></div></details>'
    )


def _of(shown: int, total: int, what: str, which: str = "busiest") -> str:
    return f" The {which} {shown} of {total:,} {what}." if shown < total else ""


def _figure(name: str, title: str, drawing: str, note: str) -> str:
    return (
        f'<figure id="plot-{name}"><figcaption>{escape(title)}</figcaption><div '
        f'class="wide" tabindex="0">{drawing}</div>'
        f"{f'<p class=note>{note}</p>' if note else ''}</figure>"
    )


def _tables(tables: Mapping[str, Mapping[str, Any]]) -> str:
    parts = []
    for name, table in tables.items():
        rows: Sequence[Mapping[str, Any]] = table["rows"]
        shown = (
            f"<p>Could not be answered: {escape(table['failed'])}</p>"
            if table["failed"]
            else _table(rows[:ROWS_MAX], table["columns"])
        )
        heading = f"{escape(name.replace('_', ' '))} <span>{table['total']:,}</span>"
        parts.append(
            f'<details id="table-{name}"><summary>{heading}</summary>'
            f"<p>{escape(table['about'])}</p>{shown}{_more(table['total'])}"
            f"{_meanings(table['columns'])}</details>"
        )
    return f"<section><h2>The numbers</h2>{''.join(parts)}</section>"


def _meanings(columns: Mapping[str, str]) -> str:
    entries = "".join(
        f"<dt>{escape(_heading(name))}</dt><dd>{escape(meaning)}</dd>"
        for name, meaning in columns.items()
    )
    return f"<dl>{entries}</dl>"


def _heading(name: str) -> str:
    return name.removesuffix("_ts").replace("_", " ")


def _more(total: int) -> str:
    return (
        f"<p class=note>The first {ROWS_MAX} of {total:,}; the JSON has more, the stored "
        "table all.</p>"
        if total > ROWS_MAX
        else ""
    )


def _table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    if not rows:
        return "<p>Nothing.</p>"
    head = "".join(
        f'<th title="{escape(meaning)}">{escape(_heading(name))}</th>'
        for name, meaning in columns.items()
    )
    body = "".join(
        "<tr>" + "".join(_cell(name, row[name]) for name in columns) + "</tr>" for row in rows
    )
    return (
        f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


SHARES = ("mean", "p50", "p95", "p99", "max", "min", "std", "gain", "headroom")


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if isinstance(value, list):
        return f"<td>{escape(', '.join(map(str, value)))}</td>"
    if isinstance(value, str):
        return f"<td>{escape(value)}</td>"
    return f"<td class=n>{_number(name, value)}</td>"


def _number(name: str, value: float) -> str:
    if name in ("ts", "bucket") or name.endswith("_ts"):
        return clock(value)
    if name.startswith("throughput") or name.endswith("bytes_per_s"):
        return mib(value) if value >= 0 else "–"
    if name == "bytes":
        return size(value)
    if name in SHARES or "share" in name or name.startswith(("std_", "usage")):
        return f"{value * 100:.1f}%"
    return f"{value:,.0f}" if isinstance(value, int) else f"{value:,.2f}"
