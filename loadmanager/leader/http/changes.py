"""The changes that were allowed, as the API shows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aiohttp import web

from loadmanager.kit.audit import ChangeShown, ChangesShown
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.http.operation import Query
from loadmanager.leader.documents.undo import IDS_MAX

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


ROLE = Query(name="role", doc="Only changes by this role; without a role, by this address.")


OF = Query(name="of", doc="Only changes of this stored document.")


IDS = Query(name="ids", doc="Only the changes with these ids, with commas between.")


def ids_of(request: web.Request) -> tuple[str, ...]:
    """The ids in a request. Raises `BadInputError` for too many."""
    ids = tuple(filter(None, (IDS.text(request) or "").split(",")))
    if len(ids) > IDS_MAX:
        raise BadInputError(f"at most {IDS_MAX} ids are allowed")
    return ids


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedChanges:
    """Which changes are asked for."""

    limit: int = LIMIT_MAX
    since_ms: int = 0
    role: str | None = None
    of: str | None = None
    ids: tuple[str, ...] = ()

    def query(self) -> dict[str, str]:
        """The same for another broker."""
        query = {"limit": str(self.limit), "since": str(self.since_ms)}
        query |= {} if self.role is None else {"role": self.role}
        query |= {} if self.of is None else {"of": self.of}
        return query | ({"ids": ",".join(self.ids)} if self.ids else {})

    def of_these(self, changes: Iterable[ChangeShown]) -> ChangesShown:
        """The answer, the newest first."""
        matching = [
            each
            for each in changes
            if each.ts >= self.since_ms
            and (self.role is None or each.is_by(self.role))
            and self.of in (None, each.path)
            and (not self.ids or each.id in self.ids)
        ]
        matching.sort(key=lambda each: (-each.ts, each.broker))
        return ChangesShown(changes=matching[: self.limit], not_asked=0, no_answer={})


def wanted_of(request: web.Request) -> WantedChanges:
    """What a request asks for. Raises `BadInputError`."""
    return WantedChanges(
        limit=LIMIT.whole(request),
        since_ms=SINCE.whole(request),
        role=request.query.get("role"),
        of=OF.text(request),
        ids=ids_of(request),
    )
