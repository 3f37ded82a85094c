"""Prompts to token ids and back, such that only control parts become control tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from selfcorrect_rag.errors import NotAReflectionModel, PromptTooLong
from selfcorrect_rag.prompts import Part, Prompt
from selfcorrect_rag.reflection import CONTROL_TOKENS
from selfcorrect_rag.state import Piece

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Encoded:
    """The ids of a prompt."""

    ids: list[int]
    shortened: int
    """Tokens cut away to fit the limit."""
    owners: list[int]
    """Index of the part that each id comes from; -1 for what the tokenizer puts before a text."""


class ControlledTokenizer:
    """A fast tokenizer that never lets text become a control token.

    A benign prompt is encoded as one string, so that its ids are exactly those that a model saw
    in training. Where the result holds a special token that no control part put there, the text
    between control parts is encoded piece by piece with every special token split into plain
    ones.

    Raises:
        NotAReflectionModel: the vocabulary lacks a token of
            :data:`~selfcorrect_rag.reflection.CONTROL_TOKENS`, or splits it.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        from tokenizers import Tokenizer

        backend: Tokenizer | None = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise NotAReflectionModel(
                f"{type(tokenizer).__name__} is not a fast tokenizer; save it with a tokenizer.json"
            )
        self._whole = Tokenizer.from_str(backend.to_str())
        self._split = splitting(self._whole)
        added = {
            token.content: token_id
            for token_id, token in self._whole.get_added_tokens_decoder().items()
        }
        missing = [token for token in CONTROL_TOKENS if token not in added]
        if missing:
            raise NotAReflectionModel(
                f"the vocabulary has no {missing[0]} (nor {len(missing) - 1} others): use a "
                "checkpoint trained for Self-RAG, such as selfrag/selfrag_llama2_7b"
            )
        self.control_ids = {token: added[token] for token in CONTROL_TOKENS}
        self._control_tokens = {token_id: token for token, token_id in self.control_ids.items()}
        self._special = frozenset(added.values())
        self.eos_id: int | None = tokenizer.eos_token_id
        # What the tokenizer puts before every text, a <s> for Llama.
        opening: list[int] = tokenizer("")["input_ids"]
        self._prefix = [token_id for token_id in opening if token_id != self.eos_id]

    def encode(self, prompts: Sequence[Prompt], limit: int | None = None) -> list[Encoded]:
        """Encode prompts, each to at most ``limit`` ids.

        Too long a prompt loses the ends of its parts, in the order of
        :attr:`~selfcorrect_rag.prompts.Part.shorten` and the longest part first.

        Raises:
            PromptTooLong: it does not fit although everything that may be cut has been.
        """
        texts = ["".join(part.text for part in prompt.parts) for prompt in prompts]
        encodings = self._whole.encode_batch(texts, add_special_tokens=False)
        encoded = []
        for prompt, encoding in zip(prompts, encodings, strict=True):
            owners = self._owners(prompt.parts, encoding.ids, encoding.offsets)
            if owners is None:
                ids, owners = self._encode_apart(prompt.parts)
            else:
                ids = encoding.ids
            encoded.append(self._fit(prompt.parts, ids, owners, limit))
        return encoded

    def pieces(self, ids: Sequence[int]) -> list[Piece]:
        """Generated ids as text and control tokens, in order; other special tokens are left out."""
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
        """Ids as plain text, special tokens left out."""
        return self._whole.decode([i for i in ids if i not in self._special])

    def _owners(
        self, parts: Sequence[Part], ids: Sequence[int], offsets: Sequence[tuple[int, int]]
    ) -> list[int] | None:
        """Which part each id comes from; None where text and special tokens are mixed up."""
        ends: list[int] = []
        for part in parts:
            ends.append((ends[-1] if ends else 0) + len(part.text))
        owners: list[int] = []
        owner, controls = 0, 0
        for token_id, (start, end) in zip(ids, offsets, strict=True):
            # A token belongs to the part in which it ends; one without width stays where it is.
            while end > start and end > ends[owner]:
                owner += 1
            if token_id in self._special:
                part = parts[owner]
                begins = ends[owner] - len(part.text)
                expected = self.control_ids.get(part.text) if part.kind == "control" else None
                if token_id != expected or (start, end) != (begins, ends[owner]):
                    return None
                controls += 1
            owners.append(owner)
        return owners if controls == sum(part.kind == "control" for part in parts) else None

    def _encode_apart(self, parts: Sequence[Part]) -> tuple[list[int], list[int]]:
        """Ids and owners with the text between control parts encoded run by run."""
        ids: list[int] = []
        owners: list[int] = []
        run: list[int] = []
        for index in range(len(parts) + 1):
            if index < len(parts) and parts[index].kind != "control":
                run.append(index)
                continue
            if run:
                encoding = self._split.encode(
                    "".join(parts[i].text for i in run), add_special_tokens=False
                )
                in_run = self._owners([parts[i] for i in run], encoding.ids, encoding.offsets)
                if in_run is None:  # cannot happen while every special token is split
                    raise NotAReflectionModel("this tokenizer cannot keep special tokens as text")
                ids += encoding.ids
                owners += [run[i] for i in in_run]
                run = []
            if index < len(parts):
                ids.append(self.control_ids[parts[index].text])
                owners.append(index)
        return ids, owners

    def _fit(
        self, parts: Sequence[Part], ids: list[int], owners: list[int], limit: int | None
    ) -> Encoded:
        excess = len(self._prefix) + len(ids) - limit if limit is not None else 0
        nobody = [-1] * len(self._prefix)
        if excess <= 0:
            return Encoded(self._prefix + ids, 0, nobody + owners)
        counts = [0] * len(parts)
        for owner in owners:
            counts[owner] += 1
        keep = list(counts)
        left = excess
        for rank in sorted({part.shorten for part in parts} - {0}):
            ranked = [i for i, part in enumerate(parts) if part.shorten == rank]
            ranked = [i for i in ranked if parts[i].kind != "control"]
            while left and ranked and max(keep[i] for i in ranked):
                longest = max(ranked, key=lambda i: keep[i])
                others = [keep[i] for i in ranked if i != longest]
                # Cut the longest down to the next one, or as far as is needed.
                cut = min(left, max(keep[longest] - max(others, default=0), 1))
                keep[longest] -= cut
                left -= cut
        if left:
            raise PromptTooLong(
                f"a prompt of {len(ids)} tokens leaves {left} too many for a limit of {limit} "
                "after all passages and the question are cut: use a model with a longer context"
            )
        kept: list[int] = []
        keepers: list[int] = []
        seen = [0] * len(parts)
        for token_id, owner in zip(ids, owners, strict=True):
            if seen[owner] < keep[owner]:
                kept.append(token_id)
                keepers.append(owner)
            seen[owner] += 1
        return Encoded(self._prefix + kept, excess, nobody + keepers)


def splitting(tokenizer: "Tokenizer") -> "Tokenizer":
    """A copy that splits every added token into plain ones."""
    from tokenizers import AddedToken, Tokenizer

    copy = Tokenizer.from_str(tokenizer.to_str())
    # Only tokens marked special can be split, and some checkpoints add theirs as ordinary ones.
    copy.add_special_tokens(
        [
            AddedToken(token.content, special=True, normalized=token.normalized)
            for token in copy.get_added_tokens_decoder().values()
        ]
    )
    copy.encode_special_tokens = True
    return copy
