"""A ReflectionLLM over any engine: turns prompts into requests and completions into segments."""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.outputs import GenerationChunk
from pydantic import Field, PrivateAttr

from selfcorrect_rag.models.engines.engine import Completion, Engine, Request, split_context
from selfcorrect_rag.models.engines.runner import EngineRunner
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer, Encoded
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.prompts.parts import Prompt, prompt_of
from selfcorrect_rag.reflection import (
    GROUP_OF,
    TOKENS,
    Group,
    Reflection,
    critique_score,
    is_readable,
)
from selfcorrect_rag.state.self_rag import Segment

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class EngineReflectionLLM(ReflectionLLM):
    """A ReflectionLLM whose engine batches concurrent calls.

    Sync and async calls from any thread and any event loop run on one background loop. A cancelled
    call is cancelled in the engine. Close it when done, or use it in a ``with`` block.
    """

    in_flight: int | None = Field(default=None, ge=1)
    """Maximum number of prompts in the engine at a time, by default the engine's own; further ones
    wait in order. Fewer than it decodes in a step keep its batches small."""
    retry_seconds: float = Field(default=60.0, ge=0)
    """Seconds to retry while the engine is unavailable, such as a server that restarts."""

    _runner: EngineRunner = PrivateAttr()
    _tokenizer: ControlledTokenizer = PrivateAttr()
    _reflection_ids: "ReflectionIds" = PrivateAttr()

    @classmethod
    def from_engine(
        cls,
        engine: Engine,
        tokenizer: "PreTrainedTokenizerBase | ControlledTokenizer | str | Path",
        **options: Any,
    ) -> Self:
        """Make an LLM of an engine, which is opened here and closed with the LLM.

        Args:
            engine: not open yet.
            tokenizer: the model's tokenizer, loaded, or its folder or hub name.
            options: fields of this class.

        Raises:
            NotAReflectionModel: the vocabulary lacks reflection tokens.
            ModelNotFound: there is no such tokenizer.
        """
        llm = cls(**options)
        if isinstance(tokenizer, str | Path):
            tokenizer = ControlledTokenizer.from_pretrained(tokenizer)
        llm._read_by(tokenizer)
        llm._open(engine)
        return llm

    def _open(self, engine: Engine) -> None:
        self._runner = EngineRunner(
            engine, in_flight=self.in_flight, retry_seconds=self.retry_seconds
        )

    def _read_by(self, tokenizer: "PreTrainedTokenizerBase | ControlledTokenizer") -> None:
        if not isinstance(tokenizer, ControlledTokenizer):
            tokenizer = ControlledTokenizer(tokenizer)
        self._tokenizer = tokenizer
        self._reflection_ids = ReflectionIds(tokenizer.control_ids)

    @property
    def _llm_type(self) -> str:
        return "engine-reflection"

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the reflection groups that the checkpoint's vocabulary has."""
        return self._tokenizer.groups

    def is_independent(self, prune_below: float | None = None) -> bool:
        return prune_below is None

    @property
    def context_tokens(self) -> int | None:
        """The model's context length in tokens, where the engine knows it."""
        return self._runner.engine.context_tokens

    def get_token_ids(self, text: str) -> list[int]:
        """The ids of a prompt, including the prefix that the tokenizer puts before every text."""
        return self._tokenizer.encode([prompt_of(text)])[0].ids

    def close(self) -> None:
        """Close the engine and free its memory; running calls fail. May be repeated."""
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _segments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        call = _EngineCall(self, prompts, **options)
        return call.segments(self._runner.complete(call.ids, call.request))

    async def _asegments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        # Encoding thousands of tokens would block the caller's event loop.
        call = await asyncio.to_thread(_EngineCall, self, prompts, **options)
        return call.segments(await self._runner.acomplete(call.ids, call.request))

    def _stream(
        self,
        prompt: str,
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[GenerationChunk]:
        call = _EngineCall(self, [prompt_of(prompt)], **self._options(stop, kwargs))
        text = _TextStream(self._tokenizer, call.request.stop)
        with closing(self._runner.stream(call.ids[0], call.request)) as stream:
            for ids in stream:
                if delta := text.add(ids):
                    chunk = GenerationChunk(text=delta)
                    if run_manager:
                        run_manager.on_llm_new_token(delta, chunk=chunk)
                    yield chunk
                if text.has_stopped:
                    break
        # It may be empty: LangChain treats a stream without chunks as a failure.
        yield GenerationChunk(text=text.rest())

    async def _astream(
        self,
        prompt: str,
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[GenerationChunk]:
        options = self._options(stop, kwargs)
        call = await asyncio.to_thread(_EngineCall, self, [prompt_of(prompt)], **options)
        text = _TextStream(self._tokenizer, call.request.stop)
        async with aclosing(self._runner.astream(call.ids[0], call.request)) as stream:
            async for ids in stream:
                if delta := text.add(ids):
                    chunk = GenerationChunk(text=delta)
                    if run_manager:
                        await run_manager.on_llm_new_token(delta, chunk=chunk)
                    yield chunk
                if text.has_stopped:
                    break
        yield GenerationChunk(text=text.rest())

    def _options(self, stop: list[str] | None, options: dict[str, Any]) -> dict[str, Any]:
        return {"max_tokens": self.max_tokens, **options, "stop": stop or ()}


class ReflectionIds:
    """The ids of the reflection tokens in a vocabulary."""

    def __init__(self, control_ids: Mapping[str, int]) -> None:
        self._id = {token: control_ids[token] for token in GROUP_OF if token in control_ids}
        self._token = {token_id: token for token, token_id in self._id.items()}
        self.all = list(self._token)
        """Ids of every reflection token."""

    def of(self, group: str) -> list[int]:
        """Ids of one group's tokens."""
        return [self._id[token] for token in TOKENS[group]]

    def reflection(
        self, token_id: int, logprobs: Mapping[int, float], position: int
    ) -> Reflection | None:
        """The reflection for ``token_id``, given log-probabilities by id; None for other tokens."""
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

    def pruning(self, below: float) -> Callable[[Sequence[Completion]], list[int]]:
        """A :attr:`Request.keep` that drops rows whose first ISREL scores below ``below``, except
        the best."""

        def keep(begun: Sequence[Completion]) -> list[int]:
            isrel: dict[int, float] = {}
            for i, completion in enumerate(begun):
                first = self.reflection(completion.ids[0], completion.logprobs[0], 0)
                if first and first["group"] == Group.ISREL and is_readable(first):
                    isrel[i] = critique_score(first)
            best = max(isrel, key=lambda i: isrel[i], default=None)
            return [i for i in range(len(begun)) if i == best or isrel.get(i, below) >= below]

        return keep


class _EngineCall:
    """Encoded prompts and their request; converts the completions to segments."""

    def __init__(
        self,
        llm: EngineReflectionLLM,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int,
        stop: Sequence[str] = (),
        choose: str | None = None,
        stop_at_retrieval: bool = False,
        prune_below: float | None = None,
        critique: bool = False,  # always part of the generated text
        **sampling: Any,
    ) -> None:
        max_tokens, limit = split_context(llm.context_tokens, max_tokens)
        self._tokenizer, self._reflection_ids = llm._tokenizer, llm._reflection_ids
        self._encoded = self._tokenizer.encode(prompts, limit)
        self.ids = [encoded.ids for encoded in self._encoded]
        reflection_ids = self._reflection_ids
        self.request = Request(
            max_tokens=max_tokens,
            logprob_ids=reflection_ids.all,
            stop_ids=reflection_ids.of(Group.RETRIEVE) if stop_at_retrieval and not choose else (),
            stop=tuple(stop),
            allowed_ids=reflection_ids.of(choose) if choose else None,
            sampling=sampling,
            keep=None if prune_below is None else reflection_ids.pruning(prune_below),
        )

    def segments(self, completions: Sequence[Completion]) -> list[Segment]:
        """The segments of all prompts, in order."""
        return list(map(self._segment, self._encoded, completions))

    def _segment(self, encoded: Encoded, completion: Completion) -> Segment:
        ids, finish_reason = list(completion.ids), str(completion.finish_reason)
        if size := self._stop_size(ids):
            ids, finish_reason = ids[:size], "stop"
        logprob, reflections = 0.0, list[Reflection]()
        for position, (token_id, logprobs) in enumerate(
            zip(ids, completion.logprobs, strict=False)
        ):
            logprob += logprobs[token_id]
            reflection = self._reflection_ids.reflection(token_id, logprobs, position)
            if reflection is not None:
                reflections.append(reflection)
        tokens, following = len(ids), None
        if finish_reason == "stop" and not size:
            if ids[-1] in self.request.stop_ids:
                finish_reason, following = "retrieval", reflections.pop()
                ids.pop()
            elif not self.request.stop or not self._tokenizer.pieces(ids[-1:]):
                # Without stop strings it may be a further end id of the checkpoint. With them, an
                # engine may see a space before the text that is not shown here.
                finish_reason = "end"
                ids.pop()
        text = self._tokenizer.text(ids)
        if finish_reason == "stop":
            found = (text.find(string) for string in self.request.stop if string in text)
            text = text[: min(found, default=len(text))]
        return Segment(
            text=text.strip(),
            pieces=self._tokenizer.pieces(ids),
            reflections=reflections,
            next=following,
            finish_reason=finish_reason,  # type: ignore[typeddict-item]
            tokens=tokens,
            logprob=logprob,
            prompt_tokens=len(encoded.ids),
            shortened=encoded.shortened,
            requests=0,
        )

    def _stop_size(self, ids: Sequence[int]) -> int:
        """Number of ids up to the end of the first stop string; 0 without one."""

        def has_stopped(size: int) -> bool:
            text = self._tokenizer.text(ids[:size])
            return any(string in text for string in self.request.stop)

        if not self.request.stop or not has_stopped(len(ids)):
            return 0
        return bisect_left(range(len(ids)), True, key=has_stopped)


class _TextStream:
    """Decodes a stream of ids to the same text as ``invoke``: stripped, cut at a stop string."""

    def __init__(self, tokenizer: ControlledTokenizer, stop: Sequence[str]) -> None:
        self._tokenizer, self._stop = tokenizer, stop
        self._ids: list[int] = []
        self._from = self._read = 0
        """Start and end, in the ids, of the last decoded piece."""
        self._held, self._has_begun = "", False
        self.has_stopped = False
        """Whether a stop string was found; no text follows it."""

    def add(self, ids: Sequence[int]) -> str:
        """The text that can be emitted now."""
        self._ids += self._tokenizer.text_ids(ids)
        return self._show(final=False)

    def rest(self) -> str:
        """The remaining text, at the end of the stream."""
        return self._show(final=True)

    def _show(self, *, final: bool) -> str:
        if self.has_stopped:
            return ""
        # A token's text may depend on the piece before it.
        before = self._tokenizer.text(self._ids[self._from : self._read])
        text = self._tokenizer.text(self._ids[self._from :])
        if final or not text.endswith("\ufffd"):  # the middle of a character
            self._held += text[len(before) :]
            if len(self._ids) > self._read:
                self._from, self._read = self._read, len(self._ids)
        end = len(self._held)
        found = [i for i in (self._held.find(string) for string in self._stop) if i >= 0]
        if found:
            self.has_stopped, end = True, min(found)
        elif self._stop and not final:  # its end may begin a stop string
            end = max(0, end - max(map(len, self._stop)) + 1)
        shown = self._held[:end].rstrip()
        self._held = self._held[len(shown) :]
        if not self._has_begun:
            shown = shown.lstrip()
            self._has_begun = bool(shown)
        return shown
