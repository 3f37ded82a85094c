"""Decoding rows of several calls together with transformers, each under its own call's rules."""

from collections.abc import Mapping, Sequence

import torch
from transformers import PreTrainedModel

from selfcorrect_rag.models.engines.decoded import ReflectionIds
from selfcorrect_rag.models.local.calls import Row
from selfcorrect_rag.models.local.packed_prefill import read, shares_prefixes
from selfcorrect_rag.models.local.prefix_cache import Node, PrefixCache
from selfcorrect_rag.models.local.row_states import PaddedRows, Rows, SharedRows


class Decoder:
    """Gives rows their tokens, and remembers keys and values of what prompts begin with.

    Not for several threads.
    """

    def __init__(
        self, model: PreTrainedModel, control_ids: Mapping[str, int], cache_tokens: int
    ) -> None:
        """Decode with a model.

        Args:
            model: a causal LM.
            control_ids: id of each control token.
            cache_tokens: most tokens whose keys and values are kept between batches.
        """
        self.model, self.cache = model, PrefixCache(cache_tokens)
        self._reflections = ReflectionIds(control_ids)
        self._reflection_ids = frozenset(self._reflections.all)
        self._watched = torch.tensor(self._reflections.all, device=model.device)
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
        if (seed := rows[0].call.rules.seed) is not None:
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
        leaves: list[Node] = []
        states: Rows
        if self._shares:
            leaves = [cache.leaf(row.ids) for row in rows]
            logits = read(self.model, leaves)
        else:
            states = PaddedRows(self.model, [row.ids for row in rows], pad_id=0)
            logits = states.read()
        chosen, kept = self._take(rows, logits, generator)
        if kept and self._shares:
            states = SharedRows(self.model, [leaves[i] for i in kept])
        elif kept:
            states.select(kept)
        cache.evict()
        while kept:
            rows = [rows[i] for i in kept]
            logits = states.step(chosen[kept])
            chosen, kept = self._take(rows, logits, generator)
            if len(kept) == len(rows):
                continue
            for i in set(range(len(rows))).difference(kept):
                if (generated := states.generated(i)) is not None:
                    cache.keep(rows[i].ids[: begun[rows[i]] + generated.shape[2]], generated)
            cache.evict()
            if kept:
                states.select(kept)

    def _take(
        self, rows: Sequence[Row], logits: torch.Tensor, generator: torch.Generator | None
    ) -> tuple[torch.Tensor, list[int]]:
        """Give each row its next token; the tokens, and the indices of rows that are ready."""
        logprobs = logits.float().log_softmax(-1)
        chosen = self._pick(rows, logprobs, generator)
        # One transfer for all: a float holds an id exactly.
        read = [chosen[:, None], logprobs.gather(1, chosen[:, None]), logprobs[:, self._watched]]
        for row, (token, logprob, *watched) in zip(rows, torch.cat(read, 1).tolist(), strict=True):
            token_id, output, reflection = int(token), row.output, None
            if token_id in self._reflection_ids:
                by_id = dict(zip(self._reflections.all, watched, strict=True))
                reflection = self._reflections.reflection(token_id, by_id, output.tokens)
            output.append(token_id, logprob, reflection, row.call.rules)
        for call in dict.fromkeys(row.call for row in rows):
            call.advance()
        return chosen, [i for i, row in enumerate(rows) if row.ready]

    def _pick(
        self, rows: Sequence[Row], logprobs: torch.Tensor, generator: torch.Generator | None
    ) -> torch.Tensor:
        """The likeliest ids, or drawn ones, of the group that a row is to choose from."""
        temperature = rows[0].call.rules.temperature  # what samples is alone
        chosen = _best(logprobs, temperature, generator)
        by_group: dict[str, list[int]] = {}
        for i, row in enumerate(rows):
            if row.call.rules.choose:
                by_group.setdefault(row.call.rules.choose, []).append(i)
        for group, members in by_group.items():
            allowed = torch.tensor(self._reflections.of(group), device=logprobs.device)
            scores = logprobs[members][:, allowed]
            chosen[members] = allowed[_best(scores, temperature, generator)]
        return chosen


def _best(
    scores: torch.Tensor, temperature: float, generator: torch.Generator | None
) -> torch.Tensor:
    if temperature <= 0:
        return scores.argmax(-1)
    weights = (scores / temperature).softmax(-1)
    return torch.multinomial(weights, 1, generator=generator)[:, 0]
