"""Restrict who may call the HTTP servers.

Any web page can send requests to a server on this machine, by a host name of its own that resolves
here (DNS rebinding) or across origins. The browser tells both in ``Host`` and ``Origin``.
"""

import os
from collections.abc import Collection, Sequence
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from selfcorrect_rag.serving.config import PREFIX, BadOption
from selfcorrect_rag.settings import PROTOCOL

ALLOWED_HOSTS = PREFIX + "ALLOWED_HOSTS"
"""The variable with the names of ``--allow-host``, separated by spaces."""
LOOPBACK = ("127.0.0.1", "localhost")
STUDIO = ("smith.langchain.com", "eu.smith.langchain.com")
"""The hosts of Studio's page, which is not served from this machine."""


def host_names(host: str, allowed: Sequence[str]) -> list[str]:
    """Return the names by which a server that listens at ``host`` may be called; BadOption if it
    listens to other machines, and no name is allowed."""
    if not allowed and host not in LOOPBACK:
        raise BadOption(
            f"--host {host} opens the server to other machines, and it asks for no password: name "
            "the host that they call with --allow-host"
        )
    return [*LOOPBACK, *(name.lower() for name in allowed)]


def guard(names: Sequence[str], pages: Collection[str] = ()) -> list[Middleware]:
    """Return the middleware of a server: only the ``names`` of :func:`host_names`, and only their
    own pages and those of the hosts ``pages``."""
    return [
        Middleware(TrustedHostMiddleware, allowed_hosts=list(names), www_redirect=False),
        Middleware(OriginCheck, pages=pages),
    ]


class OriginCheck:
    """Refuse requests and websockets of pages from another origin than the server's own."""

    def __init__(self, app: ASGIApp, pages: Collection[str] = ()) -> None:
        self._app, self._pages = app, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(raw=scope.get("headers", []))
        origin, app = headers.get("origin"), self._app
        if origin is not None and not self._is_ours(origin, headers.get("host", "")):
            app = PlainTextResponse(f"pages of {origin!r:.200} may not call this server", 403)
        await app(scope, receive, send)

    def _is_ours(self, origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.netloc == host or parts.hostname in self._pages


class ProtocolHeader:
    """Tell runs which protocol of the LangGraph server began them: the server copies a request's
    ``x-`` headers to ``configurable``, and its path is lost."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = [name for name in scope.get("path", "").split("/") if name in ("mcp", "a2a")]
        if asked and scope["type"] == "http":
            header = PROTOCOL.encode(), asked[0].encode()
            scope = {**scope, "headers": [*scope["headers"], header]}
        await self._app(scope, receive, send)


_names = [*LOOPBACK, *os.environ.get(ALLOWED_HOSTS, "").split()]
_guards = guard(_names, [*_names, *STUDIO])
studio = Starlette(middleware=[*_guards, Middleware(ProtocolHeader)])
"""The middleware of the LangGraph server: this machine, Studio and named hosts may call it."""
