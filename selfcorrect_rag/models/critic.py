"""Self-RAG's critic: a language model fine-tuned to answer with reflection tokens (3.2.1)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from selfcorrect_rag.errors import ModelNotFound
from selfcorrect_rag.intake import valid
from selfcorrect_rag.models.checkpoints import encode_texts, load_language_model, resolve_device
from selfcorrect_rag.models.engines.engine import Engine, EngineRunner, Request
from selfcorrect_rag.prompts.critic import CritiquePrompt, Instance, fields_text
from selfcorrect_rag.reflection import GROUP_OF, TOKENS

if TYPE_CHECKING:
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
    """The allowed reflection tokens, by default all of the group."""


def critic_input(prompt: CritiquePrompt, instance: Instance) -> CriticInput:
    """Return a critic's question about ``instance``, as in its training data."""
    order = ("instruction", "input", "preceding_sentences", "evidence", "segment", "output")
    judged_by = [field for field in order if field in prompt.fields]
    judged = fields_text(instance, judged_by, instruction="Task instruction")
    tokens = tuple(prompt.tokens_by_label.values())
    return CriticInput(prompt.instructions, judged, prompt.group, tokens)


class CriticTokenizer:
    """Encodes a critic's prompts and labels, for training and for judging alike.

    Reflection tokens are plain text to a critic, as in the official one.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", max_tokens: int = MAX_TOKENS) -> None:
        """Encode the reflection tokens with the model's tokenizer.

        Prompt and label have at most ``max_tokens``. A longer prompt is cut before its last
        quarter, where the evidence ends, so that instruction and output stay. Raises ModelNotFound
        if the tokenizer has no end token.
        """
        if tokenizer.eos_token_id is None:
            raise ModelNotFound("a critic's tokenizer needs an end token (eos_token)")
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
        self.tokenizer = tokenizer
        self._labels: dict[str, list[int]] = {}
        for token in GROUP_OF:
            ids = tokenizer(token, add_special_tokens=False)["input_ids"]
            self._labels[token] = [*ids, tokenizer.eos_token_id]
        longest = max(map(len, self._labels.values()))
        self.limit = max(4, max_tokens - longest)
        """Maximum tokens of a prompt."""

    def prompt_ids(self, given: CriticInput) -> list[int]:
        """Return the ids of a prompt, cut to :attr:`limit`; texts of special tokens are removed."""
        # The prompt of the official training code.
        asked = f"### Instruction:\n{given.instruction}\n\n### Input:\n{given.input}\n\n"
        (encoded,) = encode_texts(self.tokenizer, [valid(f"{asked}### Response:")])
        ids = encoded["input_ids"]
        ids = ids[:-1] if ids[-1:] == [self.tokenizer.eos_token_id] else ids
        end = self.limit // 4
        return ids if len(ids) <= self.limit else ids[: self.limit - end] + ids[-end:]

    def labels(self, given: CriticInput) -> dict[str, list[int]]:
        """Return the ids of each allowed token, the end token last; none begins with another's."""
        return {token: self._labels[token] for token in given.tokens or TOKENS[given.group]}

    def example(self, given: CriticInput, token: str) -> dict[str, list[int]]:
        """Return a training example of prompt and token, with loss on the token only (Eq. 1)."""
        ids, label = self.prompt_ids(given), self._labels[token]
        return {
            "input_ids": ids + label,
            "attention_mask": [1] * (len(ids) + len(label)),
            "labels": [-100] * len(ids) + label,
        }


class Critic:
    """Answers with one of the allowed reflection tokens, on any engine with a causal LM.

    Decoding is greedy and constrained to them. Ids that all allowed tokens share are not asked for,
    so that most answers take one token. Close it when done, or use it in a ``with`` block.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: "PreTrainedTokenizerBase",
        *,
        max_tokens: int = MAX_TOKENS,
        batch: int = 512,
    ) -> None:
        """Open an engine, which is closed with the critic, for ``batch`` prompts at a time of at
        most ``max_tokens``; see :class:`CriticTokenizer`."""
        self._runner = EngineRunner(engine)
        limit = min(max_tokens, engine.context_tokens or max_tokens)
        self.tokens, self.batch_size = CriticTokenizer(tokenizer, limit), batch

    @classmethod
    def from_model(
        cls,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        *,
        max_tokens: int = MAX_TOKENS,
        batch: int = 8,
    ) -> Self:
        """Make a critic of a causal LM of transformers that is already loaded."""
        from selfcorrect_rag.models.engines.transformers import TransformersEngine

        engine = TransformersEngine(model, eos_id=tokenizer.eos_token_id)
        return cls(engine, tokenizer, max_tokens=max_tokens, batch=batch)

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, *, device: str | None = None) -> Self:
        """Load a checkpoint with transformers, by default on the best device: in bfloat16 on CUDA,
        in float32 elsewhere."""
        device, dtype = resolve_device(device)
        model, tokenizer = load_language_model(name_or_path, dtype)
        return cls.from_model(model.to(device), tokenizer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the engine and free its memory. May be repeated."""
        self._runner.close()

    def judge(self, inputs: Sequence[CriticInput]) -> list[str]:
        """Return the token for each, in their order. Prompts under the same instructions and of
        like length are judged together."""
        prompts = [self.tokens.prompt_ids(given) for given in inputs]
        order = sorted(range(len(inputs)), key=lambda i: (inputs[i].instruction, len(prompts[i])))
        found = dict[int, str]()
        for start in range(0, len(order), self.batch_size):
            batch = order[start : start + self.batch_size]
            labels = [self.tokens.labels(inputs[i]) for i in batch]
            given = self._runner.run(self._answer([prompts[i] for i in batch], labels))
            found |= zip(batch, given, strict=True)
        return [found[i] for i in range(len(inputs))]

    async def _answer(
        self, prompts: Sequence[Sequence[int]], labels: Sequence[Mapping[str, list[int]]]
    ) -> list[str]:
        """Choose id by id; rows whose next ids are the same go to the engine together."""
        live = [dict(each) for each in labels]
        for place in range(max(len(ids) for each in labels for ids in each.values())):
            rows_by_nexts: dict[tuple[int, ...], list[int]] = {}
            for row, each in enumerate(live):
                nexts = {ids[place] for ids in each.values() if len(each) > 1}
                rows_by_nexts.setdefault(tuple(sorted(nexts)), []).append(row)
            for allowed, rows in rows_by_nexts.items():
                if len(allowed) < 2:
                    continue
                asked = [[*prompts[r], *next(iter(live[r].values()))[:place]] for r in rows]
                request = Request(max_tokens=1, logprob_ids=allowed, allowed_ids=allowed)
                completions = await self._runner.complete(asked, request)
                for row, completion in zip(rows, completions, strict=True):
                    chosen = max(allowed, key=completion.logprobs[0].__getitem__)
                    live[row] = {t: ids for t, ids in live[row].items() if ids[place] == chosen}
        return [next(iter(each)) for each in live]
