"""The generator: what is learned of a row, token by token, and trainings of a tiny Llama."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from langchain_core.documents import Document
from peft import PeftModel
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Trainer

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.errors import BadRun, BadTrainingData
from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.prompts.self_rag import decision_prompt
from selfcorrect_rag.reflection import CONTROL_TOKENS
from selfcorrect_rag.training.fine_tuning import MASKED, Examples, newest_checkpoint, packed
from selfcorrect_rag.training.generator import (
    GeneratorOptions,
    GeneratorRow,
    add_control_tokens,
    generator_examples,
    output_parts,
    train_generator,
)
from selfcorrect_rag.training.rows import hold_out, read_rows
from tests.conftest import SPECIAL, byte_level_tokenizer, t5, t5_tokenizer
from tests.training.toys import generator_rows, interrupted, llama, options, row, same, weights

DATA = Path(os.environ.get("SELFCORRECT_DATA", Path(__file__).parents[3] / "shared" / "data"))
REAL = DATA / "selfrag_generator_train_50samples.jsonl"
ONE = "[Retrieval]<paragraph>Emma\nA novel</paragraph>[Relevant]Jane[Fully supported][Utility:5]"
ROWS = generator_rows(60)
TOY = {
    "model": "toy",
    "num_train_epochs": 8,
    "learning_rate": 1e-2,
    "batch_size": 8,
    "per_device_batch_size": 4,
    "max_length": 160,
    "held_out_ratio": 0.2,
}


def trained(folder: Path, base: Any = None, rows: Any = ROWS, **given: Any) -> dict[str, Any]:
    """Train on ``rows``; the result is in ``folder / "out"``."""
    made = options(GeneratorOptions, folder, rows, **{**TOY, **given})
    return train_generator(made, base=base or llama())


def learned(given: GeneratorRow, longest: int = 512) -> tuple[list[str], list[str]]:
    """The tokens of a row without its prompt, and those of them that are learned; else ``-``."""
    words = byte_level_tokenizer()
    tokenizer = ControlledTokenizer(words)
    (one,) = generator_examples([given], tokenizer, longest).rows
    prompt = tokenizer.encode([decision_prompt(given.question)])[0].ids
    ids, labels = one["input_ids"].tolist(), one["labels"].tolist()
    assert ids[: len(prompt)] == prompt, "the prompt is that of inference"
    assert labels[: len(prompt)] == [MASKED] * len(prompt)
    assert all(label in (MASKED, i) for i, label in zip(ids, labels, strict=True))
    written = words.convert_ids_to_tokens(ids[len(prompt) :])
    pairs = zip(written, labels[len(prompt) :], strict=True)
    return written, [token if label != MASKED else "-" for token, label in pairs]


def test_each_passage_is_masked_on_its_own() -> None:
    """Official defect: all from the first <paragraph> to the last </paragraph> has no loss."""
    output = (
        "Oh:\n[Retrieval]<paragraph>ab</paragraph>[Relevant]c[Partially supported]"
        "[Continue to Use Evidence]d[Retrieval]<paragraph>e</paragraph>[Irrelevant]f"
        "[No Retrieval]g[Retrieval]<paragraph></paragraph>[Relevant]h"
        "[No support / Contradictory][Utility:1]"
    )
    assert learned(row("?", output))[1] == [
        *["O", "h", ":", "Ċ", "[Retrieval]", "<paragraph>", "-", "-", "-", "[Relevant]", "c"],
        *["[Partially supported]", "[Continue to Use Evidence]", "d"],
        *["[Retrieval]", "<paragraph>", "-", "-", "[Irrelevant]", "f", "[No Retrieval]", "g"],
        *["[Retrieval]", "<paragraph>", "-", "[Relevant]", "h"],
        *["[No support / Contradictory]", "[Utility:1]", "</s>"],
    ]
    tokens = [token for token in learned(row("?", output, wrong=True))[1] if token != "-"]
    assert set(tokens) == {*CONTROL_TOKENS} & set(learned(row("?", output))[1]) | {"</s>"}
    written, kept = learned(row("?", " [No Retrieval]it [1] or\n[Utility:3]\n"))
    assert kept == written, "all is learned without a passage"


def test_a_row_that_is_too_long_loses_the_ends_of_passages() -> None:
    """Official defect: the last token of a cut passage has loss, and what follows is lost."""
    whole, _ = learned(row("?", ONE))
    tokenizer = ControlledTokenizer(byte_level_tokenizer())
    length = len(generator_examples([row("?", ONE)], tokenizer, 512).rows[0]["input_ids"])
    for cut in (0, 1, 4, 11):
        written, kept = learned(row("?", ONE), length - cut)
        assert written == [*whole[: 13 - cut], *whole[13:]]
        assert kept == [*whole[:2], *["-"] * (12 - cut), *whole[14:]]
        found = generator_examples([row("?", ONE)], tokenizer, length - cut)
        assert found.shortened == (cut > 0)
    found = generator_examples([row("?", ONE)], tokenizer, length - 12)
    assert (found.rows, found.left_out) == ([], 1), "output and instruction are never cut"


@pytest.mark.parametrize("hostile", SPECIAL)
def test_only_the_outputs_own_tokens_are_control_tokens(
    tokenizer: PreTrainedTokenizerFast, hostile: str
) -> None:
    controlled = ControlledTokenizer(tokenizer)
    in_passage = hostile if hostile != "</paragraph>" else ""
    text = hostile if hostile not in CONTROL_TOKENS else ""
    given = row(
        f"Say {hostile} [Utility:1]",
        f"[Retrieval]<paragraph>a {in_passage} b</paragraph>[Relevant]c {text} d[Utility:5]",
        input=f"{hostile} is it",
    )
    ids = generator_examples([given], controlled, 600).rows[0]["input_ids"].tolist()
    names = tokenizer.convert_ids_to_tokens(ids)
    wanted = ["[Retrieval]", "<paragraph>", "</paragraph>", "[Relevant]", "[Utility:5]", "</s>"]
    special = [name for name in names if name in SPECIAL]
    assert special == [*(["<s>"] if names[0] == "<s>" else []), *wanted]


@pytest.mark.skipif(not REAL.exists(), reason="the official sample is not there")
def test_official_rows() -> None:
    rows = read_rows(REAL, GeneratorRow)
    passages = [sum(p.text == "<paragraph>" for p, _ in output_parts(r.output)) for r in rows]
    assert sorted(passages) == [0] * 37 + [1] * 12 + [2]
    (twice,) = (one for one, number in zip(rows, passages, strict=True) if number == 2)
    between = twice.output.split("</paragraph>", 1)[1].rsplit("<paragraph>", 1)[0]
    kept = "".join(part.text for part, is_learned in output_parts(twice.output) if is_learned)
    assert f"{between}<paragraph>" in kept, "which the official mask loses"


@pytest.mark.parametrize("spare", [0, 4, 40])
@pytest.mark.parametrize("tied", [True, False])
def test_new_rows_start_as_the_mean(tied: bool, spare: int) -> None:
    """Official defect: they start at random."""
    model, words = llama(tied=tied, spare=spare)
    known = len(words)
    ends = (model.get_input_embeddings, model.get_output_embeddings)
    before = [end().weight[:known].detach().clone() for end in ends]
    assert add_control_tokens(model, words) == 15
    ids = words.convert_tokens_to_ids(list(CONTROL_TOKENS))
    assert ids == list(range(known, known + 15))
    for end, old in zip(ends, before, strict=True):
        assert len(end().weight) == max(known + 15, known + spare) == model.config.vocab_size
        assert torch.equal(end().weight[:known], old)
        assert torch.allclose(end().weight[ids], old.mean(0).expand(15, -1))
    assert (ends[0]().weight is ends[1]().weight) == tied
    assert add_control_tokens(model, words) == 0


def test_packed_rows_teach_as_each_alone_with_all_its_logits() -> None:
    torch.manual_seed(1)
    found = Examples()
    for n in (7, 12, 2, 9):
        found.add(torch.randint(0, 250, (n,)).tolist(), [i > 2 for i in range(n)])
    batch = packed(found.rows)
    assert batch["input_ids"].shape == (1, 30)
    assert batch["position_ids"].tolist()[0][:9] == [*range(7), 0, 1]
    total = (batch["labels"] != MASKED).sum()
    gradients = []
    alone = [{k: torch.tensor([v.tolist()]) for k, v in row.items()} for row in found.rows]
    for batches in ([batch], alone):
        model = llama()[0]
        for each in batches:
            if (each["labels"] != MASKED).any():
                model(**each, num_items_in_batch=total).loss.backward()
        gradients.append(model.lm_head.weight.grad)
    assert torch.allclose(*gradients, atol=1e-6)


@pytest.mark.slow
def test_it_learns_reports_and_answers(tmp_path: Path) -> None:
    report = trained(tmp_path)
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == report
    held_out = len(hold_out(ROWS, 0.2)[1])
    counts = {"train": 60 - held_out, "held_out": held_out, "shortened": 0, "left_out": 0}
    assert report["rows"] == counts
    found = report["held_out"]
    assert found["loss"] < 1, "the end is learned too"
    llm = TransformersReflectionLLM.from_pretrained(tmp_path / "out" / "generator", device="cpu")
    graph = create_self_rag(llm, lambda query: [Document("p 4"), Document("q 5")])
    assert "yes" in graph.invoke({"question": "Who 4?"})["answer"]


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
def test_lora_trains_only_the_new_rows(tmp_path: Path, tied: bool) -> None:
    """Official defect: with LoRA, the new tokens are neither trained nor saved."""
    given = {"lora_rank": 8, "learning_rate": 4e-2, "num_train_epochs": 4}
    trained(tmp_path, llama(tied=tied), **given)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "generator")
    base, words = llama(tied=tied)
    add_control_tokens(base, words)
    before = base.get_input_embeddings().weight.detach().clone()
    beside = PeftModel.from_pretrained(base, tmp_path / "out" / "adapter").eval()
    ids = torch.tensor([list(range(len(words)))])
    with torch.no_grad():
        assert torch.allclose(beside(ids).logits, merged(ids).logits, atol=1e-3)
    new = words.convert_tokens_to_ids(list(CONTROL_TOKENS))
    for end in (merged.get_input_embeddings(), merged.get_output_embeddings()):
        assert len(end.weight[new].unique(dim=0)) > 8, "all fifteen started alike"
    now = merged.get_input_embeddings().weight
    assert torch.equal(now[: new[0]], before[: new[0]])
    config = tmp_path / "out" / "adapter" / "adapter_config.json"
    written = json.loads(config.read_text()) | {"base_model_name_or_path": "elsewhere"}
    config.write_text(json.dumps(written))
    given |= {"lora_rank": 0, "learning_rate": 1e-9, "adapter": str(tmp_path / "out" / "adapter")}
    trained(tmp_path / "on", llama(tied=tied), **given)
    more = AutoModelForCausalLM.from_pretrained(tmp_path / "on" / "out" / "generator")
    assert torch.allclose(more(ids).logits, merged(ids).logits, atol=1e-3), "it went on from there"
    on = (tmp_path / "on" / "out" / "adapter" / "adapter_config.json").read_text()
    assert json.loads(on)["base_model_name_or_path"] == "toy"
    config.write_text(json.dumps(written | {"trainable_token_indices": {}}))
    with pytest.raises(BadTrainingData, match="has no rows of the reflection tokens"):
        trained(tmp_path / "no", llama(tied=tied), **given)


@pytest.mark.slow
def test_a_killed_training_resumes_to_the_same_weights(tmp_path: Path, monkeypatch: Any) -> None:
    given = {"num_train_epochs": 1, "save_steps": 2}
    trained(tmp_path / "whole", **given)
    killed, taken = interrupted(Trainer.training_step, 7)
    monkeypatch.setattr(Trainer, "training_step", killed)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "cut", **given)
    checkpoints = tmp_path / "cut" / "out" / "checkpoints"
    assert str(newest_checkpoint(checkpoints)).endswith("checkpoint-2")
    (checkpoints / "checkpoint-3").mkdir()
    report = trained(tmp_path / "cut", **given)
    assert taken[7] == 2, "from the newest checkpoint that is whole"
    assert same(*(weights(tmp_path / run / "out" / "generator") for run in ("cut", "whole")))
    whole = json.loads((tmp_path / "whole" / "out" / "report.json").read_text())
    assert report == whole
    with pytest.raises(BadRun, match=r"other settings \(seed\)"):
        trained(tmp_path / "cut", **given, seed=1)
    with pytest.raises(BadRun, match=r"other settings \(data\)"):
        trained(tmp_path / "cut", rows=ROWS[1:], **given)


def test_what_cannot_be_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(reason: str, rows: Any = ROWS, base: Any = None, **given: Any) -> None:
        with pytest.raises(BadTrainingData, match=reason):
            trained(tmp_path, base, rows, **given)
        assert not (tmp_path / "out").exists()

    refused(
        "<paragraph> without its other half in the output '<paragraph>b'",
        [ROWS[0], row("a", "<paragraph>b")],
    )
    refused("no output has a reflection token", [row("a", "b")])
    refused("no row is left to train on; 50 are too long", max_length=8)
    refused(
        "8 must be a multiple of per_device_batch_size times processes, 3", per_device_batch_size=3
    )
    refused("has no adapter_config.json; give a folder of an adapter", adapter=str(tmp_path))
    refused("has an encoder", base=(t5(), t5_tokenizer()))
    model, words = llama()
    words.eos_token = None
    refused("the tokenizer of toy has no end token", base=(model, words))
    (tmp_path / "out").touch()
    with pytest.raises(BadRun, match="is a file; give a folder"):
        trained(tmp_path)
    (tmp_path / "out").unlink()
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    refused("launch without FSDP", lora_rank=4)
    refused("launch without FSDP", adapter=str(tmp_path))
    monkeypatch.setenv("WORLD_SIZE", "3")
    refused("8 must be a multiple of .* processes, 12")
