"""What the graph costs on vLLM, against the engine alone and against the papers' procedure.

    python -m benchmarks.vllm [--questions 100] [--long 20] [--papers 3]

All in one run on one engine, float32, the nano generator grown to the 32,016 ids of Self-RAG's
Llama-2. Short form, 10 passages: seconds a question for (a) ``abatch`` over all questions, (b) one
question at a time, (c) the papers' procedure, which decodes a whole answer with log-probabilities
of the whole vocabulary to decide, then ten with 5,000 each, and (d) one flat batch of exactly the
requests that (a) made. The papers' procedure is run in three ways, the fairest first:

- ``flat``: log-probabilities as arrays, and no text made of them: what the procedure costs where
  vLLM is used as well as it can be
- ``dictionaries``: a Python object for each log-probability, as vLLM gives them by default
- ``texts``: besides, each of these 32,016 candidates decoded to text, as the papers' code has it

Long form, 5 passages, 2 beams, depth 6: engine steps and tokens against the least that the
algorithm needs; ``encode_ms`` is what encoding a question's prompts takes, and ``encode_anew_ms``
what it takes where nothing is kept from one segment to the next. Prints a table and one line of
JSON, and writes the line to benchmarks/results/vllm.json.
"""

import argparse
import asyncio
import json
import platform
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import PrivateAttr

from benchmarks.vllm_models import VOCABULARY, grown, questions
from selfcorrect_rag import create_self_rag
from selfcorrect_rag.demo import generator_path
from selfcorrect_rag.models import VLLMReflectionLLM
from selfcorrect_rag.models.engines import tokens
from selfcorrect_rag.models.engines.background import gather
from selfcorrect_rag.models.engines.engine_llm import _EngineCall
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.models.checkpoints import load_tokenizer
from selfcorrect_rag.prompts import decision_prompt, segment_prompt

T = TypeVar("T")
RESULTS = Path(__file__).parent / "results" / "vllm.json"
PASSAGES, LONG_PASSAGES, BEAMS, DEPTH, ANSWER_TOKENS = 10, 5, 2, 6, 100
SHORT: Any = {"form": "short", "segment_tokens": ANSWER_TOKENS}
LONG: Any = {
    "mode": "always",
    "depth": DEPTH,
    "beam_width": BEAMS,
    "segment_tokens": ANSWER_TOKENS,
}


PAPERS: dict[str, dict[str, Any]] = {
    "flat": {"detokenize": False, "flat_logprobs": True},
    "dictionaries": {"detokenize": False},
    "texts": {},
}
"""Ways to run the papers' procedure, as vLLM's sampling parameters."""


class Watched(VLLMReflectionLLM):
    """Keeps what was asked of the engine and what came, and counts the engine's steps."""

    _requests: list[tuple[list[int], Any]] = PrivateAttr(default_factory=list)
    _answers: list[Any] = PrivateAttr(default_factory=list)
    _steps: int = PrivateAttr(default=0)

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        engine: Any = self._runner.engine
        core, receive = engine._llm.engine_core, engine._llm.engine_core.get_output_async
        outputs = engine.outputs

        async def counted() -> Any:
            received = await receive()
            self._steps += bool(received.outputs)
            return received

        async def kept(prompt: Sequence[int], params: Any) -> AsyncIterator[Any]:
            self._requests.append((list(prompt), params))
            async for output in outputs(prompt, params):
                yield output
            self._answers.append(output)

        core.get_output_async, engine.outputs = counted, kept

    def fresh(self) -> None:
        """Forget what was seen, here and in the engine's prefix cache."""
        self._requests, self._answers, self._steps = [], [], 0
        engine: Any = self._runner.engine
        self.on_loop(engine._llm.reset_prefix_cache())

    def on_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something on the engine's own loop."""
        return self._runner._loop.run(coroutine)

    async def ask(self, prompts: Sequence[Sequence[int]], params: Any) -> None:
        """One batch of requests, as the engine's own users make it."""
        await gather(self.drain(prompt, params) for prompt in prompts)

    async def drain(self, prompt: Sequence[int], params: Any) -> None:
        """One request to its end."""
        engine: Any = self._runner.engine
        async for _ in engine.outputs(prompt, params):
            pass


def seconds(run: Callable[[], Any]) -> float:
    """How long ``run`` takes."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def short_form(llm: Watched, count: int, papers: int) -> dict[str, float]:
    """Seconds a question, a to d, and what they stand in to each other."""
    graph = create_self_rag(llm, lambda query: [])
    inputs: list[Any] = questions(count, PASSAGES)
    graph.batch(inputs[:4], context=SHORT)

    def batch() -> None:
        asyncio.run(graph.abatch(inputs, context=SHORT))

    def flat() -> None:
        llm.on_loop(gather(llm.drain(prompt, params) for prompt, params in asked))

    a, d = [], []
    for _ in range(3):  # in turn, so that whatever else the machine does falls on both
        llm.fresh()
        a.append(seconds(batch) / count)
        asked, answers = llm._requests, llm._answers
        shared = prefill_over_least(asked, answers)
        llm.fresh()
        d.append(seconds(flat) / count)
    some = inputs[: max(count // 4, 1)]
    llm.fresh()
    b = seconds(lambda: [graph.invoke(each, context=SHORT) for each in some]) / len(some)
    c = {}
    for way, options in PAPERS.items():
        llm.fresh()
        ask = papers_procedure(llm, inputs[:papers], options)
        c[way] = seconds(lambda ask=ask: llm.on_loop(ask)) / papers  # type: ignore[misc]
    best_a, best_d = min(a), min(d)
    return {
        "batch_s": best_a,
        "single_s": b,
        "flat_s": best_d,
        "batch_over_flat": sorted(x / y for x, y in zip(a, d, strict=True))[1],
        "single_over_flat": b / best_d,
        **{f"papers_{way}_over_batch": taken / best_a for way, taken in c.items()},
        "prefill_over_least": shared,
        "requests_a_question": len(asked) / count,
    }


async def papers_procedure(llm: Watched, inputs: Sequence[Any], how: dict[str, Any]) -> None:
    """Self-RAG's official short form, question by question."""
    from vllm import SamplingParams

    for each in inputs:
        documents = each["documents"]
        prompts = [decision_prompt(each["question"])]
        prompts += [
            segment_prompt(each["question"], [], documents, "retrieve", i)
            for i in range(len(documents))
        ]
        ids = [encoded.ids for encoded in llm._tokenizer.encode(prompts)]
        options: Any = {"temperature": 0.0, "max_tokens": ANSWER_TOKENS, **how}
        await llm.ask(ids[:1], SamplingParams(logprobs=VOCABULARY, **options))
        await llm.ask(ids[1:], SamplingParams(logprobs=5000, **options))


def long_form(llm: Watched, count: int) -> dict[str, float]:
    """Engine steps and tokens of one question at a time, against the least.

    The least: at each depth, as many steps as the longest candidate has tokens (its first comes
    with its prompt), and no token that is not part of a candidate.
    """
    graph = create_self_rag(llm, lambda query: [])
    inputs: list[Any] = questions(count, LONG_PASSAGES, "long")
    graph.invoke(inputs[0], context=LONG)
    steps = least_steps = tokens = least_tokens = depths = 0
    for each in inputs:
        llm.fresh()
        result = graph.invoke(each, context=LONG)
        lengths = [len(answer.outputs[0].token_ids) for answer in llm._answers]
        candidates = result["candidates"]
        by_depth: dict[int, list[int]] = {}
        for candidate, length in zip(candidates, _in_order(llm, lengths), strict=True):
            by_depth.setdefault(candidate["depth"], []).append(length)
        steps += llm._steps
        least_steps += sum(max(of_depth) for of_depth in by_depth.values())
        tokens += sum(lengths)
        least_tokens += sum(sum(of_depth) for of_depth in by_depth.values())
        depths += len(by_depth)
    return {
        "long_depth": depths / count,
        "decode_steps": steps / count,
        "decode_steps_over_least": steps / least_steps,
        "decoded_tokens_over_least": tokens / least_tokens,
    }


def _in_order(llm: Watched, lengths: Sequence[int]) -> list[int]:
    """Lengths in the order in which they were asked for; answers come as they finish."""
    by_prompt = {
        tuple(answer.prompt_token_ids): length
        for answer, length in zip(llm._answers, lengths, strict=True)
    }
    return [by_prompt[tuple(prompt)] for prompt, _ in llm._requests]


def prefill_over_least(asked: Sequence[tuple[list[int], Any]], answers: Sequence[Any]) -> float:
    """Prompt tokens that the engine computed, against the least with perfect sharing of prefixes.

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


def where_time_goes(llm: Watched, count: int) -> dict[str, float]:
    """Milliseconds of CPU that this process spends on a question; the engine has its own."""
    spent = dict.fromkeys(("tokenizing", "reading"), 0.0)

    def timed(owner: Any, name: str, what: str) -> None:
        plain = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            started = time.thread_time()
            try:
                return plain(*args, **kwargs)
            finally:
                spent[what] += time.thread_time() - started

        setattr(owner, name, wrapped)

    graph = create_self_rag(llm, lambda query: [])
    inputs: list[Any] = questions(count, PASSAGES, "profile")
    encode, segments = ControlledTokenizer.encode, _EngineCall.segments
    timed(ControlledTokenizer, "encode", "tokenizing")
    timed(_EngineCall, "segments", "reading")
    llm.fresh()
    cpu = time.process_time()
    asyncio.run(graph.abatch(inputs, context=SHORT))
    cpu = time.process_time() - cpu
    ControlledTokenizer.encode, _EngineCall.segments = encode, segments  # type: ignore[method-assign]
    asked = llm._requests
    llm.fresh()
    front = time.process_time()
    llm.on_loop(gather(llm.drain(prompt, params) for prompt, params in asked))
    front = time.process_time() - front
    rest = cpu - front - spent["tokenizing"] - spent["reading"]
    parts = {"engine_front": front, **spent, "graph": rest}
    return {f"{name}_ms": 1000 * value / count for name, value in parts.items()}


def encoding(llm: Watched, count: int) -> dict[str, float]:
    """Milliseconds of encoding a long-form question's prompts, whose beginnings recur."""
    asked: list[list[Any]] = []
    encode = ControlledTokenizer.encode

    def kept(tokenizer: ControlledTokenizer, prompts: Any, limit: int | None = None) -> Any:
        asked.append([prompts, limit])
        return encode(tokenizer, prompts, limit)

    ControlledTokenizer.encode = kept  # type: ignore[method-assign, assignment]
    graph = create_self_rag(llm, lambda query: [])
    for each in questions(count, LONG_PASSAGES, "encode"):
        graph.invoke(each, context=LONG)  # type: ignore[call-overload]
    ControlledTokenizer.encode = encode  # type: ignore[method-assign]
    figures = {}
    for name, remembered in (("encode", tokens.REMEMBERED_TOKENS), ("encode_anew", 0)):
        usual, tokens.REMEMBERED_TOKENS = tokens.REMEMBERED_TOKENS, remembered
        tokenizer = ControlledTokenizer(load_tokenizer(generator_path()))
        taken = seconds(lambda t=tokenizer: [t.encode(*each) for each in asked])  # type: ignore[misc]
        tokens.REMEMBERED_TOKENS = usual
        figures[f"{name}_ms"] = 1000 * taken / count
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--long", type=int, default=20)
    parser.add_argument("--papers", type=int, default=3)
    args = parser.parse_args()
    figures: dict[str, float] = {}
    options = {"max_logprobs": -1}
    with tempfile.TemporaryDirectory() as folder:
        with Watched(model=str(grown(Path(folder) / "short")), engine=options) as llm:
            figures |= short_form(llm, args.questions, args.papers)
            figures |= where_time_goes(llm, args.questions)
        with Watched(model=str(grown(Path(folder) / "long", endless=True))) as llm:
            figures |= long_form(llm, args.long)
            figures |= encoding(llm, args.long)
    for name, value in figures.items():
        print(f"{name:28} {value:10.3f}")
    rounded = {name: round(value, 4) for name, value in figures.items()}
    machine = f"{platform.machine()}, {len_cores()} cores"
    line = json.dumps(
        {"benchmark": "vllm", "questions": args.questions, "machine": machine, **rounded}
    )
    print(line)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(line + "\n", encoding="utf-8")


def len_cores() -> int:
    """Cores that this process may use."""
    import os

    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    main()
