"""The library: any asyncio service becomes a sharded one. Its names are those of `loadmanager`."""
