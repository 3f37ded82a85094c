"""Bad, late and missing answers of a vLLM server, which a loopback server plays."""

import json
import runpy
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.documents import Document
from pydantic import SecretStr

from selfcorrect_rag.errors import EngineFailed, ModelNotFound, NotAReflectionModel
from selfcorrect_rag.models import VLLMServerReflectionLLM
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.prompts import decision_prompt, prompt_of
from selfcorrect_rag.reflection import CONTROL_TOKENS, Group, retrieval_probability
from tests.conftest import byte_level_tokenizer
from tests.scripted import document

WORDS = byte_level_tokenizer()
TOKENIZER = ControlledTokenizer(WORDS)
IDS = list(TOKENIZER.control_ids.values())
CHAT = Path(__file__).parents[1] / "examples" / "self_rag_on_vllm_server.py"
Answer = tuple[int, Any]


def choice_of(ids: list[int], finish_reason: str = "length", index: int = 0) -> dict[str, Any]:
    """A choice as vLLM writes it, nearly sure of each id."""
    steps = [{f"token_id:{i}": -0.1 if i == own else -5.0 for i in (*IDS, *ids)} for own in ids]
    logprobs = {"top_logprobs": steps}
    return {"finish_reason": finish_reason, "token_ids": ids, "logprobs": logprobs, "index": index}


def completion(body: dict[str, Any], ids: Any = IDS[1:2], reason: str = "length") -> Answer:
    """These ids for each prompt, by default [Retrieval]."""
    return 200, {"choices": [choice_of(ids, reason, i) for i, _ in enumerate(body["prompt"])]}


class Loopback:
    """An HTTP server whose answers a test sets; it keeps the requests."""

    def __init__(self, checkpoint: Path | None) -> None:
        card = {"id": "tiny", "root": str(checkpoint), "max_model_len": 512}
        self.answers: dict[str, Callable[[dict[str, Any]], Answer]] = {
            "/v1/models": lambda body: (200, {"data": [card]}),
            "/tokenize": lambda body: (200, {"tokens": IDS}),
            "/v1/completions": completion,
        }
        self.asked: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(length) or "{}")
                outer.asked.append((self.path, body, dict(self.headers)))
                status, given = outer.answers[self.path](body)
                if given is None:  # close the connection without a word
                    return
                text = given if isinstance(given, str) else json.dumps(given)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_POST  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def loopback(checkpoint: Path) -> Iterator[Loopback]:
    made = Loopback(checkpoint)
    yield made
    made.server.shutdown()
    made.server.server_close()


def connect(loopback: Loopback, **options: Any) -> VLLMServerReflectionLLM:
    return VLLMServerReflectionLLM(base_url=loopback.url, **options)


def decide(llm: VLLMServerReflectionLLM) -> float:
    (segment,) = llm.choose([decision_prompt("Who?")], Group.RETRIEVE)
    return retrieval_probability(segment["reflections"][0])


@pytest.mark.parametrize("suffix", ["", "/v1/"])
def test_requests_are_of_ids_and_name_those_to_be_scored(loopback: Loopback, suffix: str) -> None:
    url, key = loopback.url + suffix, SecretStr("secret")
    with VLLMServerReflectionLLM(base_url=url, api_key=key) as llm:
        assert (llm.model, llm.context_tokens) == ("tiny", 512)
        assert decide(llm) > 0.95
        (segment,) = llm.generate_segments([prompt_of("Who wrote [Relevant] it?")], max_tokens=1)
        assert llm.get_num_tokens("Who wrote [Relevant] it?") == segment["prompt_tokens"]
        assert "secret" not in repr(llm)
    assert {headers.get("Authorization") for _, _, headers in loopback.asked} == {"Bearer secret"}
    _, body, _ = loopback.asked[-2]
    assert body["allowed_token_ids"] == [TOKENIZER.control_ids[t] for t in CONTROL_TOKENS[:3]]
    assert all(isinstance(i, int) for i in body["prompt"][0])
    assert (len(body["logprob_token_ids"]), body["temperature"]) == (13, 0)


def test_prompts_of_one_call_are_one_request_and_come_back_in_order(loopback: Loopback) -> None:
    def answer(body: dict[str, Any]) -> Answer:  # out of order, which the protocol allows
        return 200, {"choices": [choice_of([IDS[i]], index=i) for i in (2, 1, 0)]}

    with connect(loopback) as llm:
        loopback.answers["/v1/completions"], before = answer, len(loopback.asked)
        segments = llm.choose([decision_prompt("Who?")] * 3, Group.RETRIEVE)
        assert [s["reflections"][0]["token"] for s in segments] == list(CONTROL_TOKENS[:3])
        assert len(loopback.asked) == before + 1


def test_a_server_that_never_answers(loopback: Loopback) -> None:
    hold = threading.Event()
    with connect(loopback) as llm:
        client: Any = llm._runner.engine._client  # type: ignore[attr-defined]
        client.timeout = httpx.Timeout(None, read=0.3)
        loopback.answers["/v1/completions"] = lambda body: (int(hold.wait(30)), None)
        with pytest.raises(EngineFailed, match=r"no answer .*ReadTimeout.* raise timeout"):
            decide(llm)
        hold.set()


def test_a_stream(loopback: Loopback) -> None:
    ids = [*WORDS.encode("the inn.", add_special_tokens=False), WORDS.eos_token_id]
    with connect(loopback) as llm:
        lines = [json.dumps({"choices": [{"token_ids": part}]}) for part in (ids[:2], ids[2:])]
        given = "".join(f"data: {line}\n\n" for line in (*lines, "[DONE]"))
        loopback.answers["/v1/completions"] = lambda body: (200, given)
        assert "".join(llm.stream("Is it?")) == "the inn."
        for text in ('data: {"error": {"message": "out of memory"}}\n\n', "data: {oops\n\n"):
            given = text
            with pytest.raises(EngineFailed, match="gave an answer that is not vLLM's"):
                list(llm.stream("Is it?"))


GOOD, NOT_VLLMS = choice_of(IDS[:1]), "gave an answer that is not vLLM's"


@pytest.mark.parametrize(
    ("status", "answer", "message"),
    [
        (503, "busy", "HTTP 503: busy"),
        (0, None, "no answer from .*RemoteProtocolError"),
        *((200, bad, NOT_VLLMS) for bad in ("<html>", "[]", '{"choices": [null]}')),
        (200, {"choices": [GOOD | {"token_ids": None}]}, NOT_VLLMS),
        (200, {"choices": [GOOD | {"finish_reason": "abort"}]}, "that ended by 'abort'"),
    ],
)
def test_other_answers(loopback: Loopback, status: int, answer: Any, message: str) -> None:
    with connect(loopback) as llm:
        good = loopback.answers["/v1/completions"]
        loopback.answers["/v1/completions"] = lambda body: (status, answer)
        with pytest.raises(EngineFailed, match=message):
            decide(llm)
        loopback.answers["/v1/completions"] = good
        assert decide(llm) > 0.95


@pytest.mark.parametrize(
    ("path", "answer", "options", "kind", "message"),
    [
        ("/v1/models", (200, {"data": []}), {}, ModelNotFound, "serves no model"),
        ("/v1/models", (200, {"data": [{"id": "gpt"}]}), {}, EngineFailed, "not vLLM's"),
        ("", None, {"model": "llama"}, ModelNotFound, "serves tiny, not llama: give one of its"),
        ("/tokenize", (200, {"tokens": IDS[::-1]}), {}, NotAReflectionModel, "has other ids"),
        ("", None, {"tokenizer": "/nowhere"}, ModelNotFound, "cannot load a tokenizer"),
        ("", None, {"api_key": SecretStr("sé\ncret")}, EngineFailed, "printable ASCII"),
        ("", None, {"base_url": "http://me:secret@h"}, EngineFailed, "not in base_url"),
        ("", None, {"base_url": "http://127.0.0.1:9"}, EngineFailed, "start a server with"),
    ],
)
def test_unfit_servers_are_named_when_the_model_is_made(
    loopback: Loopback, path: str, answer: Any, options: Any, kind: type[Exception], message: str
) -> None:
    if path:
        loopback.answers[path] = lambda body: answer
    with pytest.raises(kind, match=message) as raised:
        VLLMServerReflectionLLM(**{"base_url": loopback.url, **options})
    assert "\n" not in str(raised.value)
    assert "cret" not in str(raised.value)


async def test_the_example(loopback: Loopback, capsys: Any, monkeypatch: Any) -> None:
    pytest.importorskip("onnxruntime")
    from selfcorrect_rag.search import demo

    class Shelf:
        def as_retriever(self, k: int) -> Callable[[str], list[Document]]:
            return lambda query: [document("Middlemarch", source="shelf")]

    def answer(body: dict[str, Any]) -> Answer:
        if body["max_tokens"] == 1:
            return completion(body)
        text = "[Relevant]She wrote it.[Fully supported][Utility:5]</s>"
        written = WORDS.encode(text, add_special_tokens=False)
        return completion(body, written, "stop")

    loopback.answers["/v1/completions"] = answer
    monkeypatch.setattr(demo, "demo_index", Shelf)
    await runpy.run_path(str(CHAT))["main"](loopback.url, "Who wrote Middlemarch?", "Who?")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == ["  She wrote it. [1]", "  [1] Middlemarch (shelf)"]
    assert len(lines) == 6
