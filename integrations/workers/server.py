"""The HTTP side of a worker: runs are asked for, looked at, and the worker's health."""

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import Annotated, Any
from uuid import uuid4

from psycopg import OperationalError
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from selfcorrect_rag.serving.known_hosts import KnownHosts

from .runs import Connection, connect, offered, retry, set_up, show, submit
from .worker import Worker

BODY_BYTES = 2_000_000
DEEPEST = 100
"""Lists and objects of a request within each other; Python writes and reads some hundreds."""
LONGEST_POLL = 60.0
"""Seconds that a client may wait for the end of a run in one request."""
POLL_SECONDS = 0.2
Name = Annotated[str, Field(pattern=r"^[\w.:-]{1,128}$")]


class Asked(BaseModel):
    """The body of ``POST /runs``."""

    model_config = ConfigDict(extra="forbid")
    graph: Name
    id: Name = Field(default_factory=lambda: str(uuid4()))
    thread: Name | None = None
    input: dict[str, Any] | None = None
    resume: Any = None
    context: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _asks_one_thing(self) -> "Asked":
        if (self.input is None) == (self.resume is None):
            raise ValueError("give either input or, for a thread that paused, resume")
        if self.resume is not None and self.thread is None:
            raise ValueError("resume needs the thread that paused")
        return self

    @property
    def request(self) -> dict[str, Any]:
        """What is kept of it for the graph."""
        return self.model_dump(include={"input", "resume", "context"}, exclude_none=True)


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ASCIIResponse(JSONResponse):
    """JSON in ASCII, which has a word for each string, also one with half a surrogate pair."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode()


def application(
    address: str, worker: Worker, *, hosts: Collection[str], token: str = ""
) -> Starlette:
    """The application; its lifespan is the worker's, and ends when the last run has ended.

    Args:
        address: of Postgres.
        worker: with no slots it takes no runs, and this is a front alone.
        hosts: names by which, and by whose pages, runs may be asked for; health is for all.
        token: if given, requests on runs need it as ``Authorization: Bearer TOKEN``.
    """
    front = _Front(address, worker, token)
    known = [Middleware(KnownHosts, hosts)]
    routes = [
        Route("/runs", front.guarded(front.ask), methods=["POST"], middleware=known),
        Route("/runs/{id}", front.guarded(front.look), middleware=known),
        Route("/runs/{id}/retry", front.guarded(front.again), methods=["POST"], middleware=known),
        Route("/health/live", front.live),
        Route("/health/ready", front.ready),
    ]
    return Starlette(routes=routes, lifespan=front.lifespan)


class _Front:
    def __init__(self, address: str, worker: Worker, token: str) -> None:
        self._address, self._worker, self._token = address, worker, token
        self._session: Connection | None = None
        self._one_at_a_time = asyncio.Lock()

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        working = asyncio.create_task(self._worker.work()) if self._worker.slots else None
        yield
        self._worker.stop()
        if working is not None:
            await working
        if self._session is not None:
            await self._session.close()

    def guarded(
        self, handle: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Errors as answers: Postgres away is 503, and the client is to ask again."""

        async def answer(request: Request) -> Response:
            try:
                self._check_token(request)
                return await handle(request)
            except Refused as error:
                return ASCIIResponse({"error": str(error)}, error.status)
            except (OperationalError, OSError) as error:
                reason = f"Postgres does not answer: {error}".strip()
                return ASCIIResponse({"error": reason}, 503, {"Retry-After": "2"})

        return answer

    async def ask(self, request: Request) -> Response:
        asked = await _asked(request)
        thread = asked.thread or asked.id
        graphs = await self._with_session(offered)
        if not graphs:
            raise Refused(503, "no worker has opened its models yet")
        if asked.graph not in graphs:
            raise Refused(422, f"graph: there is no {asked.graph}, but {', '.join(graphs)}")
        is_new = await self._with_session(
            lambda session: submit(session, asked.id, asked.graph, thread, asked.request)
        )
        run = await self._run(asked.id)
        if (run["graph"], run["thread"], run["request"]) != (asked.graph, thread, asked.request):
            raise Refused(409, f"{asked.id} is another run: choose another id")
        return _shown(run, 202 if is_new else 200)

    async def look(self, request: Request) -> Response:
        try:
            wait = min(float(request.query_params.get("wait", 0)), LONGEST_POLL)
        except ValueError as error:
            raise Refused(422, "wait: not a number of seconds") from error
        deadline = time.monotonic() + wait
        run = await self._run(request.path_params["id"])
        while run["status"] in ("queued", "running") and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS)
            run = await self._run(request.path_params["id"])
        return _shown(run, 200)

    async def again(self, request: Request) -> Response:
        run = await self._run(request.path_params["id"])
        name, thread = run["id"], run["thread"]
        if run["status"] != "failed":
            raise Refused(409, f"{name} did not fail")
        if not await self._with_session(lambda session: retry(session, name, thread)):
            raise Refused(409, f"{name}: its thread {thread} has a later run")
        return _shown(await self._run(name), 202)

    async def live(self, request: Request) -> Response:
        """The event loop turns."""
        return ASCIIResponse({"status": "live"})

    async def ready(self, request: Request) -> Response:
        """Postgres answers, and this worker takes runs or is to take none."""
        waits_for = self._worker.waits_for if self._worker.slots else ""
        try:
            await self._with_session(lambda session: session.execute("SELECT 1"))
        except (OperationalError, OSError) as error:
            waits_for = f"Postgres: {error}".strip()
        said: dict[str, object] = {"ready": not waits_for, "runs": len(self._worker.working_on)}
        if waits_for:
            said["waits_for"] = waits_for
        return ASCIIResponse(said, 503 if waits_for else 200)

    def _check_token(self, request: Request) -> None:
        given = request.headers.get("authorization", "")
        if self._token and not hmac.compare_digest(
            given.encode(), f"Bearer {self._token}".encode()
        ):
            raise Refused(401, "Authorization: Bearer TOKEN is missing or wrong")

    async def _run(self, name: str) -> dict[str, Any]:
        run: dict[str, Any] | None = None
        if "\0" not in name:  # of which Postgres has no texts
            run = await self._with_session(lambda session: show(session, name))
        if run is None:
            raise Refused(404, f"there is no run {name}")
        return run

    async def _with_session(self, ask: Callable[[Connection], Awaitable[Any]]) -> Any:
        """Ask Postgres by the front's one session, which is opened anew once it is lost."""
        async with self._one_at_a_time:
            if self._session is None or self._session.closed or self._session.broken:
                self._session = await connect(self._address)
                await set_up(self._session)
            return await ask(self._session)


async def _asked(request: Request) -> Asked:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES:
            raise Refused(413, f"more than {BODY_BYTES} bytes")
    try:
        asked = Asked.model_validate(json.loads(body))
        json.dumps(asked.request, allow_nan=False)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise Refused(422, f"{place}: {first['msg']}" if place else first["msg"]) from error
    except (ValueError, RecursionError) as error:
        raise Refused(422, f"not JSON: {error}") from error
    if _is_deep(asked.request):
        raise Refused(422, f"more than {DEEPEST} lists and objects within each other")
    return asked


def _is_deep(request: dict[str, Any]) -> bool:
    level: list[Any] = [request]
    for _ in range(DEEPEST):
        inside = (v for one in level for v in (one.values() if isinstance(one, dict) else one))
        level = [value for value in inside if isinstance(value, dict | list)]
    return bool(level)


def _shown(run: dict[str, Any], status: int) -> Response:
    shown = ("id", "graph", "thread", "status", "attempts", "worker", "output", "error")
    return ASCIIResponse({key: run[key] for key in shown}, status)
