"""What no command can show of a past moment, and what shows it instead."""

from __future__ import annotations

from collections.abc import Sequence

PLANS = (
    "a plan lives as long as the leader's term, and is recorded when it is carried out: `admin "
    "audit --until TIME` tells that, and `admin decisions --at TIME` its moves"
)
NOW_ONLY = {
    "top": "it shows the present again and again; `admin status --at TIME` shows a moment",
    "history": "it tells of all times; --since and --until bound them",
    "compare": "it compares two moments: --since and --until are these",
    "brokers health": "brokers say it of themselves now; `admin brokers list --at TIME` says who "
    "was there",
    "dry-run": "a cycle is planned from present loads; `admin decisions --at TIME` has those that "
    "were",
    "what-if": "it goes by a time; --since and --until bound it",
    "plans list": PLANS,
    "plans show": PLANS,
    "clusters list": "a daemon knows its clusters as they are now",
    "watch": "it shows what happens from now on; `admin decisions --since TIME` has what was",
    "undo": "it undoes since a time; --since and --until bound it",
}
"""Command → why it has no --at."""
CHANGES = "it changes what is now"


def refusal(path: str) -> str:
    """Why a command takes no time of the past."""
    return f"{path} cannot show a past moment: {NOW_ONLY.get(path, CHANGES)}"


def asks_for_a_moment(arguments: Sequence[str]) -> bool:
    """Whether there is an --at among them."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return any(each == "--at" or each.startswith("--at=") for each in own)
