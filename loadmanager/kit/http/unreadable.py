"""Answers what is not HTTP, or too long to be read, as all errors of the API are answered."""

from __future__ import annotations

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from loadmanager.kit.http.answers import failed

REASON_MAX = 200


class Handler(web.RequestHandler):
    """aiohttp's protocol of one connection, with `{"reason": …}` where it has a text."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to a request that no route was reached with; the connection ends with it."""
        if not isinstance(exc, HttpProcessingError) or request.writer.output_size > 0:
            return super().handle_error(request, status, exc, message)
        first = (message or "").strip().partition("\n")[0].rstrip(":")
        reason = "".join(char if char.isprintable() else "?" for char in first[:REASON_MAX])
        answer = failed(status, f"the request cannot be read: {reason}")
        answer.force_close()
        return answer
