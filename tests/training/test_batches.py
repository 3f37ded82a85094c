"""Padded and packed rows: what a model makes of a row does not depend on the others."""

from typing import Any

import pytest
import torch
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from selfcorrect_rag.training.causal_lm import Example, example, packed, padded
from selfcorrect_rag.training.fine_tuning import DROPPED
from tests.training.toy_generator import toy

SIZES = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
MODELS = {
    "llama": lambda: toy()[0],
    "mistral": lambda: MistralForCausalLM(
        MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=4)
    ),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES, num_key_value_heads=2)),
    "gpt-neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES)),
}


def made(lengths: tuple[int, ...]) -> list[Example]:
    torch.manual_seed(1)
    return [
        example(torch.randint(0, 250, (n,)).tolist(), [i > 2 for i in range(n)]) for n in lengths
    ]


ROWS = made((7, 12, 1, 9))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", MODELS)
def test_a_packed_row_is_read_as_if_alone(kind: str, attention: str) -> None:
    model = MODELS[kind]()
    model.set_attn_implementation(attention)
    model.train()
    batch = packed()(ROWS)
    assert batch["input_ids"].shape == (1, sum(len(row["input_ids"]) for row in ROWS))
    whole = model(**batch).logits[0]
    begin = 0
    for row in ROWS:
        ids = torch.tensor([row["input_ids"].tolist()])
        alone = model(input_ids=ids).logits[0]
        end = begin + len(alone)
        assert torch.allclose(whole[begin:end], alone, atol=1e-5)
        begin = end


def loss(model: LlamaForCausalLM, batch: dict[str, Any]) -> torch.Tensor:
    learned = (batch["labels"] != DROPPED).sum()
    return model(**batch, num_items_in_batch=learned).loss


def test_packed_and_padded_teach_the_same() -> None:
    gradients = []
    for collate in (packed(), padded):
        model = toy()[0]
        found = loss(model, collate(ROWS))
        found.backward()
        gradients.append((found, model.lm_head.weight.grad))
    assert torch.allclose(gradients[0][0], gradients[1][0], atol=1e-6)
    assert torch.allclose(gradients[0][1], gradients[1][1], atol=1e-6)


def test_rows_side_by_side() -> None:
    """InstructRAG's official defect: where padding is the end token, ends are not attended to."""
    end = toy()[1].eos_token_id
    rows = [example([5, end, 6, end], [False, False, True, True]), example([7, end], [True, True])]
    batch = {name: table.tolist() for name, table in padded(rows).items()}
    assert batch["attention_mask"] == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert batch["labels"] == [[DROPPED, DROPPED, 6, end], [DROPPED, end, DROPPED, DROPPED]]
    assert batch["input_ids"] == [[5, end, 6, end], [7, end, 0, 0]]


def test_the_first_of_a_row_is_not_what_the_row_before_leads_to() -> None:
    batch = packed()([example([1, 2], [True, True]), example([3, 4], [True, True])])
    assert batch["labels"].tolist() == [[DROPPED, 2, DROPPED, 4]]
    assert batch["position_ids"].tolist() == [[0, 1, 0, 1]]
    lengths = packed(flash_attention=True)(ROWS)
    assert lengths["cu_seq_lens_q"].tolist() == [0, 7, 19, 20, 29]
