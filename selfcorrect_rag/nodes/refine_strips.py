"""refine_strips and select_web_strips: keep the relevant strips of documents and of web pages."""

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

from langchain_core.documents import Document

from selfcorrect_rag.errors import BadArgument, EvaluatorFailed, wrap_errors
from selfcorrect_rag.events import StripsKept
from selfcorrect_rag.models.from_name import Evaluator, as_evaluator
from selfcorrect_rag.models.retrieval_evaluator import (
    IRRELEVANT,
    RELEVANT,
    grading,
    titled,
)
from selfcorrect_rag.nodes.base.limits import FOR_THE_ANSWER, best_so_far, limit_met, stopped
from selfcorrect_rag.nodes.base.node import Call, Node, Update, Work, call, current, emit
from selfcorrect_rag.nodes.base.strips import decompose, fair_shares, keep
from selfcorrect_rag.nodes.base.usage import counted_calls, counted_part
from selfcorrect_rag.search.retriever import takes_one
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state.crag import Strip

StripFilter = Callable[[str, list[str]], Sequence[bool] | Awaitable[Sequence[bool]]]
"""From the question and strips, as an evaluator gets them, to whether each is kept. An async one
works in async runs only."""


class TextSplitter(Protocol):
    """The interface of LangChain's text splitters."""

    def split_text(self, text: str) -> list[str]:
        """The parts of a text, in order."""


Decompose = Callable[[str], Sequence[str]] | TextSplitter
"""From the text of a document to its strips, in the order of the text."""

Place = Literal["strips", "web_strips"]
"""State key of the strips, and name of the event about them."""


def refine_strips(
    evaluator: Evaluator,
    settings: CRAGSettings | None = None,
    *,
    decompose: Decompose | None = None,
    strip_filter: StripFilter | None = None,
) -> Node:
    """Decompose the retrieved documents and keep the relevant strips (section 4.4).

    Args:
        evaluator: scores strips; unused if there is a ``strip_filter``.
        settings: the factory's.
        decompose: a custom splitter, in place of the setting ``decomposition``.
        strip_filter: a custom filter, in place of scores, ``strip_threshold`` and ``strips``. A
            strip that it keeps scores 1, one that it drops -1.

    Raises:
        BadArgument: an argument is of the wrong kind.
    """
    chosen = _Refinement(evaluator, settings, decompose, strip_filter)
    return chosen.node("refine_strips", "passages", "strips", "refine")


def select_web_strips(
    evaluator: Evaluator,
    settings: CRAGSettings | None = None,
    *,
    decompose: Decompose | None = None,
    strip_filter: StripFilter | None = None,
) -> Node:
    """The same as :func:`refine_strips` for the pages of the web (section 4.5)."""
    chosen = _Refinement(evaluator, settings, decompose, strip_filter)
    return chosen.node("select_web_strips", "web_results", "web_strips", "select")


class _Cut(NamedTuple):
    """Strips: document index and text of each."""

    documents: list[int]
    texts: list[str]


class _Refinement:
    """Cuts documents into strips and selects those to keep."""

    def __init__(
        self,
        evaluator: Evaluator,
        settings: CRAGSettings | None,
        own_decompose: Decompose | None,
        strip_filter: StripFilter | None,
    ) -> None:
        self._evaluator = as_evaluator(evaluator)
        self._grading = grading(self._evaluator)
        self._settings = CRAGSettings.of_step(settings)
        split: Any = getattr(own_decompose, "split_text", own_decompose)
        if split is not None and not takes_one(split):
            raise BadArgument(
                f"decompose is a {type(own_decompose).__name__}: give a function from a text to "
                "its strips, or a LangChain text splitter"
            )
        if strip_filter is not None and not callable(strip_filter):
            raise BadArgument(
                f"strip_filter is a {type(strip_filter).__name__}: give a function from a question "
                "and strips to a truth value for each"
            )
        self._split: Callable[[str], Sequence[str]] | None = split
        self._filter = strip_filter

    def node(self, name: str, source: str, place: Place, switch: str) -> Node:
        """The node from the documents at state key ``source`` to the strips at ``place``; the
        setting ``switch``, or a limit, can skip it."""

        def run(state: Mapping[str, Any]) -> Work:
            chosen, documents = current(self._settings), state[source]
            if not getattr(chosen, switch):
                return {place: _unscored(place, documents)}
            every = yield from self._cut(documents, chosen)
            cut = _bounded(every, len(documents), chosen.scored_strips)
            texts = [titled(documents[i], text) for i, text in zip(*cut, strict=True)]
            calls = 0 if self._filter else self._evaluator.model_calls(texts)
            if calls and (limit := limit_met(state, chosen, calls + FOR_THE_ANSWER)):
                marks = stopped(state, chosen, limit, f"{source} were kept whole")
                return {place: _unscored(place, documents), **marks}
            update: Update = {}
            if len(every.texts) > len(texts):
                note = (
                    f"{len(texts)} of {len(every.texts)} strips of {source} were scored, the first "
                    "of each document (scored_strips)"
                )
                update["notes"] = [*state["notes"], note]
            if self._filter and texts:
                kept = yield from self._filtered(state["question"], texts)
                scores: list[float] = [RELEVANT if keeps else IRRELEVANT for keeps in kept]
                scored = zip(_strips(cut, scores), kept, strict=True)
                strips: list[Strip] = [{**strip, "kept": keeps} for strip, keeps in scored]
            elif calls:
                asked = {"question": state["question"], "passages": texts}
                given = yield from call(
                    self._grading.invoke, self._grading.ainvoke, asked, within=counted_calls(calls)
                )
                scored_strips = _strips(cut, given["scores"])
                strips = keep(scored_strips, chosen.strip_threshold, chosen.strips)
            else:
                strips = _strips(cut, [None] * len(texts))
            return {**update, place: _announced(place, strips)}

        return Node(name, run, self._settings, best_so_far)

    def _cut(
        self, documents: Sequence[Document], settings: CRAGSettings
    ) -> Generator[Call, Any, _Cut]:
        """The strips of all documents."""
        if self._split is None:
            return _cut(documents, lambda text: decompose(text, settings.decomposition))
        within = counted_part(EvaluatorFailed, "decompose")
        cut = partial(_cut, documents, self._split)
        in_thread = partial(asyncio.to_thread, cut)  # it may ask a model
        return (yield from call(cut, in_thread, within=within))

    def _filtered(self, question: str, texts: list[str]) -> Generator[Call, Any, list[bool]]:
        """Whether each strip is kept, as the filter says."""
        chosen = self._filter
        assert chosen is not None

        async def afilter(question: str, texts: list[str]) -> Any:
            given = (
                await asyncio.to_thread(chosen, question, texts)
                if not inspect.iscoroutinefunction(chosen)
                else chosen(question, texts)
            )
            return await given if inspect.isawaitable(given) else given

        name = "the strip filter"
        within = counted_part(EvaluatorFailed, name)
        given: Any = yield from call(chosen, afilter, question, texts, within=within)
        if inspect.isawaitable(given):
            getattr(given, "close", lambda: None)()  # avoids the "never awaited" warning
            raise EvaluatorFailed(f"{name} is async", "run the graph with ainvoke or astream")
        with wrap_errors(EvaluatorFailed, name):
            kept = [bool(keeps) for keeps in given]
        if len(kept) != len(texts):
            raise EvaluatorFailed(
                f"{name} gave {len(kept)} values for {len(texts)} strips", "give one for each"
            )
        return kept


def _cut(documents: Sequence[Document], split: Callable[[str], Sequence[str]]) -> _Cut:
    pairs = [(i, s) for i, d in enumerate(documents) for s in split(d.page_content) if s.strip()]
    return _Cut([i for i, _ in pairs], [text for _, text in pairs])


def _bounded(cut: _Cut, documents: int, most: int) -> _Cut:
    """The first strips of each document, at most ``most`` in total."""
    counts = Counter(cut.documents)
    left = fair_shares([counts[i] for i in range(documents)], most)
    pairs = []
    for i, text in zip(*cut, strict=True):
        if left[i]:
            left[i] -= 1
            pairs.append((i, text))
    return _Cut([i for i, _ in pairs], [text for _, text in pairs])


def _strips(cut: _Cut, scores: Sequence[float | None]) -> list[Strip]:
    return [
        Strip(document=i, text=text, score=score, kept=True)
        for i, text, score in zip(*cut, scores, strict=True)
    ]


def _unscored(place: Place, documents: Sequence[Document]) -> list[Strip]:
    """Whole documents as strips, all kept."""
    cut = _cut(documents, lambda text: decompose(text, "passage"))
    return _announced(place, _strips(cut, [None] * len(cut.texts)))


def _announced(place: Place, strips: list[Strip]) -> list[Strip]:
    kept = sum(strip["kept"] for strip in strips)
    emit(StripsKept(event=place, strips=len(strips), kept=kept))
    return strips
