"""A Pulsar cluster's admin API with the shapes of recorded answers, on real ports of loopback.

Its brokers share their state. `python -m fleet.fake_pulsar [extensible]` runs one by itself.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

SPANS = 16
EDGES = [f"0x{edge << 28:08x}" for edge in range(SPANS)] + ["0xffffffff"]
RANGES = [f"{low}_{high}" for low, high in zip(EDGES, EDGES[1:], strict=False)]
NAMESPACE = "acme/shop"
STORED = 5_000
"""Bytes of each topic."""
CLUSTER = "c1"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Nonsense = Callable[[web.Request], web.Response]
OnSplit = Callable[[bool], Awaitable[None]]
OnUnload = Callable[[str, bool], Awaitable[None]]
OnSettings = Callable[[str], Awaitable[dict[str, str]]]


def html(_request: web.Request) -> web.Response:
    """The answer of a proxy."""
    return web.Response(text="<html>Bad gateway</html>", content_type="text/html")


def empty(_request: web.Request) -> web.Response:
    """A success without a body."""
    return web.Response(text="")


def loop(request: web.Request) -> web.Response:
    """A redirect to itself."""
    return web.Response(status=307, headers={"Location": str(request.url)})


def elsewhere(_request: web.Request) -> web.Response:
    """A redirect to what is not HTTP."""
    return web.Response(status=307, headers={"Location": "file:///etc/passwd"})


def bracket(_request: web.Request) -> web.Response:
    """A redirect to no URL."""
    return web.Response(status=307, headers={"Location": "http://[x]/"})


def failed(_request: web.Request) -> web.Response:
    """A failure of Pulsar's."""
    return web.json_response({"reason": "no"}, status=500)


def refused(_request: web.Request) -> web.Response:
    """A token that is not valid any more."""
    return web.json_response({"reason": "HTTP 401 Unauthorized"}, status=401)


NONSENSE = (html, empty, loop, elsewhere, bracket, failed, refused)


async def _no_split(_done: bool) -> None:
    """Split nothing: the default."""


async def _nothing(_destination: str, _done: bool) -> None:
    """Do nothing at an unload: the default."""


async def _the_same(_broker: str) -> dict[str, str]:
    """Own settings of a broker: none, by default."""
    return {}


@dataclass
class FakePulsar:
    """The state of a cluster."""

    extensible: bool = False
    token: str | None = None
    owners: dict[str, str | None] = field(default_factory=dict)
    """Bundle → brokerId."""
    rates: dict[str, float] = field(default_factory=dict)
    """Bundle → messages/s in."""
    brokers: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(
        default_factory=lambda: {
            "loadBalancerSheddingEnabled": "true",
            "loadBalancerAutoBundleSplitEnabled": "true",
            "clusterName": CLUSTER,
            "brokerClientAuthenticationParameters": "token:secret",
            "loadBalancerOverrideBrokerNicSpeedGbps": "Optional[1.0]",
        }
    )
    isolation: dict[str, Any] | None = None
    domains: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    nonsense: dict[str, Nonsense] = field(default_factory=dict)
    """The end of a path → what is answered instead."""
    miss: int = 0
    """So many unloads end at another broker than the destination."""
    back: int = 0
    """So many unloads end where they began: a client's lookup came too early."""
    zero_after_move: bool = True
    """Whether a moved bundle reports no traffic, as for a minute in reality."""
    on_unload: OnUnload = _nothing
    """Called before and after each unload that a broker carries out."""
    properties: dict[str, str] = field(default_factory=dict)
    """Of the system namespace."""
    edges: list[str] = field(default_factory=lambda: list(EDGES))
    """The boundaries of the namespace."""
    divides: bool = True
    """Whether a split divides a bundle; if not, it is answered as if it did."""
    topics_of: dict[str, int] = field(default_factory=dict)
    """Bundle → number of its topics; 1 for the others."""
    no_cpu: set[str] = field(default_factory=set)
    """Brokers that measure no CPU."""
    on_settings: OnSettings = _the_same
    """Called with each broker that is asked for its settings; what differs there."""
    on_split: OnSplit = _no_split
    """Called before and after each split that a broker carries out."""
    log: list[str] = field(default_factory=list)
    """Requests: method, path, query."""
    moved: list[tuple[str, str]] = field(default_factory=list)
    servers: dict[str, web.AppRunner] = field(default_factory=dict)

    def url(self, index: int = 0) -> str:
        """The address of a broker."""
        return f"http://{self.brokers[index]}"

    def spread(self, share: list[int], hot: float = 100.0) -> None:
        """Give the brokers so many of the bundles each, all with the same load."""
        owners = [broker for broker, count in zip(self.brokers, share, strict=True)] and [
            broker for broker, count in zip(self.brokers, share, strict=True) for _ in range(count)
        ]
        for span, owner in zip(RANGES, owners, strict=True):
            self.owners[f"{NAMESPACE}/{span}"] = owner
            self.rates[f"{NAMESPACE}/{span}"] = hot

    def switch_off(self) -> None:
        """Its own shedding and splitting."""
        self.settings["loadBalancerSheddingEnabled"] = "false"
        self.settings["loadBalancerAutoBundleSplitEnabled"] = "false"

    def owned(self, broker: str) -> list[str]:
        """The bundles of a broker."""
        return sorted(bundle for bundle, owner in self.owners.items() if owner == broker)

    async def stop(self, broker: str) -> None:
        """A broker dies: it stays in the list, and does not answer."""
        await self.servers.pop(broker).cleanup()

    # Answers

    def report(self, broker: str) -> dict[str, Any]:
        """A report like `modular_load_report.json`."""
        owned = self.owned(broker)
        stats = {bundle: self.stats(bundle) for bundle in owned}
        rate = sum(self.rates[bundle] for bundle in owned)
        cpu = {"usage": min(200.0, 10 + rate / 10), "limit": 200.0}
        return {
            "webServiceUrl": f"http://{broker}",
            "pulsarServiceUrl": f"pulsar://{broker.split(':', maxsplit=1)[0]}:6650",
            "persistentTopicsEnabled": True,
            "nonPersistentTopicsEnabled": True,
            "cpu": {"usage": 0.0, "limit": 0.0} if broker in self.no_cpu else cpu,
            "memory": {"usage": 70.0, "limit": 371.25},
            "directMemory": {"usage": 16.0, "limit": 384.0},
            "bandwidthIn": {"usage": 0.0, "limit": 1e6},
            "bandwidthOut": {"usage": 0.0, "limit": 1e6},
            "msgRateIn": rate,
            "msgRateOut": 0.0,
            "msgThroughputIn": rate * 100_000,
            "msgThroughputOut": 0.0,
            "lastUpdate": 1,
            "lastStats": stats,
            "bundles": owned,
            "numTopics": len(owned),
            "numBundles": len(owned),
            "brokerVersionString": "4.0.4",
            "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl."
            "ModularLoadManagerImpl",
        }

    def stats(self, bundle: str) -> dict[str, Any]:
        """One bundle of a report."""
        rate = self.rates[bundle]
        return {
            "msgRateIn": rate,
            "msgThroughputIn": rate * 100_000,
            "producerCount": 1,
            "topics": self.topics_of.get(bundle, 1),
        }

    def topics(self, broker: str) -> dict[str, Any]:
        """An answer like `broker_stats_topics_two.json`."""
        bundles = {
            bundle.rpartition("/")[2]: {
                "persistent": {
                    f"persistent://{NAMESPACE}/t-{number or ''}{bundle[-8:]}": {
                        "publishers": [{}],
                        "subscriptions": {"sub": {"consumers": [{}]}},
                        "producerCount": 1,
                        "msgRateIn": self.rates[bundle] / count,
                        "msgRateOut": 0.0,
                        "msgThroughputIn": self.rates[bundle] * 100_000 / count,
                        "msgThroughputOut": 0.0,
                        "storageSize": STORED,
                    }
                    for number in range(count)
                }
            }
            for bundle in self.owned(broker)
            for count in [self.topics_of.get(bundle, 1)]
        }
        return {NAMESPACE: bundles}

    def metrics(self, broker: str) -> str:
        """A part of the metrics page."""
        cpu = self.report(broker)["cpu"]["usage"] / 2
        return (
            "# TYPE pulsar_lb_cpu_usage gauge\n"
            f'pulsar_lb_cpu_usage{{cluster="c1",broker="127.0.0.1",metric="loadBalancing"}} {cpu}\n'
            'pulsar_lb_memory_usage{cluster="c1"} 20.5\n'
            'pulsar_lb_directMemory_usage{cluster="c1"} 4.0\n'
            'pulsar_lb_bandwidth_in_usage{cluster="c1"} 0.0\n'
            'pulsar_lb_bandwidth_out_usage{cluster="c1"} 0.0\n'
        )


class FakeBroker:
    """The routes of one broker."""

    def __init__(self, pulsar: FakePulsar, broker: str) -> None:
        self.pulsar, self.me = pulsar, broker

    def application(self) -> web.Application:
        """All routes."""
        v2 = "/admin/v2"
        application = web.Application(middlewares=[self.around])
        application.add_routes(
            [
                web.get(f"{v2}/brokers", self.list),
                web.get(f"{v2}/brokers/version", self.version),
                web.get(f"{v2}/brokers/leaderBroker", self.leader),
                web.get(f"{v2}/brokers/configuration/runtime", self.runtime),
                web.post(f"{v2}/brokers/configuration/{{name}}/{{value}}", self.configure),
                web.get(f"{v2}/brokers/{CLUSTER}/{{broker}}/ownedNamespaces", self.owned),
                web.get(f"{v2}/broker-stats/load-report", self.report),
                web.get(f"{v2}/broker-stats/topics", self.topics),
                web.get("/metrics/", self.metrics),
                web.get(f"{v2}/namespaces/acme/shop/bundles", self.bundles),
                web.get(f"{v2}/namespaces/acme/shop/antiAffinity", self.group),
                web.get(f"{v2}/clusters/{CLUSTER}/namespaceIsolationPolicies", self.isolation),
                web.get(f"{v2}/clusters/{CLUSTER}/failureDomains", self.domains),
                web.get(f"{v2}/persistent/acme/shop", self.names),
                web.get(f"{v2}/persistent/acme/shop/{{topic}}/stats", self.topic),
                web.put(f"{v2}/persistent/acme/shop/{{topic}}", self.make),
                web.get("/lookup/v2/topic/persistent/acme/shop/{topic}", self.look_up),
                web.get(f"{v2}/namespaces/pulsar/system/properties", self.properties),
                web.put(f"{v2}/namespaces/pulsar/system/property/{{key}}/{{value}}", self.set),
                web.delete(f"{v2}/namespaces/pulsar/system/property/{{key}}", self.unset),
                web.put(f"{v2}/namespaces/acme/shop/{{span}}/unload", self.unload),
                web.put(f"{v2}/namespaces/acme/shop/{{span}}/split", self.split),
            ]
        )
        return application

    @web.middleware
    async def around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Logs, asks for the token, and answers nonsense where it shall."""
        pulsar = self.pulsar
        pulsar.log.append(f"{request.method} {request.rel_url}")
        for end, answer in pulsar.nonsense.items():
            if request.path.endswith(end):
                return answer(request)
        proven = request.headers.get("Authorization") == f"Bearer {pulsar.token}"
        if pulsar.token and not proven and request.path != "/metrics/":
            return web.json_response({"reason": "HTTP 401 Unauthorized"}, status=401)
        return await handler(request)

    async def properties(self, _request: web.Request) -> web.Response:
        return web.json_response(self.pulsar.properties)

    async def set(self, request: web.Request) -> web.Response:
        self.pulsar.properties[request.match_info["key"]] = request.match_info["value"]
        return web.Response(status=204)

    async def unset(self, request: web.Request) -> web.Response:
        self.pulsar.properties.pop(request.match_info["key"], None)
        return web.Response(status=204)

    async def list(self, _request: web.Request) -> web.Response:
        return web.json_response(self.pulsar.brokers)

    async def version(self, _request: web.Request) -> web.Response:
        return web.Response(text="4.0.4")

    async def leader(self, _request: web.Request) -> web.Response:
        first = self.pulsar.brokers[0]
        return web.json_response({"serviceUrl": f"http://{first}", "brokerId": first})

    async def runtime(self, _request: web.Request) -> web.Response:
        name = (
            "extensions.ExtensibleLoadManagerImpl"
            if self.pulsar.extensible
            else "impl.ModularLoadManagerImpl"
        )
        full = f"org.apache.pulsar.broker.loadbalance.{name}"
        own = await self.pulsar.on_settings(self.me)
        return web.json_response({**self.pulsar.settings, **own, "loadManagerClassName": full})

    async def configure(self, request: web.Request) -> web.Response:
        self.pulsar.settings[request.match_info["name"]] = request.match_info["value"]
        return web.Response(status=200)

    async def owned(self, request: web.Request) -> web.Response:
        broker = request.match_info["broker"]
        if broker != self.me:
            raise web.HTTPTemporaryRedirect(f"http://{broker}{request.rel_url}")
        entry = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
        monitor = f"pulsar/{CLUSTER}/{self.me}/0x00000000_0xffffffff"
        return web.json_response(dict.fromkeys([*self.pulsar.owned(broker), monitor], entry))

    async def report(self, _request: web.Request) -> web.Response:
        if self.pulsar.extensible:
            return web.Response(status=500, text="java.lang.UnsupportedOperationException")
        return web.json_response(self.pulsar.report(self.me))

    async def topics(self, _request: web.Request) -> web.Response:
        return web.json_response(self.pulsar.topics(self.me))

    async def metrics(self, _request: web.Request) -> web.Response:
        return web.Response(text=self.pulsar.metrics(self.me))

    async def bundles(self, _request: web.Request) -> web.Response:
        edges = self.pulsar.edges
        return web.json_response({"boundaries": edges, "numBundles": len(edges) - 1})

    async def group(self, _request: web.Request) -> web.Response:
        group = self.pulsar.groups.get(NAMESPACE)
        return web.Response(status=204) if group is None else web.Response(text=group)

    async def isolation(self, _request: web.Request) -> web.Response:
        if self.pulsar.isolation is None:
            reason = "NamespaceIsolationPolicies for cluster c1 does not exist"
            return web.json_response({"reason": reason}, status=404)
        return web.json_response(self.pulsar.isolation)

    async def domains(self, _request: web.Request) -> web.Response:
        return web.json_response(self.pulsar.domains)

    async def names(self, request: web.Request) -> web.Response:
        return web.json_response([f"persistent://{NAMESPACE}/t-{request.query['bundle'][-8:]}"])

    async def topic(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {"publishers": [{}], "subscriptions": {"sub": {"consumers": [{}]}}, "msgRateIn": 1.0}
        )

    async def make(self, _request: web.Request) -> web.Response:
        return web.json_response({"reason": "This topic already exists"}, status=409)

    async def look_up(self, request: web.Request) -> web.Response:
        span = next(span for span in RANGES if span.endswith(request.match_info["topic"][-8:]))
        bundle = f"{NAMESPACE}/{span}"
        if self.pulsar.owners[bundle] is None:
            self.pulsar.owners[bundle] = self.me
        return web.json_response({"brokerUrl": "pulsar://127.0.0.1:6650"})

    async def unload(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            return web.Response(status=415)  # as a real one does
        pulsar, bundle = self.pulsar, f"{NAMESPACE}/{request.match_info['span']}"
        destination = request.query.get("destinationBroker")
        if destination is not None and destination not in pulsar.brokers:
            return web.json_response({"reason": "inactive destination broker"}, status=409)
        owner = pulsar.owners[bundle]
        if owner is not None and owner != self.me:
            raise web.HTTPTemporaryRedirect(f"http://{owner}{request.rel_url}")
        await pulsar.on_unload(str(destination), False)
        if pulsar.back > 0:
            pulsar.back -= 1
            return web.Response(status=204)
        if pulsar.miss > 0:
            pulsar.miss -= 1
            others = [broker for broker in pulsar.brokers if broker not in (owner, destination)]
            pulsar.owners[bundle] = others[0]
            return web.Response(status=204)
        pulsar.owners[bundle] = destination or owner
        pulsar.moved.append((bundle, str(destination)))
        await pulsar.on_unload(str(destination), True)
        return web.Response(status=204)

    async def split(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            return web.Response(status=415)  # as a real one does
        pulsar, span = self.pulsar, request.match_info["span"]
        bundle, (low, high) = f"{NAMESPACE}/{span}", span.split("_")
        if bundle not in pulsar.owners:
            return web.json_response({"reason": "Failed to find bundle"}, status=412)
        owner = pulsar.owners[bundle]
        if owner != self.me:
            raise web.HTTPTemporaryRedirect(f"http://{owner}{request.rel_url}")
        await pulsar.on_split(False)
        if pulsar.divides:
            middle = f"0x{(int(low, 16) + int(high, 16)) // 2:08x}"
            pulsar.edges = sorted([*pulsar.edges, middle])
            rate, topics = pulsar.rates.pop(bundle), pulsar.topics_of.pop(bundle, 1)
            del pulsar.owners[bundle]
            for part in (f"{NAMESPACE}/{low}_{middle}", f"{NAMESPACE}/{middle}_{high}"):
                pulsar.owners[part] = owner
                pulsar.rates[part], pulsar.topics_of[part] = rate / 2, topics // 2
        await pulsar.on_split(True)
        return web.Response(status=204)


@asynccontextmanager
async def a_pulsar(brokers: int = 3, **state: Any) -> AsyncIterator[FakePulsar]:
    """A running cluster."""
    pulsar = FakePulsar(**state)
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(brokers)]
    pulsar.brokers = sorted(f"127.0.0.1:{sock.getsockname()[1]}" for sock in sockets)
    for sock in sockets:
        name = f"127.0.0.1:{sock.getsockname()[1]}"
        runner = web.AppRunner(
            FakeBroker(pulsar, name).application(), access_log=None, shutdown_timeout=0.1
        )
        await runner.setup()
        await web.SockSite(runner, sock).start()
        pulsar.servers[name] = runner
    try:
        yield pulsar
    finally:
        for runner in pulsar.servers.values():
            await runner.cleanup()


async def _main(*, extensible: bool) -> None:
    async with a_pulsar(3, extensible=extensible) as pulsar:
        pulsar.spread([12, 2, 2])
        print(pulsar.url(), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    import sys

    asyncio.run(_main(extensible="extensible" in sys.argv[1:]))
