"""Reading prompts that share beginnings: what is new of a tree of them, packed in one sequence.

Each token of the tree is computed once. It sees the tokens on the way from the root to itself, and
stands at the position that it has in its prompt: the attention mask and the positions make a tree
of what would otherwise be a sequence.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from selfcorrect_rag.models.local.prefix_cache import Node
from selfcorrect_rag.models.local.row_states import attention_mask

PACK = 512
"""New tokens at which a forward pass is full: each costs a look, if a masked one, at all others."""


@torch.inference_mode()
def shares_prefixes(model: PreTrainedModel) -> bool:
    """Whether keys and values of a beginning serve every prompt that begins so.

    They do where each layer attends to all tokens before, with rotary positions that do not depend
    on the length, under a mask that we make. Sliding windows, recurrent states, learned or
    scaled-as-you-go positions, caches of a special kind, flash attention and layers that differ in
    shape or device go without.
    """
    config = model.config.get_text_config()
    rotary = getattr(config, "rope_parameters", None)
    own = model.generation_config
    if (
        not rotary
        or rotary.get("rope_type") not in ("default", "linear", "llama3", "yarn")
        or getattr(config, "alibi", False)
        or model.config._attn_implementation not in ("sdpa", "eager")
        or (own is not None and own.cache_implementation)
    ):
        return False
    cache = DynamicCache(config=model.config)
    one = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    model(input_ids=one, past_key_values=cache, logits_to_keep=1)
    if any(type(layer) is not DynamicLayer for layer in cache.layers):
        return False
    kinds = {(t.shape, t.dtype, t.device) for layer in cache.layers for t in _halves(layer)}
    return len(kinds) == 1 and next(iter(kinds))[1] == model.dtype  # that of our masks


def read(model: PreTrainedModel, leaves: Sequence[Node]) -> torch.Tensor:
    """Compute the states that are missing on the way to each leaf.

    Args:
        model: one that :func:`shares_prefixes`.
        leaves: edges of a prefix cache, at which prompts end.

    Returns:
        Logits after each prompt, of shape (prompts, vocabulary). The last token of a prompt whose
        states are all there is computed again for them.
    """
    return torch.cat([_read(model, pack) for pack in _packs(leaves)])


def _packs(leaves: Iterable[Node]) -> Iterator[list[Node]]:
    pack: list[Node] = []
    new: dict[Node, None] = {}
    for leaf in leaves:
        missing = {node: None for node in leaf.path if node.states is None and node not in new}
        if pack and sum(len(node.ids) for node in (*new, *missing)) > PACK:
            yield pack  # after which nothing that is new to it is missing any more
            pack, new = [], {}
            missing = {node: None for node in leaf.path if node.states is None}
        pack.append(leaf)
        new |= missing
    if pack:
        yield pack


def _read(model: PreTrainedModel, leaves: Sequence[Node]) -> torch.Tensor:
    nodes = {node: None for leaf in leaves for node in leaf.path}  # parents before children
    past = [node for node in nodes if node.states is not None]
    new = [node for node in nodes if node.states is None]
    again = [leaf for leaf in dict.fromkeys(leaves) if leaf.states is not None]

    # Where the columns of each edge begin, those that are there before those to be computed.
    begin: dict[Node, int] = {}
    columns = 0
    for node in (*past, *new):
        begin[node] = columns
        columns += len(node.ids)
    held = sum(len(node.ids) for node in past)
    ids: list[int] = []
    positions: list[int] = []
    visible = torch.zeros(columns - held + len(again), columns + len(again), dtype=torch.bool)
    last: dict[Node, int] = {}
    for node in (*new, *again):
        *above, _ = node.path
        depth, size = sum(len(ancestor.ids) for ancestor in above), len(node.ids)
        # Of an edge that is there, its last token alone, which sees itself in a column of its own.
        first = 0 if node.states is None else size - 1
        start, end = len(ids), len(ids) + size - first
        for ancestor in above:
            at = begin[ancestor]
            visible[start:end, at : at + len(ancestor.ids)] = True
        visible[start:end, begin[node] : begin[node] + first] = True
        own = torch.ones(end - start, end - start, dtype=torch.bool)
        visible[start:end, held + start : held + end] = own.tril()
        ids += node.ids[first:]
        positions += range(depth + first, depth + size)
        last[node] = end - 1

    device = model.device
    cache = _cache_of(past)
    logits: torch.Tensor = model(
        input_ids=torch.tensor([ids], device=device),
        attention_mask=attention_mask(visible.to(device), model.dtype)[None, None],
        position_ids=torch.tensor([positions], device=device),
        past_key_values=cache,
        logits_to_keep=torch.tensor([last[leaf] for leaf in leaves], device=device),
    ).logits
    if new:
        computed = [half[0, :, held:columns] for layer in cache.layers for half in _halves(layer)]
        states = torch.stack(computed)
        for node in new:
            at = begin[node] - held
            node.states = states[:, :, at : at + len(node.ids)].clone()
    return logits[0]


def _cache_of(nodes: Sequence[Node]) -> Cache:
    """A cache that begins with the states of these edges, one after another."""
    cache = Cache(layer_class_to_replicate=DynamicLayer)
    if nodes:
        states = torch.cat([node.states for node in nodes if node.states is not None], dim=2)
        for layer in range(len(states) // 2):
            cache.update(states[2 * layer, None], states[2 * layer + 1, None], layer)
    return cache


def _halves(layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return layer.keys, layer.values
