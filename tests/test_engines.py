"""The contract of engines: transformers, the example's own engine, and a loopback vLLM server."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from nano_training.tokenizer import load_tokenizer

from selfcorrect_rag.demo import generator_path, load_generator
from selfcorrect_rag.errors import EngineFailed
from selfcorrect_rag.models import (
    Completion,
    Engine,
    EngineReflectionLLM,
    Request,
    TransformersReflectionLLM,
    VLLMServerReflectionLLM,
)
from selfcorrect_rag.models.engines.runner import WeightedSemaphore
from tests.engine_contract import PROMPTS, EngineContract, failing, reference  # noqa: F401
from tests.test_examples import example
from tests.test_vllm_server import Answer, Loopback

Make = Callable[[], EngineReflectionLLM]


def own() -> EngineReflectionLLM:
    engine = example("own_engine").OwnEngine(generator_path())
    return EngineReflectionLLM.from_engine(engine, generator_path())


class Served(Loopback):
    """A loopback server that writes what the nano generator does, in vLLM's words."""

    def __init__(self) -> None:
        super().__init__()
        self._llm = load_generator(device="cpu")
        self.answers["/v1/completions"] = self.completions

    def completions(self, body: dict[str, Any]) -> Answer:
        request = Request(
            body["max_tokens"],
            body["logprob_token_ids"],
            body["stop_token_ids"],
            body.get("stop", ()),
            body.get("allowed_token_ids"),
        )
        choices = []
        for i, given in enumerate(self._llm._runner.complete(body["prompt"], request)):
            steps = [{f"token_id:{k}": v for k, v in step.items()} for step in given.logprobs]
            stopped = given.finish_reason == "stop" and bool(body.get("stop"))
            choice = {
                "index": i,
                "text": "",
                "finish_reason": given.finish_reason,
                "stop_reason": body["stop"][0] if stopped else None,
                "token_ids": list(given.ids),
                "logprobs": {"top_logprobs": steps},
            }
            choices.append(choice)
        if not body.get("stream"):
            return 200, {"choices": choices}
        (choice,) = choices
        pieces = [{**choice, "token_ids": [i], "finish_reason": None} for i in choice["token_ids"]]
        pieces[-1]["finish_reason"] = choice["finish_reason"]
        events = [json.dumps({"choices": [piece]}) for piece in pieces]
        return 200, "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    server = Served()
    yield server
    server.server.shutdown()
    server.server.server_close()


@pytest.fixture(scope="module", params=["transformers", "own", "server"])
def make(request: pytest.FixtureRequest) -> Make:
    match request.param:
        case "transformers":
            return lambda: load_generator(device="cpu")
        case "own":
            return own
        case _:
            server: Served = request.getfixturevalue("served")
            return lambda: VLLMServerReflectionLLM(base_url=server.url)


@pytest.fixture(scope="module")
def llm(make: Make) -> Iterator[EngineReflectionLLM]:
    with make() as llm:
        yield llm


@pytest.fixture
def closable(make: Make) -> EngineReflectionLLM:
    return make()


class TestEngines(EngineContract):
    pass


class Wrong(Engine):
    """Gives what a test says."""

    def __init__(self, completions: Any = ()) -> None:
        self.completions = completions

    async def complete(self, *given: Any) -> list[Completion]:
        return self.completions  # type: ignore[no-any-return]


REFLECTION_IDS = load_generator(device="cpu")._reflection_ids.all
CHOSEN = dict.fromkeys(REFLECTION_IDS, -1.0)


@pytest.mark.parametrize(
    ("completions", "wrong"),
    [
        ([], "0 completions for 1 prompts"),
        ([Completion([], [], "stop")], "0 ids and log-probabilities of 0"),
        ([Completion([900] * 9, [{900: -1.0}] * 9, "length")], "9 ids .* up to 3"),
        ([Completion([900, 901], [{900: -1.0}], "length")], "2 ids and log-probabilities of 1"),
        ([Completion([900], [{901: -1.0}], "length")], r"no log-probability of the ids \[900\]"),
        ([Completion(REFLECTION_IDS[:1], [{REFLECTION_IDS[0]: -1.0}], "length")], "no log-prob"),
        (
            [Completion([900], [{900: float("nan")}], "length")],
            "a log-probability that is no number",
        ),
        ([Completion([900], [{900: -1.0}], "error")], "ended by 'error'"),
        (None, "raised TypeError"),
    ],
)
def test_what_an_engine_gives_is_checked(completions: Any, wrong: str) -> None:
    engine = Wrong(completions)
    with EngineReflectionLLM.from_engine(engine, generator_path()) as llm:
        with pytest.raises(EngineFailed, match=wrong):
            llm.invoke(PROMPTS[0], max_tokens=3)
        engine.completions = [Completion(REFLECTION_IDS[:1], [CHOSEN], "length")]
        assert llm.invoke(PROMPTS[0], max_tokens=3) == ""


def test_an_engine_that_does_not_open() -> None:
    class Closed(Wrong):
        async def open(self) -> None:
            raise OSError("no GPU")

    with pytest.raises(EngineFailed, match=r"the engine \(Closed\) raised OSError: no GPU"):
        EngineReflectionLLM.from_engine(Closed(), generator_path())


async def test_transformers_streams_in_pieces() -> None:
    with TransformersReflectionLLM.from_pretrained(generator_path(), device="cpu") as llm:
        pieces = [piece async for piece in llm.astream(PROMPTS[0])]
        assert len([piece for piece in pieces if piece]) > 2


def test_spaces_stay_whatever_comes_between_the_pieces_of_a_stream() -> None:
    text = "the inn by the sea, naïve"

    class Pieces(Wrong):
        async def stream(self, *given: Any) -> AsyncIterator[list[int]]:
            for token_id in self.completions:
                for piece in ([token_id], [], REFLECTION_IDS[:1]):
                    yield piece

    ids = load_tokenizer(generator_path()).encode(text, add_special_tokens=False)
    with EngineReflectionLLM.from_engine(Pieces(ids), generator_path()) as llm:
        assert "".join(llm.stream(PROMPTS[0])) == text


def test_a_call_of_more_prompts_than_may_be_in_flight_goes_alone() -> None:
    engine = Wrong([Completion(REFLECTION_IDS[:1], [CHOSEN], "length")] * 3)
    alone = EngineReflectionLLM.from_engine(engine, generator_path(), in_flight=2)
    with ThreadPoolExecutor(1) as pool, alone as llm:
        running = pool.submit(llm.generate_segments, PROMPTS[:1] * 3, max_tokens=3)
        assert len(running.result(30)) == 3


@pytest.mark.parametrize("free_first", [False, True])
async def test_a_cancelled_call_that_waits_for_its_turn_holds_up_no_other(free_first: bool) -> None:
    semaphore, done = WeightedSemaphore(2), [asyncio.Event() for _ in range(3)]

    async def hold(units: int, until: asyncio.Event) -> None:
        async with semaphore.hold(units):
            await until.wait()

    calls = [
        asyncio.create_task(hold(units, end)) for units, end in zip((1, 2, 1), done, strict=True)
    ]
    await asyncio.sleep(0)
    if free_first:  # and it has its turn, but has not taken it
        done[0].set()
        while not calls[0].done():
            await asyncio.sleep(0)
    calls[1].cancel()
    done[2].set()
    await asyncio.wait_for(calls[2], 10)
    done[0].set()
    await calls[0]
    async with asyncio.timeout(10), semaphore.hold(2):
        assert calls[1].cancelled()
