"""Asks every broker of the cluster the same, and collects the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import aiohttp
import msgspec

from loadmanager.broker.admin.calls import Calls
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import OperationalError, said

T = TypeVar("T")

BROKERS_ASKED_MAX = 200
ASKED_AT_ONCE = 16
ANSWER_TIMEOUT_S = 3.0
ANSWER_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """The answers of brokers."""

    brokers: dict[str, T]
    """brokerId → its answer."""
    no_answer: dict[str, str]
    """brokerId → why there is none."""
    not_asked: int
    """There are too many for one round: others are asked in the next one."""


class Everybody:
    """The brokers of the cluster, this one included."""

    def __init__(self, use: UseCases, calls: Calls) -> None:
        self._use, self._calls = use, calls
        self._session: aiohttp.ClientSession | None = None
        self._first = 0
        """The broker to begin the next round with."""

    async def close(self) -> None:
        """Close the connections to other brokers."""
        if self._session is not None:
            await self._session.close()

    async def ask(
        self,
        method: str,
        path: str,
        shape: type[T],
        own: Callable[[], T],
        query: Mapping[str, str] | None = None,
        *,
        most: int = BROKERS_ASKED_MAX,
    ) -> Answers[T]:
        """Ask each broker for an answer of a shape, with `local=true`; `own` is this broker's."""
        names = sorted(self._use.brokers.registered)
        first = self._first if self._first < len(names) else 0
        self._first = first + most
        chosen = [*names[first:], *names[:first]][:most]
        addresses = [
            address for name in chosen if (address := self._use.brokers.address(name)) is not None
        ]

        async def one(broker: BrokerAddress) -> T | OperationalError:
            if broker.broker_id == self._use.self_address.broker_id:
                return own()
            wanted = {**(query or {}), "local": "true"}
            return await self._asked(broker, method, path, shape, wanted)

        told = await self._use.for_each(addresses, one, ASKED_AT_ONCE)
        answers: Answers[T] = Answers({}, {}, len(names) - len(addresses))
        for address, answer in zip(addresses, told, strict=True):
            if isinstance(answer, OperationalError):
                answers.no_answer[address.broker_id] = str(answer)
            else:
                answers.brokers[address.broker_id] = answer
        return answers

    async def _asked(
        self, broker: BrokerAddress, method: str, path: str, shape: type[T], query: dict[str, str]
    ) -> T | OperationalError:
        """A broker's answer, or the error that there is instead."""
        if self._session is None:
            self._session = aiohttp.ClientSession()
        try:
            async with (
                asyncio.timeout(ANSWER_TIMEOUT_S),
                self._session.request(
                    method,
                    self._calls.url(broker) + path,
                    params=query,
                    headers=self._calls.headers(),
                    ssl=self._calls.tls(),
                    allow_redirects=False,
                ) as answer,
            ):
                raw = await answer.content.read(ANSWER_BYTES_MAX)
                while len(raw) < ANSWER_BYTES_MAX and (more := await answer.content.readany()):
                    raw += more
                if answer.status != 200:
                    return OperationalError(f"answered {answer.status}")
                return msgspec.json.decode(raw, type=shape)
        except TimeoutError:
            return OperationalError(f"did not answer within {ANSWER_TIMEOUT_S:g} s")
        except (aiohttp.ClientError, OSError) as error:
            return OperationalError(f"cannot be reached: {said(error)}")
        except OperationalError as error:
            return error
        except (ValueError, RecursionError) as error:
            return OperationalError(f"gave no usable answer: {error}")
