"""Faults of a model, at its answer, its rewriting and its embeddings."""

import math
from collections.abc import Callable
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda

from selfcorrect_rag.errors import PromptTooLong
from tests.faults.cases import Seen, fault
from tests.faults.graphs import Parts, hangs, raises, seen
from tests.scripted import RELEVANT, segment

CHATTING, REFLECTING, CORRECTING = (
    ("crag", "instruct_rag"),
    ("self_rag", "self_crag"),
    ("crag", "self_crag"),
)


def broken(graph: str, form: str, does: Any, after: int = 0, **context: Any) -> Seen:
    return seen(graph, form, lambda parts: parts.model.breaks(does, after), context)


def _each(given: Any) -> Callable[[str], list[Any]]:
    """This for each prompt of a batch."""
    return lambda prompts: [given] * prompts.count("### Instruction:")


@fault("Model", "raises")
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, raises(ConnectionError("the model is down")))


@fault("Model", "raises at the first segment", REFLECTING)
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, raises(RuntimeError("CUDA out of memory")), after=1)


@fault("Model", "raises after the first segment", REFLECTING)
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, raises(RuntimeError("CUDA out of memory")), after=2)


TOO_LONG = raises(PromptTooLong("5000 tokens of at most 4096"))


@fault("Model", "finds a prompt too long after the first segment", REFLECTING)
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, TOO_LONG, after=2)


@fault("Model", "hangs")
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, hangs, step_timeout=0.2)


@fault("Model", "hangs after the first segment", REFLECTING)
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, hangs, after=2, step_timeout=0.2)


@fault("Model", "writes nothing")
def _(graph: str, form: str) -> Seen:
    silent = (lambda prompt: "") if graph in CHATTING else _each(segment("", RELEVANT))
    return broken(graph, form, silent, after=int(graph in REFLECTING))


@fault("Model", "returns None", CHATTING)
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, lambda prompt: None)


@fault("Model", "gives too few segments", REFLECTING)
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, lambda prompt: [], after=1)


@fault("Model", "gives segments that lack what scores need", REFLECTING)
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, _each({"text": "Austen.", "prompt_tokens": 0, "tokens": 1}))


@fault("Model", "gives log-probabilities that are no numbers", REFLECTING)
def _(graph: str, form: str) -> Seen:
    spoilt = segment("Austen.", RELEVANT, mean_logprob=math.nan)
    return broken(graph, form, _each(spoilt), after=1)


@fault("Model", "is async, in a sync run", CHATTING)
def _(graph: str) -> Seen:
    async def answer(asked: Any) -> str:
        return "Austen."

    def only_async(parts: Parts) -> None:
        parts.llm = RunnableLambda(answer)

    return seen(graph, "sync", only_async, resumes="async")


class _Counting(GenericFakeChatModel):
    """Asks its provider how many tokens a prompt has."""

    context_tokens: int = 20
    broken: bool = True

    def get_num_tokens(self, text: str) -> int:
        if self.broken:
            raise ConnectionError("no route for api_key=abcdefgh")
        return 1


@fault("Model", "raises while it counts tokens (InstructRAG)")
def _(form: str) -> Seen:
    def counts(parts: Parts) -> None:
        parts.llm = model = _Counting(messages=iter([AIMessage("Austen.")]))
        parts.repairs.append(lambda: setattr(model, "broken", False))

    return seen("instruct_rag", form, counts)


def _at_judging(graph: str, form: str, does: Any, **context: Any) -> Seen:
    """Breaks the call of ``judge_sufficiency`` alone."""
    calls = iter([does])

    def once(*given: Any) -> Any:
        return next(calls, lambda *_: "Austen.")(*given)

    context = {"sufficient_context": 0.5, **context}
    return broken(graph, form, once, int(graph in REFLECTING), **context)


@fault("Model", "raises while it judges whether what was found is enough")
def _(graph: str, form: str) -> Seen:
    return _at_judging(graph, form, raises(ConnectionError("the model is down")))


@fault("Model", "hangs while it judges whether what was found is enough")
def _(graph: str, form: str) -> Seen:
    return _at_judging(graph, form, hangs, step_timeout=0.2)


@fault("Model", "rewriter raises", CORRECTING)
def _(graph: str, form: str) -> Seen:
    def breaks(parts: Parts) -> None:
        parts.rewriter.breaks(raises(ConnectionError("the model is down")))

    return seen(graph, form, breaks)


@fault("Model", "rewriter finds its prompt too long", CORRECTING)
def _(graph: str, form: str) -> Seen:
    return seen(graph, form, lambda parts: parts.rewriter.breaks(TOO_LONG))


@fault("Model", "rewriter hangs", CORRECTING)
def _(graph: str, form: str) -> Seen:
    return seen(graph, form, lambda parts: parts.rewriter.breaks(hangs), {"step_timeout": 0.2})


@fault("Model", "rewriter writes nothing", CORRECTING)
def _(graph: str, form: str) -> Seen:
    return seen(graph, form, lambda parts: parts.rewriter.breaks(lambda prompt: "\n"))


def _followed_up(graph: str, form: str, follow_up: Any) -> Seen:
    talk = {"messages": [HumanMessage("Emma?"), AIMessage("A novel."), HumanMessage("By whom?")]}
    return seen(graph, form, lambda parts: None, asked=talk, follow_up=follow_up)


@fault("Model", "model that rewrites follow-up questions raises")
def _(graph: str, form: str) -> Seen:
    return _followed_up(graph, form, RunnableLambda(raises(ConnectionError("the model is down"))))


@fault("Model", "model that rewrites follow-up questions finds them too long")
def _(graph: str, form: str) -> Seen:
    return _followed_up(graph, form, RunnableLambda(TOO_LONG))


@fault("Model", "rule that rewrites follow-up questions raises")
def _(graph: str, form: str) -> Seen:
    def rule(earlier: Any, question: str) -> str:
        raise KeyError("she")

    return _followed_up(graph, form, rule)


class _Words(Embeddings):
    """Embeds until it is told otherwise."""

    broken: Any = None

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[1.0, 0.0] for _ in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.broken(text) if self.broken else [1.0, 0.0]


def _demonstrated(form: str, does: Any = None, **demonstration: Any) -> Seen:
    words = _Words()
    words.broken = does

    def shown(parts: Parts) -> None:
        parts.repairs.append(lambda: setattr(words, "broken", None))

    shows: Any = {"question": "Who wrote Ulysses?", "rationale": "Joyce did.", **demonstration}
    context = {"mode": "icl", "selection": "nearest"}
    options: Any = {"demonstrations": [shows], "embeddings": words}
    resumes = "no" if demonstration else ""
    return seen("instruct_rag", form, shown, context, resumes=resumes, **options)


@fault("Model", "embeddings of demonstrations raise")
def _(form: str) -> Seen:
    return _demonstrated(form, raises(ConnectionError("the model is down")))


@fault("Model", "embeddings of demonstrations have other lengths")
def _(form: str) -> Seen:
    return _demonstrated(form, lambda text: [1.0, 0.0, 0.0])


@fault("Model", "demonstrations lack what the mode shows")
def _(form: str) -> Seen:
    return _demonstrated(form, rationale="")
