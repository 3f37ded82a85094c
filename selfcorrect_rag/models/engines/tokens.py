"""Encodes and decodes prompts; only control parts become control tokens."""

import json
import secrets
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from selfcorrect_rag.errors import NotAReflectionModel, PromptTooLong
from selfcorrect_rag.models.checkpoints import load_tokenizer
from selfcorrect_rag.prompts.parts import Part, Prompt
from selfcorrect_rag.reflection import CONTROL_TOKENS
from selfcorrect_rag.state import Piece

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

REMEMBERED_SPANS = 1024
"""Encoded spans that a tokenizer remembers: the next segment's prompt repeats the last one."""


@dataclass(frozen=True)
class Encoded:
    """The ids of a prompt."""

    ids: list[int]
    shortened: int
    """Tokens cut to fit the limit."""
    counts: list[int]
    """Number of ids of the tokenizer's prefix, then of each part."""

    @property
    def owners(self) -> list[int]:
        """Index of the part that each id comes from; -1 for the tokenizer's prefix."""
        return list(chain.from_iterable(repeat(i, n) for i, n in enumerate(self.counts, -1)))


class ControlledTokenizer:
    """A fast tokenizer that never lets text become a control token.

    It encodes with a copy in which every special token has a secret random name, used for control
    parts only: no text contains that name, so text stays text, with the ids that a model saw in
    training, whatever look-alikes it contains. Text between two control tokens is encoded
    independently. Thread-safe.

    Raises:
        NotAReflectionModel: the vocabulary lacks a token of
            :data:`~selfcorrect_rag.reflection.CONTROL_TOKENS`, or splits one.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        from tokenizers import Tokenizer

        backend: Tokenizer | None = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise NotAReflectionModel(
                f"{type(tokenizer).__name__} is not a fast tokenizer; save it with a tokenizer.json"
            )
        added = {t["content"]: t for t in json.loads(backend.to_str())["added_tokens"]}
        if missing := [token for token in CONTROL_TOKENS if token not in added]:
            raise NotAReflectionModel(
                f"the vocabulary has no {missing[0]} (nor {len(missing) - 1} others): use a "
                "checkpoint trained for Self-RAG, such as selfrag/selfrag_llama2_7b"
            )
        self.control_ids = {token: int(added[token]["id"]) for token in CONTROL_TOKENS}
        self._control_tokens = {token_id: token for token, token_id in self.control_ids.items()}
        self._special = frozenset(token["id"] for token in added.values() if _is_special(token))
        self.eos_id: int | None = tokenizer.eos_token_id
        # The prefix that the tokenizer puts before every text, <s> for Llama.
        opening: list[int] = tokenizer("")["input_ids"]
        self._prefix = [token_id for token_id in opening if token_id != self.eos_id]
        self._reader = Tokenizer.from_str(backend.to_str())
        self._writer, self._names = hide_special_tokens(backend)
        for token, token_id in self.control_ids.items():
            if token_id not in self._writer.encode(f"x{self._names[token]}x").ids:
                raise NotAReflectionModel(f"the tokenizer splits {token} where words are beside it")
        # A control token that strips adjacent spaces, or is matched in normalized text, changes how
        # its neighbours are encoded.
        flags = ("normalized", "lstrip", "rstrip")
        self._is_apart = not any(added[token][flag] for token in CONTROL_TOKENS for flag in flags)
        self._encode_span = lru_cache(REMEMBERED_SPANS)(self._encode_new_span)

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, extra: str = "transformers") -> Self:
        """Load a checkpoint's tokenizer; see ``models.checkpoints.load_tokenizer``."""
        tokenizer = load_tokenizer(name_or_path, extra)
        try:
            return cls(tokenizer)
        except NotAReflectionModel as error:
            raise NotAReflectionModel(f"{name_or_path}: {error}") from error

    def encode(self, prompts: Sequence[Prompt], limit: int | None = None) -> list[Encoded]:
        """Encode prompts, each to at most ``limit`` ids.

        Too long a prompt loses the ends of its parts, in the order of
        :attr:`~selfcorrect_rag.prompts.Part.shorten` and the longest part first; PromptTooLong if
        it does not fit although everything that may be cut has been.
        """
        return [self._encode_one(prompt.parts, limit) for prompt in prompts]

    def _encode_one(self, parts: Sequence[Part], limit: int | None) -> Encoded:
        ids, counts = list(self._prefix), [len(self._prefix)]
        for number, texts in enumerate(self._spans(parts)):
            new_ids, ends = self._encode_span("".join(texts), number == 0)
            ids += new_ids
            before = 0
            for end in accumulate(map(len, texts)):
                until = bisect_right(ends, end)
                counts.append(until - before)
                before = until
        return _fit(parts, ids, counts, limit)

    def _spans(self, parts: Sequence[Part]) -> Iterator[list[str]]:
        """The texts of parts that are encoded together; control tokens by their secret names."""
        texts = [self._names[part.text] if part.kind == "control" else part.text for part in parts]
        begun = 0
        for end in range(1, len(parts) + 1):
            is_last = end == len(parts)
            if is_last or (self._is_apart and "control" in (parts[end - 1].kind, parts[end].kind)):
                yield texts[begun:end]
                begun = end

    def _encode_new_span(self, text: str, begins: bool) -> tuple[list[int], list[int]]:
        """Ids, and for each the number of characters of the span up to its end."""
        # Some tokenizers add a space at the beginning of a prompt. Inside it, text follows a
        # control token, so it is encoded after one.
        before = "" if begins else next(iter(self._names.values()))
        encoding = self._writer.encode(before + text)
        skipped = 0 if begins else 1
        ends = (end - len(before) for _, end in encoding.offsets[skipped:])
        # An id without characters of its own belongs to the ids before it.
        return encoding.ids[skipped:], list(accumulate(ends, max))

    def pieces(self, ids: Sequence[int]) -> list[Piece]:
        """Return generated ids as text and control tokens; other special tokens are left out."""
        pieces: list[Piece] = []
        run: list[int] = []
        for token_id in [*ids, None]:
            if token_id is not None and token_id not in self._special:
                run.append(token_id)
                continue
            if text := self.text(run).strip():
                pieces.append(Piece(kind="text", text=text))
            run = []
            if token_id in self._control_tokens:
                pieces.append(Piece(kind="control", text=self._control_tokens[token_id]))
        return pieces

    def text(self, ids: Sequence[int]) -> str:
        """Return ids as plain text, special tokens left out."""
        return self._reader.decode([i for i in ids if i not in self._special])


def _is_special(token: dict[str, Any]) -> bool:
    """Whether an added token is special; some vocabularies add white space as text."""
    return bool(token["content"].strip())


def hide_special_tokens(tokenizer: "Tokenizer") -> "tuple[Tokenizer, dict[str, str]]":
    """Return a copy in which every special token has an unguessable name, and the names by token.

    Ids are unchanged. The copy adds nothing before or after a text.
    """
    from tokenizers import Tokenizer

    state = json.loads(tokenizer.to_str())
    secret, names = secrets.token_hex(16), {}
    for number, token in enumerate(filter(_is_special, state["added_tokens"])):
        names[token["content"]] = token["content"] = f"<{secret}.{number}>"
    model = state["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {names.get(piece, piece): i for piece, i in model["vocab"].items()}
    else:
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in model["vocab"]]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
    if "merges" in model:
        # Remove merges that could build a special token from characters.
        model["merges"] = [
            [left, right]
            for left, right in model["merges"]
            if not {left, right, left + right} & names.keys()
        ]
    state["post_processor"] = None  # it would look for special tokens under their own names
    return Tokenizer.from_str(json.dumps(state)), names


def _fit(parts: Sequence[Part], ids: list[int], counts: list[int], limit: int | None) -> Encoded:
    """A prompt cut to ``limit`` ids; ``counts`` as in :class:`Encoded`."""
    excess = left = len(ids) - limit if limit is not None else 0
    if excess <= 0:
        return Encoded(ids, 0, counts)
    keep = list(counts)
    texts = [(i, part.shorten) for i, part in enumerate(parts, 1) if part.kind != "control"]
    for rank in sorted({rank for _, rank in texts} - {0}):
        ranked = [i for i, its_rank in texts if its_rank == rank]
        while left and max(keep[i] for i in ranked):
            longest = max(ranked, key=lambda i: keep[i])
            others = [keep[i] for i in ranked if i != longest]
            # Cut the longest down to the next longest, or as far as needed.
            cut = min(left, max(keep[longest] - max(others, default=0), 1))
            keep[longest] -= cut
            left -= cut
    if left:
        raise PromptTooLong(
            f"a prompt of {len(ids)} tokens leaves {left} too many for a limit of {limit} "
            "after all passages and the question are cut: use a model with a longer context"
        )
    begins = accumulate(counts, initial=0)
    kept = [ids[begin : begin + n] for begin, n in zip(begins, keep, strict=False)]
    return Encoded(list(chain.from_iterable(kept)), excess, keep)
