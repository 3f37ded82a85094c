"""Measure what the graph costs on vLLM, against the engine alone and against the papers' procedure.

    python -m benchmarks.vllm [--questions 100] [--papers 3]

All in one run on one engine, float32, a random Llama of 4 layers with the 32,016 ids of Self-RAG's
Llama-2, so that log-probabilities cost what they cost there. Short form, 10 passages: seconds a
question for (a) ``abatch`` over all questions, (b) one question at a time, (c) the papers'
procedure, which decodes a whole answer with log-probabilities of the whole vocabulary to decide,
then ten with 5,000 each, and (d) one flat batch of exactly the requests that (a) made. The papers'
procedure is run in three ways, the fairest first:

- ``flat``: log-probabilities as arrays, and no text made of them: the least that it can cost
- ``dictionaries``: a Python object for each log-probability, as vLLM gives them by default
- ``texts``: besides, each of these 32,016 candidates decoded to text, as the papers' code has it

Prints a table and one line of JSON, which is also written to benchmarks/results/vllm.json.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from langchain_core.documents import Document
from pydantic import PrivateAttr
from transformers import LlamaConfig, LlamaForCausalLM

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.models import VLLMReflectionLLM
from selfcorrect_rag.prompts import decision_prompt, segment_prompt
from selfcorrect_rag.reflection import CONTROL_TOKENS
from tests.conftest import byte_level_tokenizer

# vLLM's CPU build: engine and graph need a core each, and compiling takes longer than it saves.
os.environ.update(OMP_NUM_THREADS="1", TORCHDYNAMO_DISABLE="1")
CPU: dict[str, Any] = {"dtype": "float32", "kv_cache_memory_bytes": 4 << 30, "enforce_eager": True}
RESULTS = Path(__file__).parent / "results" / "vllm.json"
VOCABULARY, PASSAGES, ANSWER_TOKENS = 32_016, 10, 100
SHORT: Any = {"form": "short", "mode": "always", "segment_tokens": ANSWER_TOKENS}
PAPERS: dict[str, dict[str, Any]] = {
    "flat": {"detokenize": False, "flat_logprobs": True},
    "dictionaries": {"detokenize": False},
    "texts": {},
}
"""Ways to run the papers' procedure, as vLLM's sampling parameters."""


def save_model(folder: Path) -> Path:
    """Save a random Llama that writes control tokens now and then, and none of the unused ids."""
    torch.manual_seed(0)
    words = byte_level_tokenizer()
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=4096,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=words.eos_token_id,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight[len(words) :] = 0
        model.lm_head.weight[words.convert_tokens_to_ids(list(CONTROL_TOKENS))] *= 1.5
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def questions(count: int) -> list[dict[str, Any]]:
    """Make questions with passages of 60 words each."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(2, 9))) for _ in range(500)]

    def text(size: int) -> str:
        return " ".join(draw.choices(words, k=size))

    return [
        {
            "question": f"{text(8)}?",
            "documents": [Document(text(60), metadata={"title": text(2)}) for _ in range(PASSAGES)],
        }
        for _ in range(count)
    ]


class Watched(VLLMReflectionLLM):
    """Keeps the engine's requests and answers."""

    _asked: list[tuple[list[int], Any]] = PrivateAttr(default_factory=list)
    _answers: list[Any] = PrivateAttr(default_factory=list)

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        engine: Any = self._runner.engine
        generate = engine._llm.generate

        async def kept(prompt: Any, params: Any, name: str) -> AsyncIterator[Any]:
            self._asked.append((list(prompt["prompt_token_ids"]), params))
            async for output in generate(prompt, params, name):
                yield output
            self._answers.append(output)

        engine._llm.generate = kept

    def reset(self) -> None:
        """Forget the requests, and empty the engine's prefix cache."""
        self._asked, self._answers = [], []
        engine: Any = self._runner.engine
        self._runner.run(engine._llm.reset_prefix_cache())

    async def drain(self, requests: Sequence[tuple[Sequence[int], Any]]) -> None:
        """Send one batch of requests to the engine itself."""
        from vllm.inputs import tokens_input

        engine: Any = self._runner.engine

        async def one(prompt: Sequence[int], params: Any) -> None:
            async for _ in engine._llm.generate(tokens_input(list(prompt)), params, str(uuid4())):
                pass

        await asyncio.gather(*(one(*request) for request in requests))


def seconds(run: Callable[[], Any]) -> float:
    """Return how long ``run`` takes."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def short_form(llm: Watched, count: int, papers: int) -> dict[str, float]:
    """Measure seconds a question, a to d, and their ratios."""
    graph = create_self_rag(llm, lambda query: [])
    inputs: list[Any] = questions(count)
    graph.batch(inputs[:4], context=SHORT)
    batch, flat = [], []
    for _ in range(3):  # in turn, so that other load on the machine falls on both
        llm.reset()
        batch.append(seconds(lambda: asyncio.run(graph.abatch(inputs, context=SHORT))) / count)
        asked, answers = llm._asked, llm._answers
        llm.reset()
        flat.append(seconds(lambda: llm._runner.run(llm.drain(asked))) / count)  # noqa: B023
    some = inputs[: max(count // 4, 1)]
    llm.reset()
    single = seconds(lambda: [graph.invoke(each, context=SHORT) for each in some]) / len(some)
    figures = {
        "batch_s": min(batch),
        "single_s": single,
        "flat_s": min(flat),
        "batch_over_flat": sorted(x / y for x, y in zip(batch, flat, strict=True))[1],
        "single_over_flat": single / min(flat),
        "prefill_over_least": prefill_over_least(asked, answers),
        "requests_a_question": len(asked) / count,
    }
    for way, options in PAPERS.items():
        llm.reset()
        procedure: Coroutine[Any, Any, None] = papers_procedure(llm, inputs[:papers], options)
        spent = seconds(lambda: llm._runner.run(procedure)) / papers  # noqa: B023
        figures[f"papers_{way}_over_batch"] = spent / min(batch)
    return figures


async def papers_procedure(llm: Watched, inputs: Sequence[Any], how: dict[str, Any]) -> None:
    """Run Self-RAG's official short form, question by question."""
    from vllm import SamplingParams

    options: Any = {"temperature": 0.0, "max_tokens": ANSWER_TOKENS, **how}
    decide, write = (SamplingParams(logprobs=n, **options) for n in (VOCABULARY, 5000))
    for each in inputs:
        question, documents = each["question"], each["documents"]
        passages = range(len(documents))
        prompts = [decision_prompt(question)]
        prompts += [segment_prompt(question, [], documents, "retrieve", i) for i in passages]
        first, *rest = [encoded.ids for encoded in llm._tokenizer.encode(prompts)]
        await llm.drain([(first, decide)])
        await llm.drain([(ids, write) for ids in rest])


def prefill_over_least(asked: Sequence[tuple[list[int], Any]], answers: Sequence[Any]) -> float:
    """Return the prompt tokens computed, over the least with perfect sharing of prefixes.

    At least the last token of a prompt must be computed, whatever is shared.
    """
    seen: set[int] = set()
    least = 0
    for prompt, _ in asked:
        state, new = 0, 0
        for token_id in prompt:
            state = hash((state, token_id))
            new += state not in seen
            seen.add(state)
        least += max(new, 1)
    computed = sum(len(a.prompt_token_ids) - (a.num_cached_tokens or 0) for a in answers)
    return computed / least


def main() -> None:
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--papers", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = str(save_model(Path(folder)))
        options = {"max_logprobs": -1, "max_model_len": 4096, **CPU}
        with Watched(model=model, engine=options) as llm:
            figures = short_form(llm, args.questions, args.papers)
    for name, value in figures.items():
        print(f"{name:28} {value:10.3f}")
    machine = f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores"
    rounded = {name: round(value, 4) for name, value in figures.items()}
    line = {"benchmark": "vllm", "questions": args.questions, "machine": machine, **rounded}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(line) + "\n", encoding="utf-8")
    print(json.dumps(line))


if __name__ == "__main__":
    main()
