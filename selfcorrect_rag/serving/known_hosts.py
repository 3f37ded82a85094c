"""The guard of our HTTP servers: only known hosts, and pages of them, may call."""

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose


class KnownHosts:
    """Refuses requests and websockets with an unknown ``Host`` or ``Origin``.

    Args:
        app: what is guarded.
        hosts: names by which it may be called.
        pages: hosts whose pages may call it, besides these; None: its own pages alone may, not
            those of other ports.
    """

    def __init__(
        self, app: ASGIApp, hosts: Collection[str], pages: Collection[str] | None = ()
    ) -> None:
        self._app, self._hosts = app, {*hosts}
        self._pages = None if pages is None else {*hosts, *pages}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            headers = HTTPConnection(scope).headers
            if refusal := self._refusal(headers.get("host", ""), headers.get("origin")):
                is_socket = scope["type"] == "websocket"
                answer = PlainTextResponse(refusal, status_code=403)
                await (WebSocketClose(1008) if is_socket else answer)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, host: str, origin: str | None) -> str | None:
        if _name(f"//{host}") not in self._hosts:
            return f"this server is not known as {host!r:.200}: name it with --allow-host"
        if origin is not None and not self._may_call(origin, host):
            return f"pages of {origin!r:.200} may not call this server: see --allow-host"
        return None

    def _may_call(self, origin: str, host: str) -> bool:
        if self._pages is None:
            return origin.partition("://")[2] == host
        return _name(origin) in self._pages


def _name(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None
