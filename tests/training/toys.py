"""Models of random weights, a teacher by rule, and rows for them."""

import json
import os
import sys
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableLambda
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from selfcorrect_rag.training.generator import GeneratorRow
from selfcorrect_rag.training.rows import Options
from tests.conftest import byte_level_tokenizer

AnyOptions = TypeVar("AnyOptions", bound=Options)
LABELS = {
    "Need retrieval?": ("[Yes]", "[No]"),
    "Rating:": ("[Relevant]", "[Irrelevant]"),
    "Score:": ("[Fully supported]", "[Partially supported]", "[No support / Contradictory]"),
    "Perceived utility:": ("5", "4", "3", "2", "1"),
}


def label(prompt: str, *, essays: bool = False) -> str:
    """A label by the judged text alone; with ``essays``, one text in nine gets none."""
    number = zlib.crc32(prompt.rsplit("\n\n##\n", 1)[1].encode())
    if essays and number % 9 == 0:
        return "It depends on what one means."
    verdict = prompt.splitlines()[-1]
    labels = LABELS[verdict]
    if "[Retrieval]" in prompt and verdict == "Rating:":
        labels = ("[Retrieval]", "[No Retrieval]", "[Continue to Use Evidence]")
    return f"{labels[number % len(labels)]}\nExplanation: It is number {number}."


class Teacher:
    """A language model that answers by a function, records prompts, and can be interrupted."""

    def __init__(self, answer: Callable[[str], Any] = label) -> None:
        self.asked: list[str] = []
        self.limit = sys.maxsize
        """Answers before a KeyboardInterrupt."""
        self.model: Runnable[str, Any] = RunnableLambda(self._answer)
        self._given = answer

    def _answer(self, prompt: str) -> Any:
        if len(self.asked) >= self.limit:
            raise KeyboardInterrupt
        self.asked.append(prompt)
        answer = self._given(prompt)
        if not isinstance(answer, str):
            return answer
        usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
        return AIMessage(answer, usage_metadata=usage)  # type: ignore[arg-type]


def write(path: Path, *rows: object) -> Path:
    """Write at once: each process of a training writes the rows that the others read."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text("".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in rows))
    return part.replace(path)


def options(kind: type[AnyOptions], folder: Path, rows: Iterable[Any], **given: Any) -> AnyOptions:
    """Options of an entrypoint whose data are ``rows``, and whose result is ``folder / "out"``."""
    dumped = [row if isinstance(row, dict) else dump(row) for row in rows]
    folder.mkdir(parents=True, exist_ok=True)
    data = write(folder / "rows.jsonl", *dumped)
    return kind(**{"data": data, "out": folder / "out", **given})


def dump(row: Any) -> dict[str, Any]:
    """A row as it is in a file."""
    dumped: dict[str, Any] = row.model_dump()
    if "documents" in dumped:
        dumped["documents"] = [{"text": d.page_content, **d.metadata} for d in row.documents]
    return dumped


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor], **close: float) -> bool:
    compare: Any = torch.allclose if close else torch.equal
    return one.keys() == other.keys() and all(compare(one[k], other[k], **close) for k in one)


def instances(number: int) -> list[dict[str, str]]:
    """Rows to be labelled, some without evidence, some without preceding sentences."""
    return [
        {
            "instruction": f"Who wrote book {i}?",
            "output": f"It is old. She wrote it in {i}.",
            "preceding_sentences": "It is old." if i % 3 else "",
            "target_output": f"She wrote it in {i}.",
            "evidence": f"Book {i}\nBook {i} is hers." if i % 2 else "",
        }
        for i in range(number)
    ]


def row(instruction: str, output: str, input: str = "", **other: Any) -> GeneratorRow:
    return GeneratorRow(instruction=instruction, output=output, input=input, **other)


def generator_rows(number: int) -> list[GeneratorRow]:
    """Whether to retrieve, and the critique of a passage, follow from a letter."""
    made = []
    for i in range(number):
        output = "[No Retrieval]hm[Utility:3]"
        if i % 3:
            critique = "[Relevant]yes[Fully supported]" if i % 2 else "[Irrelevant]no"
            passage = f"<paragraph>{'p' if i % 2 else 'q'} {i}</paragraph>"
            output = f"[Retrieval]{passage}{critique}[Utility:{5 if i % 2 else 2}]"
        made.append(row(f"{'Who' if i % 3 else 'Do'} {i}?", output))
    return made


def interrupted(step: Any, at: int) -> tuple[Any, list[int]]:
    """Return a training step that is interrupted the ``at``-th time, and the steps taken."""
    taken: list[int] = []

    def killed(self: Any, *args: Any, **given: Any) -> Any:
        taken.append(self.state.global_step)
        if len(taken) == at:
            raise KeyboardInterrupt
        return step(self, *args, **given)

    return killed, taken


plain_tokenizer = partial(byte_level_tokenizer, ("<s>", "</s>"), (), "</s>")


def llama(*, tied: bool = False, spare: int = 0) -> tuple[Any, Any]:
    """A Llama and its tokenizer, the same each time; ``spare`` rows are beyond the vocabulary."""
    words = plain_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words) + spare,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.1,
        tie_word_embeddings=tied,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
    )
    return LlamaForCausalLM(config), words
