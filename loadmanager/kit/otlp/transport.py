"""How the exporters of OpenTelemetry reach a collector, whose answers are not trusted."""

from __future__ import annotations

import logging
import time
from typing import Any

import requests

ANSWER_BYTES_MAX = 64 * 1024
"""More than the answers of OTLP have."""
ANSWER_S_MAX = 10.0
"""How long the body of an answer may take."""


class BoundedSession(requests.Session):
    """Reads a short answer within a time, and no more of any other one."""

    def send(self, request: requests.PreparedRequest, **more: Any) -> requests.Response:
        """As in `requests.Session`. Raises `requests.ConnectionError` for an endless answer."""
        response = super().send(request, **{**more, "stream": True})
        until_s, body = time.monotonic() + ANSWER_S_MAX, bytearray()
        try:
            for chunk in response.iter_content(4096):
                body += chunk
                if len(body) > ANSWER_BYTES_MAX or time.monotonic() > until_s:
                    raise requests.ConnectionError("the answer has no end")
        finally:
            response.close()
        response._content = bytes(body)  # noqa: SLF001 - what `content` has once it was read
        return response


def keep_quiet() -> None:
    """A collector that is down is logged by us, once a minute; not by each attempt."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
