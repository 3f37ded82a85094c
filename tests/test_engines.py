"""Engines: the contract of transformers and of the example's own engine, and each by itself."""

import asyncio
import os
import runpy
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from langchain_core.tracers.context import collect_runs

from selfcorrect_rag.errors import EngineFailed
from selfcorrect_rag.models import Completion, Engine, EngineReflectionLLM
from selfcorrect_rag.models import TransformersReflectionLLM as Transformers
from selfcorrect_rag.models.engines import transformers
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.prompts import decision_prompt
from selfcorrect_rag.reflection import TOKENS, Group
from tests.conftest import byte_level_tokenizer, random_model, talkative
from tests.engine_contract import PROMPTS, EngineContract, assert_alike, reference  # noqa: F401
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
GOOD = Completion(REFLECTION_IDS[:1], [dict.fromkeys(REFLECTION_IDS, -1.0)], "length")


class Scripted(Engine):
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


ASKED = [*PROMPTS, decision_prompt("Why " * 20)]


@pytest.fixture(scope="module")
def random_llm() -> Transformers:
    return talkative()


def test_a_batch_gives_what_each_prompt_gives_alone(
    random_llm: Transformers, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = [random_llm.generate_segments([prompt], max_tokens=30)[0] for prompt in ASKED]
    assert len({s["tokens"] for s in alone}) > 1, "rows must end at different steps"
    assert {s["finish_reason"] for s in alone} >= {"retrieval"}
    assert_alike(alone, random_llm.generate_segments(ASKED, max_tokens=30))
    for tokens in (1, 300):
        monkeypatch.setattr(transformers, "BATCH_TOKENS", tokens)
        assert_alike(alone, random_llm.generate_segments(ASKED, max_tokens=30))


def test_a_choice_is_of_the_group_whatever_else_is_likelier() -> None:
    quiet = talkative(bias=0.01)
    for group in Group:
        for segment in quiet.choose(ASKED, group):
            (reflection,) = segment["reflections"]
            assert reflection["group"] == group
            assert max(reflection["logprobs"].values()) < -1, "raw, under the whole vocabulary"


def test_a_checkpoints_own_sampling_settings_change_nothing(random_llm: Transformers) -> None:
    expected = random_llm.generate_segments(ASKED, max_tokens=20)
    model, words = random_model(len(byte_level_tokenizer())), byte_level_tokenizer()
    model.load_state_dict(random_llm._model.state_dict())
    config = model.generation_config
    config.repetition_penalty, config.do_sample, config.temperature = 3.0, True, 5.0
    config.suppress_tokens = [words.convert_tokens_to_ids("[Relevant]")]
    other = Transformers.from_model(model, words)
    assert_alike(expected, other.generate_segments(ASKED, max_tokens=20))
    assert model.generation_config is config, "the model stays the user's"


def test_sampling(random_llm: Transformers) -> None:
    cold = random_llm.invoke(ASKED[0])
    torch.manual_seed(1)
    assert random_llm.invoke(ASKED[0], temperature=2.0) != cold
    for greedy in ({"temperature": 0.0}, {"temperature": 1.0, "top_k": 1}):
        assert random_llm.invoke(ASKED[0], **greedy) == cold
    with pytest.raises(EngineFailed, match="seed"):
        random_llm.invoke("Who?", temperature=1.0, seed=1)


def test_choices_are_tagged_to_stay_out_of_token_streams(random_llm: Transformers) -> None:
    with collect_runs() as collector:
        random_llm.choose([decision_prompt("Who?")], Group.RETRIEVE)
    assert "nostream" in (collector.traced_runs[0].tags or [])


async def test_a_cancelled_call_stops_computing(random_llm: Transformers) -> None:
    """And the event loop, which does all this while a step of the model waits, is never blocked."""
    begun, go, steps = threading.Event(), threading.Event(), 0

    def step(*_: object) -> None:
        nonlocal steps
        steps += 1
        begun.set()
        assert go.wait(30)

    hook = random_llm._model.register_forward_pre_hook(step)
    try:
        dropped = asyncio.ensure_future(random_llm.ainvoke("Why?", max_tokens=100))
        queued = asyncio.ensure_future(random_llm.ainvoke("How?", max_tokens=100))
        assert await asyncio.to_thread(begun.wait, 30)
        for call in (dropped, queued):
            call.cancel()
        await asyncio.gather(dropped, queued, return_exceptions=True)
        for _ in range(3):  # the engine knows of it
            await random_llm._runner.arun(asyncio.sleep(0))
        go.set()
        await random_llm.ainvoke("Who?", max_tokens=1)
    finally:
        hook.remove()
    assert steps == 2, "one of the dropped call, and the last one's"


def test_a_saved_checkpoint_loads(checkpoint: Path) -> None:
    loaded = Transformers.from_pretrained(checkpoint, device="cpu")
    assert loaded.dtype == "float32"
    half = Transformers.from_pretrained(checkpoint, device="cpu", dtype="bfloat16")
    assert half.identity != loaded.identity
    (chosen,) = half.choose(ASKED[:1], "ISREL")
    assert chosen["reflections"][0]["logprobs"].keys() == set(TOKENS[Group.ISREL])
