"""For programs that call the members of a sharded service: who serves a key?

async with RoutingClient("zk://127.0.0.1:2181/rooms") as client:
    client.owner("kitchen")                  # an address, without I/O
    await client.call("kitchen", ask)        # ask(address), again where it moved to
"""

from loadmanager.sharding.client import RoutingClient
from loadmanager.sharding.table import Table

__all__ = ["RoutingClient", "Table"]
