"""The part of what traffic costs that goes by messages, and not by bytes.

    work = (1 - part) × bytes + part × messages × bytes of a usual message

Small messages cost more CPU for each byte. Within a namespace, nothing else tells those bundles
apart. The part is learned from all brokers together: by how much those that carry smaller messages
than others are busier than their bytes let expect. That one broker is, may have other reasons, so
it counts for no more than a usual surprise, and the part grows over several reports.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from loadmanager.engine.load.columns import Array
from loadmanager.engine.load.reports import NUMBER_MAX

PART_MAX = 0.9
MORE_MAX = 99.0
"""The bytes of small messages count as at most so many times more than those of usual ones."""
LEARNED = 0.15
"""How much of what the brokers say is taken over with each cycle that brings reports."""
TELLS = 0.05
"""Brokers whose messages make them differ by this part of their CPU, if all cost went by messages,
say half of it.
"""
SURPRISE_MAX = 0.15
"""A broker counts as at most so much busier, or idler, than expected."""
EXPLAINS = (0.35, 0.65)
"""The part of what brokers are busier and idler, squared, that messages explain: below the first
nothing is believed of it, and above the second one all.
"""
BROKERS_MIN = 4
"""Fewer brokers say nothing: messages explain whatever two or three of them show."""
CERTAIN = (8.0, 16.0)
"""Student's t of that, squared: the fewer brokers, the more of it is chance. As with `EXPLAINS`."""
USUAL_GAIN = 0.02
"""How fast the size of a usual message follows: its change should not look like one of costs."""


class MessageCosts(NamedTuple):
    """What messages cost."""

    part: float = 0.0
    """The part of the cost of usual traffic that goes by messages, and not by bytes."""
    usual_bytes: float = 0.0
    """The bytes of a usual message; 0: not known."""


NO_MESSAGES = MessageCosts()


def learn(part: float, surprises: Array, more: Array, traffic: Array) -> float:
    """The part after some brokers reported: `[broker]`.

    `surprises`: what they use more than expected; `more`: what they would if all cost went by
    messages, and none by bytes; `traffic`: what is expected of their traffic.
    """
    squares = float((traffic**2).sum())
    if squares <= 0 or len(traffic) < BROKERS_MIN:
        return part
    unexplained = np.clip(surprises, -SURPRISE_MAX, SURPRISE_MAX) + part * more
    # a cost that is wrong for all is none of messages
    unexplained = unexplained - traffic * float((unexplained * traffic).sum()) / squares
    more = more - traffic * float((more * traffic).sum()) / squares
    together = float((unexplained * more).sum())
    of_more, of_all = float((more**2).sum()), float((unexplained**2).sum())
    likely = together / (of_more + len(more) * TELLS**2)
    explains = together**2 / max(of_more * of_all, 1e-12)
    t_squared = explains / max(1 - explains, 1e-12) * (len(more) - 2)
    likely *= min(_ramp(explains, EXPLAINS), _ramp(t_squared, CERTAIN))
    return part + LEARNED * (min(max(likely, 0.0), PART_MAX) - part)


def _ramp(figure: float, bounds: tuple[float, float]) -> float:
    """0 below the first bound, and 1 above the second one."""
    least, most = bounds
    return min(max((figure - least) / (most - least), 0.0), 1.0)


def usual_bytes(before: float, mean_message: float) -> float:
    """The bytes of a usual message, when those of the mean one are these; 0: not known."""
    if before <= 0 or mean_message <= 0:
        return max(before, mean_message)
    return before + USUAL_GAIN * (mean_message - before)


def sane(costs: MessageCosts) -> MessageCosts:
    """Within what may be true: a store may hold anything."""
    part, usual = min(max(costs.part, 0.0), PART_MAX), min(max(costs.usual_bytes, 0.0), NUMBER_MAX)
    return MessageCosts(part, usual)
