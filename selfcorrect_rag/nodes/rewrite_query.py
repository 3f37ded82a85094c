"""rewrite_query: turn the question into search engine keywords."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from inspect import isawaitable, iscoroutine
from typing import Any

from langchain_core.runnables import Runnable
from langchain_core.runnables.config import run_in_executor

from selfcorrect_rag.errors import Fault, ModelFailed, wrap_errors
from selfcorrect_rag.models.from_name import as_language_model
from selfcorrect_rag.nodes.limits import FOR_THE_ANSWER, limit_met, stopped
from selfcorrect_rag.nodes.node import Node, Run, Update, ask
from selfcorrect_rag.prompts.crag import rewrite_prompt
from selfcorrect_rag.search.retriever import takes_one
from selfcorrect_rag.settings import CRAGSettings

LONGEST = 200
"""Longest accepted query, in characters."""
MOST_KEYWORDS = 3
"""The number that the paper's prompt asks for."""
_STOP_WORDS = """a about all also am an and any are as at be been being both but by can could did do
does doing done during each else for from give had has have having he her hers him his how i if in
into is it its know let list made make many may me might more most much must my name no not of off
on one or other our out over please said say she should show so some such tell than that the their
them then there these they this those through to too under up upon us used very was we were what
when where which while who whom whose why will with would you your"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
Rewriter = Runnable[Any, Any] | str | Callable[[str], Any]
"""A model or its name, or a sync or async function from the question to a query."""


def rewrite_query(
    rewriter: Rewriter | None = None, settings: CRAGSettings | None = None
) -> Node[Any]:
    """Rewrite with a model (section 4.5, Table 5) or a function, by rule if neither is given.

    A model gets the paper's prompt, a function the question. If it fails, returns nothing usable,
    or a limit leaves it no call, the rule is used and a note says so.
    """
    is_function = not isinstance(rewriter, str | Runnable) and takes_one(rewriter)
    llm = None if rewriter is None or is_function else as_language_model(rewriter, "rewriter")

    async def step(state: Mapping[str, Any], run: Run[CRAGSettings]) -> Update:
        question, by_rule = state["question"], keywords(state["question"])
        if not run.settings.rewrite:
            return _rewritten(run, question)
        if rewriter is None:
            return _rewritten(run, by_rule)
        if llm is None:
            function: Any = rewriter
            text = await call_function(run, function, ModelFailed, "the rewriter", question)
        elif limit := limit_met(state, run.settings, 1 + FOR_THE_ANSWER):
            marks = stopped(run, limit, "the query was made by rule")
            return {**_rewritten(run, by_rule), **marks}
        else:
            text = await ask(run, llm, rewrite_prompt(question))
        lines = text.strip().splitlines() if isinstance(text, str) else []
        query = lines[0].strip().removeprefix("query:").strip(" \"'") if lines else ""
        if 0 < len(query) <= LONGEST:
            return _rewritten(run, query)
        return _rewritten(run, by_rule, "the rewriter gave no usable query: it was made by rule")

    def failed(state: Mapping[str, Any], run: Run[CRAGSettings], fault: Fault) -> Update:
        note = f"rewriting failed: {fault.reason}: the query was made by rule"
        return _rewritten(run, keywords(state["question"]), note)

    return Node("rewrite_query", step, CRAGSettings.of(settings), on_fault=failed)


def _rewritten(run: Run[CRAGSettings], query: str, *notes: str) -> Update:
    run.emit("query_rewritten", query=query)
    return {"web_query": query, "notes": list(notes)}


def keywords(question: str) -> str:
    """Return at most three keywords of a question: runs of words between stop words.

    A quotation is one keyword, and so is a name, with the small words inside it ("Billy the Kid",
    "University of Oslo"). Of more than three runs, those with names stay, then the longer ones. A
    question of stop words alone is returned as it is.
    """
    runs: list[list[str]] = [[]]
    spans = re.findall(r"[\"“]([^\"“”]+)[\"”]|([^\s\"“”]+)", question)
    words = [(quoted or word.strip(",.;:!?()[]"), bool(quoted)) for quoted, word in spans]
    for i, (whole, quoted) in enumerate(words):
        word = re.sub(r"['’]s$", "", whole)
        inside = bool(runs[-1]) and _is_name(runs[-1][-1]) and _name_follows(words, i)
        if quoted:
            runs += [[word], []]
        elif word and (word.lower() not in STOP_WORDS or inside):
            if runs[-1] and not inside and _is_name(runs[-1][-1]) != _is_name(word):
                runs.append([])
            runs[-1].append(word)
        else:
            runs.append([])
        if whole != word:  # a possessive ends its name
            runs.append([])
    found = [" ".join(run) for run in runs if run]
    named = sorted(found, key=lambda k: (not any(w[:1].isupper() for w in k.split()), -len(k)))
    chosen = set(named[:MOST_KEYWORDS])
    return ", ".join(keyword for keyword in found if keyword in chosen) or question.strip()


_INSIDE_NAMES = frozenset({"of", "the", "de", "la", "and", "in", "for", "on"})


def _is_name(word: str) -> bool:
    return word[:1].isupper() or word in _INSIDE_NAMES


def _name_follows(words: list[tuple[str, bool]], i: int) -> bool:
    """Return whether a small word is inside a name: "of" in "University of the Arts"."""
    rest = [word for word, _ in words[i : i + 5]]  # a name continues after a few small words
    after = next((word for word in rest if word.lower() not in _INSIDE_NAMES), "")
    return rest[0].lower() in _INSIDE_NAMES and after[:1].isupper()


async def call_function(
    run: Run[Any], function: Callable[..., Any], kind: type[Fault], name: str, *args: Any
) -> Any:
    """Call a user's sync or async function, in async runs a sync one in a thread; raise ``kind`` if
    it raises, or is async in a sync run."""
    with wrap_errors(kind, name):
        given: Any = await run.call(function, partial(run_in_executor, None, function), *args)
        if isawaitable(given) and run.is_async:
            return await run.call(function, lambda: given)
    if isawaitable(given):
        if iscoroutine(given):
            given.close()  # avoids the "never awaited" warning
        raise kind(f"{name} is async", "run the graph with ainvoke or astream")
    return given
