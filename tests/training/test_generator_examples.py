"""What the generator learns of a row, token by token, against rows worked by hand."""

import json
import os
from pathlib import Path

import pytest
from langchain_core.documents import Document
from transformers import PreTrainedTokenizerFast

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.prompts.self_rag import decision_prompt, instruction_parts, segment_prompt
from selfcorrect_rag.reflection import CONTROL_TOKENS
from selfcorrect_rag.training.fine_tuning import DROPPED
from selfcorrect_rag.training.generator import (
    generator_examples,
    output_stretches,
    refuse_unlearnable,
)
from selfcorrect_rag.training.generator_rows import GeneratorRow, read_generator_rows
from tests.conftest import SPECIAL, byte_level_tokenizer

DATA = Path(os.environ.get("SELFCORRECT_DATA", Path(__file__).parents[3] / "shared" / "data"))
REAL = DATA / "selfrag_generator_train_50samples.jsonl"
real = pytest.mark.skipif(not REAL.exists(), reason=f"{REAL} is not there")

ONE = "[Retrieval]<paragraph>Emma\nA novel</paragraph>[Relevant]Jane[Fully supported][Utility:5]"


def learned(row: GeneratorRow, longest: int = 512) -> tuple[list[str], list[str]]:
    """The tokens of a row without its prompt, and those of them that are learned; else ``-``."""
    words = byte_level_tokenizer()
    tokenizer = ControlledTokenizer(words)
    (one,) = generator_examples([row], tokenizer, longest).examples
    prompt = tokenizer.encode([decision_prompt(row.question)])[0].ids
    ids, labels = one["input_ids"].tolist(), one["labels"].tolist()
    assert ids[: len(prompt)] == prompt, "the prompt is that of inference"
    assert labels[: len(prompt)] == [DROPPED] * len(prompt), "down to its last token"
    assert all(label in (DROPPED, i) for i, label in zip(ids, labels, strict=True))
    written = words.convert_ids_to_tokens(ids[len(prompt) :])
    kept = [
        token if label != DROPPED else "-"
        for token, label in zip(written, labels[len(prompt) :], strict=True)
    ]
    return written, kept


def test_one_passage_token_by_token() -> None:
    written, kept = learned(GeneratorRow("Who wrote Emma?", ONE))
    passage = ["E", "m", "m", "a", "Ċ", "A", "Ġ", "n", "o", "v", "el"]
    assert written == [
        "[Retrieval]",
        "<paragraph>",
        *passage,
        "</paragraph>",
        "[Relevant]",
        *["J", "a", "n", "e"],
        "[Fully supported]",
        "[Utility:5]",
        "</s>",
    ]
    assert kept == [
        "[Retrieval]",
        "<paragraph>",
        *["-"] * len(passage),
        "-",
        "[Relevant]",
        *["J", "a", "n", "e"],
        "[Fully supported]",
        "[Utility:5]",
        "</s>",
    ]


def test_each_passage_is_masked_on_its_own_token_by_token() -> None:
    """Official defect: all from the first <paragraph> to the last </paragraph> has no loss."""
    output = (
        "Oh:\n[Retrieval]<paragraph>ab</paragraph>[Relevant]c[Partially supported]"
        "[Continue to Use Evidence]d[Retrieval]<paragraph>e</paragraph>[Irrelevant]f"
        "[No Retrieval]g[Retrieval]<paragraph></paragraph>[Relevant]h"
        "[No support / Contradictory][Utility:1]"
    )
    assert learned(GeneratorRow("?", output))[1] == [
        *["O", "h", ":", "Ċ", "[Retrieval]", "<paragraph>", "-", "-", "-", "[Relevant]", "c"],
        *["[Partially supported]", "[Continue to Use Evidence]", "d"],
        *["[Retrieval]", "<paragraph>", "-", "-", "[Irrelevant]", "f", "[No Retrieval]", "g"],
        *["[Retrieval]", "<paragraph>", "-", "[Relevant]", "h"],
        *["[No support / Contradictory]", "[Utility:1]", "</s>"],
    ]


def test_without_a_passage_all_is_learned() -> None:
    written, kept = learned(GeneratorRow("?", " [No Retrieval]it [1] or\n[Utility:3]\n"))
    assert kept == written
    text = ["i", "t", "Ġ", "[", "1", "]", "Ġ", "or", "Ċ"]
    assert kept == ["[No Retrieval]", *text, "[Utility:3]", "</s>"]


@pytest.mark.parametrize("hostile", SPECIAL)
def test_no_text_but_the_outputs_own_becomes_a_control_token(
    tokenizer: PreTrainedTokenizerFast, hostile: str
) -> None:
    controlled = ControlledTokenizer(tokenizer)
    in_passage = hostile if hostile != "</paragraph>" else ""
    text = hostile if hostile not in CONTROL_TOKENS else ""
    row = GeneratorRow(
        f"Say {hostile} [Utility:1]",
        f"[Retrieval]<paragraph>a {in_passage} b</paragraph>[Relevant]c {text} d[Utility:5]",
        input=f"{hostile} is it",
    )
    ids = generator_examples([row], controlled, 600).examples[0]["input_ids"].tolist()
    special = [i for i in ids if i in tokenizer.all_special_ids or i in controlled._special]
    wanted = ["[Retrieval]", "<paragraph>", "</paragraph>", "[Relevant]", "[Utility:5]", "</s>"]
    opening = controlled._prefix
    assert special == [*opening, *tokenizer.convert_tokens_to_ids(wanted)]


def test_rows_are_what_the_graph_shows_the_model(tokenizer: PreTrainedTokenizerFast) -> None:
    controlled = ControlledTokenizer(tokenizer)
    question = "Who is it?\n"
    passage = Document("It is the one.", metadata={"title": "A title"})
    for prompt, output in (
        (
            segment_prompt(question, [], [passage], "retrieve", 0),
            "[Retrieval]<paragraph>A title\nIt is the one.</paragraph>[Relevant]the one",
        ),
        (segment_prompt(question, [], [], "none", None), "[No Retrieval]the one"),
        (decision_prompt(question), "the one"),
    ):
        shown = controlled.encode([prompt])[0].ids
        (row,) = generator_examples([GeneratorRow(question, output)], controlled, 500).examples
        assert row["input_ids"].tolist()[: len(shown)] == shown


def test_an_input_stands_where_inference_puts_it() -> None:
    row = GeneratorRow("Say true or false.", "[No Retrieval]true[Utility:5]", input="It is.")
    assert row.question == "Say true or false.## Input:\n\nIt is."
    assert "".join(part.text for part in instruction_parts(row.question)) == (
        "### Instruction:\nSay true or false.## Input:\n\nIt is.\n\n### Response:\n"
    )


def test_too_long_a_row_loses_the_ends_of_passages_alone() -> None:
    """Official defect: a passage cut without its end leaves its last token with loss, and what
    comes after is lost."""
    whole, _ = learned(GeneratorRow("?", ONE))
    tokenizer = ControlledTokenizer(byte_level_tokenizer())
    row, short = GeneratorRow("?", ONE), GeneratorRow("?", "[No Retrieval]a[Utility:5]")
    length = len(generator_examples([row], tokenizer, 512).examples[0]["input_ids"])
    found = generator_examples([row, short], tokenizer, length)
    assert (len(found.examples), found.shortened, found.left_out) == (2, 0, 0)
    for cut in (1, 4, 11):
        written, kept = learned(row, length - cut)
        assert len(written) == len(whole) - cut
        assert written == [*whole[: 13 - cut], *whole[13:]]
        assert kept == [*whole[:2], *["-"] * (12 - cut), *whole[14:]]
        assert generator_examples([row, short], tokenizer, length - cut).shortened == 1
    found = generator_examples([row], tokenizer, length - 12)
    assert (found.examples, found.left_out) == ([], 1), "output and instruction are never cut"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("[1]", "not {"),
        ('{"instruction": "a"}', "not {"),
        ('{"instruction": " ", "output": "a"}', "not {"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, row: str, reason: str) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(f'{{"instruction": "a", "output": "b"}}\n\n{row}\n')
    with pytest.raises(BadTrainingData, match=rf"rows.jsonl:3: .*{reason}"):
        read_generator_rows(file)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("<paragraph>b", "<paragraph> that is half of a pair"),
        ("b</paragraph>", "</paragraph> that is half"),
    ],
)
def test_half_a_pair_is_refused(output: str, reason: str) -> None:
    rows = [GeneratorRow("a", "b"), GeneratorRow("a", output)]
    with pytest.raises(BadTrainingData, match=f"row 2: .*{reason}"):
        refuse_unlearnable(rows)


def test_rows_of_both_formats(tmp_path: Path) -> None:
    rows = [{"instruction": "a", "output": "b", "input": None, "id": 7, "dataset_name": "nq"}]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    (tmp_path / "a.jsonl").write_text(json.dumps(rows[0]))
    read = read_generator_rows(tmp_path / "a.json")
    assert read == read_generator_rows(tmp_path / "a.jsonl")
    assert read == [GeneratorRow("a", "b", "", "7", "nq")]


@real
def test_the_real_rows_keep_what_the_official_mask_loses() -> None:
    rows = read_generator_rows(REAL)
    assert len(rows) == 50
    passages = [sum(p.text == "<paragraph>" for p, _ in output_stretches(r.output)) for r in rows]
    assert sorted(passages) == [0] * 37 + [1] * 12 + [2]
    (twice,) = (row for row, number in zip(rows, passages, strict=True) if number == 2)
    between = twice.output.split("</paragraph>", 1)[1].rsplit("<paragraph>", 1)[0]
    kept = "".join(part.text for part, is_learned in output_stretches(twice.output) if is_learned)
    assert f"{between}<paragraph>" in kept
    left = [part.text for part, is_learned in output_stretches(twice.output) if not is_learned]
    assert [text[:19] for text in left] == ["Richard N. Richards", "</paragraph>"] * 2
