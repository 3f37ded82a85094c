"""Crashes, full memory, prompts that are too long, and what closing frees."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from langchain_core.documents import Document

from nano_training.questions import WorldQuestion
from selfcorrect_rag import create_self_rag
from selfcorrect_rag.demo import generator_path
from selfcorrect_rag.errors import EngineFailed, ModelNotFound, NotAReflectionModel, PromptTooLong
from selfcorrect_rag.models import ReflectionLLM, VLLMReflectionLLM, VLLMServerReflectionLLM
from selfcorrect_rag.prompts import segment_prompt
from tests.conftest import byte_level_tokenizer, random_model
from tests.engine_contract import assert_alike
from tests.test_background import how, in_child
from tests.vllm.conftest import HELLO, Server, documents
from tests.vllm.test_parity import prompts


def test_a_prompt_over_the_limit_is_shortened_and_said_so(backend: ReflectionLLM) -> None:
    endless = Document("It is a long story. " * 2000, metadata={"title": "Emma"})
    graph = create_self_rag(backend, lambda query: [endless])
    result = graph.invoke({"question": "Who wrote Emma?"}, context={"mode": "always"})  # type: ignore[arg-type]
    assert any("longer than the model's context" in note for note in result["notes"])
    assert result["candidates"]


def test_a_question_over_the_limit_is_cut_too(backend: ReflectionLLM) -> None:
    (segment,) = backend.generate_segments(
        [segment_prompt("Why? " * 5000, [], [], "none", None)], max_tokens=5
    )
    assert segment["shortened"] > 0


def test_what_cannot_be_cut_is_an_error_and_the_engine_goes_on(backend: ReflectionLLM) -> None:
    from selfcorrect_rag.prompts import Part, Prompt

    with pytest.raises(PromptTooLong):
        backend.generate_segments([Prompt(parts=(Part("word " * 5000, "trusted"),))])
    assert "Hello" in backend.invoke(HELLO, max_tokens=5)


def test_memory_for_few_prompts_gives_the_same_answers(
    engine: VLLMReflectionLLM, cases: list[WorldQuestion]
) -> None:
    """With room for two or three prompts the engine preempts and recomputes, and loses nothing."""
    asked = prompts(cases)[:40]
    options = {"num_gpu_blocks_override": 40, "max_model_len": 1024, "max_num_seqs": 16}
    with VLLMReflectionLLM(model=str(generator_path()), engine=options) as small:
        assert small.context_tokens == 1024
        assert_alike(
            engine.generate_segments(asked, max_tokens=40),
            small.generate_segments(asked, max_tokens=40),
        )


def test_a_dead_engine_is_named_and_closing_it_frees_the_processes(
    cases: list[WorldQuestion],
) -> None:
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    with VLLMReflectionLLM(model=str(generator_path())) as llm:
        mine = [p for p in psutil.Process().children() if p.pid not in before]
        core = next(p for p in mine if p.children())  # it has a worker of its own
        threading.Timer(0.3, lambda: os.kill(core.pid, signal.SIGKILL)).start()
        with pytest.raises(EngineFailed, match="has died"):
            keep_asking(llm, cases)
    assert gone(before)
    with pytest.raises(EngineFailed, match="closed"):
        llm.invoke("Hello")


def keep_asking(llm: ReflectionLLM, cases: list[WorldQuestion]) -> None:
    for _ in range(1000):
        llm.generate_segments(prompts(cases)[:20])


def test_closing_under_callers_ends_them_all() -> None:
    """Threads, a stream between two pieces, and three who close."""
    llm = VLLMReflectionLLM(model=str(generator_path()))
    endless: Any = {"max_tokens": 1000, "ignore_eos": True}
    stream = llm.stream("Tell me a story.", **endless)
    next(stream)
    with ThreadPoolExecutor(15) as pool:
        calls = [pool.submit(llm.invoke, "Tell me a story.", **endless) for _ in range(12)]
        while llm._runner.engine.unfinished < 13:
            time.sleep(0.01)
        for closing in [pool.submit(llm.close) for _ in range(3)]:
            closing.result(60)
        assert {type(call.exception(60)) for call in calls} == {EngineFailed}
    with pytest.raises(EngineFailed, match="has been closed"):
        list(stream)


def test_a_forked_child_is_told_and_leaves_the_parents_engine(engine: VLLMReflectionLLM) -> None:
    def act() -> bool:
        refused = how(lambda: engine.invoke(HELLO)) == "EngineFailed"
        engine.close()
        return refused

    assert in_child(act)
    assert "Hello" in engine.invoke(HELLO, max_tokens=5)


@pytest.mark.parametrize(
    ("size", "reason"), [(1000, "No available memory"), (2_000_000, "maximum model length is 192")]
)
def test_too_little_memory_is_named_with_what_to_change(size: int, reason: str) -> None:
    """The engine's process alone knows; all that vLLM raises is "See root cause above"."""
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    with pytest.raises(EngineFailed, match="Lower max_model_len, or raise gpu_mem") as raised:
        VLLMReflectionLLM(model=str(generator_path()), engine={"kv_cache_memory_bytes": size})
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)
    assert gone(before)


def test_a_context_that_the_model_has_not() -> None:
    with pytest.raises(ModelNotFound, match=r"max_model_len \(100000\) is greater than") as raised:
        VLLMReflectionLLM(model=str(generator_path()), engine={"max_model_len": 100_000})
    assert "\n" not in str(raised.value)


def test_our_server_refuses_what_our_requests_would_spoil(running: Server) -> None:
    """Top-k log-probabilities; those of chosen ids are what every other test here asks for."""
    plain = {"prompt": "Hello", "max_tokens": 1, "logprobs": 1}
    refused = httpx.post(f"{running.url}/v1/completions", json=plain)
    assert refused.status_code == 400
    assert "max allowed: 0" in refused.text
    with VLLMServerReflectionLLM(base_url=running.url) as llm:
        assert "Hello" in llm.invoke(HELLO, max_tokens=5)


def test_an_exception_in_the_block_frees_the_engine() -> None:
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    with pytest.raises(ZeroDivisionError):
        fail_inside()
    assert gone(before)


def fail_inside() -> None:
    with VLLMReflectionLLM(model=str(generator_path())) as llm:
        assert "Hello" in llm.invoke(HELLO, max_tokens=5)
        raise ZeroDivisionError


def gone(before: set[int]) -> bool:
    """Whether every process that was started since has ended."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        new = [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
        if not [p for p in new if p.status() != psutil.STATUS_ZOMBIE and "tracker" not in name(p)]:
            return True
        time.sleep(0.2)
    return False


def name(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return "tracker"  # it ended while we looked


def test_a_checkpoint_without_reflection_tokens(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    random_model(300).save_pretrained(tmp_path)
    PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    ).save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path)
    with pytest.raises(NotAReflectionModel, match="has no \\[No Retrieval\\]"):
        VLLMReflectionLLM(model=str(tmp_path))


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="tokenizer"):
        VLLMReflectionLLM(model=str(tmp_path))
    byte_level_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelNotFound, match="vLLM cannot run"):
        VLLMReflectionLLM(model=str(tmp_path))


def test_a_server_killed_in_mid_run_and_restarted(
    running: Server, cases: list[WorldQuestion]
) -> None:
    """Runs that were under way wait and go on: no answer is lost, and none is another's."""
    asked = [{"question": c.question, "documents": documents(c)} for c in cases[:60]]
    with VLLMServerReflectionLLM(base_url=running.url, retry_seconds=240, in_flight=8) as llm:
        graph = create_self_rag(llm, lambda query: [])
        expected = graph.batch(asked)  # type: ignore[arg-type]
        results: list[dict] = []
        run = threading.Thread(
            target=lambda: results.extend(graph.batch(asked, {"max_concurrency": 8}))  # type: ignore[arg-type]
        )
        run.start()
        time.sleep(0.5)
        running.kill()
        assert not results
        running.start()
        run.join(timeout=240)
    assert [r["answer"] for r in results] == [r["answer"] for r in expected]


def test_the_command_with_both_engines(running: Server, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "selfcorrect_rag.cli"]
    book = tmp_path / "book.txt"
    book.write_text("Middlemarch\n\nMiddlemarch is a novel by the English author George Eliot.")
    index = ["index", str(book), "--index", str(tmp_path / "index"), "--embeddings", "bm25"]
    subprocess.run([*command, *index], check=True, capture_output=True)
    ask = [*command, "ask", "Who wrote Middlemarch?", "--index", str(tmp_path / "index"), "--json"]
    for options in (
        ["--engine", "server", "--base-url", running.url],
        ["--engine", "vllm", "--engine-option", "max_model_len=1024"],
    ):
        asked = subprocess.run([*ask, *options], capture_output=True, text=True)
        assert asked.returncode == 0, asked.stderr
        assert "George Eliot" in asked.stdout
        assert asked.stdout.startswith("{")
