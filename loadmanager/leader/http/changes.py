"""The changes that were allowed, as the API shows them."""

from __future__ import annotations

from loadmanager.kit.audit import ChangeShown, ChangesShown
from loadmanager.kit.http.operation import Query

CHANGES = "/loadmanager/v1/changes"


LIMIT_MAX = 1_000


TIME_MAX = 10**15


LIMIT = Query(
    name="limit", doc="At most so many.", kind=int, minimum=1, maximum=LIMIT_MAX, default=100
)


SINCE = Query(
    name="since",
    doc="Not before this time, milliseconds since the epoch.",
    kind=int,
    minimum=0,
    maximum=TIME_MAX,
    default=0,
)


ROLE = Query(name="role", doc="Only changes by this role.")


def chosen(changes: list[ChangeShown], limit: int, since_ms: int, role: str | None) -> ChangesShown:
    """The answer: the changes that are wanted, the newest first."""
    matching = [each for each in changes if each.ts >= since_ms and role in (None, each.role)]
    matching.sort(key=lambda each: (-each.ts, each.broker))
    return ChangesShown(changes=matching[:limit], not_asked=0, no_answer={})
