"""Settings of the daemon that steers a Pulsar cluster."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.kit.conf import conf

OBSERVE, ADVISE, APPROVE, ACT = MODES = ("observe", "advise", "approve", "act")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """The daemon's mode, and what it may do to the cluster."""

    mode: str = conf(
        "mode",
        OBSERVE,
        "What the daemon does: observe records; advise also says what it would move; approve moves "
        "what an operator approved; act moves by itself",
        choices=MODES,
    )
    read_interval_s: float = conf(
        "readIntervalSeconds",
        30.0,
        "How often every broker's load is read; Pulsar itself measures once a minute",
        minimum=1,
    )
    policies_interval_s: float = conf(
        "policiesIntervalSeconds",
        300.0,
        "How often policies and Pulsar's own settings are read",
        minimum=1,
    )
    read_at_once_max: int = conf(
        "readAtOnceMax", 4, "Most brokers that are read at the same time", minimum=1, maximum=64
    )
    shadows: tuple[str, ...] = conf(
        "shadowStrategies",
        (),
        "Shedding strategies whose plans are made and shown beside the configured one's",
    )
    restore_pulsar: bool = conf(
        "restorePulsarOnStop",
        False,
        "In act: switch Pulsar's own shedding on again when the daemon is stopped",
    )
    moves_per_hour_max: int = conf(
        "movesPerHourMax",
        -1,
        "Most moves that begin in any hour (-1: 60, or a twentieth of all bundles if that is more)",
        minimum=-1,
        maximum=5_000,
    )
    moves_per_broker_max: int = conf(
        "movesPerBrokerPerHourMax",
        -1,
        "Most moves from or to one broker that begin in any hour (-1: 20, or as many bundles as a "
        "broker has on the mean if those are more)",
        minimum=-1,
    )
    quiet_hours: tuple[str, ...] = conf(
        "quietHours",
        (),
        "Windows without moves, as `22:00-06:00` or `Mon-Fri 08:00-18:00 Europe/Berlin`: days of "
        "the week (without any: every day), hours (with equal ends the whole day), a time zone "
        "(without: UTC), and `except` with days such as `2026-12-25` or `2026-12-24..2027-01-01`",
    )
    webhook_urls: tuple[str, ...] = conf(
        "webhookUrls",
        (),
        "Where notices are posted as JSON: nothing is moved, a plan waits, a goal has ended, what "
        "act would have gained in a week, the canary cannot measure",
        secret=True,
    )
    webhook_template: str = conf(
        "webhookTemplate",
        "",
        "The JSON of a notice with the places {cluster}, {kind}, {text}, {at} (milliseconds) and "
        "{time} (ISO 8601, UTC); empty: an object of these. For a chat: "
        '`{"text": "{cluster}: {text}"}`',
        secret=True,
    )
    canary_namespace: str = conf(
        "canaryNamespace",
        "",
        "In approve and act: a namespace, made for that, on whose topic the daemon has a producer "
        "now and then, and whose bundle it moves, to measure how long a client is paused; empty: "
        "none",
    )
    canary_interval_s: float = conf(
        "canaryIntervalSeconds", 3600.0, "How often the canary measures", minimum=60
    )
    history_cycles: bool = conf(
        "loadManagerHistoryCyclesEnabled",
        True,
        "Record what each cycle saw and used, for `replay --exact`",
    )
    replay_error_url: str = conf(
        "loadManagerReplayErrorUrl",
        "",
        "Where `analyze --replay` leaves `calibration.json`: a path or any fsspec URL. Plans and "
        "headroom show by it how far off the last replay was; empty: nowhere",
    )
    rate_drop_percent: float = conf(
        "breakerRateDropPercent",
        30.0,
        "Moves stop when the brokers of a move, and its bundle, get less by more than this after "
        "it, while the others do not; and for a shorter while when the whole cluster gets so much "
        "less",
        minimum=0,
        maximum=100,
    )
    failures_max: int = conf(
        "breakerFailures", 1, "Moves stop after so many moves in a row that failed", minimum=1
    )
    open_minutes: float = conf(
        "breakerMinutes",
        30.0,
        "For how long moves stop then, unless an operator ends it",
        minimum=0.1,
    )
    settle_s: float = conf(
        "settleSeconds",
        120.0,
        "After a move: its bundle's rate counts as before for so long, because Pulsar's own "
        "figures of it start at 0",
        minimum=0,
    )
