"""What a server may answer that is not what was hoped for: a loopback server plays it."""

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from nano_training.tokenizer import load_tokenizer
from pydantic import SecretStr

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.demo import generator_path
from selfcorrect_rag.errors import EngineFailed, ModelNotFound, NotAReflectionModel
from selfcorrect_rag.models import VLLMServerReflectionLLM
from selfcorrect_rag.models.engines.engine import EngineUnavailable
from selfcorrect_rag.models.engines.runner import PROBE_INTERVAL
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.prompts import decision_prompt, prompt_of
from selfcorrect_rag.reflection import CONTROL_TOKENS, RETRIEVAL, Group
from tests.test_background import how, in_child

TOKENIZER = ControlledTokenizer(load_tokenizer(generator_path()))
IDS = list(TOKENIZER.control_ids.values())
Answer = tuple[int, Any]


def completion(body: dict[str, Any]) -> dict[str, Any]:
    """One token for each prompt, as vLLM writes it: [Retrieval], nearly sure."""
    chosen = TOKENIZER.control_ids[RETRIEVAL]
    step = {f"token_id:{i}": -0.1 if i == chosen else -5.0 for i in body["logprob_token_ids"]}
    choice = {
        "text": "",
        "finish_reason": "length",
        "stop_reason": None,
        "token_ids": [chosen],
        "logprobs": {"top_logprobs": [step]},
    }
    # Out of order, which the protocol allows.
    return {"choices": [{**choice, "index": i} for i in range(len(body["prompt"]))][::-1]}


class Loopback:
    """An HTTP server whose answers a test sets; it keeps what it was asked."""

    def __init__(self) -> None:
        card = {"id": "nano", "root": str(generator_path()), "max_model_len": 2048}
        self.answers: dict[str, Callable[[dict], Answer]] = {
            "/v1/models": lambda body: (200, {"data": [card]}),
            "/health": lambda body: (200, {}),
            "/tokenize": lambda body: (200, {"tokens": IDS}),
            "/v1/completions": lambda body: (200, completion(body)),
        }
        self.asked: list[tuple[str, dict, dict]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer({})

            def do_POST(self) -> None:
                self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def answer(self, body: dict) -> None:
                outer.asked.append((self.path, body, dict(self.headers)))
                status, given = outer.answers[self.path](body)
                if given is None:  # close the connection without a word
                    return
                text = given if isinstance(given, str) else json.dumps(given)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def times(self, path: str) -> int:
        return sum(asked == path for asked, _, _ in self.asked)


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    server = Loopback()
    yield server
    server.server.shutdown()
    server.server.server_close()


def connect(loopback: Loopback, **options: Any) -> VLLMServerReflectionLLM:
    return VLLMServerReflectionLLM(base_url=loopback.url, **{"retry_seconds": 5, **options})


def decide(llm: VLLMServerReflectionLLM) -> float:
    from selfcorrect_rag.reflection import retrieval_probability

    (segment,) = llm.choose([decision_prompt("Who?")], Group.RETRIEVE)
    return retrieval_probability(segment["reflections"][0])


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_a_server_that_is_as_it_should_be(loopback: Loopback, suffix: str) -> None:
    with VLLMServerReflectionLLM(base_url=loopback.url + suffix) as llm:
        assert (llm.model, llm.context_tokens) == ("nano", 2048)
        assert decide(llm) > 0.95
    _, body, _ = loopback.asked[-1]
    assert body["model"] == "nano"
    assert body["allowed_token_ids"] == [TOKENIZER.control_ids[t] for t in CONTROL_TOKENS[:3]]
    assert all(isinstance(i, int) for i in body["prompt"][0])
    assert len(body["logprob_token_ids"]) == 13


def test_tokens_are_counted_here_as_the_server_reads_them(loopback: Loopback) -> None:
    with connect(loopback) as llm:
        segment = llm.generate_segments([prompt_of("Who wrote [Relevant] it?")], max_tokens=1)[0]
        assert llm.get_num_tokens("Who wrote [Relevant] it?") == segment["prompt_tokens"]


def test_prompts_of_one_call_are_one_request_and_come_back_in_order(loopback: Loopback) -> None:
    with connect(loopback) as llm:
        before = loopback.times("/v1/completions")
        asked = [decision_prompt("Who" + " so" * i + "?") for i in range(12)]
        counts = [s["prompt_tokens"] for s in llm.choose(asked, Group.RETRIEVE)]
        assert counts == sorted(counts)
        assert loopback.times("/v1/completions") == before + 1


async def test_what_is_in_flight_is_limited(loopback: Loopback) -> None:
    now, most, lock = 0, 0, threading.Lock()

    def slow(body: dict[str, Any]) -> Answer:
        nonlocal now, most
        with lock:
            now += len(body["prompt"])
            most = max(most, now)
        time.sleep(0.05)  # long enough for all that may come to have come
        with lock:
            now -= len(body["prompt"])
        return 200, completion(body)

    with VLLMServerReflectionLLM(base_url=loopback.url, in_flight=4) as llm:
        loopback.answers["/v1/completions"] = slow
        await asyncio.gather(*(llm.ainvoke(f"Question {i}") for i in range(24)))
    assert most == 4


@pytest.mark.parametrize("status", [429, 500, 502, 503, None])
def test_what_can_be_retried_is(loopback: Loopback, status: int | None) -> None:
    with connect(loopback) as llm:
        good, failures = loopback.answers["/v1/completions"], iter(range(3))

        def answer(body: dict) -> Answer:
            if next(failures, None) is None:
                return good(body)
            return (status, {"error": {"message": "later"}}) if status else (0, None)

        loopback.answers["/v1/completions"] = answer
        before = loopback.times("/v1/completions")
        assert decide(llm) > 0.95
        assert loopback.times("/v1/completions") == before + 4


def test_what_follows_a_server_that_went_away_fails_at_once(loopback: Loopback) -> None:
    """Retries end once for 128 questions, not for each wave; and one probe, not 16 attempts."""
    with connect(loopback, retry_seconds=0.5) as llm:
        for path in loopback.answers:
            loopback.answers[path] = lambda body: (503, {"message": "gone"})
        loopback.asked.clear()
        graph = create_self_rag(llm, lambda query: [])
        asked: list[Any] = [{"question": f"Who wrote {i}?"} for i in range(128)]
        results = graph.batch(asked, {"max_concurrency": 16}, return_exceptions=True)
        assert {type(result) for result in results} == {EngineUnavailable}
        assert loopback.times("/v1/completions") <= 32  # before, some each of the 128
        good = Loopback()
        try:  # and it is used again when it is back
            loopback.answers.update(good.answers)
            time.sleep(PROBE_INTERVAL)
            assert decide(llm) > 0.95
        finally:
            good.server.server_close()


def test_a_stream_waits_for_a_server_too(loopback: Loopback) -> None:
    with connect(loopback) as llm:
        failures = iter(range(2))
        ids = load_tokenizer(generator_path()).encode("Yes.", add_special_tokens=False)
        choice = {"token_ids": ids, "finish_reason": "length", "stop_reason": None}
        event = json.dumps({"choices": [choice]})

        def answer(body: dict) -> Answer:
            if next(failures, None) is None:
                return 200, f"data: {event}\n\ndata: [DONE]\n\n"
            return 503, {"message": "starting"}

        loopback.answers["/v1/completions"] = answer
        assert "".join(llm.stream("Is it?")) == "Yes."


def test_an_error_in_a_stream(loopback: Loopback) -> None:
    with connect(loopback) as llm:
        told = 'data: {"error": {"message": "out of memory"}}\n\n'
        for text in (told, "data: {oops\n\n"):
            loopback.answers["/v1/completions"] = lambda body, text=text: (200, text)
            with pytest.raises(EngineFailed, match=r"out of memory|Expecting"):
                list(llm.stream("Is it?"))


def test_retries_end(loopback: Loopback) -> None:
    with connect(loopback, retry_seconds=0.5) as llm:
        loopback.answers["/v1/completions"] = lambda body: (503, {"message": "starting"})
        with pytest.raises(EngineFailed, match="HTTP 503: starting"):
            decide(llm)


def test_what_cannot_be_retried_is_not(loopback: Loopback) -> None:
    with connect(loopback) as llm:
        loopback.answers["/v1/completions"] = lambda body: (400, {"error": {"message": "too long"}})
        before = loopback.times("/v1/completions")
        with pytest.raises(EngineFailed, match="HTTP 400: too long"):
            decide(llm)
        assert loopback.times("/v1/completions") == before + 1


def test_an_answer_that_is_no_json(loopback: Loopback) -> None:
    with connect(loopback) as llm:
        loopback.answers["/v1/completions"] = lambda body: (200, "<html>hello</html>")
        with pytest.raises(EngineFailed, match="did not answer in JSON"):
            decide(llm)


def test_a_server_that_never_answers(loopback: Loopback) -> None:
    hold = threading.Event()
    with connect(loopback, timeout=0.3) as llm:

        def hang(body: dict) -> Answer:
            hold.wait(10)
            return 0, None

        loopback.answers["/v1/completions"] = hang
        with pytest.raises(EngineFailed, match=r"no answer within 0\.3 s"):
            decide(llm)
        hold.set()


def test_no_server_at_all() -> None:
    with pytest.raises(EngineFailed, match="no vLLM server answers at http://127"):
        VLLMServerReflectionLLM(base_url="http://127.0.0.1:9")


@pytest.mark.parametrize(
    "answer",
    [[], "models", {"data": None}, {"data": ["nano"]}, {"data": [{}]}, {"models": []}, 3, None],
)
def test_models_that_are_no_list_of_models(loopback: Loopback, answer: Any) -> None:
    loopback.answers["/v1/models"] = lambda body: (200, json.dumps(answer))
    with pytest.raises(EngineFailed, match="it gives no list of models"):
        connect(loopback)


def test_a_server_of_no_model(loopback: Loopback) -> None:
    loopback.answers["/v1/models"] = lambda body: (200, {"data": []})
    with pytest.raises(ModelNotFound, match="serves no model: start it with one"):
        connect(loopback)


def test_a_url_that_is_none() -> None:
    with pytest.raises(EngineFailed, match="is no URL"):
        VLLMServerReflectionLLM(base_url="http://[::1")


@pytest.mark.parametrize("key", ["se\ncret", "secret\n", "sécret", "se\tcret"])
def test_keys_that_no_header_takes(loopback: Loopback, key: str) -> None:
    with pytest.raises(EngineFailed, match="the API key holds a line break") as raised:
        connect(loopback, api_key=SecretStr(key))
    assert "cret" not in str(raised.value)
    assert not loopback.asked


def without(key: str) -> Callable[[dict], Any]:
    return lambda choice: choice.pop(key)


def of_steps(change: Callable[[dict], Any]) -> Callable[[dict], Any]:
    return lambda choice: change(choice["logprobs"]["top_logprobs"][0])


AMISS: dict[str, Callable[[dict], Any]] = {
    "no ids": without("token_ids"),
    "no log-probabilities": without("logprobs"),
    "null log-probabilities": lambda choice: choice.update(logprobs=None),
    "no index": without("index"),
    "one index twice": lambda choice: choice.update(index=1),
    "no reason": without("finish_reason"),
    "another reason": lambda choice: choice.update(finish_reason="error"),
    "too many tokens": lambda choice: choice.update(token_ids=[1] * 5),
    "no token": lambda choice: choice.update(token_ids=[], logprobs={"top_logprobs": []}),
    "null ids": lambda choice: choice.update(token_ids=None),
    "ids of strings": lambda choice: choice.update(token_ids=["a"]),
    "a null": of_steps(lambda step: step.update({f"token_id:{IDS[0]}": None})),
    "not a number": of_steps(lambda step: step.update({f"token_id:{IDS[0]}": float("nan")})),
    "a string": of_steps(lambda step: step.update({f"token_id:{IDS[0]}": "-0.1"})),
    "an id less": of_steps(lambda step: step.popitem()),
    "text for an id": of_steps(lambda step: step.update({"the": -3.0})),
}


@pytest.mark.parametrize("amiss", AMISS.values(), ids=AMISS.keys())
def test_completions_that_are_not_as_asked_for(
    loopback: Loopback, amiss: Callable[[dict], Any]
) -> None:
    def answer(body: dict) -> Answer:
        given = completion(body)
        amiss(given["choices"][-1])
        return 200, given

    with connect(loopback) as llm:
        loopback.answers["/v1/completions"] = answer
        with pytest.raises(EngineFailed, match=" gave ") as raised:
            llm.choose([decision_prompt("Who?"), decision_prompt("What?")], Group.RETRIEVE)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "answer", [[], {}, "text", {"choices": None}, {"choices": []}, {"choices": [None]}, None]
)
def test_answers_that_are_no_completions(loopback: Loopback, answer: Any) -> None:
    with connect(loopback) as llm:
        loopback.answers["/v1/completions"] = lambda body: (200, json.dumps(answer))
        with pytest.raises(EngineFailed, match="gave an answer that is not vLLM's"):
            decide(llm)


def test_a_completion_that_the_servers_end_broke_off_is_asked_again(loopback: Loopback) -> None:
    with connect(loopback) as llm:
        reasons = iter(["abort"])

        def answer(body: dict) -> Answer:
            given = completion(body)
            given["choices"][0]["finish_reason"] = next(reasons, "length")
            return 200, given

        loopback.answers["/v1/completions"] = answer
        before = loopback.times("/v1/completions")
        assert decide(llm) > 0.95
        assert loopback.times("/v1/completions") == before + 2


def test_a_server_that_is_not_vllm(loopback: Loopback) -> None:
    loopback.answers["/v1/models"] = lambda body: (200, {"data": [{"id": "gpt"}]})
    with pytest.raises(EngineFailed, match="is no vLLM server"):
        connect(loopback)


def test_the_list_of_models_of_ray_serve_llm(loopback: Loopback) -> None:
    """It names neither files nor, at its top, a context length; without one in its config, none."""
    card = {"id": "nano", "object": "model", "owned_by": "organization-owner", "permission": []}
    metadata = {"model_id": "nano", "input_modality": "text", "max_request_context_length": 1024}
    card["metadata"] = metadata  # type: ignore[assignment]
    loopback.answers["/v1/models"] = lambda body: (200, {"data": [card]})
    with connect(loopback, tokenizer=str(generator_path())) as llm:
        assert llm.context_tokens == 1024
        assert decide(llm) > 0.95
    card["max_model_len"] = None  # type: ignore[assignment]
    with connect(loopback, tokenizer=str(generator_path())) as llm:
        assert llm.context_tokens == 1024
    metadata["max_request_context_length"] = None  # type: ignore[assignment]
    with pytest.raises(EngineFailed, match="on Ray Serve LLM, set it in engine_kwargs"):
        connect(loopback)


def test_a_server_too_old_to_know_chosen_ids(loopback: Loopback) -> None:
    """It ignores the field, as unknown fields are, and gives the top token only."""

    def old(body: dict) -> Answer:
        answer = completion(body)
        for choice in answer["choices"]:
            choice["logprobs"]["top_logprobs"] = [{"token_id:9": -0.1}]
        return 200, answer

    loopback.answers["/v1/completions"] = old
    with pytest.raises(EngineFailed, match=r"vLLM 0\.27 and newer do"):
        connect(loopback)


def test_a_server_older_still(loopback: Loopback) -> None:
    """It knows nothing of token ids in answers."""
    loopback.answers["/v1/completions"] = lambda body: (
        200,
        {"choices": [{"index": 0, "text": "a", "logprobs": {"top_logprobs": [{"a": -0.1}]}}]},
    )
    with pytest.raises(EngineFailed, match=r"vLLM 0\.27 and newer do"):
        connect(loopback)


def test_a_tokenizer_of_another_model(loopback: Loopback) -> None:
    loopback.answers["/tokenize"] = lambda body: (200, {"tokens": [i + 32000 for i in IDS]})
    with pytest.raises(NotAReflectionModel, match="has other ids"):
        connect(loopback)


def test_a_tokenizer_that_is_not_here(loopback: Loopback, tmp_path: Any) -> None:
    with pytest.raises(ModelNotFound, match="give its folder or hub name") as raised:
        connect(loopback, tokenizer=str(tmp_path))
    reason = str(raised.value.__cause__).strip().splitlines()[0]
    assert reason in str(raised.value)
    assert "cannot load a tokenizer" in reason
    assert "\n" not in str(raised.value)


def test_a_model_that_is_not_served(loopback: Loopback) -> None:
    with pytest.raises(ModelNotFound, match="serves nano, not llama: give one of its names"):
        connect(loopback, model="llama")


def test_keys(loopback: Loopback) -> None:
    good = loopback.answers["/v1/models"]
    loopback.answers["/v1/models"] = lambda body: (
        good(body)
        if loopback.asked[-1][2].get("Authorization") == "Bearer secret"
        else (401, {"error": "Unauthorized"})
    )
    with pytest.raises(EngineFailed, match="refuses the API key"):
        connect(loopback)
    with connect(loopback, api_key=SecretStr("secret")) as llm:
        assert decide(llm) > 0.95
        assert "secret" not in repr(llm)


def test_closed_is_closed(loopback: Loopback) -> None:
    llm = connect(loopback)
    llm.close()
    llm.close()
    with pytest.raises(EngineFailed, match="has been closed"):
        decide(llm)


@pytest.mark.parametrize("again", range(5))
def test_closing_under_a_batch_ends_it(loopback: Loopback, again: int) -> None:
    """From another thread, while 16 questions are on their way."""
    asked, hold = threading.Event(), threading.Event()

    def wait(body: dict) -> Answer:
        asked.set()
        hold.wait(30)
        return 200, completion(body)

    llm = connect(loopback)
    loopback.answers["/v1/completions"] = wait
    graph = create_self_rag(llm, lambda query: [])
    inputs: list[Any] = [{"question": f"Who wrote {i}?"} for i in range(64)]
    results: list[Any] = []

    def batch() -> None:
        results.extend(graph.batch(inputs, {"max_concurrency": 16}, return_exceptions=True))

    caller = threading.Thread(target=batch, daemon=True)
    caller.start()
    assert asked.wait(30)
    llm.close()
    caller.join(30)
    hold.set()
    assert not caller.is_alive()
    assert {type(result) for result in results} == {EngineFailed}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_connections_of_its_own(loopback: Loopback) -> None:
    with connect(loopback) as llm:
        assert decide(llm) > 0.95

        def act() -> bool:
            answered = decide(llm) > 0.95
            llm.close()
            return answered and how(lambda: decide(llm)) == "EngineFailed"

        assert in_child(act)
        assert decide(llm) > 0.95
