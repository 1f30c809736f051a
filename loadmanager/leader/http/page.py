"""The page at /ui: built files of `ui/`, which are part of the package. They contain no data."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
import re
from dataclasses import dataclass
from importlib import resources

from aiohttp import web

from loadmanager.kit.http.answers import RefusedError
from loadmanager.kit.http.operation import operation

UI = "/ui"
PAGE = frozenset({"/", "/ui", "/ui/", "/ui/{file}", "/ui/{file}/"})
"""For everybody: the files of the page, which contain no data."""
BUILT = "ui"
"""The folder of the built files, beside this module."""
INDEX = "index.html"
HASHED = re.compile(r".+-[0-9A-Z]{8}\.(js|css)")
"""Names that change with the contents."""
FOREVER = "public, max-age=31536000, immutable"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
}


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    zipped: bytes
    etag: str
    media: str
    cached: str


class PageRoutes:
    """The files of the page."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}

    def routes(self) -> list[web.RouteDef]:
        """All routes; a slash at the end does not name another page."""
        return [
            web.get("/", self.start),
            web.get(UI, self.index),
            web.get(UI + "/{file}", self.file),
        ]

    @operation(also={302: "to the page", 404: "for programs"})
    async def start(self, request: web.Request) -> web.Response:
        """To the page, for browsers; 404 for programs, which do not ask for HTML."""
        if "text/html" not in request.headers.get("Accept", ""):
            raise RefusedError(404, f"there is nothing at /; the page is at {UI}")
        return web.Response(status=302, headers={"Location": UI})

    @operation(answer=str, media="text/html", also={304: "the copy is current"})
    async def index(self, request: web.Request) -> web.Response:
        """A page that shows the cluster and administrates it; it asks for a token if need be."""
        return self._answer(request, INDEX)

    @operation(answer=str, media="*/*", also={304: "the copy is current"})
    async def file(self, request: web.Request) -> web.Response:
        """A file of the page."""
        return self._answer(request, request.match_info["file"])

    def _answer(self, request: web.Request, name: str) -> web.Response:
        file = self._read(name)
        headers = {**HEADERS, "ETag": file.etag, "Cache-Control": file.cached}
        if request.headers.get("If-None-Match") == file.etag:
            return web.Response(status=304, headers=headers)
        body = file.body
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            body, headers["Content-Encoding"] = file.zipped, "gzip"
        return web.Response(body=body, content_type=file.media, charset="utf-8", headers=headers)

    def _read(self, name: str) -> _File:
        if not self._files:
            folder = resources.files(__package__) / BUILT
            self._files = {
                path.name: _file(path.name, path.read_bytes())
                for path in folder.iterdir()
                if path.name.endswith((".html", ".js", ".css", ".svg"))
            }
        if name not in self._files:
            raise RefusedError(404, f"there is nothing at /; the page is at {UI}")
        return self._files[name]


def _file(name: str, body: bytes) -> _File:
    return _File(
        body=body,
        zipped=gzip.compress(body, mtime=0),
        etag=f'"{hashlib.sha256(body).hexdigest()[:16]}"',
        media=mimetypes.guess_type(name)[0] or "application/octet-stream",
        cached=FOREVER if HASHED.fullmatch(name) else "no-cache",
    )
