"""A live load manager with Apache Pulsar's concepts, names and wire formats, and a library with
which any asyncio service becomes a balanced, sharded one.

The names in `__all__` follow semantic versions: within a major version they keep their meaning.
`loadmanager.testing` does, too. All other modules may change at any time.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as checkers know it: to import `typing` takes long, with Ctrl-C in mind
if TYPE_CHECKING:
    from loadmanager.engine.plans.balance import Item, Node, balance
    from loadmanager.kit.errors import BadInputError, OperationalError
    from loadmanager.limits.bucket import TokenBucket
    from loadmanager.sharding.limiter import AsyncLimiter
    from loadmanager.sharding.member import Member
    from loadmanager.sharding.shards import Moved, NotNow, Service, Shard

__version__ = "0.4.0.dev0"

_WHERE = {
    "AsyncLimiter": "loadmanager.sharding.limiter",
    "BadInputError": "loadmanager.kit.errors",
    "Item": "loadmanager.engine.plans.balance",
    "Member": "loadmanager.sharding.member",
    "Moved": "loadmanager.sharding.shards",
    "Node": "loadmanager.engine.plans.balance",
    "NotNow": "loadmanager.sharding.shards",
    "OperationalError": "loadmanager.kit.errors",
    "Service": "loadmanager.sharding.shards",
    "Shard": "loadmanager.sharding.shards",
    "TokenBucket": "loadmanager.limits.bucket",
    "balance": "loadmanager.engine.plans.balance",
}
"""Public name → its module, which is loaded when the name is first used."""

__all__ = [
    "AsyncLimiter",
    "BadInputError",
    "Item",
    "Member",
    "Moved",
    "Node",
    "NotNow",
    "OperationalError",
    "Service",
    "Shard",
    "TokenBucket",
    "balance",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_WHERE[name]), name)
    return value
