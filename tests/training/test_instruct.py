"""INSTRUCTRAG-FT: prompts that are those of inference, and what is learned behind them."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from selfcorrect_rag import create_instruct_rag
from selfcorrect_rag.demo import load_rationale_model, rationale_model_path
from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.prompts.instruct_rag import inference_prompt
from selfcorrect_rag.training.fine_tuning import DROPPED
from selfcorrect_rag.training.instruct import (
    PRESETS,
    InstructRow,
    InstructSettings,
    InstructTokenizer,
    instruct_examples,
    read_instruct_rows,
    train_instruct,
)
from selfcorrect_rag.training.rationales import RationaleSettings, write_template_rationales
from selfcorrect_rag.training.samples import Sample
from tests.tiny_evaluators import t5, t5_tokenizer
from tests.training.test_generator import same, weights
from tests.training.toy_generator import plain_tokenizer, toy

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{{ m.content | trim }}<|eot|>"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
TOY = InstructSettings(
    model="toy",
    num_train_epochs=4,
    learning_rate=1e-2,
    batch_size=8,
    per_device_batch_size=4,
    max_length=400,
    held_out_ratio=0.2,
)
DOCUMENTS = tuple(
    Document(f"Text {n}.", metadata={"title": f"Title {n}"} if n != 2 else {}) for n in (1, 2, 3)
)
ROW = InstructRow("Who {question} it?", DOCUMENTS, "Document [3] says: she.")
PROMPT = (
    "Document [1] (Title: Title 1): Text 1.\nDocument [2]: Text 2.\n"
    "Document [3] (Title: Title 3): Text 3.\n"
    "Based on your knowledge and the provided information, answer the question: Who {question} it?"
)


def chat_tokenizer() -> PreTrainedTokenizerFast:
    words = plain_tokenizer()
    words.add_tokens(["<|user|>", "<|assistant|>", "<|eot|>"], special_tokens=True)
    words.chat_template = TEMPLATE
    return words


def rows(number: int) -> list[InstructRow]:
    return [
        InstructRow(f"Who is {i}?", DOCUMENTS[:1], f"Document [1]: {'ab'[i % 2]}")
        for i in range(number)
    ]


def texts(words: Any, row: InstructRow, longest: int = 1000) -> tuple[str, str]:
    """What is read and what is learned of a row, with special tokens."""
    (one,) = instruct_examples([row], InstructTokenizer(words), longest, "best_last").examples
    pairs = list(zip(one["input_ids"].tolist(), one["labels"].tolist(), strict=True))
    learned = [i for i, label in pairs if label != DROPPED]
    assert learned == [label for _, label in pairs if label != DROPPED]
    return words.decode([i for i, label in pairs if label == DROPPED]), words.decode(learned)


def test_a_row_through_a_chat_template() -> None:
    """Official defects: the literal {question} before the question, a second <s> at inference."""
    asked, learned = texts(chat_tokenizer(), ROW)
    assert asked == f"<s><|user|>\n{PROMPT}<|eot|><|assistant|>\n"
    assert learned == "Document [3] says: she.</s>"
    shown = inference_prompt("ft", ROW.question, DOCUMENTS).parts
    assert "".join(part.text for part in shown) == PROMPT


def test_it_is_character_by_character_what_the_graph_asks() -> None:
    seen = []

    class Recorder(GenericFakeChatModel):
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(messages[-1].content)
            return super()._generate(messages, *args, **kwargs)

    llm = Recorder(messages=iter([AIMessage("Document [3] says: she.")]))
    best_first = list(DOCUMENTS[::-1])
    graph = create_instruct_rag(llm, lambda query: best_first)
    graph.invoke({"question": ROW.question}, context={"mode": "ft"})  # type: ignore[arg-type]
    assert seen == [PROMPT]


def test_a_model_without_a_template_reads_what_the_graph_gives_it() -> None:
    words = AutoTokenizer.from_pretrained(rationale_model_path())
    llm = load_rationale_model(device="cpu")
    prompt = inference_prompt("ft", "Who?", DOCUMENTS)
    text = "".join(part.text for part in prompt.parts)
    assert InstructTokenizer(words).prompt_ids(text) == llm.get_token_ids(f"{text}\n")
    asked, learned = texts(plain_tokenizer(), ROW)
    assert asked == f"<s>{PROMPT}\n"
    assert learned == "Document [3] says: she.</s>"


@pytest.mark.parametrize("hostile", ["</s>", "<|eot|>", "<s>", "<|assistant|>"])
@pytest.mark.parametrize("make", [chat_tokenizer, plain_tokenizer])
def test_no_text_becomes_a_special_token(make: Any, hostile: str) -> None:
    words = make()
    document = Document(f"It {hostile} is.", metadata={"title": hostile})
    row = InstructRow(f"Who {hostile}?", (document,), f"It {hostile} is.")
    (one,) = instruct_examples([row], InstructTokenizer(words), 1000, "best_last").examples
    special = [t for t in words.convert_ids_to_tokens(one["input_ids"].tolist()) if len(t) > 2]
    template = ["<|user|>", "<|eot|>", "<|assistant|>"] if make is chat_tokenizer else []
    assert special == ["<s>", *template, "</s>"]


def test_too_long_a_row_loses_its_weakest_documents_and_keeps_numbers() -> None:
    words = InstructTokenizer(plain_tokenizer())
    whole = len(instruct_examples([ROW], words, 1000, "best_last").examples[0]["input_ids"])
    first, second, third = PROMPT.splitlines(keepends=True)[:3]
    assert texts(plain_tokenizer(), ROW, whole)[0] == f"<s>{PROMPT}\n"
    assert texts(plain_tokenizer(), ROW, whole - 1)[0] == f"<s>{PROMPT.removeprefix(first)}\n"
    last = whole - len(first) - len(second)
    assert texts(plain_tokenizer(), ROW, last)[0].startswith(f"<s>{third}")
    found = instruct_examples([ROW], words, last, "best_last")
    assert (len(found.examples), found.shortened, found.left_out) == (1, 1, 0)
    assert instruct_examples([ROW], words, last - 1, "best_last").left_out == 1
    (one,) = instruct_examples([ROW], words, whole - 1, "best_first").examples
    assert len(one["input_ids"]) == whole - len(third)
    bare = InstructRow("Who?", (), "She.")
    assert len(instruct_examples([bare], words, 1000, "best_last").examples) == 1


def test_it_learns_what_rationales_wrote(tmp_path: Path) -> None:
    samples = [Sample(f"Who is {i}?", ("she",), DOCUMENTS) for i in range(30)]
    write_template_rationales(samples, tmp_path / "rows.jsonl", RationaleSettings())
    read = read_instruct_rows(tmp_path / "rows.jsonl")
    first = json.loads((tmp_path / "rows.jsonl").read_text().splitlines()[0])
    asked, learned = texts(chat_tokenizer(), read[0])
    assert first["prompt"][0]["content"] in asked
    assert learned == f"{first['completion'][0]['content']}</s>"
    report = train_instruct(rows(40), tmp_path / "run", TOY, base=toy())
    assert json.loads((tmp_path / "run" / "report.json").read_text()) == report
    assert report["rows"]["train"] + report["rows"]["held_out"] == 40
    assert report["held_out"]["loss"] < 2
    words = AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    assert len(words) == len(plain_tokenizer()), "its vocabulary is as it was"
    lora = dataclasses.replace(TOY, lora_rank=4, num_train_epochs=0.5)
    train_instruct(rows(40), tmp_path / "adapted", lora, base=toy())
    assert (tmp_path / "adapted" / "adapter" / "adapter_model.safetensors").exists()
    adapter = json.loads((tmp_path / "adapted" / "adapter" / "adapter_config.json").read_text())
    assert (adapter["r"], adapter["lora_alpha"]) == (4, 8)
    assert not same(weights(tmp_path / "adapted" / "model"), weights(tmp_path / "run" / "model"))


def test_what_cannot_be_trained(tmp_path: Path) -> None:
    for content in ("{}", '{"question": "a", "documents": ["b"], "rationale": "c"}'):
        (tmp_path / "rows.jsonl").write_text(content)
        with pytest.raises(BadTrainingData, match=r"rows.jsonl:1: not \{"):
            read_instruct_rows(tmp_path / "rows.jsonl")
    row: dict[str, Any]
    for documents, why in (
        ("", "no list of documents"),
        ({}, "no list of documents"),
        (None, "no list of documents"),
        (["a"], "document 1 has no text"),
        ([{"text": None}], "document 1 has no text"),
        ([{"text": "a"}, {"text": " \n"}], "document 2 has no text"),
        ([{"title": "a"}], "document 1 has no text"),
        ([{"title": 7, "text": "a"}], "title of document 1 is no text"),
    ):
        row = {"question": "a", "documents": documents, "rationale": "c"}
        (tmp_path / "rows.jsonl").write_text(json.dumps(row))
        with pytest.raises(BadTrainingData, match=rf"rows.jsonl:1: not \{{.*{why}"):
            read_instruct_rows(tmp_path / "rows.jsonl")
    model, words = toy()
    words.eos_token = None
    with pytest.raises(BadTrainingData, match="end token"):
        train_instruct(rows(4), tmp_path / "run", TOY, base=(model, words))
    settings = dataclasses.replace(TOY, max_length=10)
    with pytest.raises(BadTrainingData, match="no row of the 4 is left"):
        train_instruct(rows(4), tmp_path / "run", settings, base=toy())


def test_a_model_with_an_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadTrainingData, match="has an encoder"):
        train_instruct(rows(4), tmp_path / "run", TOY, base=(t5(), t5_tokenizer()))


def test_the_preset_is_the_papers() -> None:
    preset = PRESETS["8b"]
    assert (
        preset.num_train_epochs,
        preset.learning_rate,
        preset.batch_size,
        preset.max_length,
    ) == (2, 2.5e-5, 128, 4096)
    assert (preset.lr_scheduler_type, preset.warmup_ratio) == ("cosine", 0.03)
