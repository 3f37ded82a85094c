"""A causal language model on transformers, as a chat model that gives log-probabilities."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.utils import convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import PrivateAttr

from selfcorrect_rag.errors import PromptTooLong, require
from selfcorrect_rag.models.chat.chat_tokens import ChatTokens
from selfcorrect_rag.models.critic import load_language_model
from selfcorrect_rag.models.identity import described, weights
from selfcorrect_rag.models.local.checkpoints import best_device, best_dtype


class TransformersChat(BaseChatModel):
    """Writes greedily, one conversation at a time, by the chat template of its tokenizer.

    What a message says never becomes a control token; see
    :class:`~selfcorrect_rag.models.chat.chat_tokens.ChatTokens`.

    Options of a call are ``max_tokens``, ``temperature`` (0 alone), ``logprobs`` and
    ``top_logprobs``; log-probabilities come in the form of OpenAI's chat API, in
    ``response_metadata``. Several threads may share one: they wait for each other.
    """

    max_tokens: int = 256
    """Most tokens of an answer where a call does not say."""

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
        device = device or best_device(require("torch", "local"))
        model, tokenizer = load_language_model(name_or_path, best_dtype(device))
        return cls(model.to(device), tokenizer, **fields)

    @property
    def _llm_type(self) -> str:
        return "transformers-chat"

    @property
    def identity(self) -> str:
        """What tells it from other models, its weights too, for results that are kept."""
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
        asked = self._tokens.encode(convert_to_openai_messages(messages))
        ids = torch.tensor([asked], device=self._model.device)
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
            metadata["logprobs"] = {"content": self._told(written, made.scores, top_logprobs)}
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

    def _told(self, written: Sequence[int], scores: Sequence[Any], top: int) -> list[Any]:
        """The tokens before the end, each with the likeliest ones in its place."""
        told = []
        for place, (token, row) in enumerate(zip(written, scores, strict=True)):
            if token == self._tokenizer.eos_token_id:
                break
            probable = row[0].float().log_softmax(-1)
            values, ids = probable.topk(top)
            told.append(
                {
                    **self._token(written[:place], token, probable[token]),
                    "top_logprobs": [
                        self._token(written[:place], i, value)
                        for i, value in zip(ids, values, strict=True)
                    ],
                }
            )
        return told

    def _token(self, before: Sequence[int], token: Any, logprob: Any) -> dict[str, Any]:
        # The text that it adds there: decoded alone it may lack a space before it, or have one.
        begun = [self._tokenizer.eos_token_id, *before]
        text = self._tokenizer.decode([*begun, int(token)])
        return {
            "token": text.removeprefix(self._tokenizer.decode(begun)),
            "logprob": float(logprob),
        }
