"""Encodes pairs of question and passage in an evaluator's training format."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from selfcorrect_rag.state.intake import valid

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SEPARATOR = " [SEP] "
"""The official code's separator of question and passage; plain text to T5's tokenizer."""

Pair = tuple[str, str]
"""A question and a passage."""
Encoded = dict[str, list[int]]
"""A model's inputs for one pair: ``input_ids``, ``attention_mask`` and so on."""


class PairTokenizer:
    """Encodes pairs; text never becomes a special token, and the passage is cut first.

    An end token in a passage would move the place where T5 reads its score. Splitting special
    tokens does not help there, since T5's vocabulary holds ``</s>`` as a piece of text too: ids
    of special tokens are dropped wherever the tokenizer itself did not add them.
    """

    def __init__(
        self, tokenizer: "PreTrainedTokenizerBase", *, separator: str | None, max_tokens: int
    ) -> None:
        """Wrap ``tokenizer``, which no other thread may use.

        Args:
            tokenizer: the checkpoint's.
            separator: text between question and passage; by default the tokenizer's own format of
                pairs if it has a separator token, else :data:`SEPARATOR`.
            max_tokens: maximum tokens of a pair, at least 8: the passage is cut at its end, and so
                is a question of more than half of them.
        """
        if max_tokens < 8:
            raise ValueError(f"max_tokens is {max_tokens}; no pair fits into fewer than 8 tokens")
        self._tokenizer, self._max_tokens = tokenizer, max_tokens
        if separator is None and tokenizer.sep_token is None:
            separator = SEPARATOR
        self._separator = separator
        unknown = tokenizer.unk_token_id  # also encodes plain text
        self._special = frozenset(i for i in tokenizer.all_special_ids if i != unknown)

    def encode(self, pairs: Sequence[Pair]) -> list[Encoded]:
        """Each pair in at most ``max_tokens`` ids; line breaks are spaces."""
        questions = {question: self._cut(question) for question, _ in pairs}
        left = [questions[question] for question, _ in pairs]
        right = [_tidy(passage) for _, passage in pairs]
        if self._separator is not None:
            left = [q + self._separator + p for q, p in zip(left, right, strict=True)]
        encoded = self._tokenizer(
            left,
            right if self._separator is None else None,
            truncation=True if self._separator is not None else "only_second",
            max_length=self._max_tokens,
            return_special_tokens_mask=True,
        )
        masks = encoded.pop("special_tokens_mask")
        return [
            self._plain({name: encoded[name][i] for name in encoded}, mask)
            for i, mask in enumerate(masks)
        ]

    def _cut(self, question: str) -> str:
        question, half = _tidy(question), self._max_tokens // 2
        if len(question.encode()) <= half:  # no token is shorter than a byte
            return question
        ids = self._tokenizer(
            question, add_special_tokens=False, truncation=True, max_length=half + 1
        )["input_ids"]
        return question if len(ids) <= half else str(self._tokenizer.decode(ids[:half]))

    def _plain(self, encoded: Encoded, mask: Sequence[int]) -> Encoded:
        ids = encoded["input_ids"]
        kept = [i for i, added in enumerate(mask) if added or ids[i] not in self._special]
        if len(kept) == len(ids):
            return encoded
        return {name: [values[i] for i in kept] for name, values in encoded.items()}


def batches(lengths: Sequence[int], most_tokens: int, pass_tokens: int) -> list[list[int]]:
    """Split pairs of these lengths into batches, minimising computed token positions.

    Args:
        lengths: tokens of each pair.
        most_tokens: maximum padded tokens of a batch; a longer pair goes alone.
        pass_tokens: fixed cost of a forward pass in tokens: where it is high, padding is cheaper
            than another pass.

    Returns:
        Indices of the pairs of each batch, shortest first.
    """
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    costs, starts = (
        [0],
        [0],
    )  # best split of the first n pairs: cost, start of its last batch
    for end in range(1, len(order) + 1):
        longest = lengths[order[end - 1]]
        first = max(0, end - max(1, most_tokens // longest))
        cost, start = min(
            (costs[s] + pass_tokens + (end - s) * longest, s) for s in range(first, end)
        )
        costs.append(cost)
        starts.append(start)
    made, end = [], len(order)
    while end:
        made.append(order[starts[end] : end])
        end = starts[end]
    return made[::-1]


def _tidy(text: str) -> str:
    return " ".join(valid(text).split())
