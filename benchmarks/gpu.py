"""Measure on one H100 or H200 in at most eight minutes: ``make gpu``. Nothing is downloaded.

    python -m benchmarks.gpu [--size toy] [--parts evaluator training] [--out build/gpu.json]

Models have real sizes and random weights, texts are files of this repository or random words. Each
part runs in a new process for at most its time in `LIMITS`, and prints one line of JSON. A part
that fails or takes too long has ``error`` beside the figures that it got to. ``--size toy`` runs
the same code in a minute or two on a CPU. docs/performance.md says what a machine needs.

machine       the device, and the versions of Python, torch, transformers and vLLM
evaluator     T5-large: pairs a second of the papers' loop (one at a time, padded to 512, float32),
              and of T5Evaluator in bfloat16, ten passages a question and hundreds of them
transformers  Self-RAG's short form on a 7B in bfloat16, ten passages, some 2,200 prompt tokens:
              questions a second, and the peak of memory
training      optimizer steps a second of `train critic` and `train generator` with LoRA
vllm          the same questions on vLLM, all at once, with the figures of benchmarks/vllm.py; the
              share of the arithmetic peak at which prompts are computed; and the long form.
              No test runs this part: on a CPU try ``--size toy --parts vllm`` in vLLM's environment
"""

import argparse
import asyncio
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import packages_distributions, version
from itertools import cycle, product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from benchmarks import vllm as engines
from benchmarks.grading import LARGE, official_score, random_model, trained_tokenizer
from reader_training.rows import QUESTIONS, lines
from selfcorrect_rag import create_self_rag
from selfcorrect_rag.models import T5Evaluator, TransformersReflectionLLM
from selfcorrect_rag.training.critic import CriticOptions, train_critic
from selfcorrect_rag.training.generator import GeneratorOptions, train_generator

LIMITS = {"machine": 60, "evaluator": 60, "transformers": 70, "training": 110, "vllm": 180}
"""Maximum seconds of each part, together eight minutes; time that is left goes to the next."""
PEAK_FLOPS = 989e12
"""Dense bfloat16 operations a second of an H100 or H200 (SXM), by their data sheets."""
WORDS = 19
"""Words of a passage, which make a prompt of some 220 tokens."""
CONTEXT: Any = {**engines.SHORT, "segment_tokens": 32}
Figures = Iterator[dict[str, Any]]


class Size(NamedTuple):
    """The models, and how much is done with them."""

    device: str
    dtype: torch.dtype
    t5: dict[str, int]
    llamas: dict[str, dict[str, int]]  # by name; the first one also answers
    engine: dict[str, Any]  # vLLM's options
    questions: int  # all at once on vLLM, and a tenth of the pairs that are graded in bulk
    batch: int  # rows of an optimizer step
    seconds: float  # for which each figure is measured, after a warm-up


ENGINE = {"dtype": "bfloat16", "max_model_len": 4096, "gpu_memory_utilization": 0.85}
SMOLLM2 = {**engines.llama(576, 1536, 30, 9, 3), "vocab_size": 49_152, "tie_word_embeddings": True}
LLAMAS = {"7b": engines.llama(4096, 11008, 32, 32, 32), "135m": SMOLLM2}
TINY_T5 = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
TINY = {"tiny": {**engines.llama(64, 96, 2, 2, 2), "vocab_size": 512}}
SIZES = {
    "full": Size("cuda", torch.bfloat16, LARGE, LLAMAS, ENGINE, 100, batch=32, seconds=6.0),
    "toy": Size("cpu", torch.float32, TINY_T5, TINY, engines.CPU, 4, batch=4, seconds=0.2),
}


def machine(size: Size) -> Figures:
    device = torch.cuda.get_device_name() if size.device == "cuda" else size.device
    yield {"device": device, "date": time.strftime("%Y-%m-%d"), "python": sys.version}
    known = packages_distributions()  # vLLM's CPU build has another name
    names = ("torch", "transformers", "vllm")
    yield {name: version(known[name][0]) if name in known else "not installed" for name in names}


def evaluator(size: Size) -> Figures:
    words = " ".join(row["text"] for row in lines(QUESTIONS / "notes.jsonl")).split()
    passages = [" ".join(words[i : i + 100]) for i in range(0, len(words), 100)]
    tokenizer = trained_tokenizer(passages)
    with torch.device(size.device):
        model: Any = random_model(size.t5, len(tokenizer))
    question, each = "Who has to sign for the lasers?", cycle(passages)
    tens = cycle(passages[i : i + 10] for i in range(0, len(passages) - 9, 10))
    official = per_second(
        lambda: len(official_score(model, tokenizer, question, [next(each)])), size.seconds
    )
    yield {"official_pairs_per_s": official}
    ours, many = T5Evaluator(model.to(size.dtype), tokenizer), passages[: 10 * size.questions]
    for name, some in (("question", tens), ("bulk", cycle([many]))):
        pairs = per_second(lambda: len(ours.score(question, next(some))), size.seconds)  # noqa: B023
        yield {f"{name}_pairs_per_s": pairs, f"{name}_over_official": pairs / official}


def transformers(size: Size) -> Figures:
    sizes, *_ = size.llamas.values()
    model, words = engines.random_llama(sizes, size.device, size.dtype)
    asked, usage = cycle(engines.questions(size.questions, WORDS)), dict[str, Any]()
    with TransformersReflectionLLM.from_model(model, words) as llm:
        graph: Any = create_self_rag(llm, lambda query: [])

        def ask() -> int:
            usage.update(graph.invoke(next(asked), context=CONTEXT)["usage"])
            return 1

        yield {"questions_per_s": per_second(ask, size.seconds)}
    on_gpu = size.device == "cuda"
    ours = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield {"peak_gb": (torch.cuda.max_memory_allocated() if on_gpu else ours) / 1e9}
    yield {name: usage[name] for name in ("prompt_tokens", "generated_tokens")}


def vllm(size: Size) -> Figures:
    from vllm import SamplingParams

    inputs, (sizes, *_) = engines.questions(size.questions, WORDS), size.llamas.values()
    with tempfile.TemporaryDirectory() as folder:
        for part in engines.random_llama(sizes, size.device, size.dtype):
            part.save_pretrained(folder)
        torch.cuda.empty_cache()
        with engines.Watched(model=folder, engine=size.engine) as llm:
            figures = engines.compare(llm, inputs, CONTEXT, rounds=3)
            yield {"questions_per_s": 1 / figures["batch_s"], **figures}
            one = SamplingParams(max_tokens=1, temperature=0.0, detokenize=False)
            prompts = [(ids, one) for ids, _ in llm._asked]
            llm.reset()
            spent, _ = engines.costs(lambda: llm.drain(prompts))
            speed = llm._computed / spent
            hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
            weights = sizes["num_hidden_layers"] * hidden * (4 * hidden + 3 * inner)
            share = 2 * weights * speed / PEAK_FLOPS
            yield {"prefill_tokens_per_s": speed, "prefill_share_of_peak": share}
            graph: Any = create_self_rag(llm, lambda query: [])
            some, long = inputs[:20], {**CONTEXT, "form": "long"}
            spent, _ = engines.costs(lambda: asyncio.run(graph.abatch(some, context=long)))
            yield {"long_questions_per_s": len(some) / spent}


def training(size: Size) -> Figures:
    text = engines.questions(1, 45)[0]["documents"][0].page_content  # rows get some 600 tokens
    output = f"[Retrieval]<paragraph>{text}</paragraph>[Relevant]{text}[Fully supported][Utility:5]"
    critic = {"instruction": f"Is it relevant? {text}", "input": text, "token": "[Relevant]"}
    numbers, parts = range(8 * size.batch), {0: "development", 1: "test"}
    common: dict[str, Any] = {"batch_size": size.batch, "lora_rank": 16, "num_train_epochs": 1000}
    common |= {"per_device_batch_size": size.batch // 4, "trainer": {"disable_tqdm": True}}
    trainings: dict[str, tuple[Any, Any, list[dict[str, str]]]] = {
        "critic": (
            *(train_critic, CriticOptions),
            [{**critic, "key": str(i), "part": parts.get(i, "train")} for i in numbers],
        ),
        "generator": (
            *(train_generator, GeneratorOptions),
            [{"instruction": f"What is {i}?", "output": output} for i in numbers],
        ),
    }
    for (name, sizes), (kind, (train, options, rows)) in product(
        size.llamas.items(), trainings.items()
    ):
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder, "rows.jsonl")
            data.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
            given = options(data=data, out=Path(folder, "out"), **common)
            run = partial(train, given, base=engines.random_llama(sizes, size.device, size.dtype))
            yield {f"{kind}_{name}_steps_per_s": steps_per_second(run, size.seconds)}
            del run
        gc.collect()
        torch.cuda.empty_cache()


PARTS = {part.__name__: part for part in (machine, evaluator, transformers, training, vllm)}


class Enough(Exception):
    """Ends a training whose steps have been timed."""


def steps_per_second(train: Callable[[], object], seconds: float) -> float:
    """Time a training's optimizer steps after the first one; it ends before its export."""
    ends: list[float] = []

    def note(*_: object) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        ends.append(time.perf_counter())
        if ends[-1] - ends[0] > seconds:
            raise Enough

    hook = register_optimizer_step_post_hook(note)
    try:
        train()
    except Enough:
        return (len(ends) - 1) / (ends[-1] - ends[0])
    finally:
        hook.remove()
    raise RuntimeError("the training ended before its steps were timed")


def per_second(run: Callable[[], int], seconds: float) -> float:
    """Return the items a second of ``run``, which returns how many it did, after one warm-up."""
    run()
    done, started = 0, time.perf_counter()
    while not done or time.perf_counter() - started < seconds:
        done += run()
    return done / (time.perf_counter() - started)


def measure(name: str, size: str) -> None:
    """Print a part's figures as they come, then its error if it fails: a JSON object a line."""
    try:
        if SIZES[size].device == "cuda" and not torch.cuda.is_available():
            raise RuntimeError("no CUDA device is here: take --size toy")
        for found in PARTS[name](SIZES[size]):
            print(json.dumps({"part": name, **found}), flush=True)
    except Exception as error:
        traceback.print_exc()
        print(json.dumps({"part": name, "error": f"{type(error).__name__}: {error}"}), flush=True)


def run_part(name: str, size: str, limit: float) -> dict[str, Any]:
    """Run a part in a new process for at most ``limit`` seconds, and return what it printed."""
    code = f"from benchmarks.gpu import measure; measure({name!r}, {size!r})"
    # GNU's timeout also ends the processes that the part starts.
    command = ["timeout", "--signal=KILL", f"{max(limit, 0.01)}", sys.executable, "-c", code]
    environment = {**os.environ, **(engines.CPU_ENVIRONMENT if size == "toy" else {})}
    started, found = time.perf_counter(), dict[str, Any](part=name)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
    seconds = time.perf_counter() - started
    if done.returncode:
        late, ended = f"it took longer than {limit:.0f} s", f"its process ended: {done.returncode}"
        found["error"] = late if seconds >= limit else ended
    for line in done.stdout.splitlines():
        found |= json.loads(line) if line.startswith('{"part": ') else {}
    found["seconds"] = seconds
    return {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in found.items()}


def main() -> None:
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, default=Path("build/gpu.json"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    done: list[dict[str, Any]] = []
    slack = 1 if args.size == "full" else 5  # a toy may share its CPU
    end = time.monotonic()
    for name in args.parts:
        end += slack * LIMITS[name]
        done.append(run_part(name, args.size, end - time.monotonic()))
        print(json.dumps(done[-1]), flush=True)
        args.out.write_text(json.dumps({"size": args.size, "parts": done}, indent=1), "utf-8")
    sys.exit(all("error" in part for part in done))


if __name__ == "__main__":
    main()
