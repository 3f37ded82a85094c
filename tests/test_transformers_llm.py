"""The transformers backend: exact log-probabilities, batches that never mix, and limits."""

import asyncio
import math
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from langchain_core.callbacks import BaseCallbackHandler

from selfcorrect_rag.errors import ModelNotFound, NotAReflectionModel
from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.prompts import Prompt, decision_prompt, segment_prompt
from selfcorrect_rag.reflection import TOKENS, Group, critique
from selfcorrect_rag.state import Segment
from tests.conftest import byte_level_tokenizer, random_model, talkative
from tests.scripted import document

QUESTIONS = ["Who?", "Who wrote the other book, and when?", "Why " * 20, "In the inn?"]


def prompts() -> list[Prompt]:
    passages = [document("A", "The first one. " * 4), document("B", "Second.")]
    return [segment_prompt(q, [], passages, "retrieve", i % 2) for i, q in enumerate(QUESTIONS)]


@pytest.fixture(scope="module")
def llm() -> TransformersReflectionLLM:
    return talkative()


def next_logprobs(llm: TransformersReflectionLLM, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return llm._model(input_ids=torch.tensor([ids])).logits[0, -1].float().log_softmax(-1)


def test_logprobs_are_those_of_a_plain_forward_pass(llm: TransformersReflectionLLM) -> None:
    seen = set()
    control = llm._tokenizer.control_ids
    for prompt in prompts():
        ids = llm._tokenizer.encode([prompt])[0].ids
        generated = llm._segments([prompt], max_tokens=24)[0]
        total = 0.0
        by_position = {r["position"]: r for r in generated["reflections"]}
        for position in range(generated["tokens"]):
            row = next_logprobs(llm, ids)
            chosen = int(row.argmax())
            total += float(row[chosen])
            if position in by_position:
                reflection = by_position[position]
                seen.add(reflection["group"])
                assert control[reflection["token"]] == chosen
                assert set(reflection["logprobs"]) == set(TOKENS[Group(reflection["group"])])
                for token, value in reflection["logprobs"].items():
                    assert value == pytest.approx(float(row[control[token]]), abs=1e-3)
            ids = [*ids, chosen]
        assert generated["logprob"] == pytest.approx(total, abs=1e-3)
    assert len(seen) >= 2, "the random model must have emitted reflections of several groups"


def close(one: Segment, other: Segment) -> bool:
    same = {k: v for k, v in one.items() if k not in ("logprob", "reflections", "next")}
    return (
        all(other[k] == v for k, v in same.items())  # type: ignore[literal-required]
        and math.isclose(one["logprob"], other["logprob"], abs_tol=1e-3)
        and [r["token"] for r in one["reflections"]] == [r["token"] for r in other["reflections"]]
    )


def test_a_batch_gives_what_each_prompt_gives_alone(llm: TransformersReflectionLLM) -> None:
    """Padding, sorting, rows that leave early: none of it shows."""
    together = llm.generate_segments(prompts(), max_tokens=30)
    alone = [llm.generate_segments([prompt], max_tokens=30)[0] for prompt in prompts()]
    assert len({s["tokens"] for s in together}) > 1, "rows must end at different steps"
    assert all(close(a, b) for a, b in zip(together, alone, strict=True))


def test_small_batches_change_nothing(llm: TransformersReflectionLLM) -> None:
    small = talkative(batch_tokens=1)
    for one, other in zip(
        llm.generate_segments(prompts(), max_tokens=12),
        small.generate_segments(prompts(), max_tokens=12),
        strict=True,
    ):
        assert close(one, other)


def test_a_segment_ends_at_the_next_retrieval_token(llm: TransformersReflectionLLM) -> None:
    segments = llm.generate_segments(prompts() * 3, max_tokens=60)
    ended = [s for s in segments if s["finish_reason"] == "retrieval"]
    assert ended
    for segment in ended:
        assert segment["next"] is not None
        assert segment["next"]["group"] == Group.RETRIEVE
        assert all(piece["text"] not in TOKENS[Group.RETRIEVE] for piece in segment["pieces"])


def test_a_choice_is_of_the_group_whatever_else_is_likelier() -> None:
    quiet = talkative(bias=0.01)
    for group in Group:
        for segment in quiet.choose(prompts(), group):
            (reflection,) = segment["reflections"]
            assert reflection["group"] == group
            best = max(reflection["logprobs"], key=lambda token: reflection["logprobs"][token])
            assert reflection["token"] == best
            assert max(reflection["logprobs"].values()) < -1, "raw, under the whole vocabulary"


def isrel_llm(**options: Any) -> TransformersReflectionLLM:
    """A model that always begins with an ISREL token, of a likelihood that depends on the text."""
    tokenizer = byte_level_tokenizer()
    model = random_model(len(tokenizer))
    llm = TransformersReflectionLLM.from_model(model, tokenizer, **options)
    end = tokenizer.convert_tokens_to_ids("</paragraph>")
    tilted = [tokenizer.convert_tokens_to_ids(t) for t in TOKENS[Group.ISREL]]
    plain = model.forward

    def forward(*args: object, **kwargs: object) -> object:
        output = plain(*args, **kwargs)
        ids, kept = kwargs["input_ids"], kwargs["logits_to_keep"]
        last = ids[:, -1:] if isinstance(kept, int) else ids[:, kept]  # type: ignore[index]
        for row, place in (last == end).nonzero().tolist():
            output.logits[row, place, tilted] += 60
        return output

    model.forward = forward  # type: ignore[method-assign]
    return llm


def test_pruning_stops_the_irrelevant_and_never_the_best() -> None:
    llm = isrel_llm()
    free = llm.generate_segments(prompts(), max_tokens=20)
    scores = [critique(s["reflections"])["ISREL"] for s in free]
    assert len(set(scores)) == 4
    best = max(range(4), key=lambda i: scores[i])
    kept = llm.generate_segments(prompts(), max_tokens=20, prune_below=1.0)
    for i, segment in enumerate(kept):
        if i == best:
            assert close(segment, free[i])
        else:
            assert segment["finish_reason"] == "pruned"
            assert segment["tokens"] == 1
            assert critique(segment["reflections"])["ISREL"] == pytest.approx(scores[i], abs=1e-4)
    middle = sum(sorted(scores)[1:3]) / 2
    some = llm.generate_segments(prompts(), max_tokens=20, prune_below=middle)
    assert sum(s["finish_reason"] == "pruned" for s in some) == 2


def test_stop_strings_end_the_text_before_them(llm: TransformersReflectionLLM) -> None:
    free = llm.invoke(prompts()[0], max_tokens=30)
    stop = free[5:7]
    assert llm.invoke(prompts()[0], max_tokens=30, stop=[stop]) == free[: free.find(stop)].strip()


def test_sampling_is_reproducible_by_its_seed(llm: TransformersReflectionLLM) -> None:
    hot = [llm.invoke(prompts()[0], temperature=2.0, seed=seed) for seed in (1, 1, 2)]
    assert hot[0] == hot[1] != hot[2]


def test_at_least_one_token(llm: TransformersReflectionLLM) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        llm.invoke("Who?", max_tokens=0)


def test_it_is_an_ordinary_llm(llm: TransformersReflectionLLM) -> None:
    text = llm.invoke("Who wrote [Retrieval] it?")
    assert llm.batch(["Who wrote [Retrieval] it?", "Why?"])[0] == text
    assert "".join(llm.stream("Who wrote [Retrieval] it?")) == text
    assert asyncio.run(llm.ainvoke("Who wrote [Retrieval] it?")) == text
    result = llm.generate(["Who?"])
    usage = result.generations[0][0].message.usage_metadata
    assert usage["input_tokens"] > 0
    assert 0 < usage["output_tokens"] <= llm.max_tokens


def test_choices_are_tagged_to_stay_out_of_token_streams(llm: TransformersReflectionLLM) -> None:
    tags: list[list[str]] = []

    class Watch(BaseCallbackHandler):
        def on_llm_start(self, *args: object, **kwargs: object) -> None:
            tags.append(kwargs["tags"])  # type: ignore[arg-type]

    llm.choose([decision_prompt("Who?")], Group.RETRIEVE, callbacks=[Watch()])
    assert "nostream" in tags[0]


# Loading


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="nowhere is no folder here") as raised:
        TransformersReflectionLLM.from_pretrained(tmp_path / "nowhere")
    assert "\n" not in str(raised.value)


def test_a_checkpoint_without_reflection_tokens_is_refused_before_its_weights(
    tmp_path: Path,
) -> None:
    tokenizer = byte_level_tokenizer()
    plain = type(tokenizer)(tokenizer_object=_without_special(tokenizer), eos_token="a")
    plain.save_pretrained(tmp_path)
    with pytest.raises(NotAReflectionModel, match=r"no \[No Retrieval\].*selfrag"):
        TransformersReflectionLLM.from_pretrained(tmp_path)


def _without_special(tokenizer: object) -> object:
    import json

    from tokenizers import Tokenizer

    state = json.loads(tokenizer.backend_tokenizer.to_str())  # type: ignore[attr-defined]
    state["added_tokens"] = []
    state["post_processor"] = None
    return Tokenizer.from_str(json.dumps(state))


def test_a_model_whose_embeddings_were_not_grown_is_refused() -> None:
    with pytest.raises(NotAReflectionModel, match="embeddings"):
        TransformersReflectionLLM.from_model(random_model(200), byte_level_tokenizer())


def test_a_saved_checkpoint_loads_and_answers_alike(tmp_path: Path) -> None:
    llm, tokenizer = talkative(), byte_level_tokenizer()
    llm._model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = TransformersReflectionLLM.from_pretrained(tmp_path, device="cpu")
    assert loaded.dtype == "float32"
    assert loaded.invoke("Who?") == llm.invoke("Who?")
    half = TransformersReflectionLLM.from_pretrained(tmp_path, device="cpu", dtype="bfloat16")
    assert half.generate_segments(prompts(), max_tokens=5)[0]["tokens"] >= 1


# Many at once


def test_concurrent_calls_give_what_each_gives_alone(llm: TransformersReflectionLLM) -> None:
    asked = [f"Question {i}: who?" for i in range(64)]
    alone = [llm.invoke(q, max_tokens=8) for q in asked]

    async def together() -> list[str]:
        return await asyncio.gather(*(llm.ainvoke(q, max_tokens=8) for q in asked))

    assert asyncio.run(together()) == alone
    answers: dict[int, str] = {}
    threads = [
        threading.Thread(target=lambda i=i: answers.update({i: llm.invoke(asked[i], max_tokens=8)}))
        for i in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answers[i] for i in range(16)] == alone[:16]


async def test_an_event_loop_is_never_blocked(llm: TransformersReflectionLLM) -> None:
    """It takes a turn within each step of the model, which would wait for ever if it could not."""
    loop, turns = asyncio.get_running_loop(), 0

    async def turn() -> None:
        nonlocal turns
        turns += 1

    def step(*_: object) -> None:
        asyncio.run_coroutine_threadsafe(turn(), loop).result(timeout=30)

    hook = llm._model.register_forward_pre_hook(step)
    try:
        await llm.abatch([f"Question {i}" for i in range(8)], max_tokens=20)
    finally:
        hook.remove()
    assert turns > 10


async def test_cancelling_one_call_leaves_the_others(llm: TransformersReflectionLLM) -> None:
    kept = asyncio.ensure_future(llm.ainvoke("Who?", max_tokens=20))
    dropped = asyncio.ensure_future(llm.ainvoke("Why?", max_tokens=20))
    await asyncio.sleep(0)
    dropped.cancel()
    assert await kept == llm.invoke("Who?", max_tokens=20)
    with pytest.raises(asyncio.CancelledError):
        await dropped
