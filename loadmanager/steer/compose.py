"""One Pulsar cluster of the daemon: it waits for its lock, then it watches, steers and serves."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from msgspec import convert

from loadmanager import __version__
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import ConfigError, OperationalError, leaves
from loadmanager.kit.free_port import family_of
from loadmanager.kit.history.history import FLUSH_S, FileHistory
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata.leader import Leader, Term
from loadmanager.kit.metrics.page import MetricsPage
from loadmanager.kit.private_files import bind_private
from loadmanager.kit.system.clock import SystemClock
from loadmanager.kit.system.folder_lock import locked
from loadmanager.kit.tasks import Scope, Steps, every, sleep
from loadmanager.kit.telemetry import Source, Telemetry
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
from loadmanager.kit.zookeeper.store import ZooKeeperStore
from loadmanager.leader.audit import AuditLog
from loadmanager.leader.findings import samples as finding_samples
from loadmanager.leader.ports.wishes import WishBook
from loadmanager.leader.present_leader import PresentLeader
from loadmanager.steer import telemetry
from loadmanager.steer.canary import CanaryOutside
from loadmanager.steer.clusters import ClusterStanding, FleetClusters
from loadmanager.steer.daemon_note import Unwritten
from loadmanager.steer.documents import Mode
from loadmanager.steer.files.note import FileNote
from loadmanager.steer.files.sign import give_sign
from loadmanager.steer.files.wishes_file import WishesFile
from loadmanager.steer.fleet_work import build_fleet_work
from loadmanager.steer.http import webhooks
from loadmanager.steer.http.fleet import FleetServer
from loadmanager.steer.http.fleet_access import FleetGuard
from loadmanager.steer.http.fleet_routes import FleetUse
from loadmanager.steer.load_reports import reader_of
from loadmanager.steer.namespaces import FleetNamespaces
from loadmanager.steer.options import FleetOptions
from loadmanager.steer.outside import FleetOutside
from loadmanager.steer.own_balancing import hand_back
from loadmanager.steer.ports.note import Note
from loadmanager.steer.pulsar.client import PulsarClient
from loadmanager.steer.pulsar.marks import AdminMarks
from loadmanager.steer.pulsar.orders import AdminOrders
from loadmanager.steer.pulsar.way import AdminWay
from loadmanager.steer.recording import history_of
from loadmanager.steer.rivals import id_in, id_of_lock
from loadmanager.steer.settings import ACT, ADVISE, APPROVE, OBSERVE
from loadmanager.steer.settings_file import ClusterSettings
from loadmanager.steer.steady import Steady
from loadmanager.steer.terms import Terms
from loadmanager.steer.watched_cluster import WatchedCluster
from loadmanager.steer.weekly import LOOK_S, WeeklyGained, ask
from loadmanager.steer.work import FleetWork

CHECK_S = 5.0
ACTED, GAINED = "acted.json", "gained.json"
"""The files with what the daemon did lately, and with the last weekly report."""
ADVICE = "this daemon waits until it can have it"

log = get_logger("fleet")


@dataclass(slots=True)
class ClusterDaemon:
    """One cluster of the daemon. Whatever happens in it, the others go on."""

    settings: ClusterSettings
    options: FleetOptions
    port: int
    connections_cap: int = 0
    """The most HTTP connections that the process has files for; 0: any number."""
    clock: SystemClock = field(default_factory=SystemClock)
    sock: socket.socket | None = field(default=None, init=False)
    together: FleetClusters = field(default_factory=FleetClusters)
    standing: ClusterStanding = field(init=False)
    unwritten: Unwritten = field(default_factory=Unwritten)
    """What its note does not have yet, for as long as this process lives."""

    def __post_init__(self) -> None:
        """It does not lead yet."""
        self.standing = self.together.add(self.settings)

    @property
    def name(self) -> str:
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
        webhooks.check(self.settings.fleet.webhook_urls, self.settings.fleet.webhook_template)
        self.standing.allows = self._build_guard().allows
        self.sock = stack.enter_context(self._bound())
        self.port = self.standing.port = self.sock.getsockname()[1]

    def _bound(self) -> socket.socket:
        host = self.options.listen[0]
        sock = socket.socket(family_of(host))
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, self.port))
        except OSError as error:
            sock.close()
            text = f"cannot listen on {host}:{self.port}: {error.strerror}"
            raise OperationalError(text) from None
        return sock

    def _taken(self) -> socket.socket:
        """The bound port: for its first server what `listen` has bound."""
        sock, self.sock = self.sock or self._bound(), None
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
                    waiting, self.standing.waits = True, str(error)
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
            self.standing.problem = "; ".join(map(str, leaves(errors)))
            raise OperationalError(self.standing.problem) from None

    @property
    def _url(self) -> str:
        return f"http://{self.options.listen[0]}:{self.port}"

    async def _lead_in_turns(self, store_settings: ZooKeeperSettings) -> None:
        """Lead while this daemon holds the lock that those on other hosts wait for."""
        me = f"fleet-{self.name}@{socket.gethostname()}:{self.port}"
        log.info("connecting to the lock", cluster=self.name, zookeeper=store_settings.hosts)
        self.standing.waits = "another daemon leads, or ZooKeeper does not answer"
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
            history_of(self.name, self.options.data_dir, self.clock) as history,
        ):
            steps, producing = Steps(), self.options.producing
            async with Scope(self.name) as scope:
                reader = reader_of(client, self.settings, scope, steps)
                if history is not None:
                    scope.spawn(every(lambda: FLUSH_S, history.flush, "history", steps), "history")
                hooks = webhooks.begin(self.name, self.settings.fleet, self.clock, scope)
                outside = FleetOutside(
                    me=term.leader,
                    checks=term.checks,
                    lives=partial(give_sign, self.folder),
                    reader=reader,
                    orders=partial(AdminOrders, client, reader),
                    wishes=wishes,
                    note=note,
                    unwritten=self.unwritten,
                    clock=self.clock,
                    rng=random.Random(0),  # noqa: S311 - reproducible, not secret
                    history=history,
                    marks=AdminMarks(client),
                    daemon_id=self._daemon_id(),
                    has_lock=self.settings.store is not None,
                    canary=CanaryOutside(producing, AdminWay(client)) if producing else None,
                    tell=hooks.tell if hooks else None,
                )
                weekly = WeeklyGained(
                    ask=partial(ask, self.options.own_command, self.name),
                    note=FileNote(self.folder / GAINED),
                    clock=self.clock,
                    tell=hooks.tell if hooks else None,
                )
                if self.settings.fleet.mode in (OBSERVE, ADVISE) and self.options.own_command:
                    scope.spawn(every(lambda: LOOK_S, weekly.step, "weekly", steps), "weekly")
                work = build_fleet_work(self.settings, outside, scope, steps)
                further = [part.samples for part in (history, hooks, weekly) if part is not None]
                server = FleetServer(
                    self._build_use(term.leader, work, history, further),
                    self._build_guard(),
                    version=__version__,
                    connections_cap=self.connections_cap,
                )
                await server.start([self._taken(), *self._local_sockets()], scope.spawn)
                self._log_watching()
                goes = True
                try:
                    work.begin()
                    self.standing.leads(work, None if history is None else history.archive)
                    await Steady(self.clock).watch(CHECK_S)
                except OperationalError:
                    goes = False
                    raise
                finally:
                    self.standing.no_longer_leads()
                    scope.cancel()  # first: another daemon may lead
                    self._remove_local_socket()
                    await server.stop()
                    if goes:
                        await self._hand_back(client, work)

    def _log_watching(self) -> None:
        log.info(
            "watching",
            cluster=self.name,
            mode=convert(self.settings.fleet.mode, Mode),
            pulsar=list(self.settings.pulsar.urls),
            http=self._url,
        )

    def _daemon_id(self) -> str:
        """Who leaves marks; those that take turns are one."""
        store = self.settings.store
        return id_in(self.folder) if store is None else id_of_lock(store.url, self.name)

    def _build_guard(self) -> FleetGuard:
        verifier = None
        if self.settings.has_tokens:
            from loadmanager.kit.security.tokens import TokenVerifier  # with much that is imported

            verifier = TokenVerifier(self.settings.tokens)
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

    def _build_use(
        self,
        me: Leader,
        work: FleetWork,
        history: FileHistory | None,
        further: Sequence[Source],
    ) -> FleetUse:
        leading = PresentLeader(
            leader=me, load_manager=work.load_manager, operations=work.operations
        )
        leading.findings = work.findings
        archive = None if history is None else history.archive
        audit = AuditLog(broker_id=self.name, clock=self.clock, history=history, archive=archive)
        sources = [
            lambda: telemetry.samples(work),
            lambda: finding_samples(work.findings),
            audit.samples,
            *further,
        ]
        page = MetricsPage(Telemetry(sources), cluster=self.name, broker=me.broker_id)
        return FleetUse(
            self_address=BrokerAddress(me.broker_id, "", me.service_url),
            leading=leading,
            namespaces=FleetNamespaces(work.watching.reader),
            watched=WatchedCluster(self.settings, work),
            audit=audit,
            metrics=page.render,
            clusters=partial(self.together.shown, self.name),
            clusters_then=partial(self.together.shown_then, self.name),
            archive=archive,
        )

    async def _hand_back(self, client: PulsarClient, work: FleetWork) -> None:
        """Let Pulsar balance itself again, unless a daemon waits for that."""
        fleet = self.settings.fleet
        if fleet.mode not in (APPROVE, ACT):
            return
        client.learn(sorted(work.picture.answering))  # the others may take their time
        if work.hold.rivals is not None:
            await work.hold.rivals.leave()
        if self.settings.store is not None:
            return
        await work.watching.read_settings()
        restore = fleet.restore_pulsar and fleet.mode == ACT
        await hand_back(client, self.name, work.picture.switched_off(), restore=restore)
