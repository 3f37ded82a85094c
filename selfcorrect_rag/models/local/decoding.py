"""Decoding rows of several calls together with transformers, each under its own call's request."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from selfcorrect_rag.models.local.prefix_cache import (
    PrefixCache,
    PrefixNode,
    attention_mask,
    read,
    shares_prefixes,
)
from selfcorrect_rag.models.local.scheduler import Row, ScheduledCall

ROOM = 64
"""Tokens for which there is room when rows begin, and that are added whenever it is used up."""


class Decoder:
    """Decodes rows, with a prefix cache of keys and values.

    Not for several threads.
    """

    def __init__(self, model: PreTrainedModel, cache_tokens: int) -> None:
        """Decode with a model.

        Args:
            model: a causal LM.
            cache_tokens: most tokens whose keys and values are kept between batches.
        """
        self.model, self.cache = model, PrefixCache(cache_tokens)
        self._shares = shares_prefixes(model)

    @torch.inference_mode()
    def __call__(self, rows: Sequence[Row]) -> None:
        """Continue rows together until none is ready any more; those that have ended leave.

        Where memory runs out, what is remembered is given up, and the rows go on from where they
        are.

        Args:
            rows: ready ones; all of one call where it samples, which then depends on nothing else.
        """
        generator = None
        if (seed := rows[0].call.seed) is not None:
            generator = torch.Generator(self.model.device).manual_seed(seed)
        cache = PrefixCache(0) if rows[0].call.samples else self.cache
        try:
            if not self._fits(rows, cache, generator):
                self.cache.clear()
                cache.clear()
                self._decode([row for row in rows if row.ready], cache, generator)
        except BaseException:
            self.cache.clear()  # it may hold edges that were never computed
            raise

    def _fits(
        self, rows: Sequence[Row], cache: PrefixCache, generator: torch.Generator | None
    ) -> bool:
        """Decode, unless memory runs out; by the return, what that took of it is free again."""
        try:
            self._decode(rows, cache, generator)
        except torch.OutOfMemoryError:
            return False
        return True

    def _decode(
        self, rows: Sequence[Row], cache: PrefixCache, generator: torch.Generator | None
    ) -> None:
        if not rows:
            return
        begun = {row: len(row.ids) for row in rows}
        watched = _Watched(rows, self.model.device)
        leaves: list[PrefixNode] = []
        states: Rows
        if self._shares:
            leaves = [cache.leaf(row.ids) for row in rows]
            logits = read(self.model, leaves)
        else:
            states = PaddedRows(self.model, [row.ids for row in rows], pad_id=0)
            logits = states.read()
        chosen, kept = self._take(rows, logits, watched, generator)
        if kept and self._shares:
            states = SharedRows(self.model, [leaves[i] for i in kept])
        elif kept:
            states.select(kept)
        cache.evict()
        while kept:
            rows = [rows[i] for i in kept]
            logits = states.step(chosen[kept])
            chosen, kept = self._take(rows, logits, watched, generator)
            if len(kept) == len(rows):
                continue
            for i in set(range(len(rows))).difference(kept):
                if (generated := states.generated(i)) is not None:
                    cache.keep(rows[i].ids[: begun[rows[i]] + generated.shape[2]], generated)
            cache.evict()
            if kept:
                states.select(kept)

    def _take(
        self,
        rows: Sequence[Row],
        logits: torch.Tensor,
        watched: "_Watched",
        generator: torch.Generator | None,
    ) -> tuple[torch.Tensor, list[int]]:
        """Give each row its next token; the tokens, and the indices of rows that are ready."""
        logprobs = logits.float().log_softmax(-1)
        chosen = self._pick(rows, logprobs, generator)
        # One transfer for all: a float holds an id exactly.
        values = [chosen[:, None], logprobs.gather(1, chosen[:, None]), logprobs[:, watched.index]]
        for row, (token, logprob, *others) in zip(rows, torch.cat(values, 1).tolist(), strict=True):
            token_id, by_id = int(token), dict[int, float]()
            if token_id in row.call.logprob_ids:
                by_id = {i: others[watched.column[i]] for i in row.call.logprob_ids}
            row.add(token_id, {**by_id, token_id: logprob})
        for call in _calls(rows):
            call.advance()
        return chosen, [i for i, row in enumerate(rows) if row.ready]

    def _pick(
        self, rows: Sequence[Row], logprobs: torch.Tensor, generator: torch.Generator | None
    ) -> torch.Tensor:
        """The likeliest ids, or drawn ones, of those that a row may have."""
        temperature = rows[0].call.temperature  # what samples is alone
        chosen = _best(logprobs, temperature, generator)
        by_allowed: dict[tuple[int, ...], list[int]] = {}
        for i, row in enumerate(rows):
            if (ids := row.call.request.allowed_ids) is not None:
                by_allowed.setdefault(tuple(ids), []).append(i)
        for ids, members in by_allowed.items():
            allowed = torch.tensor(ids, device=logprobs.device)
            scores = logprobs[members][:, allowed]
            chosen[members] = allowed[_best(scores, temperature, generator)]
        return chosen


class _Watched:
    """The ids whose log-probabilities are read at each step, for all calls of a batch."""

    def __init__(self, rows: Sequence[Row], device: torch.device) -> None:
        ids = dict.fromkeys(i for call in _calls(rows) for i in call.request.logprob_ids)
        self.column = {token_id: i for i, token_id in enumerate(ids)}
        self.index = torch.tensor(list(ids), dtype=torch.long, device=device)


def _calls(rows: Sequence[Row]) -> dict[ScheduledCall, None]:
    return dict.fromkeys(row.call for row in rows)


def _best(
    scores: torch.Tensor, temperature: float, generator: torch.Generator | None
) -> torch.Tensor:
    if temperature <= 0:
        return scores.argmax(-1)
    weights = (scores / temperature).softmax(-1)
    return torch.multinomial(weights, 1, generator=generator)[:, 0]


class Rows(Protocol):
    """Rows that are decoded together."""

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits, of shape (rows, vocabulary), after each row's next id, of shape (rows,)."""

    def select(self, kept: Sequence[int]) -> None:
        """Continue with some of the rows only."""

    def generated(self, row: int) -> torch.Tensor | None:
        """Keys and values of what a row has generated so far, for a prefix cache."""


class SharedRows:
    """Rows of a model with plain attention, their prompts taken from the edges of a prefix tree.

    All keys and values are one tensor of shape (2 x layers, rows, heads, room, head dimension),
    written in place. Prompts end in the same column; what is left of a shorter one is masked.
    """

    def __init__(self, model: PreTrainedModel, leaves: Sequence[PrefixNode]) -> None:
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
