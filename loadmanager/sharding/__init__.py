"""The library: any asyncio service becomes a sharded one. Its names are those of `loadmanager`."""

from loadmanager.sharding.member import Member
from loadmanager.sharding.shards import Moved, Service, Shard

__all__ = ["Member", "Moved", "Service", "Shard"]
