"""The transformers backend: batches that never mix, sampling, cancelling, loading."""

import asyncio
import threading
from pathlib import Path

import pytest
import torch
from langchain_core.tracers.context import collect_runs

from selfcorrect_rag.errors import EngineFailed
from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.models.engines import transformers
from selfcorrect_rag.prompts import Prompt, decision_prompt, segment_prompt
from selfcorrect_rag.reflection import TOKENS, Group
from tests.conftest import byte_level_tokenizer, random_model, talkative
from tests.engine_contract import assert_alike
from tests.scripted import document

QUESTIONS = ["Who?", "Who wrote the other book, and when?", "Why " * 20, "In the inn?"]


def prompts() -> list[Prompt]:
    passages = [document("A", "The first one. " * 4), document("B", "Second.")]
    return [segment_prompt(q, [], passages, "retrieve", i % 2) for i, q in enumerate(QUESTIONS)]


@pytest.fixture(scope="module")
def llm() -> TransformersReflectionLLM:
    return talkative()


def test_a_batch_gives_what_each_prompt_gives_alone(
    llm: TransformersReflectionLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = [llm.generate_segments([prompt], max_tokens=30)[0] for prompt in prompts()]
    assert len({s["tokens"] for s in alone}) > 1, "rows must end at different steps"
    assert {s["finish_reason"] for s in alone} >= {"retrieval"}
    assert_alike(alone, llm.generate_segments(prompts(), max_tokens=30))
    for tokens in (1, 300):
        monkeypatch.setattr(transformers, "BATCH_TOKENS", tokens)
        assert_alike(alone, llm.generate_segments(prompts(), max_tokens=30))


def test_a_choice_is_of_the_group_whatever_else_is_likelier() -> None:
    quiet = talkative(bias=0.01)
    for group in Group:
        for segment in quiet.choose(prompts(), group):
            (reflection,) = segment["reflections"]
            assert reflection["group"] == group
            assert max(reflection["logprobs"].values()) < -1, "raw, under the whole vocabulary"


def test_a_checkpoints_own_sampling_settings_change_nothing(llm: TransformersReflectionLLM) -> None:
    expected = llm.generate_segments(prompts(), max_tokens=20)
    model, words = random_model(len(byte_level_tokenizer())), byte_level_tokenizer()
    model.load_state_dict(llm._model.state_dict())
    config = model.generation_config
    config.repetition_penalty, config.do_sample, config.temperature = 3.0, True, 5.0
    config.suppress_tokens = [words.convert_tokens_to_ids("[Relevant]")]
    other = TransformersReflectionLLM.from_model(model, words)
    assert_alike(expected, other.generate_segments(prompts(), max_tokens=20))
    assert model.generation_config is config, "the model stays the user's"


def test_sampling(llm: TransformersReflectionLLM) -> None:
    hot = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        hot.append(llm.invoke(prompts()[0], temperature=2.0))
    assert hot[0] == hot[1] != hot[2]
    cold = llm.invoke(prompts()[0], temperature=0.0)
    assert cold == llm.invoke(prompts()[0]) == llm.invoke(prompts()[0], temperature=1.0, top_k=1)
    with pytest.raises(EngineFailed, match="seed"):
        llm.invoke("Who?", temperature=1.0, seed=1)


def test_choices_are_tagged_to_stay_out_of_token_streams(llm: TransformersReflectionLLM) -> None:
    with collect_runs() as collector:
        llm.choose([decision_prompt("Who?")], Group.RETRIEVE)
    assert "nostream" in (collector.traced_runs[0].tags or [])


async def test_a_cancelled_call_stops_computing(llm: TransformersReflectionLLM) -> None:
    """And the event loop, which does all this while a step of the model waits, is never blocked."""
    begun, go, steps = threading.Event(), threading.Event(), 0

    def step(*_: object) -> None:
        nonlocal steps
        steps += 1
        begun.set()
        assert go.wait(30)

    hook = llm._model.register_forward_pre_hook(step)
    try:
        dropped = asyncio.ensure_future(llm.ainvoke("Why?", max_tokens=100))
        queued = asyncio.ensure_future(llm.ainvoke("How?", max_tokens=100))
        assert await asyncio.to_thread(begun.wait, 30)
        for call in (dropped, queued):
            call.cancel()
        await asyncio.gather(dropped, queued, return_exceptions=True)
        for _ in range(3):  # the engine knows of it
            await llm._runner.arun(asyncio.sleep(0))
        go.set()
        await llm.ainvoke("Who?", max_tokens=1)
    finally:
        hook.remove()
    assert steps == 2, "one of the dropped call, and the last one's"


def test_a_saved_checkpoint_loads(checkpoint: Path) -> None:
    loaded = TransformersReflectionLLM.from_pretrained(checkpoint, device="cpu")
    assert loaded.dtype == "float32"
    half = TransformersReflectionLLM.from_pretrained(checkpoint, device="cpu", dtype="bfloat16")
    assert half.identity != loaded.identity
    (chosen,) = half.choose(prompts()[:1], "ISREL")
    assert chosen["reflections"][0]["logprobs"].keys() == set(TOKENS[Group.ISREL])
