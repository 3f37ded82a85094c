"""The transformers backend at the size of a real generator, against a bare loop.

    python -m benchmarks.transformers_7b                    # 7B dimensions, bfloat16, on a GPU
    python -m benchmarks.transformers_7b --size tiny        # anywhere: shows only that it runs

Random weights of Llama-2-7B's dimensions, so nothing is downloaded and nothing that is written
means anything; the work is that of a real one. For batches of several sizes: tokens a second of
``generate_segments``, their share of what a bare greedy loop over the same prompts with the same
cache does (the ceiling), and the peak of GPU memory against weights and cache. One line of JSON.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from nano_training.tokenizer import load_tokenizer
from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.nano import generator_path
from selfcorrect_rag.prompts import Part, Prompt

SIZES: dict[str, dict[str, Any]] = {
    "7b": {
        "hidden_size": 4096,
        "intermediate_size": 11_008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
    },
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
    },
}
PROMPT_TOKENS, NEW_TOKENS = 256, 64


def random_model(size: str, device: str) -> LlamaForCausalLM:
    """A model of that size, made on its device."""
    config = LlamaConfig(vocab_size=32_016, max_position_embeddings=4096, **SIZES[size])
    torch.manual_seed(0)
    with torch.device(device):
        previous = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16 if device == "cuda" else torch.float32)
        try:
            model = LlamaForCausalLM(config)
        finally:
            torch.set_default_dtype(previous)
    model.generation_config.eos_token_id = None
    return model.eval()  # type: ignore[no-any-return, no-untyped-call]


@torch.inference_mode()
def bare(model: LlamaForCausalLM, ids: torch.Tensor) -> None:
    """Greedy decoding with nothing around it."""
    cache = DynamicCache(config=model.config)
    for _ in range(NEW_TOKENS):
        logits = model(input_ids=ids, past_key_values=cache, logits_to_keep=1).logits
        ids = logits[:, -1].argmax(-1, keepdim=True)


def seconds(run: Callable[[], Any], device: str) -> float:
    """The shorter of two runs after one to warm up."""
    times = []
    for _ in range(3):
        started = time.perf_counter()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return min(times[1:])


def measure(llm: TransformersReflectionLLM, batch: int, device: str) -> dict[str, float]:
    """Figures of one batch size."""
    words = " one two three" * PROMPT_TOKENS
    prompts = [Prompt(parts=(Part(f"{i}{words}", "untrusted", 1),)) for i in range(batch)]
    encoded = llm._tokenizer.encode(prompts, PROMPT_TOKENS)
    ids = torch.tensor([row.ids for row in encoded], device=device)
    short = [Prompt(parts=(Part(llm._tokenizer.text(row.ids), "untrusted", 1),)) for row in encoded]
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    ours = seconds(lambda: llm.generate_segments(short, max_tokens=NEW_TOKENS), device)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    ceiling = seconds(lambda: bare(llm._model, ids), device)  # type: ignore[arg-type]
    tokens = batch * NEW_TOKENS
    figures = {"tokens_per_s": tokens / ours, "of_ceiling": ceiling / ours}
    if peak:
        config = llm._model.config
        element = 2 * config.num_hidden_layers * config.hidden_size * 2
        least = sum(p.numel() * 2 for p in llm._model.parameters())
        least += element * batch * (PROMPT_TOKENS + NEW_TOKENS)
        figures |= {"peak_gib": peak / 2**30, "peak_over_least": peak / least}
    return {name: round(value, 3) for name, value in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--size", choices=list(SIZES), default="7b")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 10, 40])
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if args.size == "7b" and device == "cpu":
        raise SystemExit("7B dimensions want a GPU; --size tiny runs anywhere")
    tokenizer = ControlledTokenizer(load_tokenizer(generator_path()))
    tokenizer.eos_id = None  # every sequence goes to its limit
    llm = TransformersReflectionLLM.from_model(random_model(args.size, device), tokenizer)
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    by_batch = {batch: measure(llm, batch, device) for batch in args.batches}
    print(
        json.dumps(
            {"benchmark": "transformers_7b", "size": args.size, "device": name, "batches": by_batch}
        )
    )


if __name__ == "__main__":
    main()
