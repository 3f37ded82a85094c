"""The reader's network: MiniLM's encoder with heads for spans and judgements."""

from typing import NamedTuple

import torch

from selfcorrect_rag.search.bert import Architecture, Bert
from selfcorrect_rag.search.minilm import minilm_weights

BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")
"""CPU capabilities, as torch names them, of which any multiplies matrices in bfloat16."""


class HeadLogits(NamedTuple):
    """What the heads say about a batch of B rows of T tokens, as logits in float32."""

    start: torch.Tensor
    """(B, T): where the answer starts."""
    end: torch.Tensor
    """(B, T): its last token."""
    relevant: torch.Tensor
    """(B,): whether the passage answers the question."""
    retrieve: torch.Tensor
    """(B,): of a row that is a question alone: whether it needs evidence."""


class ReaderNetwork(torch.nn.Module):
    """The encoder, and a linear layer for each judgement.

    Span heads read every token, the others the first one. Word embeddings are MiniLM's own and
    stay as they are.
    """

    def __init__(self) -> None:
        super().__init__()
        sizes = Architecture()
        self.bert = Bert(sizes)
        width = sizes.hidden_size
        self.span = torch.nn.Linear(width, 2)
        self.first = torch.nn.Linear(width, 2)

    def forward(self, ids: torch.Tensor, types: torch.Tensor, mask: torch.Tensor) -> HeadLogits:
        """Read rows of token ids (B, T), with their segments and the mask of real tokens."""
        states = self.bert(ids, mask, types).float()
        start, end = self.span(states).float().unbind(-1)
        relevant, retrieve = self.first(states[:, 0]).float().unbind(-1)
        return HeadLogits(start, end, relevant, retrieve)


def fastest_dtype() -> torch.dtype:
    """bfloat16 where this CPU multiplies matrices in it, which halves the time; else float32."""
    found = torch.cpu.get_capabilities()
    return torch.bfloat16 if any(map(found.get, BFLOAT16)) else torch.float32


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
