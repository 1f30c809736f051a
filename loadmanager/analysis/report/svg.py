"""Plots as SVG text: they follow the page's colours in light and dark, and need no library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from loadmanager.analysis.day import clock, mib
from loadmanager.analysis.report.plots import STEP_MS, STEPS, Plots

LEFT, TOP, WIDTH, BOTTOM = 210, 8, 1000, 24
ROW = 15
PLOT_WIDTH = WIDTH - LEFT - 12
CELL = PLOT_WIDTH / STEPS
HEIGHT = 220
LABEL_CHARS_MAX = 32
DASHES = ("", "5 3", "2 2")
COLOURS = 8


def heat_map(plots: Plots) -> str:
    """Bundles by time: the stronger the colour, the more bytes; ● a move, ✂ a split."""
    names = list(plots.heat)
    top = max(
        (value for row in plots.heat.values() for value in row if value is not None), default=0.0
    )
    height = TOP + ROW * len(names) + BOTTOM
    parts = [_open(height, "Heat map of bundles by time")]
    for index, name in enumerate(names):
        y = TOP + index * ROW
        parts.append(
            f'<text x="{LEFT - 6}" y="{y + 11}" text-anchor="end" '
            f'class="label"><title>{escape(name)}</title>{escape(_short(name))}</text>'
        )
        for step, value in enumerate(plots.heat[name]):
            if value is not None:
                shade = 0.06 + 0.94 * math.sqrt(value / top) if top else 0.06
                told = f"{escape(name)} {clock(plots.start_ms + step * STEP_MS)} {mib(value)}"
                parts.append(
                    f'<rect x="{LEFT + step * CELL:.1f}" y="{y}" width="{CELL - 0.6:.1f}" '
                    f'height="{ROW - 2}" class="heat" fill-opacity="{shade:.2f}">'
                    f"<title>{told}</title></rect>"
                )
    rows = {name: index for index, name in enumerate(names)}
    for marks, sign, css in (
        (plots.heat_moves, "move", "move"),
        (plots.heat_splits, "split", "split"),
    ):
        for name, ts, text in marks:
            x, middle = (
                LEFT + (ts - plots.start_ms) / STEP_MS * CELL,
                TOP + rows[name] * ROW + (ROW - 2) / 2,
            )
            shape = (
                f'<circle cx="{x:.1f}" cy="{middle}" r="3.4" class="{css}">'
                if sign == "move"
                else f'<path d="M{x:.1f} {middle - 6}v12M{x - 4:.1f} {middle - 4}l8 8m0 -8l-8 8" '
                f'class="{css}">'
            )
            parts.append(
                f"{shape}<title>{clock(ts)} "
                f"{escape(text)}</title></{'circle' if sign == 'move' else 'path'}>"
            )
    parts.append(_time_axis(height))
    return "".join(parts) + "</svg>"


def lines(
    series: dict[str, Sequence[float | None]],
    *,
    title: str,
    percent: bool,
    threshold: float | None = None,
    mark: str = "overloaded",
) -> str:
    """Lines over the day, with a threshold if there is one."""
    values = [value for line in series.values() for value in line if value is not None]
    top = _ceiling(max([*values, threshold or 0.0], default=1.0))
    parts = [_open(HEIGHT, title)]
    for tick in range(5):
        value = top * tick / 4
        y = _y(value, top)
        text = f"{value:.0%}" if percent else f"{value:.2f}"
        parts.append(
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - 12}" class="grid"/><text x="{LEFT - 6}" '
            f'y="{y + 4:.1f}" text-anchor="end" class="label">{text}</text>'
        )
    if threshold is not None:
        y = _y(threshold, top)
        label_y = y - 4 if y > TOP + 12 else y + 12
        parts.append(
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - 12}" class="threshold"/><text x="{WIDTH - 14}" '
            f'y="{label_y:.1f}" text-anchor="end" class="label">'
            f"{mark}</text>"
        )
    for index, (name, line) in enumerate(series.items()):
        dash = DASHES[index // COLOURS % len(DASHES)]
        drawn = _path(line, top)
        parts.append(
            f'<path d="{drawn}" class="line c{index % COLOURS}" '
            f'stroke-dasharray="{dash}"><title>{escape(name)}</title></path>'
        )
    parts.append(_time_axis(HEIGHT))
    return "".join(parts) + "</svg>" + _legend(list(series))


def bars(values: dict[str, float], *, title: str) -> str:
    """Shares of the time."""
    height = TOP + 22 * len(values) + 6
    parts = [_open(height, title)]
    for index, (name, value) in enumerate(values.items()):
        y = TOP + 22 * index
        width = min(value, 1.0) * (PLOT_WIDTH - 60)
        parts.append(
            f'<text x="{LEFT - 6}" y="{y + 13}" text-anchor="end" '
            f'class="label"><title>{escape(name)}</title>{escape(_short(name))}</text>'
            f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="17" class="bar"/>'
            f'<text x="{LEFT + width + 6:.1f}" y="{y + 13}" class="label">{value:.0%}</text>'
        )
    return "".join(parts) + "</svg>"


def _open(height: float, title: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'


def _time_axis(height: float) -> str:
    ticks = []
    for hour in range(0, 25, 3):
        x = LEFT + hour * 4 * CELL
        ticks.append(
            f'<text x="{x:.1f}" y="{height - 6:.0f}" '
            f'text-anchor="{"end" if hour == 24 else "middle"}" class="label">{hour:02}:00</text>'
        )
    return "".join(ticks)


def _path(line: Sequence[float | None], top: float) -> str:
    """A line that is broken where nothing is known."""
    drawn, pen = [], "M"
    for step, value in enumerate(line):
        if value is None:
            pen = "M"
            continue
        x = LEFT + (step + 0.5) * CELL
        drawn.append(f"{pen}{x:.1f} {_y(value, top):.1f}")
        if pen == "M":
            drawn.append("h0.1")  # a lone point shows, too
        pen = "L"
    return "".join(drawn)


def _y(value: float, top: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(value / top, 1.0))


def _ceiling(value: float) -> float:
    """The next round number."""
    if value <= 1e-12:
        return 1.0
    scale: float = 10.0 ** math.floor(math.log10(value))
    return next(scale * step for step in (1, 2, 2.5, 5, 10) if scale * step >= value - 1e-12)


def _short(name: str) -> str:
    return name if len(name) <= LABEL_CHARS_MAX else "…" + name[-LABEL_CHARS_MAX + 1 :]


def _legend(names: list[str]) -> str:
    if len(names) < 2:
        return ""
    items = (
        f'<span><i class="c{index % COLOURS}"></i>{escape(name)}</span>'
        for index, name in enumerate(names)
    )
    return f'<p class="legend">{"".join(items)}</p>'
