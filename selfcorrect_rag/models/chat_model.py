"""Chat models: what a provider can do, calls, label probabilities and classification."""

import asyncio
import math
import re
import threading
import time
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from langchain_core.callbacks import (
    AsyncCallbackManager,
    AsyncCallbackManagerForLLMRun,
    CallbackManager,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models.base import BaseLanguageModel, LangSmithParams
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.llms import BaseLLM
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import ContextThreadPoolExecutor
from langchain_core.runnables.configurable import (
    DynamicRunnable,
    RunnableConfigurableAlternatives,
)

from selfcorrect_rag.errors import ModelFailed, wrap_errors
from selfcorrect_rag.models.engines.engine import split_context
from selfcorrect_rag.prompts.labels import LabelMatch, LabelParser, normalized
from selfcorrect_rag.prompts.parts import Prompt, as_text


class LLMChat(BaseChatModel):
    """An LLM that continues one prompt, as a chat model.

    LangGraph streams tokens of chat models only. The messages of a call are for traces: the LLM
    gets ``prompt``, since a message cannot mark the untrusted parts of a :class:`Prompt`.
    """

    llm: Runnable[Any, str]
    """The LLM, perhaps with bound options or retries."""
    prompt: Prompt | list[BaseMessage]

    @property
    def _llm_type(self) -> str:
        return "llm-chat"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        behind: Any = model_behind(self.llm)
        params: LangSmithParams = behind._get_ls_params(stop, **kwargs)
        return params

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return _result(self.llm.invoke(self.prompt, _within(run_manager), **kwargs))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return _result(await self.llm.ainvoke(self.prompt, _within(run_manager), **kwargs))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for text in self.llm.stream(self.prompt, _within(run_manager), **kwargs):
            yield ChatGenerationChunk(message=AIMessageChunk(content=text))

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        async for text in self.llm.astream(self.prompt, _within(run_manager), **kwargs):
            yield ChatGenerationChunk(message=AIMessageChunk(content=text))


def models_behind(llm: Runnable[Any, Any]) -> list[Runnable[Any, Any]]:
    """The models in ``llm``, which may have bound options, retries, fallbacks or alternatives, in
    the order in which they are tried."""
    match llm:
        case RunnableBindingBase():
            return models_behind(llm.bound)
        case RunnableWithFallbacks():
            return [model for each in llm.runnables for model in models_behind(each)]
        case RunnableConfigurableAlternatives():
            made = [each for each in llm.alternatives.values() if isinstance(each, Runnable)]
            return [model for each in (llm.default, *made) for model in models_behind(each)]
        case DynamicRunnable():
            return models_behind(llm.default)
    return [llm]


def model_behind(llm: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """The model in ``llm`` that is tried first."""
    return models_behind(llm)[0]


def model_name(llm: object) -> str:
    """The name of the model in ``llm`` that is tried first: without the path of a local folder, the
    class's where it has none, empty where ``llm`` is no model."""
    model = model_behind(llm) if isinstance(llm, Runnable) else llm
    if isinstance(inner := getattr(model, "model", None), Runnable):
        return model_name(inner)
    if not isinstance(model, BaseChatModel | BaseLLM):
        return ""
    named = model._get_ls_params().get("ls_model_name") or type(model).__name__
    return Path(named).name if Path(named).exists() else named


def is_llm(llm: Runnable[Any, Any]) -> bool:
    """Whether ``llm`` continues plain text, rather than answering messages."""
    return isinstance(model_behind(llm), BaseLLM)


def _within(
    run: CallbackManagerForLLMRun | AsyncCallbackManagerForLLMRun | None,
) -> RunnableConfig | None:
    """A config that makes the LLM's run a child of the chat model's, so that they count as one
    call."""
    if run is None:
        return None
    is_sync = isinstance(run, CallbackManagerForLLMRun)
    kind = CallbackManager if is_sync else AsyncCallbackManager
    handlers = run.inheritable_handlers
    return RunnableConfig(callbacks=kind(handlers, handlers, parent_run_id=run.run_id))


def _result(text: str) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])


Result = TypeVar("Result")

MAX_RETRY_AFTER = 60.0
"""Maximum seconds to wait for a provider's Retry-After."""
_UNAVAILABLE = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_UNAUTHORIZED = 401

_CONFIG = RunnableConfig(tags=["nostream"])  # these calls are not part of the streamed answer


class ModelCall(NamedTuple):
    """A model, perhaps with bound options, and its input."""

    model: Runnable[Any, Any]
    input: Any


class CallResult(NamedTuple):
    """An answer, or the error of the last attempt."""

    answer: Any
    error: Exception | None
    requests: int
    """Attempts, 1 or 2."""

    @property
    def text(self) -> str:
        """The answer's text; empty where there is none."""
        if self.answer is None or isinstance(self.answer, str):
            return self.answer or ""
        return as_text(self.message.content)

    @property
    def message(self) -> Any:
        """The raw message, also where structured output was parsed from it."""
        return self.answer["raw"] if isinstance(self.answer, dict) else self.answer


class CallUsage(NamedTuple):
    """Requests and tokens of calls; tokens as far as the model reports them."""

    requests: int = 0
    prompt_tokens: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, results: Iterable[CallResult]) -> "CallUsage":
        """The usage of these calls together."""
        usage = cls()
        for result in results:
            metadata = getattr(result.message, "usage_metadata", None) or {}
            read, written = metadata.get("input_tokens"), metadata.get("output_tokens")
            usage = usage.plus(cls(result.requests, read or 0, written or 0))
        return usage

    def plus(self, other: "CallUsage") -> "CallUsage":
        """The sum of both."""
        return CallUsage(*(mine + its for mine, its in zip(self, other, strict=True)))


Calls = Generator["list[ModelCall] | Future[None]", list[CallResult], Result]
"""Yields calls, or a future to wait for; is sent the calls' results; returns its own result."""


def run(calls: Calls[Result], max_concurrency: int) -> Result:
    """The result of ``calls``, with at most ``max_concurrency`` of them at a time."""
    with closing(calls), ContextThreadPoolExecutor(max_workers=max_concurrency) as pool:
        try:
            wanted = next(calls)
            while True:
                results: list[CallResult] = []
                if isinstance(wanted, Future):
                    # On an event loop's own thread, waiting could deadlock.
                    wait([wanted], timeout=0 if _is_on_a_loop() else None)
                else:
                    results = list(pool.map(_invoke, wanted))
                wanted = calls.send(results)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


async def arun(calls: Calls[Result], max_concurrency: int) -> Result:
    """The async twin of :func:`run`."""
    semaphore = asyncio.Semaphore(max_concurrency)

    async def invoke(call: ModelCall) -> CallResult:
        async with semaphore:
            return await _ainvoke(call)

    with closing(calls):
        try:
            wanted = next(calls)
            while True:
                results: list[CallResult] = []
                if isinstance(wanted, Future):
                    # Shielded: the waiter may be cancelled, the future may not.
                    await asyncio.shield(asyncio.wrap_future(wanted))
                else:
                    results = list(await asyncio.gather(*map(invoke, wanted)))
                wanted = calls.send(results)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _invoke(call: ModelCall, attempt: int = 1) -> CallResult:
    try:
        return CallResult(call.model.invoke(call.input, _CONFIG), None, attempt)
    except Exception as error:
        if attempt == 2 or (seconds := retry_after(error)) is None:
            return CallResult(None, error, attempt)
    time.sleep(seconds)
    return _invoke(call, 2)


async def _ainvoke(call: ModelCall, attempt: int = 1) -> CallResult:
    try:
        return CallResult(await call.model.ainvoke(call.input, _CONFIG), None, attempt)
    except Exception as error:
        if attempt == 2 or (seconds := retry_after(error)) is None:
            return CallResult(None, error, attempt)
    await asyncio.sleep(seconds)
    return await _ainvoke(call, 2)


def retry_after(error: Exception) -> float | None:
    """A provider's Retry-After in seconds, at most :data:`MAX_RETRY_AFTER`.

    None without one: the provider's own client has retried by then, or ``model.with_retry()`` can.
    """
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        seconds = float(headers.get("retry-after") or headers.get("Retry-After") or "")
    except ValueError:  # absent, or a date
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


def is_refusal(error: Exception) -> bool:
    """Whether an error is about the request, such as an unsupported option, not the provider."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return 400 <= status < 500 and status not in (*_UNAVAILABLE, _UNAUTHORIZED)
    return isinstance(error, (TypeError, ValueError, NotImplementedError, AttributeError))


TOP_LOGPROBS = 20
"""``top_logprobs`` of a request, the most that OpenAI and vLLM allow."""


class Token(NamedTuple):
    """A token of an answer, with its alternatives."""

    text: str
    logprob: float
    """Natural logarithm."""
    alternatives: Mapping[str, float]
    """The provider's top log-probabilities, by text."""


def tokens_of(message: Any) -> list[Token] | None:
    """The tokens of an answer with log-probabilities in OpenAI's format; None without any.

    They are in ``response_metadata["logprobs"]["content"]``.
    """
    logprobs = (getattr(message, "response_metadata", None) or {}).get("logprobs")
    if not isinstance(logprobs, Mapping) or not isinstance(logprobs.get("content"), list):
        return None
    return [
        Token(
            token["token"],
            token["logprob"],
            {given["token"]: given["logprob"] for given in token.get("top_logprobs") or ()},
        )
        for token in logprobs["content"]
    ]


def label_probabilities(
    labels: Sequence[str], tokens: Sequence[Token] | None, text: str, found: LabelMatch
) -> dict[str, float] | None:
    """The probability of each of ``labels`` at the place of ``found``, by label.

    Args:
        labels: the possible labels.
        tokens: the whole answer's; None without log-probabilities.
        text: the answer's text.
        found: the label that was read, with its position in ``text``.

    Returns:
        Values in [0, 1] whose sum is at most 1; 0 for a label that is in no alternatives. None
        without tokens, or if the label that was found has no probability.
    """
    # Tokens before or after the text are reasoning, or the end of a turn.
    before = "".join(token.text for token in tokens).find(text) if tokens else -1
    if not tokens or before < 0:
        return None
    start, end = found.start + before, found.end + before
    mass = dict.fromkeys(labels, 0.0)
    place, path, written = 0, 1.0, ""
    for token in tokens:
        begin, place = place, place + len(token.text)
        if place <= start:
            continue
        # Text before the label in its first token is the same for all labels.
        shared = token.text[: max(start - begin, 0)]
        for other, logprob in {**token.alternatives, token.text: token.logprob}.items():
            following = _following(labels, written + normalized(other[len(shared) :]))
            if other.startswith(shared) and len(following) == 1:
                mass[following[0]] += path * math.exp(min(logprob, 0.0))
        written += normalized(token.text[len(shared) :])
        if _following(labels, written) == [found.label]:
            break
        path *= math.exp(min(token.logprob, 0.0))
        if begin >= end:  # the label is a prefix of another, and has ended
            mass[found.label] += path
            break
    else:
        mass[found.label] += path
    total = math.fsum(mass.values())
    if not mass[found.label] > 0.0:
        return None
    return mass if total <= 1.0 else {label: p / total for label, p in mass.items()}


def _following(labels: Sequence[str], written: str) -> list[str]:
    """The labels that ``written`` is a prefix of, or completes."""
    return [label for label in labels if _leads(written, normalized(label))]


def _leads(written: str, label: str) -> bool:
    if label.startswith(written):
        return True
    # A token may go beyond the label, but not within a word: "Nobody" is not "No".
    return written.startswith(label) and not written[len(label)].isalnum()


ABSENT = -100.0
"""Log-probability of a label without one: finite, for JSON, with a probability of almost 0."""

Mode = Literal["constrained", "logprobs", "structured", "text"]
"""How a model is asked: constrained decoding on a vLLM server;
log-probabilities; structured output or tool calls; plain text."""
MODES: tuple[Mode, ...] = ("constrained", "logprobs", "structured", "text")


class LabelField(NamedTuple):
    """One label that an answer holds."""

    parser: LabelParser
    name: str = ""
    """Prefix of its line, where an answer holds several labels."""
    instructions: str = "Choose the label that the text asks for."
    """What a decision model is asked."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that may be given."""
        return self.parser.labels

    def find(self, text: str) -> LabelMatch | None:
        """Its label in an answer; None without one, or with several lines of its name."""
        if not self.name:
            return self.parser.find(text)
        name = r"\s+".join(map(re.escape, self.name.split()))
        pattern = rf"^(?:[*`#-]|[^\S\n])*{name}[*`]*\s*:[*`]*"
        lines = list(re.finditer(pattern, text, re.IGNORECASE | re.MULTILINE))
        if len(lines) != 1:
            return None
        begin = lines[0].end()
        found = self.parser.find(text[begin:].split("\n", 1)[0])
        return found and LabelMatch(found.label, found.start + begin, found.end + begin)


class Classification(NamedTuple):
    """A prompt, and the fields of labels in its answer.

    With one field the answer is a label; with several it has a line ``name: label`` for each. A
    decision model gets the state and the fields' instructions in place of the prompt.
    """

    prompt: str
    fields: tuple[LabelField, ...]
    state: Mapping[str, Any] | None = None
    """What is judged, as a JSON object; None: the prompt."""


class Prediction(NamedTuple):
    """The label that a model gave."""

    label: str
    logprobs: dict[str, float]
    """Natural log-probability of each label, not normalised over them, at least :data:`ABSENT`."""
    is_hard: bool
    """Whether there are no probabilities: the label then has 0, the others :data:`ABSENT`."""


class ClassificationResult(NamedTuple):
    """The predictions of one classification."""

    predictions: list[Prediction | None]
    """By field; None where two answers were unreadable."""
    usage: CallUsage
    error: Exception | None
    """The provider's error, if it gave no answer."""


@dataclass
class ClassificationCounts:
    """Counts of a :class:`ChatClassifier`'s failures since it was made."""

    classifications: int = 0
    retried: int = 0
    """Classifications asked again because an answer was malformed."""
    absent: int = 0
    """Labels that were unreadable even after the retry."""
    failed: int = 0
    """Classifications that ended in an error of the provider."""


class Tokenizer(Protocol):
    """The interface of a transformers tokenizer."""

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...


class ChatClassifier:
    """Asks any LangChain chat model, LLM or decision model to choose among labels.

    A decision model answers typed questions. Of any other model the first call detects the mode
    from its answers: constrained decoding on a vLLM server, log-probabilities of the answer's
    tokens, structured output, plain text, in this order; a mode that the provider refuses, or that
    gives no log-probabilities, is not tried again. An answer
    without a readable label is retried once, with a reminder of the labels, and then counts as
    absent. So does an error of the provider; its Retry-After is respected once
    (:func:`~selfcorrect_rag.models.chat_model.retry_after`).

    Threads and event loops may share one.
    """

    def __init__(
        self,
        model: Runnable[Any, Any],
        *,
        max_concurrency: int = 8,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        """Classify with ``model``.

        Args:
            model: a chat model, an LLM or a decision model, perhaps bound to options or with
                retries.
            max_concurrency: maximum number of concurrent calls for one :meth:`classify`.
            tokenizer: tokenizer of the model, if a vLLM server serves it. With it, the
                log-probabilities of the labels' own tokens are read; without, those of the top 20
                tokens.
        """
        if max_concurrency < 1:
            raise ValueError(f"max_concurrency is {max_concurrency}; some call must be made")
        self.model, self.max_concurrency, self._tokenizer = model, max_concurrency, tokenizer
        self.mode: Mode | None = None
        """The mode; None before it is detected."""
        self.counts = ClassificationCounts()
        self._lock = threading.Lock()
        self._finding: Future[None] | None = None

    def classify(self, classifications: Sequence[Classification]) -> list[ClassificationResult]:
        """The result of each classification, in their order."""
        return run(self.calls(classifications), self.max_concurrency)

    async def aclassify(
        self, classifications: Sequence[Classification]
    ) -> list[ClassificationResult]:
        """The async twin of :meth:`classify`."""
        return await arun(self.calls(classifications), self.max_concurrency)

    def calls(self, classifications: Sequence[Classification]) -> Calls[list[ClassificationResult]]:
        """The calls of :meth:`classify`, as a generator."""
        every = [_Pending(classification) for classification in classifications]
        if every and self.mode is None:
            yield from self._find_mode(every[0])
        if self.mode is None:
            for pending in every:
                pending.error = every[0].error
        else:
            while unanswered := [pending for pending in every if pending.is_open]:
                results = yield [self._call(self.mode, p.task, p.is_retry) for p in unanswered]
                for pending, result in zip(unanswered, results, strict=True):
                    pending.take(self.mode, result)
        with self._lock:
            for pending in every:
                self.counts.classifications += 1
                self.counts.retried += pending.is_retry
                self.counts.failed += pending.error is not None
                self.counts.absent += pending.predictions.count(None)
        return [pending.result() for pending in every]

    def _find_mode(self, pending: "_Pending") -> Calls[None]:
        """Detect :attr:`mode` by the first classification, unless another call is doing so."""
        mine: Future[None] = Future()
        while True:
            with self._lock:
                if self.mode is not None:
                    return
                others = self._finding = self._finding or mine
            if others is mine:
                break
            yield others
            if not others.done():  # it cannot be waited for
                break
        try:
            for mode in MODES:
                if mode == "logprobs" and pending.results[-1].error is None:
                    continue  # requested, but not returned
                if mode == "text" and pending.is_answered:
                    self.mode = mode
                    return
                try:
                    call = self._call(mode, pending.task)
                except (NotImplementedError, AttributeError, TypeError, ValueError, NameError):
                    continue  # no structured output; LangChain's fallbacks say so by a NameError
                (result,) = yield [call]
                pending.start(mode, result)
                if result.error is None and _is_supported(mode, result):
                    self.mode = mode
                    return
                if result.error is not None and not is_refusal(result.error):
                    return
        finally:
            with self._lock:
                if self._finding is mine:
                    self._finding = None
            mine.set_result(None)

    def _call(self, mode: Mode, task: Classification, is_retry: bool = False) -> ModelCall:
        prompt = f"{task.prompt}\n\n{_reminder(task)}" if is_retry else task.prompt
        match mode:
            case "text":
                return ModelCall(self.model, prompt)
            case "structured":
                structured = self.model.with_structured_output  # type: ignore[attr-defined]
                return ModelCall(structured(_schema(task), include_raw=True), prompt)
            case "logprobs":
                return ModelCall(self.model.bind(**_logprob_options(task)), prompt)
            case "constrained":
                extra = {**own_extra_body(self.model), "structured_outputs": _constraint(task)}
                if self._tokenizer is not None:
                    extra["logprob_token_ids"] = label_ids(self._tokenizer, task)
                return ModelCall(
                    self.model.bind(**_logprob_options(task), extra_body=extra), prompt
                )


class _Pending:
    """A classification in progress."""

    def __init__(self, task: Classification) -> None:
        self.task = task
        self.predictions: list[Prediction | None] = [None] * len(task.fields)
        self.error: Exception | None = None
        self.results: list[CallResult] = []
        self.is_retry = False
        self._answers = 0

    @property
    def is_open(self) -> bool:
        return self.error is None and self._answers < 2 and None in self.predictions

    @property
    def is_answered(self) -> bool:
        return self.error is None and None not in self.predictions

    def start(self, mode: Mode, result: CallResult) -> None:
        """Record a first answer; with several, in different modes, the last one counts."""
        self.predictions, self.is_retry = [None] * len(self.predictions), False
        self._answers = 0
        self.take(mode, result)

    def take(self, mode: Mode, result: CallResult) -> None:
        """Record an answer to the prompt, with or without the reminder."""
        self.results.append(result)
        self.error = result.error
        if result.error is not None:
            return
        self._answers += 1
        match mode:
            case "structured":
                read = read_structured(self.task, result.answer.get("parsed"))
            case _:
                read = read_text(self.task, result)
        self.predictions = [old or new for old, new in zip(self.predictions, read, strict=True)]
        self.is_retry |= self._answers == 1 and None in self.predictions

    def result(self) -> ClassificationResult:
        return ClassificationResult(self.predictions, CallUsage.of(self.results), self.error)


def _is_supported(mode: Mode, result: CallResult) -> bool:
    """Whether an answer shows that the model supports this mode."""
    match mode:
        case "constrained" | "logprobs":
            return tokens_of(result.answer) is not None
        case "structured":
            return isinstance(result.answer, dict) and result.answer.get("parsed") is not None
        case _:
            return True


def own_extra_body(model: Runnable[Any, Any]) -> Mapping[str, Any]:
    """A model's own ``extra_body``, which a bound one would replace."""
    bound = getattr(model, "kwargs", {}).get("extra_body")
    return bound or getattr(model_behind(model), "extra_body", None) or {}


# Requests


def _logprob_options(task: Classification) -> dict[str, Any]:
    # A token has at least one character, so this many tokens never cut a label.
    longest = sum(len(field.name) + 3 + max(map(len, field.labels)) for field in task.fields)
    return {
        "temperature": 0,
        "max_tokens": longest,
        "logprobs": True,
        "top_logprobs": TOP_LOGPROBS,
    }


def _constraint(task: Classification) -> dict[str, Any]:
    """vLLM's ``structured_outputs`` for the labels."""
    if len(task.fields) == 1:
        return {"choice": list(task.fields[0].labels)}
    lines = (
        f"{re.escape(field.name)}: ({'|'.join(map(re.escape, field.labels))})"
        for field in task.fields
    )
    return {"regex": "\n".join(lines)}


def label_ids(tokenizer: Tokenizer, task: Classification) -> list[int]:
    """The token ids of the labels, at most 128, which is vLLM's limit."""
    texts = [
        text
        for field in task.fields
        for label in field.labels
        for text in (label, f" {label}", label.strip("[]"))
    ]
    ids = (i for text in texts for i in tokenizer.encode(text, add_special_tokens=False))
    return list(dict.fromkeys(ids))[:128]


def _named_fields(task: Classification) -> dict[str, LabelField]:
    return {f"label_{number}": field for number, field in enumerate(task.fields, start=1)}


def _schema(task: Classification) -> dict[str, Any]:
    """A JSON schema with a property for each field."""
    properties = {
        name: {
            "type": "string",
            "enum": list(field.labels),
            "description": field.name or "The label that the answer begins with.",
        }
        for name, field in _named_fields(task).items()
    }
    return {
        "title": "judgement",
        "description": "What is answered.",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _reminder(task: Classification) -> str:
    """Text added to the prompt after a malformed answer."""
    if len(task.fields) == 1:
        return f"Answer with nothing but one of these: {' or '.join(task.fields[0].labels)}"
    lines = "\n".join(f"{field.name}: {' or '.join(field.labels)}" for field in task.fields)
    return f"Answer with these lines and nothing else, each with one of its labels:\n{lines}"


# Answers


def read_structured(task: Classification, parsed: Any) -> list[Prediction | None]:
    """The predictions of a structured output, by field."""
    given = parsed if isinstance(parsed, Mapping) else {}
    return [
        _hard(field, field.parser.find(str(given.get(name, ""))))
        for name, field in _named_fields(task).items()
    ]


def read_text(task: Classification, result: CallResult) -> list[Prediction | None]:
    """The predictions of a text answer by field, with probabilities where it has any."""
    tokens, text = tokens_of(result.answer), result.text
    predictions: list[Prediction | None] = []
    for field in task.fields:
        found = field.find(text)
        mass = found and label_probabilities(field.labels, tokens, text, found)
        if found and mass:
            predictions.append(_soft(found.label, mass))
        else:
            predictions.append(_hard(field, found))
    return predictions


def _soft(label: str, mass: Mapping[str, float]) -> Prediction:
    logs = {k: max(math.log(p), ABSENT) if p > 0.0 else ABSENT for k, p in mass.items()}
    return Prediction(label, logs, is_hard=False)


def _hard(field: LabelField, found: LabelMatch | None) -> Prediction | None:
    if found is None:
        return None
    logprobs = {label: 0.0 if label == found.label else ABSENT for label in field.labels}
    return Prediction(found.label, logprobs, is_hard=True)


CHARACTERS_PER_TOKEN = 3
"""Estimate for models that cannot count tokens; low for English, so that prompts fit."""


def prompt_limit(
    llm: Runnable[Any, Any], reply_tokens: int, context_tokens: int | None = None
) -> int | None:
    """Maximum tokens of a prompt; None if unknown.

    By ``context_tokens``, else the model's attribute of that name, else ``max_input_tokens`` of a
    chat model's profile, which excludes the reply already.
    """
    model = model_behind(llm)
    context = context_tokens or getattr(model, "context_tokens", None)
    if context is not None:
        return split_context(context, reply_tokens)[1]
    profile = getattr(model, "profile", None) or {}
    limit: int | None = profile.get("max_input_tokens")
    return limit


def exceeds(llm: Runnable[Any, Any], prompt: str, limit: int) -> bool:
    """Whether a prompt has more tokens than ``limit``, by the model's own count if it has one.

    LangChain's default count is not used: it would fetch another model's tokenizer.

    Raises:
        ModelFailed: its own count raised, for example by a request to a provider.
    """
    if len(prompt.encode()) < limit:
        return False  # no tokenizer makes more tokens than bytes, plus a first one
    model = model_behind(llm)
    if isinstance(model, BaseLanguageModel) and _counts(model):
        with wrap_errors(ModelFailed, f"the model ({type(model).__name__})"):
            return model.get_num_tokens(prompt) > limit
    return len(prompt) > limit * CHARACTERS_PER_TOKEN


def _counts(model: BaseLanguageModel[Any]) -> bool:
    kind = type(model)
    return (
        model.custom_get_token_ids is not None
        or kind.get_token_ids is not BaseLanguageModel.get_token_ids
        or kind.get_num_tokens is not BaseLanguageModel.get_num_tokens
    )


_REASONS = ("finish_reason", "stop_reason", "done_reason", "stopReason")
"""Providers' metadata keys of the finish reason: OpenAI and Gemini, Anthropic, Ollama, Bedrock."""
_CUT = frozenset(
    {"length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"}
)
"""Their values for an end at the token limit, in lower case."""


def was_cut(message: Any) -> bool:
    """Whether a model's answer ended at its token limit.

    False also without a finish reason, as with plain text.
    """
    metadata = getattr(message, "response_metadata", None) or {}
    incomplete = metadata.get("incomplete_details")  # OpenAI's Responses API
    reasons = [metadata.get(key) for key in _REASONS]
    reasons += [incomplete.get("reason")] if isinstance(incomplete, Mapping) else []
    return any(str(reason).lower() in _CUT for reason in reasons)
