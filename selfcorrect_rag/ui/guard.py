"""What every answer and every request of the page keeps to, and the page that is there at once."""

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 1_000_000
"""Of a request's body."""
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    # With no-referrer a browser would send no Origin by which KnownHosts could tell a form of ours.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Of every answer; one that has a header of its own keeps it."""
OPENING = (
    '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Opening</title>'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark"><meta http-equiv="refresh" content="1">'
    "</head><body><p>Opening\u2026</p></body></html>"
)


class Guard:
    """Sets the headers of answers, and refuses what is too long.

    It also refuses what a browser says that another site's page sends, for browsers that send no
    ``Origin``, which :class:`~selfcorrect_rag.serving.known_hosts.KnownHosts` looks at.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        app = _refusal(HTTPConnection(scope), scope["method"]) or self._app
        await app(scope, _bounded(receive), with_headers)


def _refusal(request: HTTPConnection, method: str) -> PlainTextResponse | None:
    headers = request.headers
    if int(headers.get("content-length") or 0) > MOST_BYTES:
        return PlainTextResponse(f"at most {MOST_BYTES:,} bytes", 413)
    is_other = headers.get("sec-fetch-site", "same-origin") != "same-origin"
    if is_other and method not in ("GET", "HEAD"):
        return PlainTextResponse("another site's page may not do that", 403)
    return None


class TooLong(Exception):
    """A body is longer than it said, or than is taken."""


def _bounded(receive: Receive) -> Receive:
    """The same messages, as long as they are not too long together."""
    left = MOST_BYTES

    async def bounded() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise TooLong
        return message

    return bounded


class Opening:
    """An app that answers at once that it is opening, until :meth:`become` gives it another.

    Importing the graphs takes seconds, and a browser that finds nobody listening gives up.
    """

    def __init__(self) -> None:
        self._app: ASGIApp | None = None

    def become(self, app: ASGIApp) -> None:
        """Answer with ``app`` from now on."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is not None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            opening = HTMLResponse(OPENING, 503, {"retry-after": "1"})
            await opening(scope, receive, send)
