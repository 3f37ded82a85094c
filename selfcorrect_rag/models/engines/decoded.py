"""What a backend generated for a prompt, and when it ends. No heavy library is needed here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from selfcorrect_rag.models.engines.tokens import ControlledTokenizer, Encoded
from selfcorrect_rag.reflection import (
    GROUP_OF,
    TOKENS,
    Group,
    Reflection,
    critique_score,
    is_readable,
)
from selfcorrect_rag.state.self_rag import Segment


@dataclass(frozen=True)
class Rules:
    """When a continuation ends, and what it may consist of."""

    max_tokens: int
    eos_ids: frozenset[int]
    stop_at_retrieval: bool = False
    choose: str | None = None
    """Name of the reflection group that the one token is of."""
    prune_below: float | None = None
    stopped: Callable[[list[int]], bool] | None = None
    """Says whether the text of these ids contains a stop string."""
    temperature: float = 0.0
    seed: int | None = None


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

    def append(
        self, token_id: int, logprob: float, reflection: Reflection | None, rules: Rules
    ) -> None:
        """Take the next token; ``finish_reason`` then says whether it was the last."""
        self.logprob += logprob
        self.tokens += 1
        if token_id in rules.eos_ids:
            self.finish_reason = "end"
            return
        retrieval = reflection is not None and reflection["group"] == Group.RETRIEVE
        if retrieval and rules.stop_at_retrieval and rules.choose is None:
            self.finish_reason, self.next = "retrieval", reflection
            return
        self.ids.append(token_id)
        if reflection is not None:
            self.reflections.append(reflection)
        if rules.stopped is not None and rules.stopped(self.ids):
            self.finish_reason = "stop"

    def segment(
        self, tokenizer: ControlledTokenizer, encoded: Encoded, stop: Sequence[str]
    ) -> Segment:
        """The segment that continues the prompt ``encoded``, its text cut before a stop string."""
        text = tokenizer.text(self.ids)
        if self.finish_reason == "stop":
            text = text[: min((text.find(s) for s in stop if s in text), default=len(text))]
        return Segment(
            text=text.strip(),
            pieces=tokenizer.pieces(self.ids),
            reflections=self.reflections,
            next=self.next,
            finish_reason=self.finish_reason,  # type: ignore[typeddict-item]
            tokens=self.tokens,
            logprob=self.logprob,
            prompt_tokens=len(encoded.ids),
            shortened=encoded.shortened,
            requests=0,
        )


class ReflectionIds:
    """Where the reflection tokens stand in a vocabulary."""

    def __init__(self, control_ids: Mapping[str, int]) -> None:
        self._id = {token: control_ids[token] for token in GROUP_OF if token in control_ids}
        self.all = list(self._id.values())
        """Ids of every reflection token; their log-probabilities are read at each step."""
        self._token = {token_id: token for token, token_id in self._id.items()}

    def of(self, group: str) -> list[int]:
        """Ids of one group's tokens."""
        return [self._id[token] for token in TOKENS[group]]

    def reflection(
        self, token_id: int, logprobs: Mapping[int, float], position: int
    ) -> Reflection | None:
        """The reflection that ``token_id`` is, if it is one, from log-probabilities by id."""
        token = self._token.get(token_id)
        if token is None:
            return None
        group = GROUP_OF[token]
        return Reflection(
            group=group,
            position=position,
            token=token,
            logprobs={name: logprobs[self._id[name]] for name in TOKENS[group]},
        )


def room(context: int | None, max_tokens: int) -> tuple[int, int | None]:
    """Most tokens to write and most to read, for a model with ``context`` tokens in all.

    Writing never takes more than half of the context.

    Raises:
        ValueError: ``max_tokens`` is below 1.
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, not {max_tokens}")
    if context is None:
        return max_tokens, None
    max_tokens = min(max_tokens, context // 2)
    return max_tokens, context - max_tokens


def prune(going: Sequence[int], outputs: Sequence[Decoded], below: float) -> list[int]:
    """Which of the outputs ``going`` go on after their ISREL; the best of them always does."""
    firsts = {i: outputs[i].reflections[0] for i in going if outputs[i].reflections}
    isrel = {
        i: critique_score(first)
        for i, first in firsts.items()
        if first["group"] == Group.ISREL and is_readable(first)
    }
    best = max(isrel, key=lambda i: isrel[i], default=None)
    for i, score in isrel.items():
        if score < below and i != best:
            outputs[i].finish_reason = "pruned"
    return [i for i in going if outputs[i].finish_reason != "pruned"]
