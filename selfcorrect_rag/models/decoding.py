"""Decoding a batch with transformers: one cache, and log-probabilities of reflection groups."""

from collections.abc import Mapping, Sequence

import torch
from transformers import DynamicCache, PreTrainedModel

from selfcorrect_rag.models.decoded import Decoded, ReflectionIds, Rules, prune


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
    reflection_ids = ReflectionIds(control_ids)
    watched_ids = torch.tensor(reflection_ids.all, device=model.device)
    allowed_ids = None
    if rules.choose:
        allowed_ids = torch.tensor(reflection_ids.of(rules.choose), device=model.device)
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
        chosen = _pick(logprobs, allowed_ids, rules.temperature, generator)
        watched = logprobs[:, watched_ids].tolist()
        picked = logprobs.gather(1, chosen[:, None])[:, 0].tolist()
        going = []
        for row, (token_id, logprob) in enumerate(zip(chosen.tolist(), picked, strict=True)):
            output = outputs[active[row]]
            by_id = dict(zip(reflection_ids.all, watched[row], strict=True))
            reflection = reflection_ids.reflection(token_id, by_id, step)
            output.append(token_id, logprob, reflection, rules)
            if output.finish_reason == "length":
                going.append(row)
        if step == 0 and rules.prune_below is not None:
            going = prune(going, outputs, rules.prune_below)  # rows are still all the outputs
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


def _pick(
    logprobs: torch.Tensor,
    allowed: torch.Tensor | None,
    temperature: float,
    generator: torch.Generator | None,
) -> torch.Tensor:
    scores = logprobs if allowed is None else logprobs[:, allowed]
    if temperature > 0:
        weights = (scores / temperature).softmax(-1)
        best = torch.multinomial(weights, 1, generator=generator)[:, 0]
    else:
        best = scores.argmax(-1)
    return best if allowed is None else allowed[best]
