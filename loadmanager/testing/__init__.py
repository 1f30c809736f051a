"""For the tests of a sharded service: a cluster of members in this process, on virtual time,
without a metadata store beside it.

    @virtual
    async def test_a_room_survives_a_crash() -> None:
        async with cluster(Rooms, members=3) as members:
            await members.kill(0)
            assert (await members.owner("kitchen")).number != 0
"""

from loadmanager.testing.cluster import LocalMember, Members, cluster
from loadmanager.testing.virtual_time import VirtualLoop, virtual

__all__ = ["LocalMember", "Members", "VirtualLoop", "cluster", "virtual"]
