"""The pages as an app: what each address shows and does."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from selfcorrect_rag.errors import BadSettings, SelfCorrectError, one_line
from selfcorrect_rag.render import render_run
from selfcorrect_rag.serving.saved import json_object
from selfcorrect_rag.settings import GRAPHS
from selfcorrect_rag.state.intake import valid
from selfcorrect_rag.ui import forms, playing
from selfcorrect_rag.ui.ask_page import RECENT, ask_page
from selfcorrect_rag.ui.compare import compare_page, differences
from selfcorrect_rag.ui.going import Going, Runs
from selfcorrect_rag.ui.going_page import going_page, waiting
from selfcorrect_rag.ui.guard import TooLong
from selfcorrect_rag.ui.layout import fault_page
from selfcorrect_rag.ui.places import Places
from selfcorrect_rag.ui.run_page import edit_link, fragment, run_page
from selfcorrect_rag.ui.runs_page import runs_page
from selfcorrect_rag.ui.store import Run, RunStore

STATIC = {"ui.css": "text/css", "ui.js": "text/javascript", "icon.svg": "image/svg+xml"}
"""The files of this folder that are served, and their types."""


class Json(JSONResponse):
    """JSON for people and programs: indented, with documents as objects."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, default=json_object, indent=2).encode(
            "utf-8", "backslashreplace"
        )


def make_app(places: Places, store: RunStore) -> Starlette:
    """The app over these indexes and past runs."""
    served = _App(places, store, Runs(places, store))
    routes = [
        Route("/", served.ask),
        Route("/graphs.json", served.graphs_json),
        Route("/ask", served.start, methods=["POST"]),
        Route("/runs", served.runs),
        Route("/runs.json", served.runs_json),
        Route("/export.jsonl", served.export),
        Route("/compare", served.compare),
        Route("/compare.json", served.compare_json),
        Route("/runs/{id}.json", served.run_json),
        Route("/runs/{id}.html", served.run_file),
        Route("/runs/{id}/events", served.events),
        Route("/runs/{id}/weigh", served.weigh),
        Route("/runs/{id}/weigh.json", served.weigh_json),
        *(
            Route(f"/runs/{{id}}/{name}", getattr(served, name), methods=["POST"])
            for name in ("stop", "reply", "mark", "delete")
        ),
        Route("/runs/{id}", served.run),
        Route("/static/{name}", _static),
    ]
    handlers: dict[Any, Any] = {HTTPException: _refused, TooLong: _too_long, Exception: _fault}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.state.runs = served.live
    return app


class _App:
    def __init__(self, places: Places, store: RunStore, live: Runs) -> None:
        self.places, self.store, self.live = places, store, live

    async def ask(self, request: Request) -> Response:
        """The form, as the query string fills it in."""
        given = _values(request.query_params)
        graph = _graph(given, 404)
        error = bad = ""
        settings = None
        try:
            settings = forms.read(graph, forms.knobs_of(graph, given))
        except BadSettings as fault:
            error, bad = forms.refused(fault), fault.knob
        return await self._form(given, graph, settings, error, bad)

    async def _form(
        self,
        given: forms.Values,
        graph: str,
        settings: Any,
        error: str,
        bad: str,
        status: int = 200,
    ) -> Response:
        page = ask_page(
            self.places.names,
            self.places.answers,
            await _aside(self.store.find, limit=RECENT + 1),
            [*self.live.going.values()],
            question=_first(given, "question", ""),
            graph=graph,
            place=_first(given, "index", ""),
            settings=settings,
            error=error,
            bad=bad,
            is_demo=self.places.reads_demo,
        )
        return HTMLResponse(page, status)

    async def graphs_json(self, request: Request) -> Response:
        """What can be asked: graphs with their knobs, and indexes."""
        graphs = {name: kind.model_json_schema() for name, kind in GRAPHS.items()}
        return Json({"graphs": graphs, "indexes": self.places.names, "model": self.places.answers})

    async def start(self, request: Request) -> Response:
        """Ask; a script gets the run's address at once, a plain form waits for the run."""
        given = await _form(request)
        graph = _graph(given, 422)
        wants_json = _wants_json(request)
        settings, bad = None, ""
        try:
            question = valid(_first(given, "question", "")).strip()
            place = _first(given, "index", self.places.first)
            settings = forms.read(graph, forms.knobs_of(graph, given))
            if not question:
                raise HTTPException(422, "the question is empty")
            if len(question) > forms.LONGEST:
                longest = f"{forms.LONGEST:,} characters"
                raise HTTPException(422, f"the question has more than {longest}")
            if place not in self.places.names:
                raise HTTPException(422, f"no index {place}: the server was started with others")
            run = self.live.start(question, graph, settings, place)
        except (SelfCorrectError, HTTPException) as fault:
            if isinstance(fault, HTTPException):
                words = fault.detail
            else:
                bad = getattr(fault, "knob", "")
                words = forms.refused(fault) if isinstance(fault, BadSettings) else _said(fault)
            if wants_json:
                return Json({"error": words, "knob": bad}, 422)
            return await self._form(given, graph, settings, words, bad, 422)
        beside = _first(given, "beside", "")
        if wants_json:
            return Json({"id": run.id, "address": f"/runs/{run.id}"}, 202)
        await _paused_or_over(run)
        if beside and run.id not in self.live.going:
            return RedirectResponse(f"/compare?{urlencode({'a': beside, 'b': run.id})}", 303)
        return RedirectResponse(f"/runs/{run.id}", 303)

    async def runs(self, request: Request) -> Response:
        """All runs."""
        filters = _filters(request)
        page = runs_page(
            await _aside(
                self.store.find,
                filters.get("q", ""),
                filters.get("graph", ""),
                filters.get("mark", ""),
            ),
            [*self.live.going.values()],
            await _aside(self.store.count),
            filters,
        )
        return HTMLResponse(page)

    async def runs_json(self, request: Request) -> Response:
        """All runs, as the page lists them."""
        filters = _filters(request)
        found = await _aside(
            self.store.find, filters.get("q", ""), filters.get("graph", ""), filters.get("mark", "")
        )
        going = [
            {
                "id": run.id,
                "question": run.question,
                "graph": run.graph,
                "place": run.place,
                "state": "waiting" if run.pause else "going",
            }
            for run in self.live.going.values()
        ]
        return Json({"runs": [run.as_json() for run in found], "going": going})

    async def export(self, request: Request) -> Response:
        """The marked runs, for ``selfcorrect-rag eval``."""
        lines = await _aside(lambda: "".join(self.store.export()))
        name = 'attachment; filename="marked.jsonl"'
        return Response(
            lines, media_type="application/jsonl", headers={"content-disposition": name}
        )

    async def run(self, request: Request) -> Response:
        """A run: while it goes on, or what became of it, with the knobs of the query string."""
        if run := self.live.going.get(request.path_params["id"]):
            return HTMLResponse(going_page(run))
        found = await self._run(request)
        shown, error = await _aside(_played, found, _values(request.query_params))
        others = await _aside(self.store.find)
        page = await _aside(run_page, found, shown, others, error)
        return HTMLResponse(page, 422 if error else 200)

    async def run_json(self, request: Request) -> Response:
        """A run as ``ask --json`` prints it."""
        return Json((await self._run(request)).result)

    async def run_file(self, request: Request) -> Response:
        """A run as one file, as ``ask --html`` writes it."""
        found = await self._run(request)
        page = await _aside(render_run, found.result)
        # Its style is its own, and it says so itself.
        own = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return HTMLResponse(page, headers=own)

    async def weigh(self, request: Request) -> Response:
        """What other settings change, as a part of the run's page."""
        found = await self._run(request)
        shown, error = await _aside(_played, found, _values(request.query_params))
        if error:
            return Json({"error": error}, 422)
        part = await _aside(fragment, found, shown)
        link = edit_link(found, shown)
        return HTMLResponse(part, headers={"x-edit": link, "x-told": _told(shown)})

    async def weigh_json(self, request: Request) -> Response:
        """The result with other settings, and what is not known of it."""
        found = await self._run(request)
        shown, error = await _aside(_played, found, _values(request.query_params))
        if error or shown is None:
            return Json({"error": error or "this run has no settings"}, 422)
        unknown = shown.replay.unknown if shown.replay else []
        return Json({"result": dict(shown.result), "unknown": unknown})

    async def compare(self, request: Request) -> Response:
        """Two runs."""
        a, b = await self._both(request)
        return HTMLResponse(compare_page(a, b, await _aside(self.store.find)))

    async def compare_json(self, request: Request) -> Response:
        """What two runs differ in."""
        a, b = await self._both(request)
        return Json({"a": a.as_json(), "b": b.as_json(), "differs": differences(a, b)})

    async def _both(self, request: Request) -> tuple[Run, Run]:
        runs = [await self._found(request.query_params.get(name, "")) for name in ("a", "b")]
        return runs[0], runs[1]

    async def events(self, request: Request) -> Response:
        """What happens in a run, as server-sent events from the first or the last seen on."""
        run = self.live.going.get(request.path_params["id"])
        if run is None:
            await self._run(request)  # or there is none
            over = _event(1, "over", {})
            return Response(over, media_type="text/event-stream")
        last = request.headers.get("last-event-id", "0")
        since = int(last) if last.isdecimal() else 0

        async def stream() -> AsyncIterator[str]:
            async for number, entry in run.follow(since):
                if entry.kind == "over" and self.live.ends:
                    return  # the run's page will be there when the server is there again
                data = entry.data
                if entry.kind == "waiting":
                    data = {"html": waiting(run) or ""}
                yield _event(number, entry.kind, data)

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def stop(self, request: Request) -> Response:
        """Stop a run; what was done is kept."""
        name = request.path_params["id"]
        run = self.live.going.get(name)
        self.live.stop(name)
        if run:
            async for _ in run.follow():
                pass
        return await self._done(request, f"/runs/{name}")

    async def reply(self, request: Request) -> Response:
        """Approve a search, change it, or refuse it."""
        given, name = await _form(request), request.path_params["id"]
        query = valid(_first(given, "query", ""))[:400].strip()
        yes = _first(given, "approve", "no") == "yes"
        if yes and not query:
            raise HTTPException(422, "the query is empty: write one, or do not search")
        run = self.live.going.get(name)
        self.live.reply(name, {"approve": True, "query": query} if yes else False)
        if run and not _wants_json(request):
            await asyncio.sleep(0)
            await _paused_or_over(run)
        return await self._done(request, f"/runs/{name}")

    async def mark(self, request: Request) -> Response:
        """Keep a person's judgement."""
        given, name = await _form(request), request.path_params["id"]
        mark = _first(given, "mark", "")
        if mark not in ("", "right", "wrong"):
            raise HTTPException(422, "a mark is right, wrong or nothing")
        answers = [line.strip() for line in _first(given, "answers", "").splitlines()]
        kept = [valid(answer) for answer in answers if answer][:50]
        note = valid(_first(given, "note", "")).strip()
        if not await _aside(self.store.mark, name, mark, note, kept):
            raise HTTPException(404, "no such run")
        return await self._done(request, f"/runs/{name}")

    async def delete(self, request: Request) -> Response:
        """Delete a run."""
        if not await _aside(self.store.delete, request.path_params["id"]):
            raise HTTPException(404, "no such run")
        return await self._done(request, "/runs")

    async def _done(self, request: Request, address: str) -> Response:
        if _wants_json(request):
            return Json({"address": address})
        return RedirectResponse(address, 303)

    async def _run(self, request: Request) -> Run:
        return await self._found(request.path_params["id"])

    async def _found(self, id: str) -> Run:
        found: Run | None = await _aside(self.store.get, id)
        if found is None:
            never = "no such run: it was deleted, or it was never there"
            raise HTTPException(404, self.live.lost.get(id, never))
        return found


def _played(run: Run, given: forms.Values) -> tuple[playing.Play | None, str]:
    """A run with the knobs of a query string, or without them and why."""
    try:
        return playing.play(run, given), ""
    except BadSettings as fault:
        return playing.play(run, {}), forms.refused(fault)


def _told(shown: playing.Play | None) -> str:
    """What changed, in ASCII for a header, for screen readers."""
    if shown is None or shown.replay is None:
        return "As it was run"
    return f"{len(shown.changes)} changes, {len(shown.replay.unknown)} unknown"


def _said(fault: Exception) -> str:
    return one_line(fault, 500)


def _values(given: Any) -> dict[str, list[str]]:
    return {name: [v[: forms.LONGEST] for v in given.getlist(name)] for name in given}


async def _form(request: Request) -> dict[str, list[str]]:
    body = (await request.body()).decode("utf-8", "replace")
    try:
        return parse_qs(body, keep_blank_values=True, max_num_fields=400)
    except ValueError as error:
        raise HTTPException(422, "that is no form of this page") from error


def _first(given: forms.Values, name: str, default: str) -> str:
    return next(iter(given.get(name) or [default]))


def _graph(given: forms.Values, status: int) -> str:
    graph = forms.as_graph(_first(given, "graph", "self_rag"))
    if graph not in GRAPHS:
        raise HTTPException(status, f"no graph {graph[:40]!r}: there are {', '.join(GRAPHS)}")
    return graph


def _filters(request: Request) -> dict[str, str]:
    query = request.query_params
    given = {name: query[name][:200] for name in ("q", "graph", "mark") if query.get(name)}
    return given | ({"graph": forms.as_graph(given["graph"])} if "graph" in given else {})


def _wants_json(request: Request) -> bool:
    return "application/json" in request.headers.get("accept", "")


async def _paused_or_over(run: Going) -> None:
    """Wait until a run is over, or waits for a person."""
    async for _, _entry in run.follow():
        if run.pause is not None:
            return


def _event(number: int, kind: str, data: dict[str, Any]) -> str:
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"


async def _aside(work: Callable[..., Any], *given: Any, **more: Any) -> Any:
    """The result of ``work``, from a thread: files, and long"""
    return await asyncio.to_thread(work, *given, **more)


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name == "page.css":
        folder = files("selfcorrect_rag.render")
    elif name in STATIC:
        folder = files("selfcorrect_rag.ui") / "static"
    else:
        raise HTTPException(404, "no such file")
    content = (folder / name).read_bytes()
    return Response(content, media_type=STATIC.get(name, "text/css"))


async def _refused(request: Request, fault: Exception) -> Response:
    assert isinstance(fault, HTTPException)
    if request.url.path.endswith(".json") or _wants_json(request):
        return Json({"error": fault.detail}, fault.status_code)
    return HTMLResponse(fault_page(fault.status_code, fault.detail), fault.status_code)


async def _too_long(request: Request, fault: Exception) -> Response:
    return await _refused(request, HTTPException(413, "that is more than this page takes"))


async def _fault(request: Request, fault: Exception) -> Response:
    return await _refused(request, HTTPException(500, "a fault of this page: its log says more"))
