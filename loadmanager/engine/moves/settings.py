"""Limits of the pace of moves."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.kit.conf import conf


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveSettings:
    """The leader's queue of moves."""

    at_once_max: int = conf(
        "loadManagerMovesAtOnceMax",
        16,
        "Most moves under way at once in the cluster",
        minimum=1,
        dynamic=True,
    )
    per_source_max: int = conf(
        "loadManagerMovesPerSourceMax",
        4,
        "Most moves under way at once away from one broker",
        minimum=1,
        dynamic=True,
    )
    per_destination_max: int = conf(
        "loadManagerMovesPerDestinationMax",
        4,
        "Most moves under way at once to one broker",
        minimum=1,
        dynamic=True,
    )
    per_minute_max: int = conf(
        "loadManagerMovesPerMinuteMax",
        600,
        "Most moves that begin in any minute, those of single operators' requests not counted (-1: "
        "any number)",
        minimum=-1,
        dynamic=True,
    )
    queue_max: int = conf(
        "loadManagerMovesQueueMax",
        1000,
        "Most moves that wait; further ones are refused, and decided again later",
        minimum=1,
        maximum=10_000,
        dynamic=True,
    )
    ttl_s: float = conf(
        "loadManagerMovesTTLInSeconds",
        600.0,
        "A move that waits longer expires: the load that it was decided by is no longer true",
        minimum=1,
        dynamic=True,
    )
    warm_up_s: float = conf(
        "loadManagerMovesWarmUpInSeconds",
        120.0,
        "A new leader sheds nothing before a majority of the brokers has reported to it, but waits "
        "no longer than this (0: not at all)",
        minimum=0,
        dynamic=True,
    )
    timeout_s: float = conf(
        "loadManagerMovesTimeoutInSeconds",
        120.0,
        "A move that takes longer is given up: the leader reads who owns the bundle, has an orphan "
        "acquired, and records what is true",
        minimum=1,
        dynamic=True,
    )
