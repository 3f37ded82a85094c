"""Keys and values of what prompts begin with: a radix tree over token ids, and what fills it.

What is new of the prompts of a batch is read packed in one sequence, each token of the tree once.
It sees the tokens on the way from the root to itself, and stands at the position that it has in its
prompt: the attention mask and the positions make a tree of what would otherwise be a sequence.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

PACK = 512
"""Maximum new tokens of a forward pass: each attends, if masked, to all others."""


class PrefixNode:
    """An edge of the tree: some ids, and their keys and values once they are computed."""

    __slots__ = ("children", "ids", "parent", "states", "used")

    def __init__(
        self, ids: Sequence[int], parent: "PrefixNode | None", states: torch.Tensor | None = None
    ) -> None:
        self.ids, self.parent, self.states = list(ids), parent, states
        self.children: dict[int, PrefixNode] = {}
        self.used = 0

    @property
    def path(self) -> "list[PrefixNode]":
        """The edges from the root down to this one; their ids together are a whole beginning."""
        nodes = []
        node: PrefixNode | None = self
        while node is not None and node.parent is not None:  # the root has no ids
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


class PrefixCache:
    """Keys and values by the ids that led to them, each beginning once, whoever shares it.

    The states of an edge are of shape (2 x layers, heads, tokens, head dimension), each layer's
    keys followed by its values, and own their memory. Edges that were not used for longest go
    first, from the leaves up. Not for several threads.
    """

    def __init__(self, limit: int) -> None:
        """Start with nothing.

        Args:
            limit: most tokens held after :meth:`evict`; 0 keeps nothing.
        """
        self.limit = limit
        self.clear()

    def clear(self) -> None:
        """Remove all entries."""
        self._root = PrefixNode([], None)
        self._clock = 0

    @property
    def tokens(self) -> int:
        """Number of cached tokens."""
        return sum(len(node.ids) for node in self._nodes())

    def leaf(self, ids: Sequence[int]) -> PrefixNode:
        """The edge at which ``ids``, at least one, end; its path is exactly them.

        What is not there yet is added without states, for the caller to compute. The edge stays
        right whatever else is added later; :meth:`evict` and :meth:`clear` may end that.
        """
        self._clock += 1
        node, at = self._root, 0
        while at < len(ids):
            child = node.children.get(ids[at])
            if child is None:
                child = node.children[ids[at]] = PrefixNode(ids[at:], node)
            shared = alike(child.ids, ids[at : at + len(child.ids)])
            if shared < len(child.ids):
                child = _split(child, shared)
            child.used = self._clock
            node, at = child, at + shared
        return node

    def keep(self, ids: Sequence[int], states: torch.Tensor) -> None:
        """Add what a continuation computed: the states of the last of ``ids``.

        Nothing is added where the states of what comes before them are gone.
        """
        node, at = self._root, 0
        while at < len(ids) and (child := node.children.get(ids[at])) is not None:
            if child.ids != ids[at : at + len(child.ids)]:
                break
            node, at = child, at + len(child.ids)
        start = len(ids) - states.shape[2]
        if start <= at < len(ids):
            leaf = self.leaf(ids)
            leaf.states = states[:, :, -len(leaf.ids) :].clone()

    def evict(self) -> None:
        """Remove least recently used leaves down to the limit."""
        held = self.tokens
        if held <= self.limit:
            return
        leaves = [(node.used, id(node), node) for node in self._nodes() if not node.children]
        heapq.heapify(leaves)
        while held > self.limit:
            _, _, node = heapq.heappop(leaves)
            held -= len(node.ids)
            parent = node.parent
            assert parent is not None
            del parent.children[node.ids[0]]
            if not parent.children and parent.parent is not None:
                heapq.heappush(leaves, (parent.used, id(parent), parent))

    def _nodes(self) -> Iterator[PrefixNode]:
        waiting = [*self._root.children.values()]
        while waiting:
            node = waiting.pop()
            waiting += node.children.values()
            yield node


def alike(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:
        return shorter
    return next(i for i in range(shorter) if one[i] != other[i])


def _split(node: PrefixNode, at: int) -> PrefixNode:
    """Put an edge for the first ids between ``node``, which keeps the others, and its parent.

    So whoever holds ``node`` still holds the edge at which its ids end.
    """
    assert node.parent is not None
    upper = PrefixNode(node.ids[:at], node.parent)
    upper.used = node.used
    if node.states is not None:  # copies, since a view would keep the whole in memory
        upper.states = node.states[:, :, :at].clone()
        node.states = node.states[:, :, at:].clone()
    upper.parent.children[upper.ids[0]] = upper  # type: ignore[union-attr]
    node.ids, node.parent = node.ids[at:], upper
    upper.children[node.ids[0]] = node
    return upper


@torch.inference_mode()
def shares_prefixes(model: PreTrainedModel) -> bool:
    """Whether the KV cache of a prefix is valid for every prompt with that prefix.

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


def read(model: PreTrainedModel, leaves: Sequence[PrefixNode]) -> torch.Tensor:
    """Compute the states that are missing on the way to each leaf.

    Args:
        model: one that :func:`shares_prefixes`.
        leaves: edges of a prefix cache, at which prompts end.

    Returns:
        Logits after each prompt, of shape (prompts, vocabulary). The last token of a prompt whose
        states are all there is computed again for them.
    """
    return torch.cat([_read(model, pack) for pack in _packs(leaves)])


def _packs(leaves: Iterable[PrefixNode]) -> Iterator[list[PrefixNode]]:
    pack: list[PrefixNode] = []
    new: dict[PrefixNode, None] = {}
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


def _read(model: PreTrainedModel, leaves: Sequence[PrefixNode]) -> torch.Tensor:
    nodes = {node: None for leaf in leaves for node in leaf.path}  # parents before children
    past = [node for node in nodes if node.states is not None]
    new = [node for node in nodes if node.states is None]
    again = [leaf for leaf in dict.fromkeys(leaves) if leaf.states is not None]

    # Where the columns of each edge begin, those that are there before those to be computed.
    begin: dict[PrefixNode, int] = {}
    columns = 0
    for node in (*past, *new):
        begin[node] = columns
        columns += len(node.ids)
    held = sum(len(node.ids) for node in past)
    ids: list[int] = []
    positions: list[int] = []
    visible = torch.zeros(columns - held + len(again), columns + len(again), dtype=torch.bool)
    last: dict[PrefixNode, int] = {}
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


def _cache_of(nodes: Sequence[PrefixNode]) -> Cache:
    """A cache that begins with the states of these edges, one after another."""
    cache = Cache(layer_class_to_replicate=DynamicLayer)
    if nodes:
        states = torch.cat([node.states for node in nodes if node.states is not None], dim=2)
        for layer in range(len(states) // 2):
            cache.update(states[2 * layer, None], states[2 * layer + 1, None], layer)
    return cache


def _halves(layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return layer.keys, layer.values


def attention_mask(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The mask that is added to attention scores of type ``dtype`` where ``visible`` says what is
    seen."""
    hidden = torch.finfo(dtype).min
    return torch.zeros_like(visible, dtype=dtype).masked_fill(~visible, hidden)
