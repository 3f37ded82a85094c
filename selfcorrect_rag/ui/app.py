"""The local page: what each address shows and does. Every page works without a script."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from selfcorrect_rag.errors import SelfCorrectError
from selfcorrect_rag.serving.config import BadOption, ServingConfig, parse_value
from selfcorrect_rag.serving.hosts import guard
from selfcorrect_rag.serving.parts import Graph, Parts
from selfcorrect_rag.settings import GRAPHS
from selfcorrect_rag.ui.page import TITLES, json_value, render_run, style, templates, view
from selfcorrect_rag.ui.runs import PastRun, Runs, RunStore
from selfcorrect_rag.ui.weigh import THRESHOLDS, WEIGHTS, weigh, weighable

MAX_BODY = 200_000
"""Bytes of a form."""
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}


def make_app(config: ServingConfig, store: RunStore, names: list[str]) -> Starlette:
    """Make the app; ``names`` are the host names by which the server may be called."""
    pages = _Pages(config, store)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        with pages.parts:
            yield
            await pages.runs.close()

    routes = [
        Route("/", pages.ask),
        Route("/ask", pages.start, methods=["POST"]),
        Route("/runs", pages.past),
        Route("/runs/{id}.json", pages.download_json),
        Route("/runs/{id}.html", pages.download_html),
        Route("/runs/{id}/stop", pages.stop, methods=["POST"]),
        Route("/runs/{id}/reply", pages.reply, methods=["POST"]),
        Route("/runs/{id}/delete", pages.delete, methods=["POST"]),
        Route("/runs/{id}", pages.run),
        Route("/static/style.css", lambda request: Response(style(), media_type="text/css")),
        Route("/static/page.js", _script),
    ]
    middleware = [*guard(names), Middleware(BaseHTTPMiddleware, dispatch=_with_headers)]
    handlers: Any = {HTTPException: _failed, SelfCorrectError: _failed}
    return Starlette(
        routes=routes, middleware=middleware, lifespan=lifespan, exception_handlers=handlers
    )


def _page(template: str, status: int = 200, **values: Any) -> Response:
    page = templates().get_template(template).render(graphs=TITLES, **values)
    return HTMLResponse(page, status)


class _Pages:
    def __init__(self, config: ServingConfig, store: RunStore) -> None:
        self.parts, self._store = Parts(config), store
        self.runs = Runs(self._open_graph, store, self.parts.source)

    def _open_graph(self, name: str, settings: dict[str, Any], checkpointer: Any) -> Graph:
        given = self.parts.settings(name, **settings)
        return self.parts.graph(name, given, checkpointer=checkpointer)

    async def ask(self, request: Request) -> Response:
        return self._form(request.query_params)

    def _form(self, given: Mapping[str, str], error: str = "") -> Response:
        graph = given.get("graph") or "self_rag"
        if graph not in GRAPHS:
            raise HTTPException(422, f"there is no graph {graph!r:.40}")
        fields = GRAPHS[graph].model_json_schema()["properties"]
        return _page(
            "ask.html",
            422 if error else 200,
            graph=graph,
            given=given,
            fields=fields,
            open=any(given.get(name) for name in fields),
            parts=self.parts,
            error=error,
        )

    async def start(self, request: Request) -> Response:
        """Start a run, and show it; empty fields of the form keep their defaults."""
        given = await _posted(request)
        question, graph = given.get("question", "").strip(), given.get("graph", "")
        if graph not in GRAPHS:
            return self._form(given)
        names = [n for n in GRAPHS[graph].model_fields if given.get(n, "").strip()]
        try:
            if not question:
                raise BadOption("the question is empty")
            values = {name: parse_value(name, given[name], GRAPHS[graph]) for name in names}
            settings = self.parts.settings(graph, **values)
            run = self.runs.start(question, graph, settings.model_dump(exclude_unset=True))
        except SelfCorrectError as error:
            return self._form(given, str(error))
        return RedirectResponse(f"/runs/{run.id}", 303)

    async def past(self, request: Request) -> Response:
        text = request.query_params.get("q", "")
        runs = await asyncio.to_thread(self._store.find, text)
        return _page("runs.html", runs=runs, live=list(self.runs.live.values()), text=text)

    async def run(self, request: Request) -> Response:
        """Show a run: live, or finished with the weights of the query string."""
        if live := self.runs.live.get(request.path_params["id"]):
            return _page("live.html", run=live)
        past = await self._find(request)
        values = weighable(past)
        try:
            given = {n: float(text) for n, text in request.query_params.items() if n in values}
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        given = {n: value for n, value in given.items() if value != values[n]}
        result, changes = await asyncio.to_thread(weigh, past, given)
        sliders = {WEIGHTS.get(n) or THRESHOLDS[n]: (n, v) for n, v in {**values, **given}.items()}
        return _page(
            "run_page.html",
            run=view(result),
            past=past,
            sliders=sliders,
            changes=changes,
            other=bool(given),
            again={n: v if isinstance(v, str) else json.dumps(v) for n, v in past.settings.items()},
        )

    async def download_json(self, request: Request) -> Response:
        past = await self._find(request)
        text = json.dumps(past.result, ensure_ascii=False, default=json_value, indent=2)
        return Response(text.encode("utf-8", "backslashreplace"), media_type="application/json")

    async def download_html(self, request: Request) -> Response:
        past = await self._find(request)
        # Its style is inline, and the page says by hash which one.
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        return HTMLResponse(render_run(past.result), headers={"content-security-policy": policy})

    async def stop(self, request: Request) -> Response:
        run = self.runs.live.get(request.path_params["id"])
        if run and run.task:
            run.task.cancel()
            await asyncio.wait([run.task])
        return RedirectResponse(f"/runs/{request.path_params['id']}", 303)

    async def reply(self, request: Request) -> Response:
        """Approve a search, with its query or another, or refuse it."""
        given = await _posted(request)
        run = self.runs.live.get(request.path_params["id"])
        if run and run.reply and not run.reply.done():
            query = given.get("query", "").strip()
            run.reply.set_result(given.get("approve") == "yes" and (query or True))
        return RedirectResponse(f"/runs/{request.path_params['id']}", 303)

    async def delete(self, request: Request) -> Response:
        await asyncio.to_thread(self._store.delete, request.path_params["id"])
        return RedirectResponse("/runs", 303)

    async def _find(self, request: Request) -> PastRun:
        found = await asyncio.to_thread(self._store.get, request.path_params["id"])
        if found is None:
            raise HTTPException(404, "there is no such run")
        return found


async def _posted(request: Request) -> dict[str, str]:
    length = request.headers.get("content-length", "")  # none: a body without end
    if not length.isdigit() or int(length) > MAX_BODY:
        raise HTTPException(413, f"a form has at most {MAX_BODY:,} bytes")
    form = await request.form(max_files=0, max_fields=200)
    return {name: str(value) for name, value in form.items()}


def _script(request: Request) -> Response:
    script = files("selfcorrect_rag.ui").joinpath("static", "page.js").read_text("utf-8")
    return Response(script, media_type="text/javascript")


async def _failed(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return _page("site.html", error.status_code, error=error.detail)
    return _page("site.html", 422, error=str(error))


async def _with_headers(request: Request, call_next: RequestResponseEndpoint) -> Response:
    response = await call_next(request)
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response
