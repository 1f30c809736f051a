"""Answers of a leader, each with every field; tests change some."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import structs

from loadmanager.engine.moves.move import Author, Move, MoveState, Outcome
from loadmanager.leader.documents.cluster import (
    BrokerShown,
    ClusterShown,
    LeaderShown,
    MovesCount,
    ReportShown,
    Resource,
    Resources,
)
from loadmanager.leader.documents.decisions import DecisionShown

BUNDLE = "acme/orders/0x00000000_0x40000000"


def a_broker_shown(broker: str = "b1:8080", **changed: Any) -> BrokerShown:
    """A broker that has reported nothing yet."""
    shown = BrokerShown(
        **dict.fromkeys(ReportShown.__struct_fields__),  # type: ignore[arg-type]
        broker=broker,
        url=f"http://{broker}",
        service_url=None,
        leader=False,
        state="active",
        cordon=None,
        version="0.3.0",
        started_at=1,
    )
    return structs.replace(shown, **changed)


def resources(cores: float, gib: float) -> Resources:
    """What a broker counts on."""
    other = Resource(usage=0, limit=0, fraction=None)
    return Resources(
        cpu=Resource(usage=0, limit=cores * 100, fraction=0),
        memory=Resource(usage=0, limit=gib * 1024, fraction=0),
        direct_memory=other,
        bandwidth_in=other,
        bandwidth_out=other,
    )


def a_cluster_shown(brokers: Iterable[BrokerShown], **changed: Any) -> ClusterShown:
    """A cluster of these brokers."""
    shown = ClusterShown(
        at=1,
        leader=LeaderShown(broker="b1:8080", url="http://b1:8080", epoch=1, since=1),
        manager="modular",
        shedder="ThresholdShedder",
        placement="LeastLongTermMessageRate",
        balancing=True,
        cycles=1,
        paused=None,
        moves=MovesCount(waiting=0, running=0),
        bundles=48,
        total=3,
        brokers=list(brokers),
    )
    return structs.replace(shown, **changed)


def a_decision(number: int, kind: str, **fields: Any) -> DecisionShown:
    """A decision of a kind."""
    return DecisionShown(id=f"1-{number}", ts=1, kind=kind, epoch=1, cycle=1, **fields)


def a_move_shown(**changed: Any) -> Move:
    """A move that is done."""
    move = Move(
        id="1-1",
        bundle=BUNDLE,
        source="b1:8080",
        destination="b2:8080",
        reason="Overloaded",
        why={"usage": 0.9},
        author=Author.CYCLE,
        swap=None,
        state=MoveState.DONE,
        created_at=1,
        started_at=2,
        ended_at=3,
        outcome=Outcome("moved", owner="b2:8080", clients_closed=2, clients_back=1, pause_ms=1.5),
    )
    return structs.replace(move, **changed)
