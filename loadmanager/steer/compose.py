"""The daemon that steers Pulsar clusters: one process, a scope for each cluster."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import convert, structs

from loadmanager import __version__
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import ConfigError, LoadManagerError, OperationalError
from loadmanager.kit.history.history import FLUSH_S, FileHistory
from loadmanager.kit.history.settings import HistorySettings
from loadmanager.kit.logger import get_logger
from loadmanager.kit.logs import configure
from loadmanager.kit.metadata.leader import Leader, Term
from loadmanager.kit.metrics.page import MetricsPage
from loadmanager.kit.private_files import FILE_MODE, bind_private
from loadmanager.kit.security.tokens import TokenVerifier
from loadmanager.kit.system import open_files
from loadmanager.kit.system.clock import SystemClock
from loadmanager.kit.system.ending import Ending
from loadmanager.kit.system.folder_lock import locked
from loadmanager.kit.system.notify import notify
from loadmanager.kit.tasks import Scope, Steps, every, sleep
from loadmanager.kit.telemetry import Source, Telemetry
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
from loadmanager.kit.zookeeper.store import ZooKeeperStore
from loadmanager.leader.audit import AuditLog
from loadmanager.leader.ports.wishes import WishBook
from loadmanager.leader.present_leader import PresentLeader
from loadmanager.steer import telemetry
from loadmanager.steer.advice import switch_command
from loadmanager.steer.daemon_note import Unwritten
from loadmanager.steer.documents import AdviceShown, FleetShown, Mode
from loadmanager.steer.files.note import FileNote
from loadmanager.steer.files.wishes_file import WishesFile
from loadmanager.steer.fleet_work import FleetOutside, build_fleet_work
from loadmanager.steer.http.fleet import FleetServer
from loadmanager.steer.http.fleet_access import FleetGuard
from loadmanager.steer.http.fleet_routes import FleetUse
from loadmanager.steer.load_reports import LoadReports
from loadmanager.steer.namespaces import FleetNamespaces
from loadmanager.steer.picture import OWN_BALANCING
from loadmanager.steer.ports.note import Note
from loadmanager.steer.pulsar.client import PulsarClient
from loadmanager.steer.pulsar.orders import AdminOrders
from loadmanager.steer.pulsar.reader import AdminReader
from loadmanager.steer.pulsar.settings import METADATA_URL
from loadmanager.steer.settings import ACT, APPROVE
from loadmanager.steer.settings_file import ClusterSettings
from loadmanager.steer.snapshot_line import snapshot_line
from loadmanager.steer.steady import Steady
from loadmanager.steer.terms import Terms
from loadmanager.steer.work import FleetWork

AGAIN_S = 15.0
"""A cluster whose tasks ended by a bug starts again after this time."""
CHECK_S = 5.0
STOP_S = 80.0
"""A stop takes so long at most."""
ACTED = "acted.json"
"""The file with what the daemon did lately."""
SIGN = "alive"
"""The file that is touched at each sign of life."""
ADVICE = "this daemon waits until it can have it"

log = get_logger("fleet")


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """The options of the process, which are not settings of a cluster."""

    data_dir: Path
    listen: tuple[str, int] = ("127.0.0.1", 8090)
    """Address of the first cluster's HTTP API; each further one has the next port."""
    log_level: str = "info"
    log_format: str | None = None


def run_fleet(clusters: Sequence[ClusterSettings], options: FleetOptions) -> int:
    """Run until a signal comes; returns the exit status.

    Raises `ConfigError` or `OperationalError` when it cannot start.
    """
    json = None if options.log_format is None else options.log_format == "json"
    configure(options.log_level, json=json, broker="fleet")
    open_files.raise_limit()
    with Ending(lambda: STOP_S) as ending:
        return asyncio.run(_Daemon(clusters, options).run(ending))


class _Daemon:
    def __init__(self, clusters: Sequence[ClusterSettings], options: FleetOptions) -> None:
        self._options = options
        self._stop = asyncio.Event()
        self._steps = Steps()
        cap = open_files.connections_cap()
        if cap:  # half of the files are for HTTP, the same number for each cluster
            cap = max(1, cap // (2 * len(clusters)))
        self._clusters = [
            ClusterDaemon(
                settings,
                options,
                port=options.listen[1] and options.listen[1] + number,
                connections_cap=cap,
            )
            for number, settings in enumerate(clusters)
        ]

    async def run(self, ending: Ending) -> int:
        ending.listen(self._stop.set)
        with contextlib.ExitStack() as stack:
            for cluster in self._clusters:
                cluster.listen(stack)
            async with Scope("fleet") as scope:
                for cluster in self._clusters:
                    step = f"cluster-{cluster.name}"
                    scope.spawn(every(lambda: AGAIN_S, cluster.run_once, step, self._steps), step)
                notify("READY=1")
                await self._stop.wait()
                notify("STOPPING=1")
                log.info("stopping")
                scope.cancel()
        log.info("stopped")
        return 0


@dataclass(slots=True)
class ClusterDaemon:
    """One cluster of the daemon. Whatever happens in it, the others go on."""

    settings: ClusterSettings
    options: FleetOptions
    port: int
    connections_cap: int = 0
    """The most HTTP connections that the process has files for; 0: any number."""
    clock: SystemClock = field(default_factory=SystemClock)
    sock: socket.socket | None = None
    unwritten: Unwritten = field(default_factory=Unwritten)
    """What its note does not have yet, for as long as this process lives."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self.settings.name

    @property
    def folder(self) -> Path:
        """The folder of its lock, its wishes and its history."""
        return self.options.data_dir / self.name

    def listen(self, stack: contextlib.ExitStack) -> None:
        """Bind its HTTP port, which refuses connections until this daemon leads. Raises
        `OperationalError`, and `ConfigError` for addresses, certificates and credentials that
        cannot be used.
        """
        try:
            PulsarClient(self.settings.pulsar)
        except OperationalError as error:
            raise ConfigError(f"cluster {self.name}: {error}") from None
        self._build_guard()
        self.sock = stack.enter_context(self._bound())
        self.port = self.sock.getsockname()[1]

    def _bound(self) -> socket.socket:
        host = self.options.listen[0]
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, self.port))
        except OSError as error:
            sock.close()
            raise OperationalError(
                f"cannot listen on {host}:{self.port}: {error.strerror}"
            ) from None
        return sock

    async def run(self) -> None:
        """Wait for the lock, then watch, and do what the mode says, until cancelled."""
        waiting = False
        while True:
            with contextlib.ExitStack() as stack:
                try:
                    stack.enter_context(locked(self.folder, "fleet.lock", ADVICE))
                except OperationalError as error:
                    if not waiting:
                        log.warning("waiting for the lock", cluster=self.name, why=str(error))
                    waiting = True
                    await sleep(CHECK_S)
                    continue
                if self.settings.store is None:
                    epoch = self.clock.now_ms() // 1000
                    leader = Leader(f"fleet-{self.name}", self._url, epoch)
                    wishes = WishesFile(self.folder / "wishes.json", self.clock)
                    await self._lead(Term(leader), wishes, FileNote(self.folder / ACTED))
                else:
                    await self._lead_in_turns(self.settings.store)
                return

    async def run_once(self) -> None:
        """`run`; raises `OperationalError` alone where tasks failed with it."""
        try:
            await self.run()
        except* OperationalError as errors:
            raise OperationalError("; ".join(map(str, _leaves(errors)))) from None

    @property
    def _url(self) -> str:
        return f"http://{self.options.listen[0]}:{self.port}"

    async def _lead_in_turns(self, store_settings: ZooKeeperSettings) -> None:
        """Lead while this daemon holds the lock that those on other hosts wait for."""
        me = f"fleet-{self.name}@{socket.gethostname()}:{self.port}"
        log.info("connecting to the lock", cluster=self.name, zookeeper=store_settings.hosts)
        async with ZooKeeperStore(store_settings) as store:
            lead = partial(self._lead, leads=lambda: store.lease.held(self.clock.monotonic_s()))
            terms = Terms(store, self.clock, broker_id=me, web_url=self._url, lead=lead)
            await terms.run()

    async def _lead(
        self, term: Term, wishes: WishBook, note: Note, *, leads: Callable[[], bool] = lambda: True
    ) -> None:
        """Watch and steer, until cancelled. Raises `OperationalError` when the clock was set."""
        async with (
            PulsarClient(self.settings.pulsar, leads) as client,
            _history(self) as history,
        ):
            steps = Steps()
            async with Scope(self.name) as scope:
                reader = reader_of(client, self.settings, scope, steps)
                if history is not None:
                    scope.spawn(every(lambda: FLUSH_S, history.flush, "history", steps), "history")
                outside = FleetOutside(
                    me=term.leader,
                    checks=term.checks,
                    lives=partial(_touch, self.folder / SIGN),
                    reader=reader,
                    orders=partial(AdminOrders, client, reader),
                    wishes=wishes,
                    note=note,
                    unwritten=self.unwritten,
                    clock=self.clock,
                    rng=random.Random(0),  # noqa: S311 - reproducible, not secret
                    history=history,
                )
                work = build_fleet_work(self.settings, outside, scope, steps)
                server = FleetServer(
                    self._build_use(term.leader, work, history),
                    self._build_guard(),
                    version=__version__,
                    connections_cap=self.connections_cap,
                )
                sock, self.sock = self.sock or self._bound(), None
                await server.start([sock, *self._local_sockets()], scope.spawn)
                log.info(
                    "watching",
                    cluster=self.name,
                    mode=convert(self.settings.fleet.mode, Mode),
                    pulsar=list(self.settings.pulsar.urls),
                    http=self._url,
                )
                goes = True
                try:
                    work.begin()
                    await self._until_the_clock_is_set()
                except OperationalError:
                    goes = False
                    raise
                finally:
                    scope.cancel()  # first: another daemon may lead
                    self._remove_local_socket()
                    await server.stop()
                    if goes:
                        await self._say_goodbye(client, work)

    def _build_guard(self) -> FleetGuard:
        verifier = TokenVerifier(self.settings.tokens) if self.settings.has_tokens else None
        return FleetGuard(settings=self.settings.api, verifier=verifier, clock=self.clock)

    def _local_sockets(self) -> list[socket.socket]:
        """The Unix socket, if one is configured. Raises `OperationalError`."""
        path = self.settings.api.socket
        try:
            return [bind_private(Path(path))] if path else []
        except OSError as error:
            raise OperationalError(f"apiSocket {path}: {error.strerror}") from None

    def _remove_local_socket(self) -> None:
        """Before this daemon stops to listen there, so that it removes no other daemon's."""
        if self.settings.api.socket:
            Path(self.settings.api.socket).unlink(missing_ok=True)

    async def _until_the_clock_is_set(self) -> None:
        """Raises `OperationalError` then: what is known would look too new, or too old."""
        steady = Steady(self.clock)
        while True:
            await sleep(CHECK_S)
            steady.check()

    def _build_use(self, me: Leader, work: FleetWork, history: FileHistory | None) -> FleetUse:
        leading = PresentLeader(
            leader=me, load_manager=work.load_manager, operations=work.operations
        )
        sources: list[Source] = [lambda: telemetry.samples(work)]
        audit = AuditLog(broker_id=self.name, clock=self.clock, history=history)
        sources.append(audit.samples)
        if history is not None:
            sources.append(history.samples)
        page = MetricsPage(Telemetry(sources), cluster=self.name, broker=me.broker_id)
        return FleetUse(
            self_address=BrokerAddress(me.broker_id, "", me.service_url),
            leading=leading,
            namespaces=FleetNamespaces(work.watching.reader),
            watched=_Watched(self.settings, work),
            audit=audit,
            metrics=page.render,
        )

    async def _say_goodbye(self, client: PulsarClient, work: FleetWork) -> None:
        """Say how Pulsar balances itself again, or switch it on, unless a daemon waits for that."""
        if self.settings.store is not None:
            return
        if self.settings.fleet.mode not in (APPROVE, ACT):
            return
        client.learn(sorted(work.picture.answering))  # the others may take their time
        await work.watching.read_settings()
        balancing_settings = "settings" not in work.picture.problems and work.picture.settings
        on = work.picture.own_balancing() if balancing_settings else []
        off = [name for name in OWN_BALANCING if name not in on]  # or not known
        if not off:
            return
        commands = "; ".join(switch_command(name, on=True) for name in off)
        if not (self.settings.fleet.restore_pulsar and self.settings.fleet.mode == ACT):
            log.warning("Pulsar's own stays off", cluster=self.name, switch_on=commands)
            return
        try:
            await switch_on(client, self.name)
        except LoadManagerError as error:
            log.error("Pulsar's own stays off", error=str(error), do=commands)


async def switch_on(client: PulsarClient, cluster: str) -> None:
    """Have Pulsar balance itself. Raises `OperationalError` if a switch, or all, stay off."""
    problems = []
    for name in OWN_BALANCING:
        try:
            await client.send("POST", f"/admin/v2/brokers/configuration/{name}/true")
        except OperationalError as error:
            problems.append(str(error))
        else:
            log.info("Pulsar's own is on again", cluster=cluster, setting=name)
    if problems:
        raise OperationalError("; ".join(problems))


@dataclass(frozen=True, slots=True)
class _Watched:
    settings: ClusterSettings
    work: FleetWork
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A snapshot reads the boundaries of every namespace from the cluster."""

    def picture(self) -> FleetShown:
        pause, hold = self.work.moves.cluster.wishes.pause(), self.work.hold.shown_reason()
        return FleetShown(
            **structs.asdict(self.work.picture.shown()),
            name=self.settings.name,
            mode=convert(self.settings.fleet.mode, Mode),
            held=None if hold is None else str(hold),
            held_code=None if hold is None else hold.code,
            paused_until=None if pause is None else pause.until_ms,
            cost=self.work.watching.reader.cost,
        )

    def leader(self) -> BrokerAddress | None:
        return self.work.picture.address(self.work.picture.leader or "")

    def advice(self) -> AdviceShown:
        return self.work.advice.shown(self.work.hold.shown_reason())

    async def snapshot(self) -> dict[str, Any]:
        async with self.one_at_a_time:
            return await snapshot_line(self.work.picture, self.work.watching.reader)


def reader_of(
    client: PulsarClient, cluster: ClusterSettings, scope: Scope, steps: Steps
) -> AdminReader:
    """Reads the cluster; the load reports from Pulsar's ZooKeeper, if its address is given."""
    asked = cluster.pulsar
    if not asked.metadata_url:
        return AdminReader(client, SystemClock())
    reports = LoadReports(asked.metadata_url, METADATA_URL, asked.timeout_s)
    scope.spawn(every(lambda: AGAIN_S, reports.run, "load-reports", steps), "load-reports")
    return AdminReader(client, SystemClock(), reports.of)


@contextlib.asynccontextmanager
async def _history(cluster: ClusterDaemon) -> AsyncIterator[FileHistory]:
    """The history of one cluster; its records name Pulsar's brokers."""
    settings = HistorySettings(directory=str(cluster.options.data_dir / "history"))
    history = FileHistory(settings, cluster=cluster.name, broker="fleet", clock=cluster.clock)
    await history.start()
    try:
        yield history
    finally:
        await history.close()


def _leaves(errors: BaseExceptionGroup[OperationalError]) -> Iterator[BaseException]:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _touch(sign: Path) -> None:
    """Give a sign of life. Raises `OperationalError`."""
    try:
        sign.touch(FILE_MODE)
    except OSError as error:
        raise OperationalError(f"no sign of life: {sign}: {error.strerror}") from None
