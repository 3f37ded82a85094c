"""Self-RAG's critic: a language model fine-tuned to answer with reflection tokens (3.2.1)."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from selfcorrect_rag.errors import ModelNotFound
from selfcorrect_rag.models.checkpoints import load_language_model, max_input_tokens, resolve_device
from selfcorrect_rag.prompts.critique import CritiquePrompt, Instance, fields_text
from selfcorrect_rag.reflection import TOKENS
from selfcorrect_rag.state.intake import valid

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MAX_TOKENS = 2048
"""Maximum tokens of prompt and label in training (Self-RAG, B.1)."""


class CriticInput(NamedTuple):
    """The input of a critic, and its instructions."""

    instruction: str
    input: str
    """The text to judge, in the fields of the critic's data."""
    group: str
    tokens: tuple[str, ...] = ()
    """The allowed reflection tokens, of one group; empty allows all."""


class Answer(NamedTuple):
    """The token that a critic chose."""

    token: str
    probabilities: Mapping[str, float]
    """Probability of each allowed token in [0, 1]; they sum to 1."""

    @property
    def probability(self) -> float:
        """Probability of the chosen token."""
        return self.probabilities[self.token]


def critic_input(prompt: CritiquePrompt, instance: Instance) -> CriticInput:
    """A critic's question about ``instance``, as in its training data."""
    order = ("instruction", "input", "preceding_sentences", "evidence", "segment", "output")
    judged_by = [field for field in order if field in prompt.fields]
    judged = fields_text(instance, judged_by, instruction="Task instruction")
    return CriticInput(
        prompt.instructions, judged, prompt.group, tuple(prompt.tokens_by_label.values())
    )


def read_answer(
    labels: Mapping[str, Sequence[int]],
    written: Iterable[int],
    steps: Iterable[Mapping[int, float]],
) -> Answer:
    """The answer of greedy decoding.

    Args:
        labels: the ids of each allowed token; none begins with another's.
        written: the ids of the chosen token, at least as far as it differs from all others.
        steps: at each place, the probability of each id that continues a label, normalised over
            these. Tokens that share an id that was not chosen share its probability equally: what
            follows it was not computed.
    """
    shares, path, live = dict.fromkeys(labels, 1.0), 1.0, dict(labels)
    for place, (chosen, step) in enumerate(zip(written, steps, strict=True)):
        if len(live) == 1:
            break
        branches: dict[int, dict[str, Sequence[int]]] = defaultdict(dict)
        for token, label in live.items():
            branches[label[place]][token] = label
        for i, tokens in branches.items():
            shares |= dict.fromkeys(tokens, path * step[i] / len(tokens))
        path, live = path * step[chosen], branches[chosen]
    (token,) = live
    return Answer(token, shares)


def critic_prompt(given: CriticInput) -> str:
    """The prompt that a critic continues with a token (as in the official training code)."""
    return f"### Instruction:\n{given.instruction}\n\n### Input:\n{given.input}\n\n### Response:"


class Critic(ABC):
    """Answers with one of the allowed reflection tokens.

    The tokens are plain text to it, as in the official critic; its vocabulary is unchanged.
    Decoding is greedy and constrained to them. Not thread-safe.
    """

    def __init__(
        self, tokenizer: "PreTrainedTokenizerBase", max_tokens: int, *, is_causal: bool = True
    ) -> None:
        """Encode the reflection tokens with the model's tokenizer.

        Args:
            tokenizer: the model's own, with an end token; padding is set where it has none.
            max_tokens: maximum tokens of prompt and label. A longer prompt is cut before its last
                quarter, where the evidence ends, so that instruction and output stay.
            is_causal: whether the model is decoder-only.

        Raises:
            ModelNotFound: the tokenizer has no end token, or writes two reflection tokens alike.
        """
        if tokenizer.eos_token_id is None:
            raise ModelNotFound("a critic's tokenizer needs an end token (eos_token)")
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
        self.tokenizer, self._is_causal = tokenizer, is_causal
        unknown = tokenizer.unk_token_id  # also encodes plain text
        self._special = frozenset(i for i in tokenizer.all_special_ids if i != unknown)
        self._labels = {
            group: {token: self._label_ids(token) for token in tokens}
            for group, tokens in TOKENS.items()
        }
        for group, labels in self._labels.items():
            if len({tuple(ids) for ids in labels.values()}) < len(labels):
                raise ModelNotFound(f"the tokenizer writes two tokens of {group} alike")
        self._longest = max(len(ids) for labels in self._labels.values() for ids in labels.values())
        self.max_tokens = max_tokens

    @property
    def limit(self) -> int:
        """Maximum tokens of a prompt, at least four."""
        return max(4, self.max_tokens - self._longest)

    def prompt_ids(self, given: CriticInput) -> list[int]:
        """The ids of a prompt, not cut; texts of special tokens are removed."""
        text = valid(critic_prompt(given))
        encoded = self.tokenizer(text, return_special_tokens_mask=True)
        pairs = zip(encoded["input_ids"], encoded["special_tokens_mask"], strict=True)
        ids = [i for i, is_added in pairs if is_added or i not in self._special]
        if self._is_causal and ids[-1:] == [self.tokenizer.eos_token_id]:
            ids.pop()
        return ids

    def fitted(self, ids: list[int]) -> list[int]:
        """The ids of a prompt, cut to :attr:`limit`."""
        end = self.limit // 4
        return ids if len(ids) <= self.limit else ids[: self.limit - end] + ids[-end:]

    def example(self, given: CriticInput, token: str) -> dict[str, list[int]]:
        """A training example of prompt and token, with loss on the token only (Eq. 1)."""
        ids, label = self.fitted(self.prompt_ids(given)), self._labels[given.group][token]
        if self._is_causal:
            ids, label = ids + label, [-100] * len(ids) + label
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": label}

    def judge(self, inputs: Sequence[CriticInput]) -> list[str]:
        """The token for each, in their order."""
        tokens = {i: answer.token for batch in self.answers(inputs) for i, answer in batch.items()}
        return [tokens[i] for i in range(len(inputs))]

    @abstractmethod
    def answers(self, inputs: Sequence[CriticInput]) -> Iterator[dict[int, Answer]]:
        """The answers of one batch after another, by index in ``inputs``."""

    def batches(self, inputs: Sequence[CriticInput]) -> list[list[int]]:
        """Which of ``inputs`` are answered together, by index: by default all of them."""
        return [list(range(len(inputs)))]

    def _choices(self, given: CriticInput) -> dict[str, list[int]]:
        labels = self._labels[given.group]
        return {token: labels[token] for token in given.tokens or labels}

    def _label_ids(self, token: str) -> list[int]:
        ids: list[int] = self.tokenizer(token, add_special_tokens=False)["input_ids"]
        return [*ids, self.tokenizer.eos_token_id]


class TransformersCritic(Critic):
    """A critic on transformers: a causal language model, or one with an encoder and a decoder."""

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        *,
        max_tokens: int = MAX_TOKENS,
        batch: int = 8,
    ) -> None:
        """Wrap a model that is already loaded; it stays on its device.

        Args:
            model: a causal language model, or one with an encoder and a decoder.
            tokenizer: see :class:`Critic`.
            max_tokens: maximum prompt tokens, at most the model's own limit; longer ones are cut.
            batch: prompts a forward pass.

        Raises:
            ModelNotFound: see :class:`Critic`.
        """
        is_causal = not model.config.is_encoder_decoder
        super().__init__(tokenizer, max_input_tokens(model, max_tokens), is_causal=is_causal)
        self.model: Any = model
        self._batch = batch
        rotary = getattr(model.config.get_text_config(), "rope_parameters", None)
        own = model.generation_config
        self._shares = bool(is_causal and rotary and own and not own.cache_implementation)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        *,
        device: str | None = None,
        dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = None,
        **options: Any,
    ) -> Self:
        """Load a checkpoint from a folder or a model hub.

        Args:
            name_or_path: a folder or a hub name.
            device: ``cpu``, ``cuda``, ``cuda:1``, ``mps``; the best one here by default.
            dtype: bfloat16 on CUDA and float32 elsewhere by default.
            options: further arguments of the class.

        Raises:
            MissingExtra: torch or transformers is not installed.
            ModelNotFound: no checkpoint is there, or it cannot be read.
        """
        where, number_format = resolve_device(device, dtype)
        model, tokenizer = load_language_model(name_or_path, number_format)
        return cls(model.to(where), tokenizer, **options)

    def answers(self, inputs: Sequence[CriticInput]) -> Iterator[dict[int, Answer]]:
        """The answers of one batch after another, those under the same instructions together.

        The common prefix of a batch, such as the instructions, is computed once, for models with
        rotary positions and plain attention in every layer: others do not ignore the padding after
        it.
        """
        prompts = self._prompts(inputs)
        for batch in self._batches(inputs, prompts):
            choices = [self._choices(inputs[i]) for i in batch]
            decoded = self._decode([prompts[i] for i in batch], choices)
            yield dict(zip(batch, decoded, strict=True))

    def batches(self, inputs: Sequence[CriticInput]) -> list[list[int]]:
        return self._batches(inputs, self._prompts(inputs))

    def _prompts(self, inputs: Sequence[CriticInput]) -> list[list[int]]:
        return [self.fitted(self.prompt_ids(one)) for one in inputs]

    def _batches(
        self, inputs: Sequence[CriticInput], prompts: Sequence[Sequence[int]]
    ) -> list[list[int]]:
        order = sorted(range(len(inputs)), key=lambda i: (inputs[i].instruction, len(prompts[i])))
        return [order[start : start + self._batch] for start in range(0, len(order), self._batch)]

    def _decode(
        self, prompts: list[list[int]], choices: list[dict[str, list[int]]]
    ) -> list[Answer]:
        inputs = self._inputs(prompts)
        begun = inputs["input_ids"].shape[1] if self._is_causal else 1
        most = max(map(_telling, choices))

        def allowed(row: int, ids: "Tensor") -> list[int]:
            written = ids[begun:].tolist()
            size = len(written)
            following = {
                label[size]
                for label in choices[row].values()
                if label[:size] == written and len(label) > size
            }
            return sorted(following) or [self.tokenizer.eos_token_id]

        made = self.model.generate(
            **inputs,
            do_sample=False,
            num_beams=1,
            max_new_tokens=most,
            pad_token_id=self.tokenizer.pad_token_id,
            eos_token_id=self.tokenizer.eos_token_id,
            prefix_allowed_tokens_fn=allowed,
            use_cache=True,
            return_dict_in_generate=True,
            output_scores=True,
        )
        answers = []
        for row, (ids, labels) in enumerate(zip(made.sequences, choices, strict=True)):
            known = sorted({i for label in labels.values() for i in label})
            # Ids that are not allowed have scores of minus infinity.
            shares = [scores[row].float().softmax(-1)[known].tolist() for scores in made.scores]
            steps = [dict(zip(known, each, strict=True)) for each in shares]
            answers.append(read_answer(labels, ids[begun:].tolist(), steps))
        return answers

    def _inputs(self, prompts: list[list[int]]) -> dict[str, Any]:
        """Padded prompts, with the KV cache of their common prefix."""
        import torch
        from transformers.cache_utils import DynamicLayer

        self.model.train(False)
        pad, device = self.tokenizer.pad, self.model.device
        if not self._is_causal:
            whole = {"input_ids": prompts}
            return dict(pad(whole, padding_side="right", return_tensors="pt").to(device))
        shares = self._shares and len(prompts) > 1
        alike = min(_alike(prompts), min(map(len, prompts)) - 1) if shares else 0
        rest = {"input_ids": [prompt[alike:] for prompt in prompts]}
        inputs = dict(pad(rest, padding_side="left", return_tensors="pt").to(device))
        if not alike:
            return inputs
        begun = torch.tensor([prompts[0][:alike]], device=device)
        with torch.inference_mode():
            read = self.model(input_ids=begun, use_cache=True, logits_to_keep=1).past_key_values
        if any(type(layer) is not DynamicLayer for layer in read.layers):
            self._shares = False
            return self._inputs(prompts)
        read.batch_repeat_interleave(len(prompts))
        beside = begun.expand(len(prompts), -1)
        for name, before in (("input_ids", beside), ("attention_mask", torch.ones_like(beside))):
            inputs[name] = torch.cat([before, inputs[name]], dim=1)
        return {**inputs, "past_key_values": read}


def _alike(sequences: Sequence[list[int]]) -> int:
    """Length of the common prefix."""
    first, last = min(sequences), max(sequences)  # sorted, so all between share it too
    pairs = zip(first, last, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(first))


def _telling(labels: dict[str, list[int]]) -> int:
    """Maximum number of tokens that tell a label from all others."""
    pairs = combinations(labels.values(), 2)
    return max((_alike(pair) + 1 for pair in pairs), default=1)
