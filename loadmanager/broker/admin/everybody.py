"""Asks every broker of the cluster the same, and collects the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
from multidict import MultiDict

from loadmanager.broker.admin.calls import Calls, UnansweredError
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.tasks import for_each

T = TypeVar("T")

BROKERS_ASKED_MAX = 200
ASKED_AT_ONCE = 16
ANSWER_TIMEOUT_S = 3.0
ANSWER_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class AnswersByBroker(Generic[T]):
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
        self._first = 0
        """The broker to begin the next round with."""

    async def ask(
        self,
        method: str,
        path: str,
        shape: type[T],
        own: Callable[[], T],
        query: Sequence[tuple[str, str]] | Mapping[str, str] = (),
        *,
        most: int = BROKERS_ASKED_MAX,
    ) -> AnswersByBroker[T]:
        """Ask each broker for an answer of a shape, with `local=true`; `own` is this broker's."""
        names = sorted(self._use.brokers.registered)
        first = self._first if self._first < len(names) else 0
        self._first = first + most
        chosen = [*names[first:], *names[:first]][:most]
        addresses = [
            address for name in chosen if (address := self._use.brokers.address(name)) is not None
        ]

        async def ask_broker(broker: BrokerAddress) -> T | OperationalError:
            if broker.broker_id == self._use.self_address.broker_id:
                return own()
            wanted = MultiDict(query)
            wanted["local"] = "true"
            return await self._asked(broker, method, path, shape, wanted)

        results = await for_each(addresses, ask_broker, ASKED_AT_ONCE)
        answers: AnswersByBroker[T] = AnswersByBroker({}, {}, len(names) - len(addresses))
        for address, answer in zip(addresses, results, strict=True):
            if isinstance(answer, OperationalError):
                answers.no_answer[address.broker_id] = str(answer)
            else:
                answers.brokers[address.broker_id] = answer
        return answers

    async def _asked(
        self,
        broker: BrokerAddress,
        method: str,
        path: str,
        shape: type[T],
        query: Mapping[str, str],
    ) -> T | OperationalError:
        """A broker's answer, or the error that there is instead."""
        try:
            answer = await self._calls.ask(
                broker, method, path, query, timeout_s=ANSWER_TIMEOUT_S, bytes_max=ANSWER_BYTES_MAX
            )
            if answer.status != 200:
                return OperationalError(f"answered {answer.status}")
            return msgspec.json.decode(answer.body, type=shape)
        except UnansweredError as error:
            return OperationalError(error.reason)
        except OperationalError as error:
            return error
        except (ValueError, RecursionError) as error:
            return OperationalError(f"gave no usable answer: {error}")
