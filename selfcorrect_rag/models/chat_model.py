"""Language models: the model in a runnable, the answer in its text, prompt lengths, and calls."""

import asyncio
import re
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from langchain_core.language_models import BaseChatModel, BaseLanguageModel, BaseLLM
from langchain_core.runnables import Runnable, RunnableConfig, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import ContextThreadPoolExecutor
from langchain_core.runnables.configurable import DynamicRunnable

from selfcorrect_rag.errors import ModelFailed, wrap_errors
from selfcorrect_rag.prompts.parts import as_text

Result = TypeVar("Result")

# The model in a runnable


def models_behind(llm: Runnable[Any, Any]) -> list[Runnable[Any, Any]]:
    """Return the models in ``llm``, which may have bound options, retries, fallbacks or
    configurable fields, in the order in which they are tried."""
    match llm:
        case RunnableBindingBase():
            return models_behind(llm.bound)
        case RunnableWithFallbacks():
            return [model for each in llm.runnables for model in models_behind(each)]
        case DynamicRunnable():
            return models_behind(llm.default)
    return [llm]


def model_behind(llm: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """Return the model in ``llm`` that is tried first."""
    return models_behind(llm)[0]


def model_name(llm: object) -> str:
    """Return the name or the class of the model in ``llm``, without the path of a local folder;
    empty if it is not a model."""
    model = model_behind(llm) if isinstance(llm, Runnable) else llm
    if isinstance(inner := getattr(model, "model", None), Runnable):
        return model_name(inner)
    if not isinstance(model, BaseChatModel | BaseLLM):
        return ""
    named = model._get_ls_params().get("ls_model_name") or type(model).__name__
    return Path(named).name if Path(named).exists() else named


def is_llm(llm: Runnable[Any, Any]) -> bool:
    """Return whether ``llm`` continues plain text, rather than answering messages."""
    return isinstance(model_behind(llm), BaseLLM)


# What a model wrote

LONGEST_ANSWER = 100_000
"""Maximum characters of a text that a model writes; the rest is cut."""
_TAG = re.compile(r"<(?P<close>/?)(?:think|thinking|thought|reasoning)>|\[(?P<end>/?)THINK\]")
_CUT = re.compile(r"(model_)?length|max_(output_)?tokens|model_context_window_exceeded", re.I)
"""Providers' finish reasons at the token limit."""


def split_reasoning(text: str) -> tuple[str, str]:
    """Return the answer in a model's text, and what the model thought aloud.

    A thought is in ``<think>`` tags or the like, or is all text before a closing tag without an
    opening one. Text that ends while the model still thinks has an empty answer.
    """
    kept: list[str] = []
    thoughts: list[str] = []
    start, opened = 0, None
    for tag in _TAG.finditer(text):
        if not (tag["close"] or tag["end"]):
            opened = opened or tag
        elif opened or not kept:
            kept.append(text[start : opened.start()] if opened else "")
            thoughts.append(text[opened.end() if opened else start : tag.start()])
            start, opened = tag.end(), None
    if opened and not "".join([*kept, text[start : opened.start()]]).strip():
        thoughts.append(text[opened.end() :])
        start = len(text)
    answer = "".join([*kept, text[start:]])
    return answer.strip() if thoughts else answer, "\n".join(thoughts).strip()


def written_text(written: object) -> str:
    """Return the answer in an LLM's string or a chat model's message, without reasoning."""
    given = written if isinstance(written, str) else getattr(written, "content", "")
    return split_reasoning(as_text(given, ""))[0]


def was_cut(message: Any) -> bool:
    """Return whether a model's answer ended at its token limit, as far as its message tells."""
    metadata = getattr(message, "response_metadata", None) or {}
    incomplete = metadata.get("incomplete_details")  # OpenAI's Responses API
    keys = ("finish_reason", "stop_reason", "done_reason", "stopReason")  # by provider
    reasons = [metadata.get(key) for key in keys]
    reasons += [incomplete.get("reason")] if isinstance(incomplete, Mapping) else []
    return any(_CUT.fullmatch(str(reason)) for reason in reasons)


# How long a prompt may be


def prompt_limit(
    llm: Runnable[Any, Any], reply_tokens: int, context_tokens: int | None = None
) -> int | None:
    """Return the maximum tokens of a prompt, as given or as the model says; None if unknown."""
    model = model_behind(llm)
    context: int | None = context_tokens or getattr(model, "context_tokens", None)
    if context is not None:
        return context - min(reply_tokens, context // 2)
    profile = getattr(model, "profile", None) or {}  # its limit excludes the reply
    limit: int | None = profile.get("max_input_tokens")
    return limit


def exceeds(llm: Runnable[Any, Any], prompt: str, limit: int) -> bool:
    """Return whether a prompt has more tokens than ``limit``, by the model's own count if any.

    LangChain's default count is not used: it would fetch another model's tokenizer. Without a
    count, a token has three characters, few for English, so that prompts fit.
    """
    if len(prompt.encode()) < limit:
        return False  # no tokenizer makes more tokens than bytes, plus a first one
    model, base = model_behind(llm), BaseLanguageModel
    if isinstance(model, base) and (
        model.custom_get_token_ids or type(model).get_token_ids is not base.get_token_ids
    ):
        with wrap_errors(ModelFailed, f"the model ({type(model).__name__})"):
            return len(model.get_token_ids(prompt)) > limit
    return len(prompt) > limit * 3


# Calls

QUIET = RunnableConfig(tags=["nostream"])  # of calls that are not part of the streamed answer
ModelCall = tuple[Runnable[Any, Any], Any]
"""A model, perhaps with bound options, and its input."""


class CallResult(NamedTuple):
    """An answer, or the provider's error."""

    answer: Any
    error: Exception | None

    @property
    def text(self) -> str:
        """The answer's text without reasoning; empty without an answer."""
        return written_text(self.message)

    @property
    def message(self) -> Any:
        """The raw message, also if structured output was parsed from it."""
        return self.answer["raw"] if isinstance(self.answer, dict) else self.answer


def usage_of(results: Sequence[CallResult]) -> tuple[int, int, int]:
    """Return how many calls these are, and the tokens that their models report to have read and
    written."""
    reports = [getattr(result.message, "usage_metadata", None) or {} for result in results]
    read, written = (
        sum(report.get(key) or 0 for report in reports) for key in ("input_tokens", "output_tokens")
    )
    return len(results), read, written


Calls = Generator[list[ModelCall], list[CallResult], Result]
"""Batches of calls, written once for threads and event loops: yields calls to make concurrently,
is sent their results, and returns its own result."""


def run(calls: Calls[Result], max_concurrency: int) -> Result:
    """Return the result of ``calls``, with at most ``max_concurrency`` of them at a time."""

    def make(call: ModelCall) -> CallResult:
        model, prompt = call
        try:
            return CallResult(model.invoke(prompt, QUIET), None)
        except Exception as error:
            return CallResult(None, error)

    with ContextThreadPoolExecutor(max_workers=max_concurrency) as pool:
        try:
            wanted = next(calls)
            while True:
                wanted = calls.send(list(pool.map(make, wanted)))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


async def arun(calls: Calls[Result], max_concurrency: int) -> Result:
    """Return the result of ``calls``, as :func:`run` does, from an event loop."""
    semaphore = asyncio.Semaphore(max_concurrency)

    async def make(call: ModelCall) -> CallResult:
        model, prompt = call
        async with semaphore:
            try:
                return CallResult(await model.ainvoke(prompt, QUIET), None)
            except Exception as error:
                return CallResult(None, error)

    try:
        wanted = next(calls)
        while True:
            wanted = calls.send(await asyncio.gather(*map(make, wanted)))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def is_bad_request(error: Exception | None) -> bool:
    """Return whether an error is about the request, such as an unsupported option."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return 400 <= status < 500 and status not in (401, 408, 409, 425, 429)
    return isinstance(error, (TypeError, ValueError, NotImplementedError, AttributeError))
