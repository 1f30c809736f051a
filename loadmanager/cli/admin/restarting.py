"""`loadmanager admin drain` and `rolling-restart`."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

import click
from msgspec import UNSET, to_builtins

from loadmanager.cli.admin.asking import V2, brokers_of, count_of, query
from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.admin.command import AdminCommand, Output, done, unchanged
from loadmanager.cli.admin.moves import CORDONS, MOVES, PINS, owner_of
from loadmanager.cli.admin.sentences import ordered, paused_text
from loadmanager.cli.admin.starting import start_of
from loadmanager.cli.admin.times import Duration, clock
from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.kit.text import printable
from loadmanager.leader.documents.cluster import LeaderBroker
from loadmanager.leader.documents.moves import CordonShown, MovesShown, PinShown

T = TypeVar("T")

DRAINED = ("drained", "stopped")
POLL_S = 1.0
PATIENCE_S = 90.0
"""A drain goes on while leaders change: so long nobody has to answer."""
LONG_S = 60.0
"""A broker that is not back after so long needs somebody to look at it."""
STARTS_AGAIN = (
    "Something must start it again; `loadmanager standalone` does so after SIGKILL (kill -9), not "
    "after SIGTERM"
)
HOLDS = "this drain waits for its end, or for `loadmanager admin moves resume`"
INTERRUPTED = 130
"""The exit status after Ctrl-C."""
STDERR = 2
"""The command's output goes there, so that with --json there is JSON alone on standard output."""


@click.argument("broker")
@click.option("--note", default="", help="why, for others")
def brokers_cordon(admin: AdminClient, broker: str, note: str) -> Output:
    """Send no new bundle to a broker, also after its restart; it keeps what it has."""
    present = cordon_of(admin, broker)
    if present is not None and note in ("", present.note):
        drains = ", and drains" if present.state == "draining" else ""
        return unchanged(f"{broker} is cordoned already{drains}", broker=broker)
    cordon = admin.order("PUT", f"{CORDONS}/{broker}", {"note": note}, CordonShown)
    return done(f"{broker} is cordoned: it gets no new bundle until {_end_of(cordon)}")


def _end_of(cordon: CordonShown) -> str:
    return "it is back" if cordon.until_restart else f"`brokers uncordon {cordon.broker}`"


@click.argument("broker")
def brokers_uncordon(admin: AdminClient, broker: str) -> Output:
    """Let a broker have bundles again; its drain ends."""
    admin.send("DELETE", f"{CORDONS}/{broker}")
    return done(f"{broker} may have bundles again")


@click.command(cls=AdminCommand)
@click.argument("broker")
@click.option("--stop", is_flag=True, help="stop the broker when its bundles are elsewhere")
@click.option("--no-wait", is_flag=True, help="only begin; `brokers list` shows how far it is")
@click.option(
    "--within", type=Duration(), help="give up waiting after so long (90s, 30m); the drain goes on"
)
@click.option(
    "--until-restart", is_flag=True, help="let the broker have bundles again when it is back"
)
@click.option("--note", default="", help="why, for others")
def drain(
    admin: AdminClient,
    broker: str,
    *,
    stop: bool,
    no_wait: bool,
    within: float | None,
    until_restart: bool,
    note: str,
) -> Output:
    """Cordon a broker, and move all its bundles away at the pace of the queue of moves.

    A bundle that it owns and that is pinned to it moves, too, and is named. BROKER is host:port, as
    `brokers list` shows it. It stays cordoned until `brokers uncordon`, also after a restart,
    unless --until-restart is given.
    """
    if stop and no_wait:
        raise click.UsageError("--stop needs the end of the drain: leave out --no-wait")
    _require(admin, broker)
    patience_s = PATIENCE_S if within is None else min(within, PATIENCE_S)
    present = _patiently(lambda: cordon_of(admin, broker), patience_s)
    if present is not None and present.state in DRAINED and not (stop or until_restart or note):
        return unchanged(f"{broker} is drained already", **to_builtins(present))
    pinned = _pinned_at(admin, broker)
    began = _begin(admin, broker, note, patience_s, until_restart=until_restart)
    if no_wait:
        texts = [*pinned.values(), f"{broker} drains; `brokers list` shows how far it is"]
        texts += _paused(admin) if began.left != 0 else []
        return Output({**to_builtins(began), "pinned": [*pinned]}, texts)
    for text in pinned.values():
        tell(text)
    try:
        progress = _drained(admin, broker, within)
    except KeyboardInterrupt:
        tell(f"the drain of {broker} goes on; `brokers uncordon {broker}` ends it")
        raise
    stops = stop and progress.active
    if stops:
        admin.at(broker).send("POST", f"{V2}/brokers/shutdown")
    end = f"it {'stops now, and ' if stops else ''}is cordoned until {_end_of(progress)}"
    return Output(
        {**to_builtins(progress), "stopped": stop, "pinned": [*pinned]},
        f"{how_drained(broker, progress)}; {end}",
    )


def how_drained(broker: str, progress: CordonShown) -> str:
    """A sentence about the end of a drain. `moved` misses bundles that left otherwise, or under a
    leader of an earlier version.
    """
    total, moved = progress.total or 0, progress.moved or 0
    if not total and not moved:
        return f"{broker} had no bundles: nothing was moved"
    had = f"it had {count_of(total, 'bundle')} when its drain began"
    if not progress.active:
        return f"{broker} is gone: {had}, and what was left then goes to other brokers"
    if moved < total:
        return f"{broker} is drained: {had}"
    more = f", {moved - total} more than it had when its drain began" if moved > total else ""
    return f"{broker} is drained: {count_of(moved, 'bundle')} moved{more}"


def _pinned_at(admin: AdminClient, broker: str) -> dict[str, str]:
    """The bundles that are pinned to a broker and are there, each with what its drain does with it:
    one that is pinned to it and is elsewhere is not moved.
    """
    with contextlib.suppress(OperationalError):  # the drain begins, whatever is known of pins
        pins = admin.get(PINS, dict[str, PinShown])
        return {
            bundle: _pin_text(bundle, pin)
            for bundle, pin in pins.items()
            if pin.broker == broker and owner_of(admin, bundle) == broker
        }
    return {}


def _pin_text(bundle: str, pin: PinShown) -> str:
    about = f" ({text})" if (text := ordered(pin)) else ""
    return (
        f"{bundle} is pinned to {pin.broker} until {clock(pin.until)}{about}: the drain moves it "
        "all the same, and leaves the pin"
    )


def _paused(admin: AdminClient) -> list[str]:
    """That moves are paused, and what that means for a drain; empty if they are not."""
    with contextlib.suppress(OperationalError):
        if (pause := admin.get(MOVES + query(limit=1), MovesShown).paused) is not None:
            return [f"{paused_text(pause)}: {HOLDS}"]
    return []


def _require(admin: AdminClient, broker: str) -> None:
    brokers = brokers_of(admin)
    if broker not in brokers:
        raise OperationalError(f"{broker} is not active; the brokers are {', '.join(brokers)}")


def _begin(
    admin: AdminClient,
    broker: str,
    note: str,
    patience_s: float = PATIENCE_S,
    *,
    until_restart: bool = False,
) -> CordonShown:
    path = f"{CORDONS}/{broker}" + query(drain=True, untilRestart=until_restart)
    return _patiently(lambda: admin.order("PUT", path, {"note": note}, CordonShown), patience_s)


def _patiently(step: Callable[[], T], within_s: float) -> T:
    """The result of a request, sent again while the leader changes. Raises the last error after
    so long, and a refusal at once.
    """
    until_s, logged = time.monotonic() + within_s, False
    while True:
        try:
            return step()
        except OperationalError as error:
            refused = isinstance(error, AnsweredError) and error.status < 500
            if refused or time.monotonic() >= until_s:
                raise
            if not logged:
                tell(f"{error}; asking again")
                logged = True
        time.sleep(POLL_S)


def _drained(admin: AdminClient, broker: str, within_s: float | None) -> CordonShown:
    """Wait until a broker is drained; returns the last progress.

    Raises `OperationalError` when it does not end in time, or somebody ended it.
    """
    until_s = None if within_s is None else time.monotonic() + within_s
    shown = ""
    while True:
        left_s = PATIENCE_S if until_s is None else max(until_s - time.monotonic(), 0)
        progress = _patiently(lambda: cordon_of(admin, broker), min(left_s, PATIENCE_S))
        if progress is None or progress.state == "cordoned":
            raise OperationalError(f"somebody ended the drain of {broker}")
        if progress.state in DRAINED:
            return progress
        if (text := progress_text(progress)) != shown:
            tell(shown := text)
        if until_s is not None and time.monotonic() >= until_s:
            raise OperationalError(
                f"{broker} is not drained in time: {progress_text(progress)}. The drain goes on; "
                f"`brokers uncordon {broker}` ends it"
            )
        time.sleep(POLL_S)


def cordons_of(admin: AdminClient) -> dict[str, CordonShown]:
    """brokerId → its cordon and the progress of its drain."""
    return {cordon.broker: cordon for cordon in admin.get(CORDONS, list[CordonShown])}


def cordon_of(admin: AdminClient, broker: str) -> CordonShown | None:
    """The cordon of a broker."""
    return cordons_of(admin).get(broker)


def progress_text(progress: CordonShown) -> str:
    """A sentence about the progress of a drain."""
    if progress.state == "cordoned":
        return "cordoned"
    left, seconds = progress.left, progress.seconds_left
    total, failed = progress.total or 0, progress.failed or 0
    parts = [f"{left} of {count_of(total, 'bundle')} left"]
    if progress.state in DRAINED:
        parts = ["drained and stopped" if progress.state == "stopped" else "drained"]
    elif left is None or left is UNSET:
        parts = [f"{count_of(total, 'bundle')} to move"]
    elif seconds is not None and seconds is not UNSET:
        parts.append(f"about {seconds} s")
    if failed:
        was = "was" if failed == 1 else "were"
        parts.append(f"{count_of(failed, 'move')} failed or {was} cancelled")
    if progress.problem:
        parts.append(progress.problem)
    return ", ".join(parts)


def tell(text: str) -> None:
    """Say on standard error how it goes."""
    click.echo(f"loadmanager admin: {printable(text)}", err=True)


# Rolling restart


@click.command("rolling-restart", cls=AdminCommand)
@click.argument("brokers", nargs=-1, metavar="[BROKER]...")
@click.option(
    "--command",
    "command_line",
    metavar="COMMAND",
    help="restarts a broker; {broker} and {host} stand for its name; without a command, you "
    "restart each broker when you are told to",
)
@click.option(
    "--within",
    type=Duration(),
    default="30m",
    show_default=True,
    help="stop when the drain or the restart of one broker takes longer",
)
@click.option("--note", default="rolling restart", help="why, for others")
def rolling_restart(
    admin: AdminClient,
    brokers: tuple[str, ...],
    command_line: str | None,
    within: float,
    note: str,
) -> Output:
    """Restart brokers one after the other: drain, restart, wait until ready, uncordon.

    All brokers by default, the leader last. Stops at the first failure, and says what to do. A
    broker that somebody else cordoned is refused. A command that only stops the broker needs
    something that starts it again: `loadmanager standalone` does so after SIGKILL (kill -9), not
    after SIGTERM.
    """
    order = _order(admin, brokers)
    restarted: list[str] = []
    for broker in order:
        tell(f"{broker}: draining ({len(restarted) + 1} of {len(order)})")
        try:
            _restart(admin, broker, command_line, within, note)
        except (LoadManagerError, OSError) as error:
            return _stopped(broker, order, restarted, str(error))
        except KeyboardInterrupt:
            return _stopped(broker, order, restarted, "interrupted", status=INTERRUPTED)
        restarted.append(broker)
    text = f"{count_of(len(restarted), 'broker')} restarted: {', '.join(restarted)}"
    return Output({"restarted": restarted, "left": [], "failed": None}, text)


def _order(admin: AdminClient, brokers: tuple[str, ...]) -> list[str]:
    """The brokers to restart, the leader last."""
    active = brokers_of(admin)
    chosen = list(dict.fromkeys(brokers)) or sorted(active)
    unknown = [broker for broker in chosen if broker not in active]
    if unknown:
        raise OperationalError(f"{unknown[0]} is not active; the brokers are {', '.join(active)}")
    if len(active) < 2:
        raise OperationalError("there is one broker only: nobody could serve its bundles meanwhile")
    cordoned = cordons_of(admin).keys() & set(chosen)
    if cordoned:
        broker = min(cordoned)
        raise OperationalError(f"{broker} is cordoned already; `brokers uncordon {broker}` first")
    leader = admin.get(f"{V2}/brokers/leaderBroker", LeaderBroker).broker_id
    return sorted(chosen, key=lambda broker: broker == leader)


def _restart(
    admin: AdminClient, broker: str, command_line: str | None, within_s: float, note: str
) -> None:
    before = start_of(admin.at(broker))
    _begin(admin, broker, note)
    drained = how_drained(broker, _drained(admin, broker, within_s))
    if command_line is None:
        tell(f"{drained}; restart it now")
    else:
        words = [
            word.replace("{broker}", broker).replace("{host}", broker.rpartition(":")[0])
            for word in shlex.split(command_line)
        ]
        tell(f"{drained}; running {shlex.join(words)}")
        try:
            result = subprocess.run(words, check=False, stdout=STDERR, timeout=within_s)
        except subprocess.TimeoutExpired:
            raise OperationalError(f"the command takes longer than {within_s:g} s") from None
        if result.returncode != 0:
            raise OperationalError(f"the command ended with status {result.returncode}")
    _wait_for(admin, broker, before, within_s)
    at = admin.at(broker)  # it knows the leader by now, which may be another one than before
    _until(
        lambda: _quietly(lambda: at.send("DELETE", f"{CORDONS}/{broker}")),
        within_s,
        f"{broker} could not be uncordoned",
    )
    tell(f"{broker}: back, ready and no longer cordoned")


def _wait_for(admin: AdminClient, broker: str, before: int, within_s: float) -> None:
    """Wait until a restarted broker is back; tells once why it takes long."""
    began_s, logged = time.monotonic(), False
    while not _is_back(admin, broker, before):
        for_s = time.monotonic() - began_s
        if for_s >= within_s:
            why = _why_not_back(admin, broker, before)
            raise OperationalError(f"{broker} is not back and ready after {within_s:g} s: {why}")
        if for_s >= LONG_S and not logged:
            tell(f"{broker}: not back after {LONG_S:g} s: {_why_not_back(admin, broker, before)}")
            logged = True
        time.sleep(POLL_S)


def _why_not_back(admin: AdminClient, broker: str, before: int) -> str:
    try:
        began = start_of(admin.at(broker))
    except OperationalError:
        return f"it does not answer. {STARTS_AGAIN}"
    if began > before:
        return "it runs again and is not ready yet; its log says why"
    return "it was not restarted: its process is the one from before"


def _is_back(admin: AdminClient, broker: str, before: int) -> bool:
    """True if a newer process of the broker is ready and registered."""
    at = admin.at(broker)
    return _quietly(
        lambda: (
            start_of(at) > before
            and at.text(f"{V2}/brokers/ready") == "ok"
            and broker in brokers_of(at)
            and bool(at.get(f"{V2}/brokers/leaderBroker", LeaderBroker))
        )
    )


def _quietly(step: Callable[[], object]) -> bool:
    """Run a step; False if it failed: brokers that restart do not answer for a while."""
    try:
        return step() is not False
    except OperationalError:
        return False


def _until(condition: Callable[[], bool], within_s: float, otherwise: str) -> None:
    until_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() >= until_s:
            raise OperationalError(f"{otherwise} after {within_s:g} s")
        time.sleep(POLL_S)


def _stopped(
    broker: str, order: list[str], restarted: list[str], error: str, *, status: int = 1
) -> Output:
    left = [name for name in order if name not in restarted and name != broker]
    ended = f"restarted: {', '.join(restarted) or 'none'}; failed: {broker}; "
    ended += f"not begun: {', '.join(left) or 'none'}"
    mend = f"loadmanager admin brokers uncordon {broker}"
    lines = [
        f"stopped at {broker}: {error}",
        f"It stays cordoned. Look at it, restart it if need be, then: {mend}",
        ended,
    ]
    data = {"restarted": restarted, "left": left, "failed": broker, "error": error}
    return Output(data, lines, status=status)
