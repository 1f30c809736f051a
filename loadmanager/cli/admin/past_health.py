"""How well brokers were at a moment, as far as they and leaders recorded it."""

from __future__ import annotations

from loadmanager.cli.admin.archives import incomplete
from loadmanager.cli.admin.brokers import brokers_then
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import Output
from loadmanager.cli.admin.downtimes import LAPSE_MS_MAX, lapses_of, unproven
from loadmanager.cli.admin.leaders import leader_then
from loadmanager.cli.admin.names_then import nothing_then
from loadmanager.cli.admin.past_findings import recorded_findings
from loadmanager.cli.terminal import table
from loadmanager.kit.errors import OperationalError

NO_ANSWERS = (
    "what each broker would have answered then is not recorded: ok is one of whose absence, "
    "silence, session and findings nothing bad is"
)
NOTHING = "nothing is recorded of then"


def health_at(admin: AdminClient, broker: str | None, at_ms: int) -> Output:
    """What was wrong with all brokers, or the named one. Raises `OperationalError` for one of which
    nothing is recorded.
    """
    leader = leader_then(admin, at_ms)
    rows, past, _ = brokers_then(admin, at_ms, leader)
    # A cordon is no fault.
    gone = {row["broker"]: row["state"] if row["state"] != row["cordon"] else "" for row in rows}
    if broker is not None and broker not in gone:
        raise OperationalError(
            f"{nothing_then(admin, broker, at_ms)}; "
            f"the brokers of then are {', '.join(sorted(gone)) or 'not known'}"
        )
    lapses = lapses_of(unproven(admin, at_ms, at_ms + LAPSE_MS_MAX))
    then, steps = recorded_findings(admin, at_ms, leader)
    health = {}
    for name in sorted(gone) if broker is None else [broker]:
        wrong = [gone[name]] if gone[name] else []
        if not wrong:
            here = (it for it in lapses if name in it.brokers and it.covers(at_ms))
            wrong += [it.of(name) for it in here]
            wrong += [it.title for it in then.findings if name in it.about.split(" ")]
        health[name] = "; ".join(wrong) or "ok"
    healthy = bool(health) and all(text == "ok" for text in health.values())
    shown = table(("broker", "health"), list(health.items()))
    parts = (shown, past.outages, NO_ANSWERS) if health else (NOTHING, past.notes)
    missing = past.missing | steps.missing
    return Output(health, (*parts, *incomplete(steps.notes)), int(not healthy), missing)
