"""The guard of the LangGraph server: this machine, Studio and named hosts may call it."""

import os
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from selfcorrect_rag.serving.hosts import ALLOWED_HOSTS, LOOPBACK
from selfcorrect_rag.serving.langgraph_server import warming

STUDIO = ("smith.langchain.com", "eu.smith.langchain.com")
"""The hosts of Studio's page."""


class KnownHosts:
    """Refuses requests and websockets with an unknown ``Host`` or ``Origin``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._hosts = {*LOOPBACK, *os.environ.get(ALLOWED_HOSTS, "").split()}

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
        if origin is not None and _name(origin) not in {*self._hosts, *STUDIO}:
            return f"pages of {origin!r:.200} may not call this server: see --allow-host"
        return None


def _name(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


app = Starlette(middleware=[Middleware(KnownHosts)], lifespan=warming)
