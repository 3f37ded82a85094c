"""A radix tree over token ids that holds the keys and values of what prompts begin with."""

import heapq
from collections.abc import Iterator, Sequence

import torch


class Node:
    """An edge of the tree: some ids, and their keys and values once they are computed."""

    __slots__ = ("children", "ids", "parent", "states", "used")

    def __init__(
        self, ids: Sequence[int], parent: "Node | None", states: torch.Tensor | None = None
    ) -> None:
        self.ids, self.parent, self.states = list(ids), parent, states
        self.children: dict[int, Node] = {}
        self.used = 0

    @property
    def path(self) -> "list[Node]":
        """The edges from the root down to this one; their ids together are a whole beginning."""
        nodes = []
        node: Node | None = self
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
        """Forget everything."""
        self._root = Node([], None)
        self._clock = 0

    @property
    def tokens(self) -> int:
        """How many tokens are held."""
        return sum(len(node.ids) for node in self._nodes())

    def leaf(self, ids: Sequence[int]) -> Node:
        """The edge at which ``ids``, at least one, end; its path is exactly them.

        What is not there yet is added without states, for the caller to compute. The edge stays
        right whatever else is added later; :meth:`evict` and :meth:`clear` may end that.
        """
        self._clock += 1
        node, at = self._root, 0
        while at < len(ids):
            child = node.children.get(ids[at])
            if child is None:
                child = node.children[ids[at]] = Node(ids[at:], node)
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
        """Bring what is held down to the limit."""
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

    def _nodes(self) -> Iterator[Node]:
        waiting = [*self._root.children.values()]
        while waiting:
            node = waiting.pop()
            waiting += node.children.values()
            yield node


def alike(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids both begin with."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:
        return shorter
    return next(i for i in range(shorter) if one[i] != other[i])


def _split(node: Node, at: int) -> Node:
    """Put an edge for the first ids between ``node``, which keeps the others, and its parent.

    So whoever holds ``node`` still holds the edge at which its ids end.
    """
    assert node.parent is not None
    upper = Node(node.ids[:at], node.parent)
    upper.used = node.used
    if node.states is not None:  # copies, since a view would keep the whole in memory
        upper.states = node.states[:, :, :at].clone()
        node.states = node.states[:, :, at:].clone()
    upper.parent.children[upper.ids[0]] = upper  # type: ignore[union-attr]
    node.ids, node.parent = node.ids[at:], upper
    upper.children[node.ids[0]] = node
    return upper
