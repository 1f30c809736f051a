"""A replay as a picture (SVG): the spread of each candidate over the time, and what happened when.

It follows the reader's light or dark mode, and needs neither a library nor a script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from loadmanager.simulator.measures import Minute

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, LINE = 1000, 320, 48, 16, 40, 18
POINTS_MAX = 480
COLOURS = ("#3366cc", "#dc3912", "#109618", "#ff9900", "#990099", "#0099c6", "#aa7744", "#888888")
STYLE = """<style>
svg { background: #fff; font: 13px system-ui, sans-serif; color: #222 }
text { fill: currentColor } .axis { stroke: currentColor; stroke-opacity: .25 }
.event { stroke: currentColor; stroke-opacity: .35; stroke-dasharray: 2 3 }
@media (prefers-color-scheme: dark) { svg { background: #161616; color: #ddd } }
</style>"""


def picture(days: Mapping[str, Sequence[Minute]]) -> str:
    """The picture of one day under several candidates."""
    spreads = {
        name: _thinned([minute.spread for minute in minutes]) for name, minutes in days.items()
    }
    top = max((max(values) for values in spreads.values()), default=0.0) or 1.0
    minutes = next(iter(days.values()))
    height = HEIGHT + LINE * len(days)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>Spread of the brokers' usage in points, over the day</title>",
        STYLE,
        *_axes(top, len(minutes)),
        *_events(minutes),
    ]
    for number, (name, values) in enumerate(spreads.items()):
        colour, y = COLOURS[number % len(COLOURS)], HEIGHT + LINE * number
        moves = sum(minute.moves for minute in days[name])
        parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" '
            f'points="{_points(values, top)}"/>'
            f'<rect x="{LEFT}" y="{y - 9}" width="10" height="10" fill="{colour}"/>'
            f'<text x="{LEFT + 16}" y="{y}">{escape(name)}: {moves} moves</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


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


def _axes(top: float, minutes: int) -> list[str]:
    made = []
    for value in (0.0, top / 2, top):
        y = _y(value, top)
        made.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - 12}" y1="{y:.1f}" y2="{y:.1f}"/>')
        made.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.1f}</text>')
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        anchor = "start" if part == 0 else "end" if part == 1 else "middle"
        label = f"{part * minutes / 60:.1f} h"
        made.append(
            f'<text x="{_x(part):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="{anchor}">{label}'
            "</text>"
        )
    return made


def _events(minutes: Sequence[Minute]) -> list[str]:
    made = []
    for at, minute in enumerate(minutes):
        if minute.events:
            x = _x(at / max(len(minutes) - 1, 1))
            told = escape(", ".join(f"{each.broker} {each.kind.value}" for each in minute.events))
            made.append(
                f'<line class="event" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" '
                f'y2="{HEIGHT - BOTTOM}"><title>{told}</title></line>'
            )
    return made


def pareto(points: Mapping[str, tuple[float, float, bool]]) -> str:
    """Candidates by what they cost: moves per day to the right, spread upwards; (moves, spread,
    efficient). Efficient ones are filled.
    """
    right = max((moves for moves, _, _ in points.values()), default=0.0) or 1.0
    top = max((spread for _, spread, _ in points.values()), default=0.0) or 1.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        "<title>Spread of usage in points, by moves a day</title>",
        STYLE,
    ]
    for value in (0.0, top / 2, top):
        y = _y(value, top)
        parts.append(
            f'<line class="axis" x1="{LEFT}" x2="{WIDTH - 12}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.1f}</text>')
    for part in (0.0, 0.5, 1.0):
        anchor = "start" if part == 0 else "end" if part == 1 else "middle"
        parts.append(
            f'<text x="{_x(part):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="{anchor}">'
            f"{part * right:.0f} moves</text>"
        )
    for name, (moves, spread, efficient) in points.items():
        x, y = _x(moves / right), _y(spread, top)
        fill = COLOURS[0] if efficient else "none"
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{fill}" stroke="{COLOURS[0]}">'
            f"<title>{escape(name)}: {moves:.0f} moves, spread {spread:.1f}</title></circle>"
        )
    return "\n".join([*parts, "</svg>", ""])
