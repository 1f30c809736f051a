"""What a sharded service sees: its shards, and that a key moved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from loadmanager.engine.bundles.ranges import BundleRange, topic_hash
from loadmanager.kit.errors import BadInputError, short

State = TypeVar("State")
KEYS_COUNTED_MAX = 1_000
"""The load of so many keys of a shard is counted one by one; splits go by them."""
WEIGHT_MAX = 1e9
"""What one `Member.own` counts at most."""


class Moved(Exception):  # noqa: N818 - an answer, not a failure
    """Another member has the key, or nobody yet: ask there, or a moment later.

    `key`: what was asked for; from `Shard.check`, the shard's range. `owner`: the address of the
    member that has it; empty while nobody does.
    """

    def __init__(self, key: str, owner: str) -> None:
        super().__init__(f"{key!r} is served by {owner or 'nobody yet'}")
        self.key = key
        self.owner = owner


class NotNow(Exception):  # noqa: N818 - an answer, not a failure
    """A service raises it in `cost` or `prepare`, with a reason for people: the shard is not to be
    moved now, or not to this member. It is put off, and the decision says why.
    """


def _nobody(_bundle: str) -> str:
    return ""


class Shard(Generic[State]):
    """A range of keys that this member owns, from one acquisition to its end.

    `token` grows from owner to owner of a key: a database that remembers the greatest one it has
    seen for a range and refuses smaller ones keeps out a process that was paused and does not know
    yet that it has lost the shard. Tokens begin again with a new metadata store.
    """

    __slots__ = (
        "_owner",
        "_rates",
        "_served",
        "_weights",
        "bundle",
        "ended",
        "prepared",
        "range",
        "state",
        "token",
        "users",
    )

    def __init__(
        self,
        bundle: str,
        token: int,
        served: Callable[[str], bool],
        owner: Callable[[str], str] = _nobody,
    ) -> None:
        """Members make them. `served`: whether a bundle is served here now. `owner`: the address of
        the member that serves it; empty: nobody.
        """
        self.bundle = bundle
        """Its name in the store."""
        self.range = BundleRange.parse(bundle.rpartition("/")[2])
        self.token = token
        self.state: State
        """What `Service.open` returned."""
        self.prepared: Any = None
        """What the service's `prepare` returned, if it has one and there was a copy here."""
        self.ended = asyncio.Event()
        """Set when it is this member's no more: moved away, or lost. Tasks that work for the shard
        wait for it.
        """
        self.users = 0
        """How many `with` blocks of `Member.own` are inside it now."""
        self._served, self._owner = served, owner
        self._weights: dict[str, float] = {}
        self._rates: dict[str, float] = {}

    @property
    def name(self) -> str:
        """Its range, as `0x00000000_0x04000000`."""
        return str(self.range)

    def contains(self, key: str) -> bool:
        """True if a key belongs to it."""
        return topic_hash(key) in self.range

    def check(self) -> None:
        """Raise `Moved`, with the next owner if there is one, if it is this member's no more: after
        each `await`, before an effect that the token does not protect.
        """
        if self.ended.is_set() or not self._served(self.bundle):
            raise Moved(self.name, self._owner(self.bundle))

    def count(self, key: str, weight: float) -> None:
        """Count the load of a key; `Member.own` does it. Raises `BadInputError`."""
        try:
            counts = 0 <= weight <= WEIGHT_MAX
        except TypeError:
            counts = False
        if not counts:
            raise BadInputError(
                f"a weight is a number from 0 to {WEIGHT_MAX:g}, not {short(weight)}: "
                f"of {short(key)}"
            )
        weights = self._weights
        if key in weights or len(weights) < KEYS_COUNTED_MAX:
            weights[key] = weights.get(key, 0.0) + weight
        else:
            weights[""] = weights.get("", 0.0) + weight

    def end_period(self, seconds: float) -> None:
        """Take the rates of the period that ends now."""
        self._rates = {key: weight / seconds for key, weight in self._weights.items()}
        self._weights = {}

    @property
    def rates(self) -> dict[str, float]:
        """Key → load a second over the last period."""
        return self._rates

    def __enter__(self) -> Shard[State]:
        """Until the block ends, `Service.close` is not called, up to its limit. Raises `Moved` if
        the shard has ended since `own` gave it out.
        """
        if self.ended.is_set():
            self.check()
        self.users += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave it."""
        self.users -= 1

    def __repr__(self) -> str:
        return f"Shard({self.range}, token={self.token})"


class Service(Protocol[State]):
    """What an author writes. Both hooks may take long, and have limits (`Member`): whatever they
    raise, or if they take longer, costs that shard and nothing else.

    A service may have four more:

    - `async def prepare(self, shard)`: another member serves a shard that is about to move here, or
      for which this member stands by. Load what takes long, at most 300 s, and return it: `open` of
      the same `Shard` finds it as `shard.prepared`, and only loads what has changed since. Its
      `token` is 0 until then; if the shard does not come, `ended` is set. If this raises, the shard
      stays where it is.
    - `async def follow(self, shard)`: keeps `shard.prepared` current until it is cancelled, which
      it is before `open`, or when the copy is wanted no more. If this raises, the copy is made
      anew. It has 5 s to end then: after that it is left to itself, its `shard` has ended, and
      `open` begins from nothing, with another one.
    - `def cost(self, shard) -> float`: how many seconds it takes to move a shard of this member
      now. The leader moves it only if that is worth it; `math.inf`, or `NotNow` raised: not now.
    - `def load(self, shard) -> Mapping[str, float]`: what the shard uses now of each budget of its
      member, such as `{"gpu_mb": 200, "sockets": 31}`.

    The last two are called every few seconds, and must be quick.

    With `splits = True` a shard that uses much of its member is divided in two, and halves that
    stay idle become one again: `close` of what was, then `open` of what follows, with the new
    ranges and a greater token, at the same member. Say so if `open` can load any range of keys, and
    not only one that was closed as such.

    With `standbys = 1` (at most 3),
    which needs `prepare` and an `eager` member, so many other members have a copy of each shard all
    the time: they take over first when its member dies or leaves, and moves go to them rather than
    to others.
    """

    async def open(self, shard: Shard[Any]) -> State:
        """Load what the shard needs; it is served when this returns, with this as its `state`.

        If this raises, another member gets the shard, and this one another try later.
        """
        ...

    async def close(self, shard: Shard[Any], state: State) -> None:
        """The shard is fenced: no new `with` block begins. It is still this member's: save what the
        next owner needs. Not called when the session was lost: then nothing may be saved.
        """
        ...
