"""`loadmanager admin roles …` and `loadmanager admin tokens …`."""

from __future__ import annotations

from urllib.parse import quote

import click

from loadmanager.broker.admin.documents import Disconnected
from loadmanager.broker.ports.refused import RefusedToken
from loadmanager.cli.admin.asking import OWN, count_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminGroup, Output, done, listed, unchanged
from loadmanager.cli.admin.past_documents import document_then
from loadmanager.cli.admin.times import Moment, at_option, clock
from loadmanager.cli.terminal import table
from loadmanager.kit.metadata import paths

roles = AdminGroup("roles", help="What a role has begun: disconnect.")
tokens = AdminGroup("tokens", help="Tokens that brokers refuse: list, refuse, allow.")
TOKENS = f"{OWN}/refused-tokens"


def _not_empty(_context: click.Context, _argument: click.Parameter, text: str) -> str:
    if not text:
        raise click.BadParameter("it is empty")
    return text


_id = click.argument("token_id", metavar="ID", callback=_not_empty)


@roles.command("disconnect")
@click.argument("role", callback=_not_empty)
def roles_disconnect(admin: AdminClient, role: str) -> Output:
    """End all connections of a role, on all brokers, and the streams of events to it.

    Its clients come back, if their token still counts: take its permissions away first, or refuse
    the token.
    """
    path = f"{OWN}/roles/{quote(role, safe='')}/disconnect"
    answer, raw = admin.ask("POST", path, None, Disconnected)
    ended = {broker: count for broker, count in answer.brokers.items() if count}
    total = count_of(sum(ended.values()), "connection")
    head = f"{total} of {role} ended; so do the streams of events to it, which are not counted"
    if not ended:
        return Output(raw, head, missing=answer.no_answer)
    rows = sorted(ended.items())
    return Output(raw, (head, table(("broker", "ended"), rows)), missing=answer.no_answer)


@tokens.command("list")
@at_option
def tokens_list(admin: AdminClient, at: int | None) -> Output:
    """List the refused tokens; an entry goes when its token would have ended. With --at, those of
    then.
    """
    answer, raw = admin.ask("GET", TOKENS, None, dict[str, RefusedToken])
    if at is not None:
        return document_then(admin, paths.REFUSED_TOKENS, raw, at)
    rows = [
        (
            name,
            clock(entry.since),
            "" if entry.until is None else clock(entry.until),
            entry.note,
        )
        for name, entry in sorted(answer.items())
    ]
    return listed(raw, ("id", "since", "until", "note"), rows, "no token is refused")


@tokens.command("refuse")
@_id
@click.option(
    "--until",
    type=Moment(),
    help="when it ends by itself: 2026-11-20T14:00Z (default: not known)",
)
@click.option("--note", default="", help="why, for others")
def tokens_refuse(admin: AdminClient, token_id: str, until: int | None, note: str) -> Output:
    """Refuse a token from now on, on all brokers; what it has begun ends.

    ID is what `loadmanager tokens validate` shows. Of a token that is refused already, the end and
    the note stay if they are not given again.
    """
    refused = admin.get(TOKENS, dict[str, RefusedToken]).get(token_id)
    if refused is not None:
        until, note = until or refused.until, note or refused.note
    text = token_id + " is refused" + ("" if until is None else f" until {clock(until)}")
    # it is sent in any case: what the broker knew may have been old
    admin.send("PUT", f"{TOKENS}/{quote(token_id, safe='')}", {"until": until, "note": note})
    if refused is not None and (until, note) == (refused.until, refused.note):
        return unchanged(f"{text} already", id=token_id, until=until)
    return done(text, id=token_id, until=until)


@tokens.command("allow")
@_id
def tokens_allow(admin: AdminClient, token_id: str) -> Output:
    """Refuse a token no longer."""
    admin.send("DELETE", f"{TOKENS}/{quote(token_id, safe='')}")
    return done(f"{token_id} is refused no longer", id=token_id)
