"""A vocabulary that grows by the control tokens, and one that has them."""

import pytest
import torch

from selfcorrect_rag.demo import load_generator
from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.reflection import CONTROL_TOKENS
from selfcorrect_rag.training.generator import add_control_tokens
from tests.conftest import byte_level_tokenizer, random_model
from tests.training.toy_generator import toy


@pytest.mark.parametrize("spare", [0, 4, 40])
@pytest.mark.parametrize("tied", [True, False])
def test_new_rows_begin_as_the_mean(tied: bool, spare: int) -> None:
    """Official defect: they begin at random."""
    model, words = toy(tied=tied, spare=spare)
    known = len(words)
    before = [
        end.weight[:known].detach().clone()
        for end in (model.get_input_embeddings(), model.get_output_embeddings())
    ]
    assert add_control_tokens(model, words) == 15
    ids = words.convert_tokens_to_ids(list(CONTROL_TOKENS))
    assert ids == list(range(known, known + 15))
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    for end, old in zip(ends, before, strict=True):
        assert len(end.weight) == max(known + 15, known + spare) == model.config.vocab_size
        assert torch.equal(end.weight[:known], old)
        assert torch.allclose(end.weight[ids], old.mean(0).expand(15, -1))
    assert (ends[0].weight is ends[1].weight) == tied
    assert add_control_tokens(model, words) == 0


def test_a_model_that_has_them_stays_as_it_is() -> None:
    words = byte_level_tokenizer()
    model = random_model(len(words))
    before = model.get_input_embeddings().weight.clone()
    assert add_control_tokens(model, words) == 0
    assert torch.equal(model.get_input_embeddings().weight, before)
    llm = load_generator()
    assert llm._tokenizer.control_ids, "so has the package's own"


def test_a_tokenizer_without_an_end_is_refused() -> None:
    model, words = toy()
    words.eos_token = None
    with pytest.raises(BadTrainingData, match="no end token"):
        add_control_tokens(model, words)
