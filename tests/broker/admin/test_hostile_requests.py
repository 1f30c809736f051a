"""Requests made from the OpenAPI document, good and bad: no bug, and no undocumented answer."""

from __future__ import annotations

import asyncio
import os
import random
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import hypothesis
import pytest
import requests
import schemathesis
from broker.admin.serving import CLUSTER, Served, serving
from hypothesis import strategies as st
from schemathesis import GenerationMode

EXAMPLES = 3
"""For each route with a body or a query, of each mode."""
TIMEOUT_S = 60.0
BUDGET_S = 12.0
ORDER = int(os.environ.get("HOSTILE_ORDER", random.randrange(1_000)))
"""Which routes come first; a failure names the request."""
BAD = ("a b%00", "x" * 1_500)
"""Bad values of the variables of a path."""
ENDLESS = "/loadmanager/v1/events"
KNOWN = {
    "tenant": ["acme", "public"],
    "namespace": ["orders"],
    "bundle": ["0x00000000_0x40000000", "0x80000000_0xc0000000", "LARGEST", "HOT"],
    "topic": ["t", "a%2Fb", "t-partition-0"],
    "cluster": [CLUSTER],
    "name": ["s", "loadBalancerSheddingEnabled"],
    "value": ["true", "-1"],
    "id": ["1-1", "1-p1", "9-p1"],
    "group": ["g"],
    "policy": ["gold"],
    "role": ["r"],
    "entries": ["1"],
    "time": ["0"],
    "age": ["5"],
}
"""Values of variables of paths that lead further than random ones."""


@contextmanager
def in_a_thread() -> Iterator[Served]:
    """Two brokers on an event loop of their own, because Hypothesis runs here without one."""
    ready: Future[Served] = Future()
    stop = threading.Event()

    async def serve() -> None:
        try:
            async with serving(2) as served:
                ready.set_result(served)
                while not stop.is_set():
                    await asyncio.sleep(0.01)
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            raise

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        yield ready.result(timeout=120)
    finally:
        stop.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_made_up_requests_get_documented_answers() -> None:
    """Neither a bug (500) nor a status, media type or body that the document does not have; 501 and
    503 are answers like others. Every route is asked; after that, routes in any order get requests
    made from their descriptions until the time is up.
    """
    with in_a_thread() as served, requests.Session() as session:
        schema = schemathesis.openapi.from_dict(served.contract.document)
        operations = [
            found.ok() for found in schema.get_all_operations() if found.ok().path != ENDLESS
        ]
        for operation in operations:
            _ask_plainly(served, session, operation)
        described = [one for one in operations if one.body or one.query]
        random.Random(ORDER).shuffle(described)
        until_s = time.monotonic() + BUDGET_S
        for operation in described:
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                if time.monotonic() < until_s:
                    _ask(served, session, operation, mode)


def _ask_plainly(served: Served, session: requests.Session, operation: Any) -> int:
    """Ask with variables that lead somewhere, then with bad ones, and without a body."""
    for value in (None, *BAD):
        path = operation.path
        for name in re.findall(r"{(\w+)}", path):
            domain = "persistent" if name == "domain" else None
            given = value or domain or KNOWN.get(name, [name])[0]
            path = path.replace(f"{{{name}}}", given)
        answer = session.request(
            operation.method.upper(), served.url() + path, allow_redirects=False, timeout=TIMEOUT_S
        )
        _check(served, answer, answer.headers.get("Content-Type", ""))
    return 1 + len(BAD)


def _ask(served: Served, session: requests.Session, operation: Any, mode: GenerationMode) -> int:
    """Send requests made from what the document says, or against it; how many."""
    asked = 0
    known = {
        name: st.sampled_from([None, *values])
        for name, values in KNOWN.items()
        if f"{{{name}}}" in operation.path
    }

    @hypothesis.seed(1)
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(operation.as_strategy(generation_mode=mode), st.fixed_dictionaries(known))
    def ask(case: Any, known: dict[str, str | None]) -> None:
        nonlocal asked
        asked += 1
        given = {name: value for name, value in known.items() if value is not None}
        case.path_parameters = {**(case.path_parameters or {}), **given}
        answer = case.call(
            base_url=served.url(), session=session, allow_redirects=False, timeout=TIMEOUT_S
        )
        _check(served, answer, answer.headers.get("content-type", [""])[0])

    with suppress(hypothesis.errors.Unsatisfiable):  # nothing of it can be wrong
        ask()
    return asked


def _check(served: Served, answer: Any, media: str) -> None:
    sent = answer.request
    text = answer.content.decode()
    where = f"{sent.method} {sent.url} {sent.body!r}: {answer.status_code} {text[:300]}"
    assert answer.status_code != 500, where
    path = urlsplit(sent.url).path
    served.contract.check(sent.method, path, answer.status_code, media.partition(";")[0], text)
