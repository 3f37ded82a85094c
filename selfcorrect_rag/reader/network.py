"""The reader's network: MiniLM's encoder with heads for spans and judgements."""

from typing import Any, NamedTuple

import torch
import transformers

from selfcorrect_rag.search.minilm import ARCHITECTURE, minilm_weights

_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
"""With dropout a step of training takes two and a half times as long."""
ISSUP_LABELS = 3
ISUSE_LABELS = 5
ANSWER_FORMS = ("span", "yes", "no")


class HeadLogits(NamedTuple):
    """What the heads say about a batch of B rows of T tokens, as logits in float32."""

    start: torch.Tensor
    """(B, T): where the answer starts."""
    end: torch.Tensor
    """(B, T): its last token."""
    relevant: torch.Tensor
    """(B,): whether the passage answers the question."""
    form: torch.Tensor
    """(B, 3): a span, yes, or no; see :data:`ANSWER_FORMS`."""
    support: torch.Tensor
    """(B, 3): of a row with an answer: not, partially, fully supported by the passage."""
    utility: torch.Tensor
    """(B, 5): of a row with an answer: 1 to 5."""
    retrieve: torch.Tensor
    """(B,): of a row that is a question alone: whether it needs evidence."""


class ReaderNetwork(torch.nn.Module):
    """The encoder, and a linear layer for each judgement.

    Span heads read every token, the others the first one. Word embeddings are MiniLM's own and
    stay as they are. Form, support and utility are trained and not read: they did not pay.
    """

    def __init__(self) -> None:
        super().__init__()
        options: dict[str, Any] = {**ARCHITECTURE, **_NO_DROPOUT}
        config = transformers.BertConfig(**options)
        self.bert = transformers.BertModel(config, add_pooling_layer=False)
        width = config.hidden_size
        self.span = torch.nn.Linear(width, 2)
        self.first = torch.nn.Linear(width, 1 + len(ANSWER_FORMS) + ISSUP_LABELS + ISUSE_LABELS + 1)

    def forward(self, ids: torch.Tensor, types: torch.Tensor, mask: torch.Tensor) -> HeadLogits:
        """Read rows of token ids (B, T), with their segments and the mask of real tokens."""
        states = self.bert(
            input_ids=ids, token_type_ids=types, attention_mask=mask
        ).last_hidden_state
        start, end = self.span(states).float().unbind(-1)
        sizes = (1, len(ANSWER_FORMS), ISSUP_LABELS, ISUSE_LABELS, 1)
        relevant, form, support, utility, retrieve = (
            self.first(states[:, 0]).float().split(sizes, dim=-1)
        )
        return HeadLogits(start, end, relevant[:, 0], form, support, utility, retrieve[:, 0])


def pretrained() -> ReaderNetwork:
    """The network with MiniLM's encoder and random heads.

    Raises:
        ModelNotFound: MiniLM's weights are not here.
    """
    network, weights = ReaderNetwork(), minilm_weights()
    network.bert.load_state_dict({name: weights[name] for name in network.bert.state_dict()})
    for head in (network.span, network.first):
        torch.nn.init.normal_(head.weight, std=0.02)
        torch.nn.init.zeros_(head.bias)
    return network
