"""What a model remembers of the rows that it decodes together: keys, values and positions."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from selfcorrect_rag.models.local.prefix_cache import Node

ROOM = 64
"""Tokens for which there is room when rows begin, and that are added whenever it is used up."""


class Rows(Protocol):
    """Rows that are decoded together."""

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits, of shape (rows, vocabulary), after each row's next id, of shape (rows,)."""

    def select(self, kept: Sequence[int]) -> None:
        """Go on with some of the rows."""

    def generated(self, row: int) -> torch.Tensor | None:
        """Keys and values of what a row has generated so far, for a prefix cache."""


class SharedRows:
    """Rows of a model with plain attention, their prompts taken from the edges of a prefix tree.

    All keys and values are one tensor of shape (2 x layers, rows, heads, room, head dimension),
    written in place. Prompts end in the same column; what is left of a shorter one is masked.
    """

    def __init__(self, model: PreTrainedModel, leaves: Sequence[Node]) -> None:
        """Begin after prompts.

        Args:
            model: what decodes.
            leaves: the edges at which the prompts end, all with states.
        """
        self._model = model
        paths = [leaf.path for leaf in leaves]
        lengths = [sum(len(node.ids) for node in path) for path in paths]
        self._prompt = self._length = max(lengths)
        self._padding = [self._length - length for length in lengths]
        like = leaves[0].states
        assert like is not None
        halves, heads, _, size = like.shape
        self._states = like.new_empty(halves, len(leaves), heads, self._length + ROOM, size)
        for row, (path, begin) in enumerate(zip(paths, self._padding, strict=True)):
            self._states[:, row, :, :begin] = 0  # masked, yet zero times NaN is NaN
            for node in path:
                end = begin + len(node.ids)
                assert node.states is not None
                self._states[:, row, :, begin:end] = node.states
                begin = end
        self._hidden = torch.tensor(self._padding, device=like.device)

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """See :class:`Rows`."""
        if self._length == self._states.shape[3]:
            more = self._states.new_empty(*self._states.shape[:3], ROOM, self._states.shape[4])
            self._states = torch.cat([self._states, more], dim=3)
        halves = self._states.unbind()
        pairs = zip(halves[::2], halves[1::2], strict=True)
        visible = None
        if any(self._padding):
            columns = torch.arange(self._length + 1, device=ids.device)
            visible = attention_mask(columns >= self._hidden[:, None], self._states.dtype)
            visible = visible[:, None, None]
        logits: torch.Tensor = self._model(
            input_ids=ids[:, None],
            attention_mask=visible,
            position_ids=(self._length - self._hidden)[:, None],
            past_key_values=Cache([_InPlace(*pair, self._length) for pair in pairs]),
            logits_to_keep=1,
        ).logits
        self._length += 1
        return logits[:, -1]

    def select(self, kept: Sequence[int]) -> None:
        """See :class:`Rows`. Columns that only padded what is left of the rows go too."""
        self._padding = [self._padding[row] for row in kept]
        spare = min(self._padding)
        index = torch.tensor(kept, device=self._hidden.device)
        self._states = self._states[:, :, :, spare:].index_select(1, index)
        self._padding = [padding - spare for padding in self._padding]
        self._hidden = self._hidden[index] - spare
        self._prompt, self._length = self._prompt - spare, self._length - spare

    def generated(self, row: int) -> torch.Tensor | None:
        """See :class:`Rows`."""
        return self._states[:, row, :, self._prompt : self._length]


class _InPlace(DynamicLayer):  # type: ignore[no-untyped-call]
    """Writes a token's keys and values into room that is there, where a plain layer copies all."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, length: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.keys: torch.Tensor = keys
        self.values: torch.Tensor = values
        self._length, self.is_initialized = length, True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        end = self._length + key_states.shape[2]
        self.keys[:, :, self._length : end] = key_states
        self.values[:, :, self._length : end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        return self._length


class PaddedRows:
    """Rows of any causal model, in a cache of its own kind: each prompt is read in full."""

    def __init__(
        self, model: PreTrainedModel, prompts: Sequence[Sequence[int]], pad_id: int
    ) -> None:
        """Begin before prompts, which are padded on the left with ``pad_id``, any id."""
        self._model, self._cache = model, DynamicCache(config=model.config)
        longest = max(len(ids) for ids in prompts)
        device = model.device
        ids = [[pad_id] * (longest - len(row)) + [*row] for row in prompts]
        mask = [[0] * (longest - len(row)) + [1] * len(row) for row in prompts]
        self._ids, self._mask = torch.tensor(ids, device=device), torch.tensor(mask, device=device)
        self._positions = (self._mask.cumsum(-1) - 1).clamp(min=0)

    def read(self) -> torch.Tensor:
        """Logits after each prompt, of shape (rows, vocabulary)."""
        return self._forward(self._ids)

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """See :class:`Rows`."""
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(ids), 1)], dim=1)
        self._positions = self._positions[:, -1:] + 1
        return self._forward(ids[:, None])

    def select(self, kept: Sequence[int]) -> None:
        """See :class:`Rows`."""
        index = torch.tensor(kept, device=self._mask.device)
        self._cache.batch_select_indices(index)
        self._mask, self._positions = self._mask[index], self._positions[index]

    def generated(self, row: int) -> None:
        """See :class:`Rows`: nothing that a prefix cache could hold."""

    def _forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=self._positions,
            past_key_values=self._cache,
            logits_to_keep=1,
        ).logits
        return logits[:, -1]


def attention_mask(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What is added to attention scores of type ``dtype`` where ``visible`` says what is seen."""
    hidden = torch.finfo(dtype).min
    return torch.zeros_like(visible, dtype=dtype).masked_fill(~visible, hidden)
