"""Self-RAG on vLLM at the size of a real generator: random weights of Llama-2-7B's dimensions.

    python -m benchmarks.vllm_7b                  # on a GPU; bfloat16
    python -m benchmarks.vllm_7b --size tiny      # anywhere: shows only that it runs

Nothing is downloaded, and nothing that is written means anything; the work is that of a real model.
Short form, 10 passages of 200 tokens, answers of at most 100 tokens, all questions by ``abatch``:
questions a second; milliseconds of CPU that this process spends on one, vLLM's front too; prompt
tokens that the engine computed over the least with perfect sharing; and the engine's own bounds,
which are vLLM's for throughput unless ``--max-num-seqs`` and ``--max-num-batched-tokens`` say
otherwise. One line of JSON.
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from langchain_core.documents import Document
from transformers import LlamaConfig

from benchmarks.transformers_7b import SIZES
from benchmarks.vllm import SHORT, Watched, prefill_over_least, seconds
from benchmarks.vllm_models import VOCABULARY
from selfcorrect_rag import create_self_rag
from selfcorrect_rag.models.local.checkpoints import load_tokenizer
from selfcorrect_rag.nano import generator_path

PASSAGES = 10


def dimensions(size: str, folder: Path) -> Path:
    """A checkpoint without weights, which the engine makes up."""
    config = LlamaConfig(
        vocab_size=VOCABULARY, max_position_embeddings=4096, architectures=["LlamaForCausalLM"]
    )
    config.update(SIZES[size])
    config.save_pretrained(folder)
    load_tokenizer(generator_path()).save_pretrained(folder)
    return folder


def questions(count: int, passage_tokens: int) -> list[Any]:
    """Questions whose passages share nothing but the question."""
    return [
        {
            "question": f"Who wrote the book of number {number}?",
            "documents": [
                Document(f"{number} {i}" + " the" * (passage_tokens - 4)) for i in range(PASSAGES)
            ],
        }
        for number in range(count)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--size", choices=list(SIZES), default="7b")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--passage-tokens", type=int, default=200)
    parser.add_argument("--max-num-seqs", type=int)
    parser.add_argument("--max-num-batched-tokens", type=int)
    args = parser.parse_args()
    if args.size == "7b" and not torch.cuda.is_available():
        raise SystemExit("7B dimensions want a GPU; --size tiny runs anywhere")
    given = {name: getattr(args, name) for name in ("max_num_seqs", "max_num_batched_tokens")}
    options = {name: value for name, value in given.items() if value}
    inputs = questions(args.questions, args.passage_tokens)
    with (
        tempfile.TemporaryDirectory() as folder,
        Watched(
            model=str(dimensions(args.size, Path(folder))),
            engine={"load_format": "dummy", "max_model_len": 4096, **options},
        ) as llm,
    ):
        graph = create_self_rag(llm, lambda query: [])
        graph.batch(inputs[:4], context=SHORT)
        llm.fresh()
        cpu = time.process_time()
        taken = seconds(lambda: asyncio.run(graph.abatch(inputs, context=SHORT)))
        cpu = time.process_time() - cpu
        figures = {
            "questions_per_s": args.questions / taken,
            "prefill_over_least": prefill_over_least(llm._requests, llm._answers),
            "prompt_tokens_a_question": sum(len(ids) for ids, _ in llm._requests) / args.questions,
            "process_ms": 1000 * cpu / args.questions,
        }
        engine: Any = llm._runner.engine
        bounds = {"max_num_seqs": engine.sequences, "in_flight": engine.in_flight}
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    rounded = {name: round(value, 3) for name, value in figures.items()}
    print(
        json.dumps({"benchmark": "vllm_7b", "size": args.size, "device": name, **bounds, **rounded})
    )


if __name__ == "__main__":
    main()
