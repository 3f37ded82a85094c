"""Decoding a batch with transformers: one cache, and log-probabilities of reflection groups."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from transformers import DynamicCache, PreTrainedModel

from selfcorrect_rag.reflection import GROUP_OF, TOKENS, Group, Reflection, critique_score


@dataclass
class Decoded:
    """What was generated for one prompt."""

    ids: list[int] = field(default_factory=list)
    """Generated ids, without the one that ended generation."""
    logprob: float = 0.0
    """Sum over all generated ids, the one that ended generation among them."""
    tokens: int = 0
    """How many ids that sum is over."""
    reflections: list[Reflection] = field(default_factory=list)
    next: Reflection | None = None
    finish_reason: str = "length"


@dataclass(frozen=True)
class Rules:
    """When a continuation ends, and what it may consist of."""

    max_tokens: int
    eos_ids: frozenset[int]
    stop_at_retrieval: bool = False
    choose: Group | None = None
    prune_below: float | None = None
    stopped: Callable[[list[int]], bool] | None = None
    """Says whether the text of these ids contains a stop string."""
    temperature: float = 0.0
    seed: int | None = None


@torch.inference_mode()
def decode(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    control_ids: Mapping[str, int],
    pad_id: int,
    rules: Rules,
) -> list[Decoded]:
    """Continue prompts of token ids together; rows that have finished leave the batch.

    Args:
        model: a causal LM.
        prompts: ids, padded on the left here.
        control_ids: id of each control token.
        pad_id: any id; padding is masked.
        rules: see :class:`Rules`.
    """
    watch = _Watch(control_ids, model.device)
    longest = max(len(ids) for ids in prompts)
    ids = torch.tensor([[pad_id] * (longest - len(row)) + [*row] for row in prompts])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in prompts])
    ids, mask = ids.to(model.device), mask.to(model.device)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    cache = DynamicCache(config=model.config)
    generator = None
    if rules.seed is not None:
        generator = torch.Generator(model.device).manual_seed(rules.seed)
    outputs = [Decoded() for _ in prompts]
    active = list(range(len(prompts)))
    for step in range(rules.max_tokens):
        logits = (
            model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                logits_to_keep=1,
            )
            .logits[:, -1]
            .float()
        )
        logprobs = logits.log_softmax(-1)
        chosen = _pick(logprobs, watch, rules, generator)
        watched = logprobs[:, watch.ids].tolist()
        picked = logprobs.gather(1, chosen[:, None])[:, 0].tolist()
        going = []
        for row, (token_id, logprob) in enumerate(zip(chosen.tolist(), picked, strict=True)):
            output = outputs[active[row]]
            reflection = watch.reflection(token_id, watched[row], step)
            _append(output, token_id, logprob, reflection, rules)
            if output.finish_reason == "length":
                going.append(row)
        if step == 0 and rules.prune_below is not None:
            going = _pruned(going, [outputs[i] for i in active], rules.prune_below)
        if not going or step + 1 == rules.max_tokens:
            break
        if len(going) < len(active):
            kept = torch.tensor(going, device=model.device)
            cache.batch_select_indices(kept)
            mask, positions, chosen = mask[kept], positions[kept], chosen[kept]
            active = [active[row] for row in going]
        ids = chosen[:, None]
        mask = torch.cat([mask, mask.new_ones(len(active), 1)], dim=1)
        positions = positions[:, -1:] + 1
    return outputs


class _Watch:
    """The reflection ids, whose log-probabilities are read at every step in one gather."""

    def __init__(self, control_ids: Mapping[str, int], device: torch.device) -> None:
        tokens = list(GROUP_OF)
        self.ids = torch.tensor([control_ids[token] for token in tokens], device=device)
        self._token = {control_ids[token]: token for token in tokens}
        self._columns = {
            group: [(token, tokens.index(token)) for token in TOKENS[group]] for group in Group
        }

    def of(self, group: Group) -> torch.Tensor:
        """Ids of one group's tokens."""
        return self.ids[[column for _, column in self._columns[group]]]

    def reflection(self, token_id: int, watched: list[float], step: int) -> Reflection | None:
        """The reflection that ``token_id`` is, if it is one."""
        token = self._token.get(token_id)
        if token is None:
            return None
        group = GROUP_OF[token]
        logprobs = {name: watched[column] for name, column in self._columns[group]}
        return Reflection(group=group.value, position=step, token=token, logprobs=logprobs)


def _pick(
    logprobs: torch.Tensor, watch: _Watch, rules: Rules, generator: torch.Generator | None
) -> torch.Tensor:
    allowed = watch.of(rules.choose) if rules.choose else None
    scores = logprobs if allowed is None else logprobs[:, allowed]
    if rules.temperature > 0:
        weights = (scores / rules.temperature).softmax(-1)
        best = torch.multinomial(weights, 1, generator=generator)[:, 0]
    else:
        best = scores.argmax(-1)
    return best if allowed is None else allowed[best]


def _append(
    output: Decoded, token_id: int, logprob: float, reflection: Reflection | None, rules: Rules
) -> None:
    output.logprob += logprob
    output.tokens += 1
    if token_id in rules.eos_ids:
        output.finish_reason = "end"
        return
    retrieval = reflection is not None and reflection["group"] == Group.RETRIEVE
    if retrieval and rules.stop_at_retrieval and rules.choose is None:
        output.finish_reason, output.next = "retrieval", reflection
        return
    output.ids.append(token_id)
    if reflection is not None:
        output.reflections.append(reflection)
    if rules.stopped is not None and rules.stopped(output.ids):
        output.finish_reason = "stop"


def _pruned(going: list[int], outputs: list[Decoded], below: float) -> list[int]:
    """The rows that go on after their ISREL; the best of them always does."""
    isrel = {
        row: critique_score(outputs[row].reflections[0])
        for row in going
        if outputs[row].reflections and outputs[row].reflections[0]["group"] == Group.ISREL
    }
    best = max(isrel, key=lambda row: isrel[row], default=None)
    for row, score in isrel.items():
        if score < below and row != best:
            outputs[row].finish_reason = "pruned"
    return [row for row in going if outputs[row].finish_reason != "pruned"]
