"""What commands that change something say to who asks for a past moment."""

from __future__ import annotations

from collections.abc import Sequence


def refusal(path: str) -> str:
    """Why a command takes no time of the past."""
    return f"{path} cannot show a past moment: it changes what is now"


def asks_for_a_moment(arguments: Sequence[str]) -> bool:
    """Whether there is an --at among them."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return any(each == "--at" or each.startswith("--at=") for each in own)
