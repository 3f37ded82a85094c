"""A causal language model on transformers, as a chat model that gives log-probabilities."""

import re
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.base import LangSmithParams
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.utils import convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import PrivateAttr

from selfcorrect_rag.errors import PromptTooLong, require
from selfcorrect_rag.models.engines.tokens import secretly_named
from selfcorrect_rag.models.identity import described, weights
from selfcorrect_rag.models.local.checkpoints import load_language_model, placed
from selfcorrect_rag.prompts.quoting import quoted

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerBase


class ChatTokens:
    """Applies a tokenizer's chat template; text of a message never becomes a control token.

    Control tokens are a tokenizer's special ones, and other added ones that are marks to
    :func:`~selfcorrect_rag.prompts.quoting.quoted`, such as ``<tool_call>``. The template's own
    stay control tokens; in a message they are encoded as plain characters. Without any in a message
    the ids are those of ``apply_chat_template``. Thread-safe.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        """Read the tokens of ``tokenizer``, which has a chat template, at the first call."""
        self._tokenizer = tokenizer
        self._secret = secrets.token_hex(16)

    def encode(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The ids of OpenAI-style ``messages``, with the generation prompt."""
        # Messages are rendered without the first characters of control tokens, so they cannot
        # contain one, or the beginning of one that the template completes. These are restored once
        # the template's own control tokens are marked.
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
        """For a slow (Python) tokenizer: encode the text between special tokens separately."""
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


class TransformersChat(BaseChatModel):
    """Generates greedily, one conversation at a time, with its tokenizer's chat template.

    Text of a message never becomes a control token; see :class:`ChatTokens`.

    Options of a call are ``max_tokens``, ``temperature`` (only 0), ``logprobs`` and
    ``top_logprobs``; log-probabilities are in ``response_metadata``, in the format of OpenAI's chat
    API. Thread-safe: calls wait for each other.
    """

    max_tokens: int = 256
    """Default maximum of generated tokens."""

    _model: Any = PrivateAttr()
    _tokenizer: Any = PrivateAttr()
    _tokens: ChatTokens = PrivateAttr()
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    def __init__(self, model: Any, tokenizer: Any, **fields: Any) -> None:
        """Wrap a model that is already loaded, and its tokenizer, which has a chat template."""
        super().__init__(**fields)
        self._model, self._tokenizer = model.eval(), tokenizer
        self._tokens = ChatTokens(tokenizer)

    @classmethod
    def from_pretrained(
        cls, name_or_path: str | Path, *, device: str | None = None, **fields: Any
    ) -> Self:
        """Load a checkpoint from a folder or a model hub, in bfloat16 on CUDA, else in float32.

        Raises:
            MissingExtra: torch or transformers is not installed.
            ModelNotFound: no checkpoint is there, or it cannot be read.
        """
        where, dtype = placed(device, None)
        model, tokenizer = load_language_model(name_or_path, dtype)
        return cls(model.to(where), tokenizer, **fields)

    @property
    def _llm_type(self) -> str:
        return "transformers-chat"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        name = self._model.config.name_or_path or self._model.config.model_type
        return {**super()._get_ls_params(stop, **kwargs), "ls_model_name": name}

    @property
    def identity(self) -> str:
        """A fingerprint of its settings and weights, for cached results."""
        return described(self, weights(self._model))

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        *,
        max_tokens: int | None = None,
        temperature: float = 0.0,
        logprobs: bool = False,
        top_logprobs: int = 0,
        **others: Any,
    ) -> ChatResult:
        torch = require("torch", "local")
        if stop or temperature or others:
            named = [*others, *["stop"][: bool(stop)], *["temperature"][: bool(temperature)]]
            raise ValueError(f"it writes greedily and to its end: it takes no {', '.join(named)}")
        encoded = self._tokens.encode(convert_to_openai_messages(messages))
        ids = torch.tensor([encoded], device=self._model.device)
        limit = self._model.config.max_position_embeddings
        if ids.shape[1] >= limit:
            raise PromptTooLong(f"the conversation has {ids.shape[1]} tokens of at most {limit}")
        with self._lock:
            made = self._model.generate(
                ids,
                attention_mask=ids.new_ones(ids.shape),
                do_sample=False,
                max_new_tokens=min(max_tokens or self.max_tokens, limit - ids.shape[1]),
                pad_token_id=self._tokenizer.pad_token_id,
                output_scores=logprobs,
                return_dict_in_generate=True,
            )
        written: list[int] = made.sequences[0, ids.shape[1] :].tolist()
        ended = written[-1] == self._tokenizer.eos_token_id
        metadata: dict[str, Any] = {"finish_reason": "stop" if ended else "length"}
        if logprobs:
            metadata["logprobs"] = {"content": self._logprobs(written, made.scores, top_logprobs)}
        message = AIMessage(
            self._tokenizer.decode(written, skip_special_tokens=True),
            response_metadata=metadata,
            usage_metadata=UsageMetadata(
                input_tokens=ids.shape[1],
                output_tokens=len(written),
                total_tokens=ids.shape[1] + len(written),
            ),
        )
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _logprobs(self, written: Sequence[int], scores: Sequence[Any], top: int) -> list[Any]:
        """The tokens before the end, each with its top-k alternatives."""
        tokens = []
        for place, (token, row) in enumerate(zip(written, scores, strict=True)):
            if token == self._tokenizer.eos_token_id:
                break
            probable = row[0].float().log_softmax(-1)
            values, ids = probable.topk(top)
            tokens.append(
                {
                    **self._token(written[:place], token, probable[token]),
                    "top_logprobs": [
                        self._token(written[:place], i, value)
                        for i, value in zip(ids, values, strict=True)
                    ],
                }
            )
        return tokens

    def _token(self, before: Sequence[int], token: Any, logprob: Any) -> dict[str, Any]:
        # The text that it adds in context: decoded alone, its leading space may differ.
        begun = [self._tokenizer.eos_token_id, *before]
        text = self._tokenizer.decode([*begun, int(token)])
        return {
            "token": text.removeprefix(self._tokenizer.decode(begun)),
            "logprob": float(logprob),
        }


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """Matches the longest of the patterns; matches nothing without any."""
    return re.compile("|".join(sorted(patterns, key=len, reverse=True)) or r"(?!)")


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A message with ``change`` applied to its texts, at any depth."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {k: v if k in ("role", "type") else _with_texts(v, change) for k, v in value.items()}
    if isinstance(value, Sequence):
        return [_with_texts(each, change) for each in value]
    return value
