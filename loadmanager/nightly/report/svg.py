"""Plots as SVG text: they follow the page's colours in light and dark, and need no library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from loadmanager.nightly.day import clock, mib
from loadmanager.nightly.facts import PlotSteps
from loadmanager.nightly.report.plots import Mark, Plots

TOP, WIDTH, BOTTOM = 8, 1000, 24
LABELS, NARROW = 260, 56
"""Left margins: of plots with names, and of plots with numbers."""
RIGHT = 12
ROW, LANE = 15, 26
HEIGHT = 220
LABEL_CHARS_MAX = 42
DASHES = ("", "6 3", "2 3")
COLOURS = 8
TICK_MINUTES = (1, 2, 5, 10, 15, 30, 60, 120, 180)
TICKS_MAX = 9
LANES = ("brokers", "leader", "splits", "moves")


class _Time:
    """The horizontal position of a time in a plot."""

    def __init__(self, axis: PlotSteps, left: int) -> None:
        self.axis, self.left = axis, left
        self.cell = (WIDTH - left - RIGHT) / max(axis.count, 1)

    def x(self, ts: float) -> float:
        return self.left + (ts - self.axis.start_ms) / self.axis.step_ms * self.cell

    def ticks(self, height: float) -> str:
        """Times below the plot, at round minutes."""
        span = self.axis.end_ms - self.axis.start_ms
        minutes = next(
            (each for each in TICK_MINUTES if span / 60_000 / each <= TICKS_MAX), TICK_MINUTES[-1]
        )
        every = minutes * 60_000
        first = -(-self.axis.start_ms // every) * every
        texts = []
        for ts in range(first, self.axis.end_ms + 1, every):
            x = self.x(ts)
            last = x > WIDTH - RIGHT - 16
            label = "24:00" if last and ts % 86_400_000 == 0 else clock(ts)
            texts.append(
                f'<text x="{min(x, WIDTH - 2):.1f}" y="{height - 6:.0f}" class="label" '
                f'text-anchor="{"end" if last else "middle"}">{label}</text>'
            )
        return "".join(texts)


def heat_map(plots: Plots) -> str:
    """Bundles by time: the stronger the colour, the more bytes; ● a move, ✳ a split."""
    names, time = list(plots.heat), _Time(plots.axis, LABELS)
    values = [value for row in plots.heat.values() for value in row if value is not None]
    top = max(values, default=0.0)
    height = TOP + ROW * len(names) + BOTTOM
    parts = [_open(height, "Heat map of bundles by time")]
    for index, name in enumerate(names):
        y = TOP + index * ROW
        parts.append(_name(name, y + 11))
        for step, value in enumerate(plots.heat[name]):
            if value is not None:
                shade = 0.06 + 0.94 * math.sqrt(value / top) if top else 0.06
                ts = plots.axis.start_ms + step * plots.axis.step_ms
                parts.append(
                    f'<rect x="{time.left + step * time.cell:.1f}" y="{y}" '
                    f'width="{max(time.cell - 0.6, 0.5):.1f}" height="{ROW - 2}" class="heat" '
                    f'fill-opacity="{shade:.2f}"><title>{escape(name)} {clock(ts)} '
                    f"{mib(value)}</title></rect>"
                )
    rows = {name: TOP + index * ROW + (ROW - 2) / 2 for index, name in enumerate(names)}
    for name, ts, text in plots.heat_moves:
        parts.append(_mark("move", time.x(ts), rows[name], f"{clock(ts)} {text}"))
    for name, ts, text in plots.heat_splits:
        parts.append(_mark("split", time.x(ts), rows[name], f"{clock(ts)} {text}"))
    return "".join(parts) + time.ticks(height) + "</svg>"


def timeline(events: Sequence[Mark], axis: PlotSteps) -> str:
    """A timeline of events, with a lane for each kind."""
    time, height = _Time(axis, NARROW), TOP + LANE * len(LANES) + BOTTOM
    parts = [_open(height, "Timeline")]
    for index, lane in enumerate(LANES):
        y = TOP + index * LANE + LANE / 2
        parts.append(
            f'<text x="{NARROW - 6}" y="{y + 4}" text-anchor="end" class="label">{lane}</text>'
            f'<path d="M{NARROW} {y}H{WIDTH - RIGHT}" class="grid"/>'
        )
        for event in events:
            if event.lane == lane:
                x = min(max(time.x(event.ts), NARROW), WIDTH - RIGHT)
                parts.append(_mark(event.kind, x, y, f"{clock(event.ts)} {event.text}"))
    return "".join(parts) + time.ticks(height) + "</svg>"


def _mark(kind: str, x: float, y: float, text: str) -> str:
    if kind == "split":
        shape = f"M{x:.1f} {y - 6}v12M{x - 4:.1f} {y - 4}l8 8m0 -8l-8 8"
    elif kind == "bad":
        shape = f"M{x - 5:.1f} {y - 5}l10 10m0 -10l-10 10"
    elif kind == "term":
        shape = f"M{x:.1f} {y - 8}v16"
    else:
        return (
            f'<circle cx="{x:.1f}" cy="{y}" r="3.4" class="{kind}">'
            f"<title>{escape(text)}</title></circle>"
        )
    return f'<path d="{shape}" class="{kind}"><title>{escape(text)}</title></path>'


def lines(
    series: dict[str, Sequence[float | None]],
    axis: PlotSteps,
    *,
    title: str,
    threshold: float | None = None,
    mark: str = "overloaded",
) -> str:
    """Fractions over the day as lines in percent, with a threshold if there is one."""
    time = _Time(axis, NARROW)
    values = [value for line in series.values() for value in line if value is not None]
    top = _ceiling(max([*values, threshold or 0.0], default=1.0))
    parts = [_open(HEIGHT, title)]
    for value in _ticks(top):
        y = _y(value, top)
        parts.append(
            f'<path d="M{NARROW} {y:.1f}H{WIDTH - RIGHT}" class="grid"/><text x="{NARROW - 6}" '
            f'y="{y + 4:.1f}" text-anchor="end" class="label">{_percent(value, top)}</text>'
        )
    if threshold is not None:
        y = _y(threshold, top)
        label_y = y - 4 if y > TOP + 12 else y + 12
        parts.append(
            f'<path d="M{NARROW} {y:.1f}H{WIDTH - RIGHT}" class="threshold"/><text '
            f'x="{WIDTH - RIGHT - 2}" y="{label_y:.1f}" text-anchor="end" class="label">'
            f"{mark}</text>"
        )
    for index, (name, line) in enumerate(series.items()):
        parts.append(
            f'<path d="{_path(line, top, time)}" class="line c{index % COLOURS}" '
            f'stroke-dasharray="{_dash(index)}"><title>{escape(name)}</title></path>'
        )
    return "".join(parts) + time.ticks(HEIGHT) + "</svg>" + _legend(list(series))


def bars(values: dict[str, float], *, title: str) -> str:
    """Shares of the time."""
    height = TOP + 22 * len(values) + 6
    parts = [_open(height, title)]
    for index, (name, value) in enumerate(values.items()):
        y = TOP + 22 * index
        width = min(value, 1.0) * (WIDTH - LABELS - RIGHT - 60)
        parts.append(
            f'{_name(name, y + 13)}<rect x="{LABELS}" y="{y}" width="{width:.1f}" height="17" '
            f'class="bar"/><text x="{LABELS + width + 6:.1f}" y="{y + 13}" class="label">'
            f"{value:.0%}</text>"
        )
    return "".join(parts) + "</svg>"


def _open(height: float, title: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'


def _name(name: str, y: float) -> str:
    return (
        f'<text x="{LABELS - 6}" y="{y}" text-anchor="end" class="label">'
        f"<title>{escape(name)}</title>{escape(shortened(name))}</text>"
    )


def shortened(name: str) -> str:
    """A name that fits beside a plot: its beginning, which says whose it is, and its end."""
    name = name.removeprefix("persistent://")
    if len(name) <= LABEL_CHARS_MAX:
        return name
    end = LABEL_CHARS_MAX // 2
    return f"{name[: LABEL_CHARS_MAX - end - 1]}…{name[-end:]}"


def _dash(index: int) -> str:
    return DASHES[index // COLOURS % len(DASHES)]


def _path(line: Sequence[float | None], top: float, time: _Time) -> str:
    """A line that is broken where nothing is known; a lone point is a short dash."""
    drawn, pen = [], "M"
    for step, value in enumerate(line):
        if value is None:
            pen = "M"
            continue
        alone = pen == "M" and (step + 1 == len(line) or line[step + 1] is None)
        x = time.left + (step + 0.5) * time.cell
        half = max(time.cell / 2, 2) if alone else 0.0
        drawn.append(f"{pen}{x - half:.1f} {_y(value, top):.1f}")
        if alone:
            drawn.append(f"h{2 * half:.1f}")
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


def _ticks(top: float) -> list[float]:
    """Round values from 0 to the top."""
    leading = round(top / 10.0 ** math.floor(math.log10(top)), 6)
    count = 4 if leading in (2.0, 4.0) else 5
    return [top * tick / count for tick in range(count + 1)]


def _percent(value: float, top: float) -> str:
    """Percent with as many digits as the axis needs."""
    digits = max(0, -math.floor(math.log10(top * 100 / 5) + 1e-9))
    return f"{value * 100:.{digits}f}%"


def _legend(names: list[str]) -> str:
    if len(names) < 2:
        return ""
    entries = (
        f'<span><svg viewBox="0 0 22 6" class="key"><path d="M0 3H22" class="line '
        f'c{index % COLOURS}" stroke-dasharray="{_dash(index)}"/></svg>{escape(name)}</span>'
        for index, name in enumerate(names)
    )
    return f'<p class="legend">{"".join(entries)}</p>'
