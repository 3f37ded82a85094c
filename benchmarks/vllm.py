"""Measure what the graph costs on vLLM beyond the engine alone.

``python -m benchmarks.vllm``, on a CPU, float32, a random Llama with the 32,016 ids of Self-RAG's
Llama-2, so that log-probabilities cost what they cost there. Short form, 10 passages.
Ends in one line of JSON:

batch_s            seconds a question of ``abatch`` over all questions; median of the rounds
flat_s             the same of one flat batch of exactly these requests, sent in turn with it
batch_over_flat    median ratio of the two in a round
own_python_ms      CPU milliseconds a question of this process beyond the flat batch's; the engine
                   runs in other processes
"""

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from statistics import median
from typing import Any, cast
from uuid import uuid4

import torch
from pydantic import PrivateAttr
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

from benchmarks import documents
from selfcorrect_rag import create_self_rag
from selfcorrect_rag.models import VLLMReflectionLLM
from selfcorrect_rag.reflection import CONTROL_TOKENS
from tests.conftest import byte_level_tokenizer

CPU_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
"""vLLM's CPU build: engine and graph need a core each, and compiling takes longer than it saves."""
CPU: dict[str, Any] = {"dtype": "float32", "kv_cache_memory_bytes": 4 << 30, "enforce_eager": True}
VOCABULARY, PASSAGES = 32_016, 10
SHORT: Any = {"form": "short", "mode": "always", "segment_tokens": 100}


def llama(hidden: int, inner: int, layers: int, heads: int, kv_heads: int) -> dict[str, int]:
    """Return the fields of a Llama's configuration."""
    sizes = {"hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers}
    return {**sizes, "num_attention_heads": heads, "num_key_value_heads": kv_heads}


def random_llama(
    sizes: dict[str, Any], device: str = "cpu", dtype: torch.dtype = torch.float32
) -> tuple[Any, PreTrainedTokenizerFast]:
    """Make a random Llama, which writes control tokens now and then and none of the unused ids, and
    its tokenizer; ``sizes`` are fields of its configuration."""
    torch.manual_seed(0)
    words, auto = byte_level_tokenizer(), cast(Any, AutoModelForCausalLM)
    given = {"vocab_size": VOCABULARY, "max_position_embeddings": 4096, **sizes}
    config = LlamaConfig(**given, bos_token_id=None, eos_token_id=words.eos_token_id)
    with torch.device(device), torch.no_grad():
        model = auto.from_config(config, dtype=dtype)
        model.lm_head.weight[len(words) :] = 0
        model.lm_head.weight[words.convert_tokens_to_ids(list(CONTROL_TOKENS))] *= 1.5
    return model, words


def questions(count: int, words: int = 60) -> list[dict[str, Any]]:
    """Make questions with passages of so many words of 2 to 9 letters."""
    draw = random.Random(0)
    known = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(2, 9))) for _ in range(500)]

    def text(size: int) -> str:
        return " ".join(draw.choices(known, k=size))

    def pages() -> list[tuple[str, str]]:
        return [(text(2), text(words)) for _ in range(PASSAGES)]

    return [{"question": f"{text(8)}?", "documents": documents(pages())} for _ in range(count)]


class Watched(VLLMReflectionLLM):
    """Keeps the engine's requests, and the tokens of their prompts that were computed."""

    _asked: list[tuple[list[int], Any]] = PrivateAttr(default_factory=list)
    _computed: int = PrivateAttr(default=0)

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        engine: Any = self._runner.engine
        generate = engine._llm.generate

        async def kept(prompt: Any, params: Any, name: str) -> AsyncIterator[Any]:
            self._asked.append((list(prompt["prompt_token_ids"]), params))
            async for output in generate(prompt, params, name):
                yield output
            self._computed += len(output.prompt_token_ids) - (output.num_cached_tokens or 0)

        engine._llm.generate = kept

    def reset(self) -> None:
        """Forget the requests, and empty the engine's prefix cache."""
        self._asked, self._computed = [], 0
        engine: Any = self._runner.engine
        self._runner.run(engine._llm.reset_prefix_cache())

    def drain(self, requests: Sequence[tuple[Sequence[int], Any]]) -> None:
        """Send one batch of requests to the engine itself."""
        from vllm.inputs import tokens_input

        engine: Any = self._runner.engine

        async def one(prompt: Sequence[int], params: Any) -> None:
            async for _ in engine._llm.generate(tokens_input(list(prompt)), params, str(uuid4())):
                pass

        async def all_of_them() -> None:
            await asyncio.gather(*(one(*request) for request in requests))

        self._runner.run(all_of_them())


def costs(run: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds that ``run`` takes, and those of this process's CPU time."""
    started, busy = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - started, time.process_time() - busy


def compare(llm: Watched, inputs: list[Any], context: Any, rounds: int) -> dict[str, float]:
    """Run the graph over ``inputs`` and the flat batch in turn, so that other load on the machine
    falls on both; return the figures of the module's docstring."""
    graph = create_self_rag(llm, lambda query: [])
    graph.batch(inputs[:4], context=context)
    pairs = []
    for _ in range(rounds):
        llm.reset()
        batch = costs(lambda: asyncio.run(graph.abatch(inputs, context=context)))
        asked = llm._asked
        llm.reset()
        pairs.append((batch, costs(lambda: llm.drain(asked))))  # noqa: B023
    return {
        "batch_s": median(batch[0] for batch, _ in pairs) / len(inputs),
        "flat_s": median(flat[0] for _, flat in pairs) / len(inputs),
        "batch_over_flat": median(batch[0] / flat[0] for batch, flat in pairs),
        "own_python_ms": 1000 * median(b[1] - f[1] for b, f in pairs) / len(inputs),
        "requests_a_question": len(asked) / len(inputs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=4, help="64 hidden units for each")
    args = parser.parse_args()
    os.environ.update(CPU_ENVIRONMENT)
    with tempfile.TemporaryDirectory() as folder:
        sizes = llama(64 * args.layers, 128 * args.layers, *[args.layers] * 3)
        for part in random_llama({**sizes, "initializer_range": 0.2}):
            part.save_pretrained(folder)
        with Watched(model=folder, engine=CPU) as llm:
            figures = compare(llm, questions(args.questions), SHORT, args.rounds)
    rounded = {name: round(value, 4) for name, value in figures.items()}
    given = {**vars(args), "cores": len(os.sched_getaffinity(0))}
    print(json.dumps({"benchmark": "vllm", **given, **rounded}))


if __name__ == "__main__":
    main()
