"""Encodes and decodes prompts; only control parts become control tokens."""

import json
import secrets
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, pairwise, repeat
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Self

from selfcorrect_rag.errors import NotAReflectionModel, PromptTooLong
from selfcorrect_rag.models.checkpoints import load_tokenizer
from selfcorrect_rag.prompts.parts import Part, Prompt
from selfcorrect_rag.reflection import CONTROL_TOKENS, GROUP_OF
from selfcorrect_rag.state import Piece

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase


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
    training, whatever look-alikes it contains. Thread-safe.

    Raises:
        NotAReflectionModel: the vocabulary lacks a token of
            :data:`~selfcorrect_rag.reflection.CONTROL_TOKENS`.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        from tokenizers import Tokenizer

        backend: Tokenizer | None = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise NotAReflectionModel(
                f"{type(tokenizer).__name__} is not a fast tokenizer; save it with a tokenizer.json"
            )
        added = {t["content"]: t["id"] for t in json.loads(backend.to_str())["added_tokens"]}
        if missing := [token for token in CONTROL_TOKENS if token not in added]:
            raise NotAReflectionModel(
                f"the vocabulary of {tokenizer.name_or_path or 'this tokenizer'} has no "
                f"{missing[0]} (nor {len(missing) - 1} others): use a checkpoint trained for "
                "Self-RAG, such as selfrag/selfrag_llama2_7b"
            )
        self.control_ids: dict[str, int] = {token: added[token] for token in CONTROL_TOKENS}
        self._control_tokens = {token_id: token for token, token_id in self.control_ids.items()}
        self.reflection_tokens = {i: t for i, t in self._control_tokens.items() if t in GROUP_OF}
        """Reflection tokens by id."""
        self._special = frozenset(i for token, i in added.items() if token.strip())
        self.eos_id: int | None = tokenizer.eos_token_id
        # The prefix that the tokenizer puts before every text, <s> for Llama.
        opening: list[int] = tokenizer("")["input_ids"]
        self._prefix = [token_id for token_id in opening if token_id != self.eos_id]
        self._reader = Tokenizer.from_str(backend.to_str())
        self._writer, self._names = hide_special_tokens(backend)

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path) -> Self:
        """Load a checkpoint's tokenizer; see ``models.checkpoints.load_tokenizer``."""
        return cls(load_tokenizer(name_or_path))

    def encode(self, prompts: Sequence[Prompt], limit: int | None = None) -> list[Encoded]:
        """Encode prompts, each to at most ``limit`` ids.

        Too long a prompt loses the ends of its parts, in the order of
        :attr:`~selfcorrect_rag.prompts.Part.shorten` and the longest part first; PromptTooLong if
        it does not fit although everything that may be cut has been.
        """
        return [self._encode_one(prompt.parts, limit) for prompt in prompts]

    def _encode_one(self, parts: Sequence[Part], limit: int | None) -> Encoded:
        texts = [self._names[part.text] if part.kind == "control" else part.text for part in parts]
        encoding = self._writer.encode("".join(texts))
        # An id without characters of its own belongs to the ids before it.
        ends = list(accumulate(map(itemgetter(1), encoding.offsets), max))
        borders = [bisect_right(ends, end) for end in accumulate(map(len, texts))]
        counts = [len(self._prefix), *(b - a for a, b in pairwise([0, *borders]))]
        return _fit(parts, self._prefix + encoding.ids, counts, limit)

    def pieces(self, ids: Sequence[int]) -> list[Piece]:
        """Return generated ids as text and control tokens; other special tokens are left out."""
        pieces: list[Piece] = []
        for is_special, run in groupby(ids, self._special.__contains__):
            if is_special:
                control = (self._control_tokens[i] for i in run if i in self._control_tokens)
                pieces += [Piece(kind="control", text=token) for token in control]
            elif text := self.text(list(run)).strip():
                pieces.append(Piece(kind="text", text=text))
        return pieces

    def text(self, ids: Sequence[int]) -> str:
        """Return ids as plain text, special tokens left out."""
        return self._reader.decode([i for i in ids if i not in self._special])


def hide_special_tokens(tokenizer: "Tokenizer") -> "tuple[Tokenizer, dict[str, str]]":
    """Return a copy in which every special token has an unguessable name, and the names by token.

    Ids are unchanged. The copy adds nothing before or after a text.
    """
    from tokenizers import Tokenizer

    state = json.loads(tokenizer.to_str())
    secret, names = secrets.token_hex(), dict[str, str]()
    for number, token in enumerate(state["added_tokens"]):
        if token["content"].strip():  # some vocabularies add white space as text
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
    """Cut a prompt to ``limit`` ids; ``counts`` as in :class:`Encoded`."""
    excess = left = 0 if limit is None else max(len(ids) - limit, 0)
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
