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
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from selfcorrect_rag.errors import SelfCorrectError
from selfcorrect_rag.serving.config import BadOption, ServingConfig
from selfcorrect_rag.serving.hosts import guard
from selfcorrect_rag.serving.parts import Graph, Parts
from selfcorrect_rag.settings import Settings
from selfcorrect_rag.ui.forms import THRESHOLDS, WEIGHTS, fields, settings_from
from selfcorrect_rag.ui.page import render_run, style, templates
from selfcorrect_rag.ui.runs import LiveRun, Runs
from selfcorrect_rag.ui.store import PastRun, RunStore
from selfcorrect_rag.ui.view import GRAPHS, json_value, view
from selfcorrect_rag.ui.weigh import weigh, weighable

MAX_BODY = 200_000
"""Bytes of a form."""
RECENT = 5
"""Past runs on the first page."""
HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; "
    b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"same-origin",
    b"cache-control": b"no-store",
}


def make_app(config: ServingConfig, store: RunStore, names: list[str]) -> Starlette:
    """Make the app.

    Args:
        config: names the models, the index and the web search.
        store: past runs.
        names: host names by which the server may be called.
    """
    pages = _Pages(config, store)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await pages.runs.close()
        pages.close()

    routes = [
        Route("/", pages.ask),
        Route("/ask", pages.start, methods=["POST"]),
        Route("/runs", pages.past),
        Route("/runs/{id}.json", pages.download_json),
        Route("/runs/{id}.html", pages.download_html),
        Route("/runs/{id}/events", pages.events),
        Route("/runs/{id}/stop", pages.stop, methods=["POST"]),
        Route("/runs/{id}/reply", pages.reply, methods=["POST"]),
        Route("/runs/{id}/delete", pages.delete, methods=["POST"]),
        Route("/runs/{id}", pages.run),
        Route("/static/{name}", _static),
    ]
    middleware = [*guard(names), Middleware(_Limits)]
    handlers: Any = {HTTPException: _failed, SelfCorrectError: _failed}
    return Starlette(
        routes=routes, middleware=middleware, lifespan=lifespan, exception_handlers=handlers
    )


class _Pages:
    def __init__(self, config: ServingConfig, store: RunStore) -> None:
        self._parts, self._config, self._store = Parts(config), config, store
        self.runs = Runs(self._open_graph, store, self._parts.source)

    def close(self) -> None:
        self._parts.__exit__()

    def _open_graph(self, name: str, settings: Settings, checkpointer: Any) -> Graph:
        given = self._parts.settings(name, **settings.model_dump(exclude_unset=True))
        return self._parts.graph(name, given, checkpointer=checkpointer)

    async def ask(self, request: Request) -> Response:
        """Show the form, as the query string fills it in."""
        return await self._form(dict(request.query_params))

    async def _form(self, given: Mapping[str, str], error: str = "") -> Response:
        graph = given.get("graph") or "self_rag"
        if graph not in GRAPHS:
            raise HTTPException(404, f"no graph {graph}")
        page = templates().get_template("ask.html")
        return HTMLResponse(
            page.render(
                graphs=GRAPHS,
                graph=graph,
                question=given.get("question", ""),
                source=self._parts.source,
                fields=fields(graph, given),
                open=any(f["value"] for f in fields(graph, given)),
                recent=await asyncio.to_thread(self._store.find, "", RECENT),
                live=list(self.runs.live.values()),
                answers=self._parts.answers,
                is_demo=self._config.reads_demo,
                error=error,
            ),
            422 if error else 200,
        )

    async def start(self, request: Request) -> Response:
        """Start a run, and show it."""
        given = await _posted(request)
        question, graph = given.get("question", "").strip(), given.get("graph", "")
        if graph not in GRAPHS:
            raise HTTPException(422, "there is no such graph")
        try:
            if not question:
                raise BadOption("the question is empty")
            run = self.runs.start(question, graph, settings_from(graph, given))
        except SelfCorrectError as error:
            return await self._form(given, str(error))
        return RedirectResponse(f"/runs/{run.id}", 303)

    async def past(self, request: Request) -> Response:
        """List past runs."""
        text = request.query_params.get("q", "")
        runs = await asyncio.to_thread(self._store.find, text)
        page = templates().get_template("runs.html")
        live = list(self.runs.live.values())
        return HTMLResponse(page.render(runs=runs, live=live, text=text, graphs=GRAPHS))

    async def run(self, request: Request) -> Response:
        """Show a run: live, or finished with the weights of the query string."""
        live = self.runs.live.get(request.path_params["id"])
        if live:
            page = templates().get_template("live.html")
            return HTMLResponse(page.render(run=live, graph=GRAPHS[live.graph]))
        past = await self._find(request)
        values = weighable(past)
        given = {n: _float(n, t) for n, t in request.query_params.items() if n in values}
        given = {n: value for n, value in given.items() if value != values[n]}
        result, changes = await asyncio.to_thread(weigh, past, given)
        page = templates().get_template("run_page.html")
        shown = {**values, **given}
        labels = WEIGHTS | THRESHOLDS
        sliders = [
            {"name": n, "label": labels[n], "value": v, "limits": _limits(n)}
            for n, v in shown.items()
        ]
        return HTMLResponse(
            page.render(
                run=view(result), past=past, sliders=sliders, changes=changes, other=bool(given)
            )
        )

    async def download_json(self, request: Request) -> Response:
        """Return a run as ``ask --json`` prints it."""
        past = await self._find(request)
        text = json.dumps(past.result, ensure_ascii=False, default=json_value, indent=2)
        return Response(text.encode("utf-8", "backslashreplace"), media_type="application/json")

    async def download_html(self, request: Request) -> Response:
        """Return a run as one file, as ``ask --html`` writes it."""
        past = await self._find(request)
        # Its style is inline, and the page says by hash which one.
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        return HTMLResponse(render_run(past.result), headers={"content-security-policy": policy})

    async def events(self, request: Request) -> Response:
        """Stream what happens in a run, from the entry behind the last one seen."""
        run = self.runs.live.get(request.path_params["id"])
        last = request.headers.get("last-event-id", "0")

        async def stream() -> AsyncIterator[str]:
            if run is None:
                yield 'event: over\ndata: {"kind": "over"}\n\n'
                return
            async for number, entry in run.follow(int(last) if last.isdecimal() else 0):
                yield f"id: {number}\nevent: {entry['kind']}\ndata: {json.dumps(entry)}\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def stop(self, request: Request) -> Response:
        """Stop a run; what was done is kept."""
        run = self.runs.live.get(request.path_params["id"])
        if run and run.task:
            run.task.cancel()
            await _over(run)
        return RedirectResponse(f"/runs/{request.path_params['id']}", 303)

    async def reply(self, request: Request) -> Response:
        """Approve a search, with its query or another, or refuse it."""
        given = await _posted(request)
        run = self.runs.live.get(request.path_params["id"])
        if run and run.pause and run.reply and not run.reply.done():
            query = given.get("query", "").strip()
            run.reply.set_result(given.get("approve") == "yes" and (query or True))
        return RedirectResponse(f"/runs/{request.path_params['id']}", 303)

    async def delete(self, request: Request) -> Response:
        """Delete a past run."""
        await asyncio.to_thread(self._store.delete, request.path_params["id"])
        return RedirectResponse("/runs", 303)

    async def _find(self, request: Request) -> PastRun:
        found = await asyncio.to_thread(self._store.get, request.path_params["id"])
        if found is None:
            raise HTTPException(404, "there is no such run")
        return found


async def _over(run: LiveRun) -> None:
    async for _ in run.follow():
        pass


async def _posted(request: Request) -> dict[str, str]:
    form = await request.form(max_files=0, max_fields=200)
    texts: dict[str, list[str]] = {}
    for name, value in form.multi_items():
        texts.setdefault(name, []).append(str(value))
    return {
        name: values[0] if len(values) == 1 else json.dumps(values)
        for name, values in texts.items()
    }


def _float(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise HTTPException(422, f"{name}: expected a number, got {text[:40]!r}") from None


def _limits(name: str) -> tuple[float, float, float]:
    """Lowest and highest value of a slider, and its step."""
    return (0.0, 3.0, 0.1) if name.startswith("weight") else (-1.0, 1.0, 0.01)


async def _static(request: Request) -> Response:
    match request.path_params["name"]:
        case "style.css":
            return Response(style(), media_type="text/css")
        case "page.js":
            script = files("selfcorrect_rag.ui").joinpath("static", "page.js").read_text("utf-8")
            return Response(script, media_type="text/javascript")
    raise HTTPException(404)


async def _failed(request: Request, error: Exception) -> Response:
    known = isinstance(error, HTTPException)
    status, text = (error.status_code, error.detail) if known else (422, str(error))  # type: ignore[attr-defined]
    page = templates().get_template("error.html")
    return HTMLResponse(page.render(text=text), status)


class _Limits:
    """Sets the security headers of every answer, and refuses long bodies."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                message["headers"] += [h for h in HEADERS.items() if h[0] not in given]
            await send(message)

        length = dict(scope.get("headers", ())).get(b"content-length", b"0")
        if scope["type"] == "http" and (not length.isdigit() or int(length) > MAX_BODY):
            await PlainTextResponse(f"at most {MAX_BODY:,} bytes", 413)(scope, receive, send)
            return
        await self._app(scope, receive, with_headers)
