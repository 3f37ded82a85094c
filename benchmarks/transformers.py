"""The transformers backend against what one writes with ``model.generate``, and against itself.

    python -m benchmarks.transformers [--questions 16] [--long 3] [--together 32]

Naive is what a user of transformers would write who knows the papers: each prompt in full, prompts
of a step as one batch padded on the left, ``model.generate`` with ``output_logits``, greedy, ending
at the end of text and at retrieval tokens, and the same log-probabilities of reflection groups read
from the logits. It has no graph around it in short form, where ours has; in long form the same
graph runs on it, so that both go the same way.

Short form, 10 passages: seconds a question of our graph, of naive with the ten prompts as one
batch, of naive passage by passage, and of the papers' procedure, which is naive in one batch but
decodes a whole answer to decide. Long form, 5 passages, 2 beams, depth 7, by a model that
never ends its answer: ours and naive, and prompt tokens that ours computes over the least that
suffice, each beginning that prompts share counted once. ``abatch`` over 32 questions: questions
asked one by one over all at once. Times are medians over questions, the ways taking turns on each.

Models: the nano generator (4.3 M parameters; in long form with 32,016 ids), whose cost is mostly
what Python and small operators take, and the same made into 92 M parameters and 32,016 ids, whose
cost is mostly arithmetic; it is asked a quarter as many. Prints a table and one line of JSON;
threads are those of torch (OMP_NUM_THREADS).
"""

import argparse
import asyncio
import json
import platform
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch

from benchmarks.transformers_models import nano, widened
from benchmarks.vllm_models import questions
from selfcorrect_rag import create_self_rag
from selfcorrect_rag.models import (
    Completion,
    Engine,
    EngineReflectionLLM,
    Request,
    TransformersReflectionLLM,
)
from selfcorrect_rag.prompts import decision_prompt, segment_prompt
from selfcorrect_rag.state import Segment

PASSAGES, LONG_PASSAGES, BEAMS, DEPTH, TOKENS = 10, 5, 2, 7, 100
SHORT: Any = {"form": "short", "segment_tokens": TOKENS}
TOKEN: Any = {"max_tokens": 1, "choose": "Retrieve"}
"""Options of a decision that takes one token."""
ANSWER: Any = {"max_tokens": TOKENS, "stop_at_retrieval": True}
"""Options of an answer, which ends at the next retrieval token."""
LONG: Any = {"mode": "always", "depth": DEPTH, "beam_width": BEAMS, "segment_tokens": TOKENS}
MODELS: dict[str, Callable[[bool], TransformersReflectionLLM]] = {"nano": nano, "widened": widened}


class Naive(Engine):
    """``model.generate`` on each batch of prompts, from their first token on."""

    def __init__(self, llm: TransformersReflectionLLM) -> None:
        self._model: Any = llm._model
        self._eos_id = llm._tokenizer.eos_id

    @classmethod
    def of(cls, llm: TransformersReflectionLLM) -> EngineReflectionLLM:
        """Naive with the model and tokenizer of ours."""
        return EngineReflectionLLM.from_engine(cls(llm), llm._tokenizer)

    async def complete(
        self, prompts: Sequence[Sequence[int]], request: Request
    ) -> list[Completion]:
        return await asyncio.to_thread(self._generate, prompts, request)

    @torch.inference_mode()
    def _generate(self, prompts: Sequence[Sequence[int]], request: Request) -> list[Completion]:
        longest = max(map(len, prompts))
        ends = [self._eos_id, *request.stop_ids]
        made = self._model.generate(
            torch.tensor([[0] * (longest - len(ids)) + [*ids] for ids in prompts]),
            attention_mask=torch.tensor(
                [[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts]
            ),
            do_sample=False,
            max_new_tokens=request.max_tokens,
            eos_token_id=ends,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_logits=True,
        )
        logprobs = torch.stack(made.logits, dim=1).log_softmax(-1)
        written = made.sequences[:, longest:]
        if request.allowed_ids is not None:
            allowed = torch.tensor(request.allowed_ids)
            written = allowed[logprobs[:, :1, allowed].argmax(-1)]
        own = logprobs.gather(2, written[:, :, None])[:, :, 0].tolist()
        watched = logprobs[:, :, list(request.logprob_ids)].tolist()
        completions = []
        for row, ids in enumerate(written.tolist()):
            size = next((i for i, each in enumerate(ids, start=1) if each in ends), len(ids))
            by_id = [
                {**dict(zip(request.logprob_ids, others, strict=True)), token_id: logprob}
                for token_id, logprob, others in zip(ids, own[row], watched[row], strict=True)
            ]
            reason: Any = "stop" if ids[size - 1] in ends else "length"
            completions.append(Completion(ids[:size], by_id[:size], reason))
        return completions


def asked(
    naive: EngineReflectionLLM, each: Any, batch: int, decision: dict[str, Any]
) -> list[Segment]:
    """Short form without a graph: the decision, then the passages, ``batch`` at a time."""
    documents = each["documents"]
    naive._segments([decision_prompt(each["question"])], **{**ANSWER, **decision})
    prompts = [
        segment_prompt(each["question"], [], documents, "retrieve", i)
        for i in range(len(documents))
    ]
    starts = range(0, len(prompts), batch)
    return [
        s for start in starts for s in naive._segments(prompts[start : start + batch], **ANSWER)
    ]


class Counted:
    """Prompts that an LLM is given while this is open, and the tokens of them that it computes."""

    def __init__(self, llm: TransformersReflectionLLM) -> None:
        self._llm, self.computed = llm, 0
        self.prompts: list[list[int]] = []

    def __enter__(self) -> None:
        model: Any = self._llm._model
        tokenizer: Any = self._llm._tokenizer
        forward, encode = model.forward, tokenizer.encode

        def counted(*args: Any, **kwargs: Any) -> Any:
            reads = isinstance(kwargs["logits_to_keep"], torch.Tensor)  # where prompts end
            self.computed += kwargs["input_ids"].numel() if reads else 0
            return forward(*args, **kwargs)

        def kept(*args: Any) -> Any:
            encoded = encode(*args)
            self.prompts += [each.ids for each in encoded]
            return encoded

        model.forward, tokenizer.encode = counted, kept

    def __exit__(self, *_: object) -> None:
        del self._llm._model.forward, self._llm._tokenizer.encode


def least(prompts: Sequence[Sequence[int]]) -> int:
    """Tokens that must be computed where no beginning is twice, but the last of each prompt is."""
    seen: set[int] = set()
    total = 0
    for prompt in prompts:
        state, before = 0, len(seen)
        for token_id in prompt:
            state = hash((state, token_id))
            seen.add(state)
        total += max(len(seen) - before, 1)
    return total


def short_form(llm: TransformersReflectionLLM, count: int) -> dict[str, float]:
    """Seconds a question, ours and naive, and how many times naive takes."""
    graph, naive = create_self_rag(llm, lambda query: []), Naive.of(llm)
    ways: list[Callable[[Any], Any]] = [
        lambda each: graph.invoke(each, context=SHORT),
        lambda each: asked(naive, each, PASSAGES, TOKEN),
        lambda each: asked(naive, each, 1, TOKEN),
        lambda each: asked(naive, each, PASSAGES, {}),
    ]
    first, *rest = questions(count + 1, PASSAGES)
    result, segments, *_ = (way(first) for way in ways)  # warms up
    same = [c["text"] for c in result["candidates"]] == [s["text"] for s in segments]
    assert same, "not the same work"
    ours, batched, singly, papers = zip(
        *([seconds(way, each) for way in ways] for each in rest), strict=True
    )
    return {
        "short_s": median(ours),
        "short_naive_over_ours": times(batched, ours),
        "short_one_by_one_over_ours": times(singly, ours),
        "short_papers_over_ours": times(papers, ours),
    }


def long_form(llm: TransformersReflectionLLM, count: int) -> dict[str, float]:
    """Seconds a question, how many times naive takes, and prompt tokens over the least."""
    graph = create_self_rag(llm, lambda query: [])
    plain = create_self_rag(Naive.of(llm), lambda query: [])
    first, *rest = questions(count + 1, LONG_PASSAGES, "long")
    counted = Counted(llm)
    with counted:
        result: Any = graph.invoke(first, context=LONG)  # type: ignore[call-overload]
    same: Any = plain.invoke(first, context=LONG)  # type: ignore[call-overload]
    assert result["answer"] == same["answer"], "not the same work"
    ours, theirs = [], []
    for each in rest:
        ours.append(seconds(lambda each: graph.invoke(each, context=LONG), each))
        theirs.append(seconds(lambda each: plain.invoke(each, context=LONG), each))
    tokens, suffice = sum(map(len, counted.prompts)), least(counted.prompts)
    return {
        "long_s": median(ours),
        "long_naive_over_ours": times(theirs, ours),
        "long_candidates": len(result["candidates"]),
        "long_prefill_over_least": counted.computed / suffice,
        "long_prompts_over_least": tokens / suffice,
    }


def together(llm: TransformersReflectionLLM, count: int) -> dict[str, float]:
    """How many times asking one by one takes of asking all at once, over three rounds."""
    one_by_one, at_once = [], []
    for round_ in range(3):
        graph = create_self_rag(llm, lambda query: [])
        inputs, others = (questions(count, PASSAGES, f"{way} {round_}") for way in "ab")

        def all_at_once(each: Any, graph: Any = graph) -> None:
            asyncio.run(graph.abatch(each, context=SHORT))

        def in_turn(each: Any, graph: Any = graph) -> None:
            for question in each:
                graph.invoke(question, context=SHORT)

        one_by_one.append(seconds(in_turn, inputs))
        at_once.append(seconds(all_at_once, others))
    return {"one_by_one_over_abatch": times(one_by_one, at_once)}


def seconds(run: Callable[[Any], Any], each: Any) -> float:
    """How long ``run`` takes."""
    started = time.perf_counter()
    run(each)
    return time.perf_counter() - started


def times(those: Sequence[float], ours: Sequence[float]) -> float:
    """The median of how many times that takes of what ours does."""
    return median(a / b for a, b in zip(those, ours, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--questions", type=int, default=16)
    parser.add_argument("--long", type=int, default=3)
    parser.add_argument("--together", type=int, default=32)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    args = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    for name in args.models:
        share = 1 if name == "nano" else 4  # a larger model, fewer questions
        with MODELS[name](False) as llm:
            found = short_form(llm, max(args.questions // share, 1))
            found |= together(llm, max(args.together // share, 2))
        with MODELS[name](True) as llm:
            found |= long_form(llm, max(args.long // share, 1))
        figures[name] = {figure: round(value, 3) for figure, value in found.items()}
        for figure, value in figures[name].items():
            print(f"{name:8} {figure:28} {value:10.3f}")
    machine = f"{platform.machine()}, {torch.get_num_threads()} threads"
    print(json.dumps({"benchmark": "transformers", "machine": machine, **figures}))


if __name__ == "__main__":
    main()
