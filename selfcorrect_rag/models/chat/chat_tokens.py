"""Conversations to token ids, such that only the chat template gives control tokens."""

import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from selfcorrect_rag.models.engines.tokens import secretly_named
from selfcorrect_rag.prompts.quoting import quoted

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerBase


class ChatTokens:
    """A tokenizer's chat template, in which what a message says never becomes a control token.

    Control tokens are a tokenizer's special ones, and other added ones that are marks to
    :func:`~selfcorrect_rag.prompts.quoting.quoted`, such as ``<tool_call>``. The template writes
    its own; in a message they are encoded as the characters that they consist of. Without any in a
    message the ids are those of ``apply_chat_template``. Several threads may share one.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        """Read the tokens of ``tokenizer``, which has a chat template, at the first call."""
        self._tokenizer = tokenizer
        self._secret = secrets.token_hex(16)

    def encode(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The ids of ``messages``, in the form of OpenAI's, up to where the model answers."""
        # A message that lacks the characters which control tokens begin with can hold none, nor the
        # beginning of one that the template would complete. They come back once those that the
        # template wrote are named.
        rendered: Any = self._tokenizer.apply_chat_template(
            [_with_texts(message, self._without_beginnings) for message in messages],
            add_generation_prompt=True,
            tokenize=False,
        )
        return self._encoded(rendered)

    def _without_beginnings(self, text: str) -> str:
        return self._beginnings.sub(lambda found: f"{self._secret}.{ord(found[0])}.", text)

    def _restored(self, text: str) -> str:
        return re.sub(rf"{self._secret}\.(\d+)\.", lambda found: chr(int(found[1])), text)

    @cached_property
    def _controls(self) -> "list[AddedToken]":
        # White space, which some vocabularies add, is text.
        added = [t for t in self._tokenizer.added_tokens_decoder.values() if t.content.strip()]
        return [t for t in added if t.special or quoted(t.content) != t.content]

    @cached_property
    def _beginnings(self) -> re.Pattern[str]:
        return _any_of({re.escape(token.content.lstrip()[0]) for token in self._controls})

    @cached_property
    def _encoded(self) -> Callable[[str], list[int]]:
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            return self._encoded_in_python
        known = {token.content for token in self._controls}
        controls = _any_of(map(re.escape, known))
        writer, names = secretly_named(backend, lambda token: token["content"] in known)
        writer.no_truncation()
        writer.no_padding()

        def encoded(rendered: str) -> list[int]:
            named = controls.sub(lambda found: names[found[0]], rendered)
            ids: list[int] = writer.encode(self._restored(named), add_special_tokens=False).ids
            return ids

        return encoded

    def _encoded_in_python(self, rendered: str) -> list[int]:
        """By a tokenizer in Python, which encodes what stands between special tokens by itself."""
        controls = _any_of(
            r"\s*" * token.lstrip + f"({re.escape(token.content)})" + r"\s*" * token.rstrip
            for token in self._controls
        )
        numbers = {t.content: i for i, t in self._tokenizer.added_tokens_decoder.items()}
        ids: list[int] = []
        end = 0
        for found in [*controls.finditer(rendered), None]:
            text = self._restored(rendered[end : found.start() if found else None])
            plain = self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)
            ids += plain["input_ids"]
            if found and found.lastindex:
                ids.append(numbers[found[found.lastindex]])
                end = found.end()
        return ids


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """Matches the longest of them; of none, nothing."""
    return re.compile("|".join(sorted(patterns, key=len, reverse=True)) or r"(?!)")


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A message with its texts changed, however deep they lie."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {k: v if k in ("role", "type") else _with_texts(v, change) for k, v in value.items()}
    if isinstance(value, Sequence):
        return [_with_texts(each, change) for each in value]
    return value
