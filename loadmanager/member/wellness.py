"""A broker that is not well gives its bundles to others, and takes none until it is well.

Not well is a broker whose host says so, or one that twice within `WINDOW_S` could not prove its
session or stood still for longer than `STALL_S`: its link is bad, or its process gets no time. It
cordons itself, which the placement and the queue of moves know already: the leader moves its
bundles away. It ends the cordon when it has been well for a while, the longer the more often this
has happened.

Trouble that others have, too, moves nothing: a directory or a ZooKeeper that is away is away for
all. So a loss counts only if the store answered more than half of the others then
(`member/silences.py`). And a broker first says in the store that it is not well, and gives up its
bundles only if no more than half of the brokers say so a moment later.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from loadmanager.engine.load.wishes import Cordon
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.history.port import History
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import ATTEMPTS_MAX
from loadmanager.kit.metadata.store import VersionConflictError
from loadmanager.kit.tasks import every
from loadmanager.leader.own_changes import OwnChanges
from loadmanager.member.base import Base, Cluster
from loadmanager.member.ports.hosting import Hosting, SelfChecking
from loadmanager.member.silences import SilenceWatch, StoreSilence, was_away_for_all

STEP_S = 2.0
SETTLED_S = 6.0
"""For so long a broker has said that it is not well before it looks who says the same."""
LOSSES_MAX, WINDOW_S = 2, 600.0
"""So many losses of the lease, or stalls, within so many seconds are no coincidence."""
JUDGED_S = 10.0
"""So long after the session is proven again, the others have said whether the store was away for
them as well.
"""
STALL_S = 5.0
"""A process whose loop did nothing for longer than this serves nobody, whatever its session says:
the heartbeat has a thread of its own.
"""
STUTTERS = (
    f"{LOSSES_MAX} times within {WINDOW_S:g} s its session could not be proven or it stood still"
)
WELL_S, WELL_S_MAX = 30.0, 1920.0
"""How long a broker must be well: at first, doubled with each time, at most."""
FORGET_S = 4 * 3600.0
"""After so long without trouble, the times are forgotten."""
NOTE = "it is not well: "
"""How the notes of such cordons begin."""

log = get_logger("wellness")


@dataclass(slots=True)
class Recovery:
    """How long a broker that was not well has to be well. Times are monotonic."""

    times: int = 0
    """How often it was not well."""
    bad_s: float = float("-inf")
    """When it was not well last."""
    _stepped_s: float = float("inf")

    def bad(self, now_s: float) -> None:
        """It is not well."""
        if now_s - self.bad_s > FORGET_S:
            self.times = 0
        if self.over(now_s):
            self.times += 1
        self.bad_s = now_s

    def stepped(self, now_s: float) -> None:
        """Somebody looks. The time in which nobody did, because the process stood still, does not
        count as well.
        """
        missed_s = now_s - self._stepped_s - STEP_S
        if missed_s > STEP_S and not self.over(self._stepped_s):
            self.bad_s += missed_s
        self._stepped_s = now_s

    @property
    def hold_s(self) -> float:
        """How long it must be well."""
        return float(min(WELL_S * 2.0 ** max(self.times - 1, 0), WELL_S_MAX))

    def over(self, now_s: float) -> bool:
        """True if it is well by now."""
        return self.times == 0 or now_s - self.bad_s >= self.hold_s


@dataclass(slots=True, kw_only=True)
class Wellness:
    """Watches whether this broker is well; `step` is called each `STEP_S`."""

    base: Base
    cluster: Cluster
    hosting: Hosting
    bundles: Callable[[], int]
    """How many this broker owns."""
    started_ms: Callable[[], float]
    """When this process began, as in its registration."""
    history: History | None
    """Where it is recorded that a broker cordons itself."""
    reason: str = field(default="", init=False)
    """Why this broker is not well; empty: it is."""
    given_up: bool = field(default=False, init=False)
    """Whether it has cordoned itself."""
    _recovery: Recovery = field(default_factory=Recovery)
    _losses_s: deque[float] = field(default_factory=lambda: deque(maxlen=LOSSES_MAX))
    """Those of this broker alone."""
    _unjudged_s: float | None = None
    """A loss of the lease of which it is not known yet whether others had it, too."""
    _silences: SilenceWatch = field(init=False)
    _silence_said: StoreSilence | None = None
    _proven_s: float | None = None
    """Since when the lease is held."""
    _said_s: float | None = None
    _cleaned: bool = False
    _pulse_s: float = float("inf")

    def __post_init__(self) -> None:
        self._silences = SilenceWatch(self.base.store.lease)

    def begin(self) -> None:
        """Look at this broker at intervals, in the member's scope."""
        base = self.base
        for step, name in ((self.step, "wellness"), (self.pulse, "pulse")):
            base.scope.spawn(every(lambda: STEP_S, step, name, base.steps), name)

    def lost_lease(self) -> None:
        """The session could not be proven: it is judged later whether that was so for all."""
        now_s = self.base.clock.monotonic_s()
        if not self._losses_s or now_s - self._losses_s[-1] > STALL_S:
            self._unjudged_s = now_s

    def _lost(self, at_s: float) -> None:
        """A loss of this broker alone: once for a stall and the lease that ran out in it."""
        self._unjudged_s = None
        if not self._losses_s or at_s - self._losses_s[-1] > STALL_S:
            self._losses_s.append(at_s)

    async def pulse(self) -> None:
        """Notice that the loop stood still; called each `STEP_S`, and waits for nothing."""
        now_s = self.base.clock.monotonic_s()
        if now_s - self._pulse_s - STEP_S > STALL_S:
            self._lost(now_s)
        self._pulse_s = now_s
        self._silences.look(now_s, self.base.clock.now_ms())
        if not self.base.store.lease.held(now_s):
            self._proven_s = None
        elif self._proven_s is None:
            self._proven_s = now_s

    async def step(self) -> None:
        """Look how this broker is, and do what follows."""
        await self._judge()
        now_s = self.base.clock.monotonic_s()
        trouble = self._stutters()
        self._recovery.stepped(now_s)
        if trouble:
            self._recovery.bad(now_s)
        elif trouble := await self._host_trouble():
            now_s = self.base.clock.monotonic_s()
            self._recovery.bad(now_s)
        elif self._recovery.over(now_s):
            await self._be_well()
            return
        self.reason = trouble or self.reason
        if trouble or self.reason == STUTTERS:
            await self._be_unwell(now_s)

    async def _judge(self) -> None:
        """Say that the store was silent, if it was; and count a loss that the others did not have,
        once they have had the time to say so.
        """
        silence = self._silences.last
        if silence is not None and not self._silences.lasts and silence != self._silence_said:
            await self._say(unwell=self._said_s is not None)
            self._silence_said = silence
        lost_s, proven_s = self._unjudged_s, self._proven_s
        now_s = self.base.clock.monotonic_s()
        if lost_s is None or proven_s is None or now_s - max(proven_s, lost_s) < JUDGED_S:
            return
        ago_ms = round(1000 * (now_s - lost_s))
        own = StoreSilence(self.base.clock.now_ms() - ago_ms, self.base.clock.now_ms() - ago_ms)
        others = self.cluster.brokers.registered - {self.base.broker_id}
        if was_away_for_all(own, await self._silences_said(), others):
            self._unjudged_s = None
        else:
            self._lost(lost_s)

    def _stutters(self) -> str:
        """Only losses since the last step are new trouble, so that it ends."""
        if not self._losses_s or self._losses_s[-1] <= self._recovery.bad_s:
            return ""
        many = len(self._losses_s) == LOSSES_MAX
        within = self._losses_s[-1] - self._losses_s[0] <= WINDOW_S
        return STUTTERS if many and within else ""

    async def _host_trouble(self) -> str:
        """What others suffer, this broker may, too, without having noticed: it tries."""
        if not isinstance(self.hosting, SelfChecking):
            return ""
        others = (await self._said()).keys() - {self.base.broker_id}
        return await self.hosting.trouble(tries=bool(others & self.cluster.brokers.registered))

    async def _be_unwell(self, now_s: float) -> None:
        if self._said_s is None:
            await self._say(unwell=True)
            self._said_s = now_s
            log.warning("this broker is not well", reason=self.reason)
        elif now_s - self._said_s >= SETTLED_S and not self.given_up:
            await self._give_up()

    async def _give_up(self) -> None:
        registered = self.cluster.brokers.registered
        unwell = (set(await self._said()) | {self.base.broker_id}) & registered
        well = registered - unwell - self.cluster.wishes.cordons.keys()
        if not well or 2 * len(unwell) > len(registered):
            return
        if self.base.broker_id in self.cluster.wishes.cordons:
            return  # an operator knows better
        total = self.bundles()
        cordon = Cordon(
            self.base.clock.now_ms(),
            drain=True,
            total=total,
            note=f"{NOTE}{self.reason}; until it has been well for {self._recovery.hold_s:g} s",
            until_restart_of=int(self.started_ms()),
            by=self.base.broker_id,
        )
        await self.cluster.wishes.cordon(self.base.broker_id, cordon, [])
        self.given_up = True
        self._own_changes.made(
            f"cordons itself: {cordon.note}",
            paths.cordon(self.base.broker_id),
            after={"drain": True},
        )
        log.error(
            "this broker is not well, and gives its bundles to others",
            reason=self.reason,
            bundles=total,
            others=len(well),
            well_for_s=self._recovery.hold_s,
        )

    async def _be_well(self) -> None:
        """End the cordon, and say that this broker is well; at first, whatever a process before
        left.
        """
        if self._cleaned and self._said_s is None and not self.given_up:
            return
        cordon = self.cluster.wishes.cordons.get(self.base.broker_id)
        if cordon is not None and cordon.note.startswith(NOTE):
            await self.cluster.wishes.cordon(self.base.broker_id, None, [])
            path = paths.cordon(self.base.broker_id)
            self._own_changes.made(
                "ends its cordon: it is well again", path, before={"drain": True}
            )
        if self.given_up:
            self.given_up = False
            log.info("this broker is well again, and takes bundles", was=self.reason)
        await self._say(unwell=False)
        self._said_s, self.reason, self._cleaned = None, "", True

    @property
    def _own_changes(self) -> OwnChanges:
        return OwnChanges(self.base.broker_id, self.base.clock, self.history)

    async def _said(self) -> dict[str, int]:
        """The brokers that say they are not well."""
        node = await self.base.store.get(paths.UNWELL)
        return {} if node is None else _read(node.value)

    async def _silences_said(self) -> dict[str, StoreSilence]:
        """The last time for which the store did not answer, of each broker that says so."""
        node = await self.base.store.get(paths.UNWELL)
        return {} if node is None else _silences_in(node.value)

    async def _say(self, *, unwell: bool) -> None:
        """Raises `LoadManagerError` after some attempts; the next step tries again. After an outage
        all brokers do so at once.
        """
        for attempt in range(ATTEMPTS_MAX):
            try:
                await self._write(unwell=unwell)
                return
            except VersionConflictError as error:
                if attempt == ATTEMPTS_MAX - 1:
                    raise LoadManagerError(f"others changed {paths.UNWELL} each time") from error

    async def _write(self, *, unwell: bool) -> None:
        """Raises `VersionConflictError` if another broker wrote meanwhile."""
        node = await self.base.store.get(paths.UNWELL)
        own, registered = self.base.broker_id, self.cluster.brokers.registered
        before = {} if node is None else _read(node.value)
        said = {name: since for name, since in before.items() if name in registered - {own}}
        if unwell:
            said[own] = self.base.clock.now_ms()
        silences_before = {} if node is None else _silences_in(node.value)
        silences = {name: it for name, it in silences_before.items() if name in registered}
        if self._silences.last is not None:
            silences[own] = self._silences.last
        if (said, silences) == (before, silences_before):
            return
        spans = {name: [it.begin_ms, it.end_ms] for name, it in silences.items()}
        value = json.dumps({"unwell": said, "silent": spans}).encode()
        if node is not None:
            await self.base.store.put(paths.UNWELL, value, version=node.version)
        elif not await self.base.store.create(paths.UNWELL, value):
            raise VersionConflictError(f"{paths.UNWELL} was created meanwhile")


def _read(value: bytes) -> dict[str, int]:
    """What is damaged counts as nothing said."""
    try:
        said = json.loads(value)["unwell"]
        return {str(name): int(since) for name, since in said.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def _silences_in(value: bytes) -> dict[str, StoreSilence]:
    """As `_read`; brokers of earlier versions say nothing of this."""
    try:
        spans = json.loads(value).get("silent", {})
        return {
            str(name): StoreSilence(int(begin), int(end)) for name, (begin, end) in spans.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
