"""A ReflectionLLM over any engine: turns prompts into requests and completions into segments."""

from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import replace
from functools import partial
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
from selfcorrect_rag.state import Segment

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class EngineReflectionLLM(ReflectionLLM):
    """A ReflectionLLM whose engine batches concurrent calls.

    Sync and async calls from any thread and any event loop run on one background loop; a cancelled
    call is cancelled in the engine. Close it when done, or use it in a ``with`` block.
    """

    retry_seconds: float = Field(default=60.0, ge=0)
    """Seconds to retry while the engine is unavailable, such as a server that restarts."""

    _runner: EngineRunner = PrivateAttr()
    _tokenizer: ControlledTokenizer = PrivateAttr()
    _tokens: dict[int, str] = PrivateAttr()
    """Reflection tokens of the vocabulary, by id."""

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
            tokenizer: the model's tokenizer, loaded, or its folder or hub name. Its vocabulary must
                have the reflection tokens (NotAReflectionModel).
            options: fields of this class.
        """
        llm = cls(**options)
        if isinstance(tokenizer, str | Path):
            tokenizer = ControlledTokenizer.from_pretrained(tokenizer)
        elif not isinstance(tokenizer, ControlledTokenizer):
            tokenizer = ControlledTokenizer(tokenizer)
        llm._use_tokenizer(tokenizer)
        llm._start(engine)
        return llm

    def _start(self, engine: Engine) -> None:
        self._runner = EngineRunner(engine, retry_seconds=self.retry_seconds)

    def _use_tokenizer(self, tokenizer: ControlledTokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens = {i: token for token, i in tokenizer.control_ids.items() if token in GROUP_OF}

    @property
    def _llm_type(self) -> str:
        return "engine-reflection"

    @property
    def context_tokens(self) -> int | None:
        """The model's context length in tokens, if the engine knows it."""
        return self._runner.engine.context_tokens

    def get_token_ids(self, text: str) -> list[int]:
        """Return the ids of a prompt, including what the tokenizer puts before every text."""
        return self._tokenizer.encode([prompt_of(text)])[0].ids

    def close(self) -> None:
        """Close the engine and free its memory; running calls fail. May be repeated."""
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _segments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        return self._runner.run(self._write(prompts, **options))

    async def _asegments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        return await self._runner.arun(self._write(prompts, **options))

    async def _write(
        self, prompts: Sequence[Prompt], *, prune_below: float | None = None, **options: Any
    ) -> list[Segment]:
        """Encode, complete and decode, all on the engine's loop."""
        encoded, request = self._request(prompts, **options)
        ids = [each.ids for each in encoded]
        if prune_below is None:
            completions, pruned = await self._runner.complete(ids, request), set[int]()
        else:
            completions, pruned = await self._complete_best(ids, request, prune_below)
        segments = [
            self._segment(each, completion, request)
            for each, completion in zip(encoded, completions, strict=True)
        ]
        for i in pruned:
            segments[i]["finish_reason"] = "pruned"
        return segments

    def _request(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int,
        stop: Sequence[str] = (),
        choose: str | None = None,
        stop_at_retrieval: bool = False,
        critique: bool = False,  # always part of the generated text
        **sampling: Any,
    ) -> tuple[list[Encoded], Request]:
        max_tokens, limit = split_context(self.context_tokens, max_tokens)
        request = Request(
            max_tokens=max_tokens,
            logprob_ids=list(self._tokens),
            stop_ids=self._group_ids(Group.RETRIEVE) if stop_at_retrieval and not choose else (),
            stop=tuple(filter(None, stop)),
            allowed_ids=self._group_ids(choose) if choose else None,
            sampling=sampling,
        )
        return self._tokenizer.encode(prompts, limit), request

    async def _complete_best(
        self, prompts: list[list[int]], request: Request, below: float
    ) -> tuple[list[Completion], set[int]]:
        """Completions, and the indices of those that end after one token: an ISREL token that
        scores below ``below``. The best one goes on."""
        complete = self._runner.complete
        begun = await complete(prompts, replace(request, max_tokens=1))
        isrel: dict[int, float] = {}
        for i, completion in enumerate(begun):
            first = self._reflection(completion.ids[0], completion.logprobs[0], 0)
            if first and first["group"] == Group.ISREL and is_readable(first):
                isrel[i] = critique_score(first)
        best = max(isrel, key=lambda i: isrel[i], default=None)
        going = [i for i, each in enumerate(begun) if each.finish_reason == "length"]
        pruned = {i for i in going if i != best and isrel.get(i, below) < below}
        going = [i for i in going if i not in pruned]
        if going and request.max_tokens > 1:
            rest = replace(request, max_tokens=request.max_tokens - 1)
            further = await complete([[*prompts[i], *begun[i].ids] for i in going], rest)
            for i, more in zip(going, further, strict=True):
                ids, logprobs = [*begun[i].ids, *more.ids], [*begun[i].logprobs, *more.logprobs]
                begun[i] = Completion(ids, logprobs, more.finish_reason)
        return begun, pruned

    def _group_ids(self, group: str) -> list[int]:
        return [self._tokenizer.control_ids[token] for token in TOKENS[group]]

    def _reflection(
        self, token_id: int, logprobs: Mapping[int, float], position: int
    ) -> Reflection | None:
        """The reflection of a token; None for tokens that are not reflection tokens."""
        token = self._tokens.get(token_id)
        if token is None:
            return None
        group = GROUP_OF[token]
        ids = zip(TOKENS[group], self._group_ids(group), strict=True)
        given = {each: logprobs[i] for each, i in ids}
        return Reflection(group=group, position=position, token=token, logprobs=given)

    def _segment(self, encoded: Encoded, completion: Completion, request: Request) -> Segment:
        ids, finish_reason = list(completion.ids), str(completion.finish_reason)
        if size := self._stop_size(ids, request.stop):
            ids, finish_reason = ids[:size], "stop"
        pairs = list(zip(ids, completion.logprobs, strict=False))
        given = (self._reflection(i, by_id, at) for at, (i, by_id) in enumerate(pairs))
        reflections = [reflection for reflection in given if reflection]
        tokens, following = len(ids), None
        if finish_reason == "stop" and not size:
            if ids[-1] in request.stop_ids:
                finish_reason, following = "retrieval", reflections.pop()
                ids.pop()
            elif not request.stop or not self._tokenizer.pieces(ids[-1:]):
                # Without stop strings it may be a further end id of the checkpoint. With them, an
                # engine may see a space before the text that is not shown here.
                finish_reason = "end"
                ids.pop()
        text = self._tokenizer.text(ids)
        if finish_reason == "stop":
            text = text[: _stop_place(text, request.stop)]
        return Segment(
            text=text.strip(),
            pieces=self._tokenizer.pieces(ids),
            reflections=reflections,
            next=following,
            finish_reason=finish_reason,  # type: ignore[typeddict-item]
            tokens=tokens,
            logprob=sum((by_id[i] for i, by_id in pairs), 0.0),
            prompt_tokens=len(encoded.ids),
            shortened=encoded.shortened,
            requests=0,
        )

    def _stop_size(self, ids: Sequence[int], stop: Sequence[str]) -> int:
        """The number of ids up to the end of the first stop string; 0 without one."""

        def has_stopped(size: int) -> bool:
            text = self._tokenizer.text(ids[:size])
            return any(string in text for string in stop)

        if not stop or not has_stopped(len(ids)):
            return 0
        return bisect_left(range(len(ids)), True, key=has_stopped)

    def _stream(
        self,
        prompt: str,
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[GenerationChunk]:
        pump = partial(self._pump, prompt, stop, kwargs)
        with closing(self._runner.texts(pump)) as texts:
            for text in texts:
                chunk = GenerationChunk(text=text)
                if run_manager and text:
                    run_manager.on_llm_new_token(text, chunk=chunk)
                yield chunk

    async def _astream(
        self,
        prompt: str,
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[GenerationChunk]:
        pump = partial(self._pump, prompt, stop, kwargs)
        async with aclosing(self._runner.atexts(pump)) as texts:
            async for text in texts:
                chunk = GenerationChunk(text=text)
                if run_manager and text:
                    await run_manager.on_llm_new_token(text, chunk=chunk)
                yield chunk

    async def _pump(
        self,
        prompt: str,
        stop: list[str] | None,
        options: dict[str, Any],
        put: Callable[[str], None],
    ) -> None:
        """Pass the text of ``invoke`` on as it comes: stripped, and cut at a stop string."""
        options = {"max_tokens": self.max_tokens, **options, "stop": stop or ()}
        (encoded,), request = self._request([prompt_of(prompt)], **options)
        held = max(map(len, request.stop), default=1) - 1  # an end may begin a stop string
        ids, text, shown = list[int](), "", 0
        async with aclosing(self._runner.stream(encoded.ids, request)) as stream:
            async for more in stream:
                ids += more
                text = self._tokenizer.text(ids)
                if _stop_place(text, request.stop) < len(text):
                    break
                # A character may lack its last bytes.
                ready = text[: max(0, len(text) - held)].rstrip("\ufffd").strip()[shown:]
                if ready:
                    put(ready)
                    shown += len(ready)
        # It may be empty: LangChain treats a stream without chunks as a failure.
        put(text[: _stop_place(text, request.stop)].strip()[shown:])


def _stop_place(text: str, stop: Sequence[str]) -> int:
    """Return the place where the first stop string begins; the text's length without one."""
    return min((text.find(string) for string in stop if string in text), default=len(text))
