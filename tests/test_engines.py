"""The contract of engines: transformers, and the example's own engine."""

import asyncio
import os
import runpy
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.errors import EngineFailed
from selfcorrect_rag.models import Completion, Engine, EngineReflectionLLM
from selfcorrect_rag.models import TransformersReflectionLLM as Transformers
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from tests.conftest import byte_level_tokenizer
from tests.engine_contract import PROMPTS, EngineContract, reference  # noqa: F401
from tests.snippets import ROOT

Make = Callable[[], EngineReflectionLLM]


@pytest.fixture(scope="module", params=["transformers", "own"])
def make(request: pytest.FixtureRequest, checkpoint: Path) -> Iterator[Make]:
    if request.param == "transformers":
        yield lambda: Transformers.from_pretrained(checkpoint, device="cpu")
    else:
        own = runpy.run_path(f"{ROOT}/examples/own_engine.py")["OwnEngine"]
        yield lambda: EngineReflectionLLM.from_engine(own(checkpoint), checkpoint)


@pytest.fixture(scope="module")
def llm(make: Make) -> Iterator[EngineReflectionLLM]:
    with make() as llm:
        yield llm


@pytest.fixture
def closable(make: Make) -> EngineReflectionLLM:
    return make()


class TestEngines(EngineContract):
    pass


TOKENIZER = ControlledTokenizer(byte_level_tokenizer())
REFLECTION_IDS = [i for t, i in TOKENIZER.control_ids.items() if t.startswith("[")]
CHOSEN = dict.fromkeys(REFLECTION_IDS, -1.0)
GOOD = Completion(REFLECTION_IDS[:1], [CHOSEN], "length")


class Scripted(Engine):
    """Gives what a test says."""

    def __init__(self, completions: Any = (GOOD,)) -> None:
        self.completions = completions

    async def complete(self, *given: Any) -> list[Completion]:
        return self.completions  # type: ignore[no-any-return]


def llm_of(engine: Engine, **options: Any) -> EngineReflectionLLM:
    return EngineReflectionLLM.from_engine(engine, TOKENIZER, **options)


@pytest.mark.parametrize(
    ("completions", "problem"),
    [
        (None, r"\(Scripted\) raised TypeError"),
        ([], "0 completions for 1 prompts"),
        ([Completion([], [], "stop")], "0 ids, log-probabilities of 0; 1 to 3"),
        ([Completion([9, 8], [{9: -1.0}], "length")], "2 ids, log-probabilities of 1"),
        ([Completion(REFLECTION_IDS[:1], [{REFLECTION_IDS[0]: -1.0}], "length")], "no log-prob"),
        ([Completion([9], [{9: float("nan")}], "length")], r"no log-probability of the ids \[9\]"),
        ([Completion([9], [{9: -1.0}], "error")], "ended by 'error'"),  # type: ignore[arg-type]
    ],
)
def test_completions_are_checked(completions: Any, problem: str) -> None:
    engine = Scripted(completions)
    with llm_of(engine) as llm:
        with pytest.raises(EngineFailed, match=problem):
            llm.invoke("Who?", max_tokens=3)
        engine.completions = [GOOD]
        assert llm.invoke("Who?", max_tokens=3) == ""


def test_an_engine_that_does_not_open() -> None:
    class Closed(Scripted):
        async def open(self) -> None:
            raise OSError("no GPU")

    with pytest.raises(EngineFailed, match=r"the engine \(Closed\) raised OSError: no GPU"):
        llm_of(Closed())


def test_an_end_id_that_is_text_is_not_shown() -> None:
    ids = byte_level_tokenizer().encode("the inn.", add_special_tokens=False)
    completion = Completion(ids, [{i: -1.0} for i in ids], "stop")
    with llm_of(Scripted([completion])) as llm:
        (segment,) = llm.generate_segments(PROMPTS[:1], max_tokens=20)
        assert (segment["text"], segment["finish_reason"]) == ("the inn", "end")
        assert segment["tokens"] == len(ids)
        completion.finish_reason = "length"
        stopped: Any = llm.generate(["Who?"], stop=["inn"]).generations[0][0].generation_info
        assert (stopped["text"], stopped["finish_reason"]) == ("the", "stop")


@pytest.mark.parametrize("text", ["the inn by the sea, naïve", "你好 🎈 there"])
def test_a_stream_shows_whole_characters_and_all_spaces(text: str) -> None:
    class Pieces(Scripted):
        async def stream(self, *given: Any) -> AsyncIterator[list[int]]:
            for token_id in byte_level_tokenizer().encode(text, add_special_tokens=False):
                for piece in ([token_id], [], REFLECTION_IDS[:1]):
                    yield piece

    with llm_of(Pieces()) as llm:
        pieces = list(llm.stream("Who?"))
        assert "".join(pieces) == text.strip()
        assert not any("\ufffd" in piece for piece in pieces)
        stop = text[4:8]  # in several pieces
        assert "".join(llm.stream("Who?", stop=[stop])) == text[: text.index(stop)].strip()


@pytest.mark.parametrize("way", ["close", "cancel", "end of the model"])
async def test_a_dropped_stream_ends_in_the_engine(way: str) -> None:
    ended, waiting = threading.Event(), threading.Event()

    class Endless(Scripted):
        async def stream(self, *given: Any) -> AsyncIterator[list[int]]:
            try:
                yield byte_level_tokenizer().encode("the inn", add_special_tokens=False)
                waiting.set()
                await asyncio.sleep(600)
            finally:
                ended.set()

    with llm_of(Endless()) as llm:
        if way != "cancel":
            stream = llm.stream("Who?")
            assert next(stream) == "the inn"
            llm.close() if way == "end of the model" else stream.close()  # type: ignore[attr-defined]
        else:
            texts = llm.astream("Who?")
            assert await anext(texts) == "the inn"
            following = asyncio.ensure_future(anext(texts))
            assert await asyncio.to_thread(waiting.wait, 30)
            following.cancel()
            await asyncio.wait([following])
        assert await asyncio.to_thread(ended.wait, 30)
    if way == "end of the model":
        with pytest.raises(EngineFailed, match="has been closed"):
            next(stream)


def test_closing_by_many_threads_closes_the_engine_once() -> None:
    closed = []

    class Slow(Scripted):
        async def close(self) -> None:
            for _ in range(100):
                await asyncio.sleep(0)
            closed.append(self)

    llm = llm_of(Slow())
    with ThreadPoolExecutor(8) as pool:
        for closing in [pool.submit(llm.close) for _ in range(8)]:
            closing.result(60)
    assert len(closed) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_told_at_once() -> None:
    with llm_of(Scripted()) as llm:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                threading.Timer(60, os._exit, [3]).start()
                llm.invoke("Who?", max_tokens=3)
            except EngineFailed as error:
                status = 10 if "make the model in the process" in str(error) else 4
                llm.close()
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 10


def test_a_freed_model_ends_its_threads() -> None:
    before = set(threading.enumerate())
    with ThreadPoolExecutor(1) as pool:
        llm = llm_of(Scripted())
        assert pool.submit(llm.invoke, "Who?").result(30) == ""
    mine = [t for t in threading.enumerate() if t not in before and t.name == "engine"]
    assert mine
    del llm
    for thread in mine:
        thread.join(30)
        assert not thread.is_alive()
