"""One time for retries of all callers of a server, by a clock that only sleeping moves."""

import asyncio
from collections.abc import Iterator

import pytest

from selfcorrect_rag.models.engines import runner
from selfcorrect_rag.models.engines.engine import EngineUnavailable
from selfcorrect_rag.models.engines.runner import Retries


class Server:
    """A server that is up or not, and counts what it is asked; and the clock beside it."""

    def __init__(self, seconds: float) -> None:
        self.up, self.healthy, self.now = True, False, 0.0
        self.attempts = self.probes = self.probing = 0
        self.retries = Retries(seconds, self.probe, lambda: self.now)

    async def probe(self) -> bool:
        self.probes += 1
        self.probing += 1
        assert self.probing == 1
        await asyncio.sleep(0)
        self.probing -= 1
        return self.up or self.healthy

    async def ask(self) -> str:
        self.attempts += 1
        await asyncio.sleep(0)
        if not self.up:
            raise EngineUnavailable("away")
        return "answer"

    async def call(self) -> str:
        try:
            return await self.retries.call(self.ask)
        except EngineUnavailable as error:
            return str(error)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Retried for ten seconds; sleeping moves its clock, and the latest sleeper's."""
    server, sleep = Server(10), asyncio.sleep

    async def faster(seconds: float) -> None:
        if seconds:
            until = server.now + seconds
            await sleep(0)
            server.now = max(server.now, until)
        else:
            await sleep(0)

    monkeypatch.setattr(runner.asyncio, "sleep", faster)
    return server


async def test_the_first_wait_and_all_later_fail_at_once(server: Server) -> None:
    server.up = False
    assert await asyncio.gather(*(server.call() for _ in range(16))) == ["away"] * 16
    assert 10 <= server.now < 20
    assert server.attempts == 16  # one each, and no more before the server is seen again
    assert server.probes < 20
    attempts, probes, now = server.attempts, server.probes, server.now
    for _ in range(7):
        assert set(await asyncio.gather(*(server.call() for _ in range(16)))) == {"away"}
    assert (server.attempts, server.now) == (attempts, now)
    assert server.probes <= probes + 1


async def test_a_call_that_comes_late_has_what_is_left(server: Server) -> None:
    server.up = False
    await server.call()
    began = server.now
    assert await server.call() == "away"
    assert server.now == began


async def test_it_is_one_time_also_where_only_the_probe_is_answered(server: Server) -> None:
    server.up, server.healthy = False, True
    first = [asyncio.ensure_future(server.call()) for _ in range(4)]
    while server.now < 8:
        await asyncio.sleep(0)
    assert await server.call() == "away"
    assert (
        server.now < 8 + runner.LONGEST_BACKOFF * 2
    )  # not the ten seconds that it would have alone
    assert await asyncio.gather(*first) == ["away"] * 4


async def test_it_looks_again_now_and_then(server: Server) -> None:
    server.up = False
    await server.call()
    for _ in range(5):
        server.now += 2
        probes = server.probes
        assert set(await asyncio.gather(*(server.call() for _ in range(8)))) == {"away"}
        assert server.probes == probes + 1
    server.up = True
    server.now += 2
    assert await server.call() == "answer"
    assert await asyncio.gather(*(server.call() for _ in range(8))) == ["answer"] * 8


async def test_who_waits_goes_on_when_the_server_is_back(server: Server) -> None:
    server.up = False
    calls = [asyncio.ensure_future(server.call()) for _ in range(16)]
    while server.now < 5:
        await asyncio.sleep(0)
    server.up = True
    assert await asyncio.gather(*calls) == ["answer"] * 16
    assert server.now < 10
    server.up = False  # and the next outage has a time of its own
    began = server.now
    assert await server.call() == "away"
    assert server.now >= began + 10


async def test_a_request_that_alone_fails_holds_up_no_other(server: Server) -> None:
    async def poison() -> str:
        raise EngineUnavailable("HTTP 500")

    failing = asyncio.ensure_future(server.retries.call(poison))
    while not failing.done():
        assert await server.call() == "answer"
        server.now += 0.5
    assert "HTTP 500" in str(failing.exception())
    assert server.now < 25


async def test_without_retries_each_call_asks(server: Server) -> None:
    none = Retries(0, server.probe, lambda: server.now)
    server.up = False
    for _ in range(3):
        with pytest.raises(EngineUnavailable):
            await none.call(server.ask)
    server.up = True
    assert await none.call(server.ask) == "answer"


async def test_a_cancelled_caller_leaves_the_others_waiting_for_the_same(server: Server) -> None:
    server.up = False
    calls = [asyncio.ensure_future(server.call()) for _ in range(4)]
    while server.now < 2:
        await asyncio.sleep(0)
    calls[0].cancel()
    await asyncio.sleep(0)
    server.up = True
    given = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(given[0], asyncio.CancelledError)
    assert given[1:] == ["answer"] * 3
