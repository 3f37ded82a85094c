"""The encoder is the one of transformers, tensor by tensor."""

import pytest
import torch

from selfcorrect_rag.search.bert import Architecture, Bert

transformers = pytest.importorskip("transformers")


def test_it_reads_as_transformers_does() -> None:
    torch.manual_seed(1)
    config = transformers.BertConfig(
        hidden_size=16,
        intermediate_size=24,
        num_attention_heads=2,
        num_hidden_layers=2,
        vocab_size=50,
        max_position_embeddings=8,
    )
    theirs = transformers.BertModel(config, add_pooling_layer=False).eval()
    for values in theirs.parameters():  # norms and biases begin as ones and zeros
        torch.nn.init.normal_(values)
    ours = Bert(Architecture(16, 24, heads=2, layers=2, vocabulary=50, positions=8)).eval()
    ours.load_state_dict(theirs.state_dict())
    ids = torch.randint(50, (3, 7))
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] * 1 + [0] * 6])
    types = torch.randint(2, (3, 7))
    for given in (types, None):
        expected = theirs(input_ids=ids, attention_mask=mask, token_type_ids=given)
        read = ours(ids, mask, given)
        assert torch.allclose(read, expected.last_hidden_state, atol=1e-5)
