"""What the vLLM backends share: prompts to requests, completions to segments, one event loop."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.outputs import GenerationChunk
from pydantic import Field, PrivateAttr

from selfcorrect_rag.models.engines.background import BackgroundLoop
from selfcorrect_rag.models.engines.decoded import Decoded, ReflectionIds, Rules, prune, room
from selfcorrect_rag.models.engines.places import Places
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer, Encoded
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.prompts.parts import Prompt, prompt_of
from selfcorrect_rag.reflection import Group
from selfcorrect_rag.state.self_rag import Segment


@dataclass(frozen=True)
class Request:
    """How an engine should continue prompts."""

    max_tokens: int
    logprob_ids: Sequence[int]
    """Ids whose log-probabilities are wanted at each generated token."""
    stop_ids: Sequence[int] = ()
    stop: Sequence[str] = ()
    allowed_ids: Sequence[int] | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Settings under the engine's own names: temperature, top_p, seed and so on."""


class Completion(NamedTuple):
    """What an engine generated for one prompt."""

    ids: Sequence[int]
    """Generated ids, with the one that ended generation."""
    logprobs: Sequence[Mapping[int, float]]
    """For each of them: its own log-probability and those of ``logprob_ids``, by id."""
    finish_reason: str
    """stop or length, as OpenAI names them."""
    stop_reason: int | str | None
    """The stop id or the stop string that ended it, if one did."""


class EngineReflectionLLM(ReflectionLLM):
    """A ReflectionLLM whose engine merges all that is asked of it at a time into its batches.

    Sync and async calls from any thread and any event loop meet on one background loop. Cancelled
    calls leave the engine. Close it when done, or use it in a ``with`` block.
    """

    in_flight: int = Field(default=512, ge=1)
    """Most prompts handed to the engine at a time; further ones wait here, first come first. Fewer
    than the engine decodes in a step (vLLM's ``max_num_seqs``) keep its batches as small."""

    _tokenizer: ControlledTokenizer = PrivateAttr()
    _reflection_ids: ReflectionIds = PrivateAttr()
    _loop: BackgroundLoop = PrivateAttr()
    _places: Places = PrivateAttr()
    _context: int | None = PrivateAttr(default=None)

    @abstractmethod
    async def _complete(
        self, prompts: Sequence[Sequence[int]], request: Request
    ) -> list[Completion]:
        """Continue prompts of token ids together, on the background loop."""

    @abstractmethod
    def _deltas(self, prompt: Sequence[int], request: Request) -> AsyncIterator[str]:
        """The text that continues one prompt, without special tokens, as it comes."""

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the reflection groups that the checkpoint's vocabulary has."""
        return self._tokenizer.groups

    @property
    def context_tokens(self) -> int | None:
        """The model's context length in tokens."""
        return self._context

    def get_token_ids(self, text: str) -> list[int]:
        """The ids of a prompt, those that the tokenizer puts before every text included."""
        return self._tokenizer.encode([prompt_of(text)])[0].ids

    def close(self) -> None:
        """Free what the engine holds; calls that are running fail. May be repeated."""
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, tokenizer: ControlledTokenizer, context: int | None) -> None:
        """What a backend calls when its engine is up."""
        self._tokenizer, self._context = tokenizer, context
        self._reflection_ids = ReflectionIds(tokenizer.control_ids)
        self._places = Places(self.in_flight)

    def _segments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        job = _Job(self, prompts, **options)
        return job.segments(self._loop.run(self._decode(job)))

    async def _asegments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        # Encoding thousands of tokens would keep the caller's loop from all else.
        job = await asyncio.to_thread(_Job, self, prompts, **options)
        return job.segments(await self._loop.arun(self._decode(job)))

    def _stream(
        self,
        prompt: str,
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[GenerationChunk]:
        for text in _trimmed(self._loop.iterate(self._job_deltas(prompt, stop, kwargs))):
            chunk = GenerationChunk(text=text)
            if run_manager:
                run_manager.on_llm_new_token(text, chunk=chunk)
            yield chunk
        yield GenerationChunk(text="")  # LangChain takes a stream without chunks for a failure

    async def _astream(
        self,
        prompt: str,
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[GenerationChunk]:
        trim = _Trim()
        async for delta in self._loop.aiterate(self._job_deltas(prompt, stop, kwargs)):
            if text := trim(delta):
                chunk = GenerationChunk(text=text)
                if run_manager:
                    await run_manager.on_llm_new_token(text, chunk=chunk)
                yield chunk
        yield GenerationChunk(text="")

    def _job_deltas(
        self, prompt: str, stop: list[str] | None, options: dict[str, Any]
    ) -> AsyncIterator[str]:
        options = {"max_tokens": self.max_tokens, **options, "stop": stop or ()}
        job = _Job(self, [prompt_of(prompt)], **options)
        return self._deltas(job.encoded[0].ids, job.request)

    async def _decode(self, job: "_Job") -> list[Completion]:
        """The completions of a job; where it prunes, in two calls, the second for what goes on."""
        ids = [encoded.ids for encoded in job.encoded]
        if job.rules.prune_below is None:
            return await self._in_turn(ids, job.request)
        first = await self._in_turn(ids, replace(job.request, max_tokens=1))
        outputs = [job.decoded(completion) for completion in first]
        going = [i for i, output in enumerate(outputs) if output.finish_reason == "length"]
        going = prune(going, outputs, job.rules.prune_below)
        job.pruned = {i for i, output in enumerate(outputs) if output.finish_reason == "pruned"}
        if going and job.rules.max_tokens > 1:
            rest = replace(job.request, max_tokens=job.rules.max_tokens - 1)
            further = await self._in_turn([[*ids[i], *first[i].ids] for i in going], rest)
            for i, more in zip(going, further, strict=True):
                joined = [*first[i].ids, *more.ids], [*first[i].logprobs, *more.logprobs]
                first[i] = Completion(*joined, more.finish_reason, more.stop_reason)
        return first

    async def _in_turn(
        self, prompts: Sequence[Sequence[int]], request: Request
    ) -> list[Completion]:
        async with self._places.take(len(prompts)):
            return await self._complete(prompts, request)


class _Job:
    """One call: its prompts in tokens, and what becomes of their completions."""

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
        critique: bool = False,  # part of what the model writes, asked for or not
        **sampling: Any,
    ) -> None:
        max_tokens, limit = room(llm.context_tokens, max_tokens)
        self.tokenizer, self.reflection_ids = llm._tokenizer, llm._reflection_ids
        self.encoded: list[Encoded] = self.tokenizer.encode(prompts, limit)
        eos_id = self.tokenizer.eos_id
        self.rules = Rules(
            max_tokens=max_tokens,
            eos_ids=frozenset([] if eos_id is None else [eos_id]),
            stop_at_retrieval=stop_at_retrieval,
            choose=choose,
            prune_below=prune_below,
        )
        self.request = Request(
            max_tokens=max_tokens,
            logprob_ids=self.reflection_ids.all,
            stop_ids=self.reflection_ids.of(Group.RETRIEVE) if stop_at_retrieval else (),
            stop=tuple(stop),
            allowed_ids=self.reflection_ids.of(choose) if choose else None,
            sampling={"temperature": 0.0, **sampling},
        )
        self.pruned: set[int] = set()

    def segments(self, completions: Sequence[Completion]) -> list[Segment]:
        """The segments of all prompts, in order."""
        outputs = [self.decoded(completion) for completion in completions]
        for i in self.pruned:
            outputs[i].finish_reason = "pruned"
        return [
            output.segment(self.tokenizer, encoded, self.request.stop)
            for output, encoded in zip(outputs, self.encoded, strict=True)
        ]

    def decoded(self, completion: Completion) -> Decoded:
        """A completion in the terms that all backends share."""
        rules, output = self.rules, Decoded()
        stopped = completion.finish_reason == "stop"
        if stopped and not isinstance(completion.stop_reason, str):
            # A checkpoint may name further ids that end a text; the engine knows them.
            last = {completion.ids[-1]} - set(self.reflection_ids.all)
            rules = replace(rules, eos_ids=rules.eos_ids | last)
        for position, (token_id, logprobs) in enumerate(
            zip(completion.ids, completion.logprobs, strict=True)
        ):
            reflection = self.reflection_ids.reflection(token_id, logprobs, position)
            output.append(token_id, logprobs[token_id], reflection, rules)
        if stopped and isinstance(completion.stop_reason, str):
            output.finish_reason = "stop"
        return output


class _Trim:
    """Drops white space at both ends of a text that comes in pieces, as ``invoke`` does."""

    def __init__(self) -> None:
        self._held, self._begun = "", False

    def __call__(self, delta: str) -> str:
        text = self._held + delta
        if not self._begun:
            text = text.lstrip()
        kept = text.rstrip()
        self._begun = self._begun or bool(kept)
        self._held = text[len(kept) :]
        return kept


def _trimmed(deltas: Iterator[str]) -> Iterator[str]:
    trim = _Trim()
    return (text for delta in deltas if (text := trim(delta)))
