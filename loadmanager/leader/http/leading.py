"""The leader's load data, decisions and plans. None of these routes is Pulsar's."""

from __future__ import annotations

import msgspec
from aiohttp import web

from loadmanager.engine.bundles.ranges import BundleRange, split_bundle_name
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.http.answers import listener_of, namespace_of, shown
from loadmanager.kit.http.operation import Query, body_as, of_leader
from loadmanager.kit.model import Model, Name
from loadmanager.kit.names import NamespaceName
from loadmanager.leader.documents.cluster import BundlesShown, ClusterShown
from loadmanager.leader.documents.decisions import BundleStory, DecisionsShown
from loadmanager.leader.documents.loss import LossShown
from loadmanager.leader.documents.plans import Refusal, SealedPlan, SealedPlans
from loadmanager.leader.http.use import LeaderUse, operations
from loadmanager.leader.ports.operating import SORTS, DriftError

ROOT = "/loadmanager/v1"
TIME_MAX = 10**15


def _limit(default: int, maximum: int) -> Query:
    return Query(
        name="limit",
        doc="At most so many.",
        kind=int,
        minimum=1,
        maximum=maximum,
        default=default,
    )


def _time(name: str, doc: str) -> Query:
    return Query(name=name, doc=doc, kind=int, minimum=0, maximum=TIME_MAX)


BROKERS = _limit(1_000, 10_000)
BUNDLES = _limit(100, 10_000)
DECISIONS = _limit(100, 1_000)
PLANS = _limit(50, 1_000)
SORT = Query(
    name="sort",
    doc="The order, the largest first: by messages/s, by bytes/s, or by how long the bundle has "
    "been at its owner.",
    choices=SORTS,
    default="rate",
)
NAMESPACE = Query(name="namespace", doc="Only of this namespace, `tenant/namespace`.")
OWNER = Query(name="owner", doc="Only those of this broker, `host:port`.")
BUNDLE = Query(
    name="bundle",
    doc="Only what concerns this bundle, `tenant/namespace/range`, its broker or the cluster.",
)
BROKER = Query(name="broker", doc="Only what concerns this broker, `host:port`, or the cluster.")
LOST = Query(name="broker", doc="A broker that is lost, `host:port`; several times.", many=True)
LOST_BROKERS_MAX = 1_000
SINCE = _time("since", "Not before this time, in milliseconds since the epoch.")
UNTIL = _time("until", "Not after this time, in milliseconds since the epoch.")


class DryRun(Model):
    """The strategies and settings to try; those that are left out are the ones in force."""

    shedder: Name | None = None
    placement: Name | None = None
    settings: dict[str, str | float | bool] = msgspec.field(default_factory=dict)
    """Keys of broker.conf that belong to strategies."""


class LeadingRoutes:
    """The cluster, its bundles, the decisions, dry runs and sealed plans."""

    def __init__(self, use: LeaderUse) -> None:
        self._use = use

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(ROOT + "/cluster", self.cluster),
            web.get(ROOT + "/bundles", self.bundles),
            web.get(ROOT + "/bundles/{tenant}/{namespace}/{bundle}", self.bundle),
            web.get(ROOT + "/losses", self.losses),
            web.get(ROOT + "/decisions", self.decisions),
            web.post(ROOT + "/dry-runs", self.dry_run),
            web.get(ROOT + "/plans", self.plans),
            web.get(ROOT + "/plans/{id}", self.plan),
            web.post(ROOT + "/plans/{id}/execute", self.execute),
        ]

    @of_leader(ClusterShown, query=(BROKERS,))
    async def cluster(self, request: web.Request) -> web.Response:
        """The leader, the queue of moves, and each broker with its load and its state."""
        cluster = operations(self._use).overview.cluster(
            BROKERS.whole(request), listener=listener_of(request), secure=request.secure
        )
        cluster.store_silent_ms = self._use.store_silent_ms()
        members = self._use.leading.members
        if members is not None:
            who = members.shown()
            cluster.expected, cluster.absent = who.expected, who.absent
        return shown(cluster)

    @of_leader(BundlesShown, query=(SORT, NAMESPACE, OWNER, BUNDLES))
    async def bundles(self, request: web.Request) -> web.Response:
        """The bundles that have an owner, the hottest first.

        In the extensible load manager the traffic of a bundle is null unless its broker published
        the bundle among its busiest (`loadBalancerMaxNumberOfBundlesInBundleLoadReport`).
        """
        limit, sort = BUNDLES.whole(request), SORT.text(request)
        bundles = await operations(self._use).overview.bundles(
            sort=sort or SORTS[0],
            namespace=NAMESPACE.text(request),
            owner=OWNER.text(request),
            limit=limit,
        )
        return shown(bundles)

    @of_leader(BundleStory, query=(DECISIONS,))
    async def bundle(self, request: web.Request) -> web.Response:
        """The story of a bundle: its owner as stored, its load, its pin, its move, and the
        decisions that concern it or its broker. `replacedBy` has the bundles that it was split or
        merged into, if it no longer exists.
        """
        overview, limit = operations(self._use).overview, DECISIONS.whole(request)
        namespace = namespace_of(request)
        bundles = await self._use.namespaces.bundles(namespace)
        span = BundleRange.parse(request.match_info["bundle"])
        name, there = f"{namespace}/{span}", bundles.overlapping(span)
        split = len(there) > 1 and (there[0].lower, there[-1].upper) == (span.lower, span.upper)
        if not split and not overview.has_decided_about(name):
            bundles.require(str(span))
        replaced_by = [] if there == [span] else [f"{namespace}/{other}" for other in there]
        return shown(await overview.bundle(name, replaced_by, limit))

    @of_leader(LossShown, query=(LOST, BUNDLES))
    async def losses(self, request: web.Request) -> web.Response:
        """Where the bundles of brokers would go if these were lost now: nothing is moved.

        The placement rule in force chooses, with pins, isolation, anti-affinity and cordons, as it
        would at the next lookups.
        """
        brokers = request.query.getall(LOST.name, [])
        if not brokers or len(brokers) > LOST_BROKERS_MAX:
            raise BadInputError(f"{LOST.name}: 1 to {LOST_BROKERS_MAX} brokers are expected")
        return shown(await operations(self._use).overview.loss(brokers, BUNDLES.whole(request)))

    @of_leader(
        DecisionsShown,
        query=(BUNDLE, BROKER, SINCE, UNTIL, DECISIONS),
        also={404: "there is no such namespace"},
    )
    async def decisions(self, request: web.Request) -> web.Response:
        """The leader's last decisions with inputs, refusals and outcomes, newest first.

        Cycles that moved nothing are among them, with the reasons; several in a row with the same
        reasons are one, with `times`. With `bundle`, also what is said of the bundle's broker and
        of the whole cluster; with `broker`, also the latter. A leader keeps the last 1,000 of its
        term. A bundle may be one that was split since; its namespace must exist.
        """
        bundle = BUNDLE.text(request)
        if bundle is not None:
            namespace, span = split_bundle_name(bundle)
            BundleRange.parse(span)
            await self._use.namespaces.bundles(NamespaceName.parse(namespace))
        decisions = operations(self._use).overview.decisions(
            bundle=bundle,
            broker=BROKER.text(request),
            since_ms=_given(SINCE, request),
            until_ms=_given(UNTIL, request),
            limit=DECISIONS.whole(request),
        )
        return shown(decisions)

    @of_leader(SealedPlan, body=DryRun, body_required=False, also={412: "a value is not allowed"})
    async def dry_run(self, request: web.Request) -> web.Response:
        """Compute what a shedding cycle would do now with any strategy and settings; move nothing.

        The plan is kept under its `id`. A strategy that is not in force begins with an empty
        memory, as with a new leader.
        """
        plans, wanted = operations(self._use).plans, await body_as(request, DryRun)
        settings = {name: _spelt(value) for name, value in wanted.settings.items()}
        return shown(plans.dry_run(wanted.shedder, wanted.placement, settings))

    @of_leader(SealedPlans, query=(PLANS,))
    async def plans(self, request: web.Request) -> web.Response:
        """The plans of dry runs; the last 50 of a term are kept."""
        limit = PLANS.whole(request)
        return shown(operations(self._use).plans.list(limit))

    @of_leader(SealedPlan, also={404: "there is no such plan in this term"})
    async def plan(self, request: web.Request) -> web.Response:
        """One plan; once it is carried out, with its moves."""
        return shown(operations(self._use).plans.plan(request.match_info["id"]))

    @of_leader(
        SealedPlan,
        also={404: "there is no such plan", 409: "something has drifted, or the queue is full"},
        refusal=Refusal,
    )
    async def execute(self, request: web.Request) -> web.Response:
        """Queue exactly the moves of a plan, or refuse and name everything that has drifted.

        A pause holds these moves, and they keep to the rates of the queue. `GET` of the plan shows
        what became of them.
        """
        try:
            plan = await operations(self._use).plans.execute(request.match_info["id"])
        except DriftError as error:
            return shown(Refusal(reason=str(error), drift=error.drift), 409)
        return shown(plan)


def _given(query: Query, request: web.Request) -> int | None:
    return query.whole(request) if request.query.get(query.name) else None


def _spelt(value: str | float | bool) -> str:
    """A value of JSON as broker.conf has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
