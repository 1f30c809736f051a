"""Who is there, by address. When there are too many, the address that has the most gives way, so
that a few addresses cannot keep all others out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Crowd(Generic[K, V]):
    """Things of each address by their keys, those that came or were used last at the end."""

    def __init__(self) -> None:
        self.count = 0
        self._at: dict[str, dict[K, V]] = {}

    def enter(self, address: str, key: K, value: V) -> None:
        """Something is there."""
        here = self._at.setdefault(address, {})
        self.count += key not in here
        here[key] = value

    def leave(self, address: str, key: K) -> bool:
        """It is gone; false if it was gone before."""
        here = self._at.get(address, {})
        if key not in here:
            return False
        del here[key]
        self.count -= 1
        if not here:
            del self._at[address]
        return True

    def __iter__(self) -> Iterator[K]:
        """The keys of all addresses."""
        return (key for here in self._at.values() for key in here)

    def used(self, address: str, key: K) -> None:
        """It is the most recently used one now, if it is there."""
        here = self._at.get(address, {})
        if key in here:
            here[key] = here.pop(key)

    def at(self, address: str) -> Mapping[K, V]:
        """What is there of an address, the least recently used first."""
        return self._at.get(address, {})

    def greediest(self) -> Mapping[K, V]:
        """What is there of the address that has the most; of several, of the one that came first.
        Takes time in the number of addresses.
        """
        return max(self._at.values(), key=len, default={})
