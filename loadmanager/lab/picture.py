"""A replay as a picture (SVG): the spread of each candidate over the time, and what happened when.

It follows the reader's light or dark mode, and needs neither a library nor a script.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from loadmanager.lab.measures import WARM_UP_MINUTES, Minute

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, LINE = 1000, 360, 48, 40, 48, 20
TEXT_MAX = 100
ROUND = (1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10)
TICK_HOURS = (0.25, 0.5, 1, 2, 3, 6, 12, 24, 48)
TICKS_MAX = 8
POINTS_MAX = 480
COLOURS = ("#3366cc", "#dc3912", "#109618", "#ff9900", "#990099", "#0099c6", "#aa7744", "#888888")
STYLE = """<style>
svg { background: #fff; font: 15px system-ui, sans-serif; color: #222; min-width: 800px }
text { fill: currentColor } .axis { stroke: currentColor; stroke-opacity: .25 }
.event { stroke: currentColor; stroke-opacity: .35; stroke-dasharray: 2 3 }
@media (prefers-color-scheme: dark) { svg { background: #161616; color: #ddd } }
</style>"""


def picture(days: Mapping[str, Sequence[Minute]]) -> str:
    """The picture of one day under several candidates."""
    spreads = {
        name: _thinned([minute.spread for minute in minutes]) for name, minutes in days.items()
    }
    top = _round(max((max(values) for values in spreads.values()), default=0.0))
    minutes = next(iter(days.values()))
    parts = [*_axes(top), *_hours(len(minutes)), *_events(minutes)]
    legend = []
    for number, (name, values) in enumerate(spreads.items()):
        colour = COLOURS[number % len(COLOURS)]
        parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" '
            f'points="{_points(values, top)}"/>'
        )
        moves = sum(minute.moves for minute in days[name][WARM_UP_MINUTES:])
        legend.append((colour, f"{name}: {moves} moves after the first {WARM_UP_MINUTES} minutes"))
    if any(minute.events for minute in minutes):
        legend.append(("none", "Dotted lines: brokers die, join or lie; point at one for its name"))
    title = "Spread: standard deviation of the brokers' usage in points, by hours since the start"
    return _framed(title, parts, legend)


def _framed(title: str, parts: Sequence[str], legend: Sequence[tuple[str, str]]) -> str:
    """A picture with its title, and a line below for each (colour, text)."""
    shown = [
        f'<rect x="{LEFT}" y="{HEIGHT + LINE * at - 11}" width="10" height="10" fill="{colour}"/>'
        f'<text x="{LEFT + 16}" y="{HEIGHT + LINE * at}">{escape(text)}</text>'
        for at, (colour, text) in enumerate(legend)
    ]
    height = HEIGHT + LINE * len(legend)
    opened = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    words = (
        f'<title>{escape(title)}</title>\n{STYLE}\n<text x="{LEFT}" y="22">{escape(title)}</text>'
    )
    return "\n".join([opened, words, *parts, *shown, "</svg>", ""])


def _round(value: float) -> float:
    """The next round number."""
    if value <= 0:
        return 1.0
    scale: float = 10.0 ** math.floor(math.log10(value))
    return next(scale * part for part in ROUND if scale * part >= value * (1 - 1e-9))


def _thinned(values: Sequence[float]) -> list[float]:
    parts = np.array_split(np.array(values), min(POINTS_MAX, len(values)))
    return [float(part.mean()) for part in parts]


def _x(part: float) -> float:
    return LEFT + part * (WIDTH - LEFT - 12)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - TOP)


def _points(values: Sequence[float], top: float) -> str:
    last = max(len(values) - 1, 1)
    return " ".join(f"{_x(at / last):.1f},{_y(value, top):.1f}" for at, value in enumerate(values))


def _axes(top: float) -> list[str]:
    """Lines to read the values from."""
    made = []
    for value in (0.0, top / 2, top):
        y = _y(value, top)
        made.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - 12}" y1="{y:.1f}" y2="{y:.1f}"/>')
        made.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    return made


def _hours(minutes: int) -> list[str]:
    hours = max(minutes - 1, 1) / 60
    every = next((each for each in TICK_HOURS if hours / each <= TICKS_MAX), TICK_HOURS[-1])
    ticks = [every * number for number in range(int(hours / every) + 1)]
    return [_below(tick / hours, f"{tick:g} h") for tick in ticks]


def _below(part: float, label: str) -> str:
    anchor = "start" if part == 0 else "end" if part > 1 - 0.02 else "middle"
    y = HEIGHT - BOTTOM + 18
    return f'<text x="{_x(part):.1f}" y="{y}" text-anchor="{anchor}">{label}</text>'


def _events(minutes: Sequence[Minute]) -> list[str]:
    made = []
    for at, minute in enumerate(minutes):
        if minute.events:
            x = _x(at / max(len(minutes) - 1, 1))
            title = escape(", ".join(f"{each.broker} {each.kind.value}" for each in minute.events))
            made.append(
                f'<line class="event" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" '
                f'y2="{HEIGHT - BOTTOM}"><title>{title}</title></line>'
            )
    return made


def pareto(
    points: Mapping[str, tuple[float, float, bool]], live: str, *, figures: bool = True
) -> str:
    """Candidates by what they cost: moves per day to the right, spread upwards; (moves, spread,
    efficient). Efficient ones are filled, numbered and named; `live` is red. Without `figures` it
    has none, but for their places.
    """
    right = _round(max((moves for moves, _, _ in points.values()), default=0.0))
    top = _round(max((spread for _, spread, _ in points.values()), default=0.0))
    parts = []
    if figures:
        ticks = (_below(part, f"{part * right:g} moves") for part in (0.0, 0.5, 1.0))
        parts = [*_axes(top), *ticks]
    legend: list[tuple[str, str]] = []
    alike = Counter(points.values())
    for name, point in sorted(points.items(), key=lambda each: (each[1], each[0] != live)):
        moves, spread, efficient = point
        x, y = _x(moves / right), _y(spread, top)
        figures_text = f"{moves:.0f} moves, spread {spread:.1f}" if figures else "no figures"
        colour = COLOURS[1] if name == live else COLOURS[0]
        count = alike.pop(point, 0)  # of candidates that did the same, the first one is named
        if count and (efficient or name == live):
            others = f" and {count - 1} alike" if count > 1 else ""
            text = f"{len(legend) + 1}: {figures_text}{others}: {name}"
            legend.append((colour, text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"))
            parts.append(f'<text x="{x + 8:.1f}" y="{y - 5:.1f}">{len(legend)}</text>')
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour if efficient else "none"}" '
            f'stroke="{colour}"><title>{escape(name)}: {figures_text}</title></circle>'
        )
    legend.append(("none", "Filled: no other is better in spread, hot time or moves and no worse"))
    if figures:
        return _framed("Candidates: spread of usage in points, by moves a day", parts, legend)
    title = "Candidates: more spread upwards, more moves to the right"
    legend.append(("none", "No figures: replays of these days are far from what happened"))
    return _framed(title, parts, legend)
