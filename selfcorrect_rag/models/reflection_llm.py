"""The interface between the graphs and a model with reflection tokens."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import Callbacks
from langchain_core.language_models.base import LangSmithParams
from langchain_core.language_models.llms import BaseLLM
from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables.config import run_in_executor

from selfcorrect_rag.errors import ModelFailed, wrap_errors
from selfcorrect_rag.models.chat_model import model_name
from selfcorrect_rag.models.identity import described
from selfcorrect_rag.prompts.parts import Prompt, prompt_of
from selfcorrect_rag.reflection import TOKENS
from selfcorrect_rag.state import Segment

LONG = 20_000
"""Characters of documents that take some milliseconds, and so a thread beside the event loop."""


class ReflectionLLM(BaseLLM):
    """An LLM that returns, with each reflection token, the log-probabilities of its whole group.

    It is an ordinary LangChain LLM. Strings are untrusted text throughout; control parts of a
    :class:`~selfcorrect_rag.prompts.Prompt` become control tokens. ``generation_info`` of a result
    is a :class:`~selfcorrect_rag.state.Segment`. The graphs use :meth:`generate_segments`,
    :meth:`choose` and their twins; a backend implements :meth:`_segments` and :meth:`_asegments`.
    """

    max_tokens: int = 100
    """Default maximum of generated tokens."""

    @property
    def identity(self) -> str:
        """A fingerprint for cached results: of ``_identifying_params`` and fields, or the object's
        own if a backend gives none."""
        return described(self)

    @property
    def reads_apart(self) -> bool:
        """Whether CRAG asks it about each piece of the knowledge, and takes the best answer; by
        default it reads all joined, like the paper's generator."""
        return False

    @abstractmethod
    def _segments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        """Continue all prompts as one batch.

        ``max_tokens`` is always given, the others are optional; further options are the backend's
        own sampling settings.

        Args:
            max_tokens: maximum of each continuation.
            stop: strings before which a continuation ends.
            choose: name of a reflection group; the continuation is then one token of it.
            stop_at_retrieval: end a continuation at the next token of the Retrieve group.
            prune_below: end a continuation whose first token is an ISREL token with a score below
                this; the best one of a batch is never pruned. Engines ignore it: for them, one
                request is faster than two.
            critique: whether to criticise the text, if that takes extra calls.
        """

    @abstractmethod
    async def _asegments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        """The async twin of :meth:`_segments`."""

    def most_calls(self, prompts: int, *, choose: bool = False) -> int:
        """Return an upper bound on the model calls of one batch, for checking limits: 1 if it is
        one call, more for a backend that sends requests per prompt."""
        return 1

    def generate_segments(
        self, prompts: Sequence[Prompt], *, callbacks: Callbacks = None, **options: Any
    ) -> list[Segment]:
        """Write one segment for each prompt, all in one batch, or raise ModelFailed.

        Args:
            prompts: what to continue.
            callbacks: LangChain's.
            options: ``max_tokens`` of a segment. With ``whole`` it ends only there or at the end of
                text, by default also at the next retrieval token. ``prune_below``: see
                :meth:`_segments`. ``critique=False`` saves a backend's separate critique calls.
        """
        return self._call(prompts, callbacks, self._segment_options(**options))

    async def agenerate_segments(
        self, prompts: Sequence[Prompt], *, callbacks: Callbacks = None, **options: Any
    ) -> list[Segment]:
        """The async twin of :meth:`generate_segments`."""
        return await self._acall(prompts, callbacks, self._segment_options(**options))

    def choose(
        self, prompts: Sequence[Prompt], group: str, *, callbacks: Callbacks = None
    ) -> list[Segment]:
        """Return which token of ``group`` comes next: segments of one token and one reflection."""
        return self._call(prompts, callbacks, _choice_options(group))

    async def achoose(
        self, prompts: Sequence[Prompt], group: str, *, callbacks: Callbacks = None
    ) -> list[Segment]:
        """The async twin of :meth:`choose`."""
        return await self._acall(prompts, callbacks, _choice_options(group))

    def _segment_options(
        self,
        max_tokens: int | None = None,
        prune_below: float | None = None,
        critique: bool = True,
        whole: bool = False,
    ) -> dict[str, Any]:
        limits = {"max_tokens": max_tokens or self.max_tokens, "prune_below": prune_below}
        return {**limits, "stop_at_retrieval": not whole, "critique": critique}

    def _call(
        self, prompts: Sequence[Prompt], callbacks: Callbacks, options: dict[str, Any]
    ) -> list[Segment]:
        with wrap_errors(ModelFailed, f"the model ({type(self).__name__})"):
            given = self.generate(_strings(prompts), **_traced(callbacks, options))
            return _checked(given, len(prompts))

    async def _acall(
        self, prompts: Sequence[Prompt], callbacks: Callbacks, options: dict[str, Any]
    ) -> list[Segment]:
        with wrap_errors(ModelFailed, f"the model ({type(self).__name__})"):
            is_long = sum(len(part.text) for prompt in prompts for part in prompt.parts) > LONG
            texts = await run_in_executor(None, _strings, prompts) if is_long else _strings(prompts)
            result = await self.agenerate(texts, **_traced(callbacks, options))
            return _checked(result, len(prompts))

    def _generate(
        self, prompts: list[str], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> LLMResult:
        options = {"max_tokens": self.max_tokens, **kwargs, "stop": stop or ()}
        segments = self._segments([prompt_of(text) for text in prompts], **options)
        return _result(segments, model_name(self))

    async def _agenerate(
        self, prompts: list[str], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> LLMResult:
        options = {"max_tokens": self.max_tokens, **kwargs, "stop": stop or ()}
        segments = await self._asegments([prompt_of(text) for text in prompts], **options)
        return _result(segments, model_name(self))

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop, **kwargs)
        kind, named = self._llm_type.removesuffix("-reflection"), self._identifying_params
        name = named.get("model") or named.get("name_or_path") or kind
        return {**params, "ls_provider": kind, "ls_model_name": str(name)}


def _strings(prompts: Sequence[Prompt]) -> list[str]:
    return [prompt.to_string() for prompt in prompts]


def _choice_options(group: str) -> dict[str, Any]:
    if group not in TOKENS:
        raise ValueError(f"there is no reflection group {group}: {', '.join(TOKENS)}")
    return {"choose": str(group), "max_tokens": 1}


def _traced(callbacks: Callbacks, options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``generate``. Without metadata, LangChain's batches do not tell
    traces which model they are of; a choice is kept out of token streams."""
    tags = ["nostream"] if options.get("choose") else None
    return {"callbacks": callbacks, "metadata": {}, "tags": tags, **options}


def _checked(result: LLMResult, prompts: int) -> list[Segment]:
    """Return the segments, or raise ModelFailed if a backend did not give whole ones."""
    segments: list[Any] = [of_one[0].generation_info or {} for of_one in result.generations]
    missing = [key for each in segments for key in Segment.__required_keys__ - each.keys()]
    if len(segments) != prompts or missing:
        wrong = f"a segment without {min(missing)}" if missing else f"{len(segments)} segments"
        raise ModelFailed(f"the model gave {wrong}: a whole one is expected for each prompt")
    return segments


def _result(segments: Sequence[Segment], name: str) -> LLMResult:
    generations, about = [], {"model_name": name}
    for segment in segments:
        # As each prompt of a batch is a run of its own in traces, only a message has usage of its
        # own. The requests of a prompted model are runs too, whose tokens must not count twice.
        read, written = segment["prompt_tokens"], segment["tokens"]
        usage = UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)
        own = None if segment.get("requests") else usage
        message = AIMessage(segment["text"], usage_metadata=own, response_metadata=about)
        generations.append([ChatGeneration(message=message, generation_info=dict(segment))])
    return LLMResult(generations=generations)  # type: ignore[arg-type]
