"""refine_strips and select_web_strips: keep the relevant strips of documents and of web pages."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal, Protocol

from langchain_core.documents import Document

from selfcorrect_rag.errors import BadArgument, EvaluatorFailed, wrap_errors
from selfcorrect_rag.events import StripsKept
from selfcorrect_rag.models.from_name import Evaluator, as_evaluator
from selfcorrect_rag.models.retrieval_evaluator import IRRELEVANT, RELEVANT, titled
from selfcorrect_rag.nodes.grade_documents import score
from selfcorrect_rag.nodes.limits import FOR_THE_ANSWER, best_so_far, limit_met, stopped
from selfcorrect_rag.nodes.node import Node, Run, Update
from selfcorrect_rag.nodes.rewrite_query import call_function
from selfcorrect_rag.prompts.sentences import sentences
from selfcorrect_rag.search.retriever import takes_one
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state import Strip

Decomposition = Literal["sentences", "windows", "passage"]
SENTENCES = 3
"""Sentences per strip: "a few" (appendix B.2)."""
WINDOW_WORDS, SHORTEST_TAIL = 50, 10
"""The official code's fixed windows: words per window, and fewest words of the last one."""
SHORTEST_SENTENCE = 5
"""Sentences of up to this many words join their neighbour: a heading, an initial, "No."."""


def decompose_text(text: str, how: Decomposition = "sentences") -> list[str]:
    """Return the strips of a document, in its order.

    ``sentences``: groups of three (the last may have two to four); a text of one or two sentences
    is one strip. A paragraph ends with a sentence, and keeps its line. ``windows``: fifty words
    each. ``passage``: the whole.
    """
    words = text.split()
    if not words:
        return []
    if how == "passage":
        return [" ".join(words)]
    if how == "windows":
        starts = list(range(0, len(words), WINDOW_WORDS))
        if len(starts) > 1 and len(words) - starts[-1] < SHORTEST_TAIL:
            starts.pop()
        return [" ".join(words[start:end]) for start, end in pairwise([*starts, len(words)])]
    found = _join_short(_sentences(text))
    groups = [found[i : i + SENTENCES] for i in range(0, len(found), SENTENCES)]
    if len(groups) > 1 and len(groups[-1]) == 1:
        last = groups.pop()
        groups[-1] += last
    return ["".join(group).strip() for group in groups]


def _sentences(text: str) -> Iterator[str]:
    """Yield sentences, each with the space behind it: a line break at the end of a paragraph."""
    for paragraph in text.split("\n\n"):
        *some, last = ["", *sentences(" ".join(paragraph.split()))]
        yield from (f"{sentence} " for sentence in some if sentence)
        if last:
            yield f"{last}\n"


def _join_short(found: Iterator[str]) -> list[str]:
    """Join very short sentences to the previous one, at the beginning to the next one."""
    groups: list[list[str]] = []
    words = 0  # of the last group
    for sentence in found:
        count = len(sentence.split())
        is_opening = len(groups) == 1 and words <= SHORTEST_SENTENCE
        if groups and (count <= SHORTEST_SENTENCE or is_opening):
            groups[-1].append(sentence)
            words += count
        else:
            groups.append([sentence])
            words = count
    return ["".join(group) for group in groups]


def keep(strips: Sequence[Strip], above: float, most: int) -> list[Strip]:
    """Return the strips with ``kept`` set on the best ``most`` of those that score above ``above``.

    Ties go to the earlier strip. A text that occurs twice is kept once.
    """
    scores = {i: s["score"] for i, s in enumerate(strips) if s["score"] is not None}
    kept: set[int] = set()
    texts: set[str] = set()
    for i in sorted(scores, key=lambda i: (-scores[i], i)):
        text = re.sub(r"\W+", " ", strips[i]["text"].lower()).strip()
        if len(kept) < most and scores[i] > above and text not in texts:
            kept.add(i)
            texts.add(text)
    return [{**strip, "kept": i in kept} for i, strip in enumerate(strips)]


def fair_shares(counts: Sequence[int], most: int) -> list[int]:
    """Return how many strips of each document are scored, at most ``most`` in total.

    Documents with many strips lose theirs first; among equals the earlier one keeps more.
    """
    shares, fewest_first = [0] * len(counts), sorted(range(len(counts)), key=counts.__getitem__)
    for place, i in enumerate(fewest_first):
        shares[i] = min(counts[i], -(-most // (len(counts) - place)))
        most -= shares[i]
    return shares


def recompose(strips: Sequence[Strip], documents: Sequence[Document]) -> list[Document]:
    """Return knowledge: for each document with kept strips, these in the order of its text."""
    knowledge = []
    for index, document in enumerate(documents):
        texts = [s["text"] for s in strips if s["document"] == index and s["kept"]]
        if texts:
            metadata = dict(document.metadata)
            knowledge.append(Document(" ".join(texts), metadata=metadata, id=document.id))
    return knowledge


StripFilter = Callable[[str, list[str]], Sequence[bool] | Awaitable[Sequence[bool]]]
"""From the question and strips, as an evaluator gets them, to whether each is kept. An async one
works in async runs only."""


class TextSplitter(Protocol):
    """The interface of LangChain's text splitters."""

    def split_text(self, text: str) -> list[str]:
        """Return the parts of a text, in order."""


Decompose = Callable[[str], Sequence[str]] | TextSplitter
"""From the text of a document to its strips, in the order of the text."""


def refine_strips(
    evaluator: Evaluator,
    settings: CRAGSettings | None = None,
    *,
    decompose: Decompose | None = None,
    strip_filter: StripFilter | None = None,
) -> Node[Any]:
    """Decompose the retrieved documents and keep the relevant strips (section 4.4).

    Args:
        evaluator: scores strips, all in one batch; unused if there is a ``strip_filter``.
        settings: the factory's.
        decompose: a custom splitter, instead of the setting ``decomposition``.
        strip_filter: a custom filter, instead of scores, ``strip_threshold`` and ``strips``. A
            strip that it keeps scores 1, one that it drops -1.

    Raises:
        BadArgument: an argument is of the wrong kind.
    """
    return _strips_node(evaluator, settings, decompose, strip_filter, pages=False)


def select_web_strips(
    evaluator: Evaluator,
    settings: CRAGSettings | None = None,
    *,
    decompose: Decompose | None = None,
    strip_filter: StripFilter | None = None,
) -> Node[Any]:
    """Do the same as :func:`refine_strips` with the pages of the web (section 4.5)."""
    return _strips_node(evaluator, settings, decompose, strip_filter, pages=True)


def _strips_node(
    evaluator: Evaluator,
    settings: CRAGSettings | None,
    decompose: Decompose | None,
    strip_filter: StripFilter | None,
    *,
    pages: bool,
) -> Node[Any]:
    judge = as_evaluator(evaluator)
    split: Any = getattr(decompose, "split_text", decompose)
    if split is not None and not takes_one(split):
        raise BadArgument(
            "decompose must be a function from a text to its strips, or a LangChain text "
            f"splitter, got {type(decompose).__name__}"
        )
    if strip_filter is not None and not callable(strip_filter):
        raise BadArgument(
            "strip_filter must be a function from a question and strips to a truth value for each,"
            f" got {type(strip_filter).__name__}"
        )
    source, switch = ("web_results", "select") if pages else ("passages", "refine")
    place: Literal["strips", "web_strips"] = "web_strips" if pages else "strips"

    async def step(state: Mapping[str, Any], run: Run[CRAGSettings]) -> Update:
        chosen, documents = run.settings, state[source]

        def update(strips: list[Strip], **more: Any) -> Update:
            kept = sum(strip["kept"] for strip in strips)
            run.emit(StripsKept(event=place, strips=len(strips), kept=kept))
            return {place: strips, **more}

        if not getattr(chosen, switch):
            return update(whole_documents(documents))
        if split is not None:
            cut = partial(_cut, documents, split)
            found = await call_function(run, cut, EvaluatorFailed, "decompose")
        else:
            size = sum(len(document.page_content) for document in documents)
            found = await run.compute(
                _cut,
                documents,
                lambda text: decompose_text(text, chosen.decomposition),
                characters=size,
            )
        strips = _first_of_each(found, len(documents), chosen.scored_strips)
        texts = [titled(documents[s["document"]], s["text"]) for s in strips]
        calls = 0 if strip_filter else judge.model_calls(texts)
        if calls and (limit := limit_met(state, chosen, calls + FOR_THE_ANSWER)):
            marks = stopped(run, limit, f"{source} were kept whole")
            return update(whole_documents(documents), **marks)
        notes = []
        if len(found) > len(strips):
            notes.append(
                f"{len(strips)} of {len(found)} strips of {source} were scored, the first of each "
                "document (scored_strips)"
            )
        if strip_filter and texts:
            kept = await _filtered(run, strip_filter, state["question"], texts)
            strips = [
                Strip(**{**strip, "kept": keeps, "score": RELEVANT if keeps else IRRELEVANT})
                for strip, keeps in zip(strips, kept, strict=True)
            ]
        elif calls:
            scores = await score(run, judge, state["question"], texts)
            scored: list[Strip] = [
                {**strip, "score": score} for strip, score in zip(strips, scores, strict=True)
            ]
            strips = keep(scored, chosen.strip_threshold, chosen.strips)
        return update(strips, notes=notes)

    name = "select_web_strips" if pages else "refine_strips"
    return Node(name, step, CRAGSettings.of(settings), on_fault=best_so_far)


def whole_documents(documents: Sequence[Document]) -> list[Strip]:
    """Return whole documents as strips, all kept and none scored."""
    return _cut(documents, lambda text: decompose_text(text, "passage"))


def _cut(documents: Sequence[Document], split: Callable[[str], Sequence[str]]) -> list[Strip]:
    return [
        Strip(document=i, text=text, score=None, kept=True)
        for i, document in enumerate(documents)
        for text in split(document.page_content)
        if text.strip()
    ]


def _first_of_each(strips: Sequence[Strip], documents: int, most: int) -> list[Strip]:
    """Return the first strips of each document, at most ``most`` in total."""
    of_each: list[list[Strip]] = [[] for _ in range(documents)]
    for strip in strips:
        of_each[strip["document"]].append(strip)
    shares = fair_shares([len(each) for each in of_each], most)
    return [s for each, share in zip(of_each, shares, strict=True) for s in each[:share]]


async def _filtered(
    run: Run[Any], strip_filter: StripFilter, question: str, texts: list[str]
) -> list[bool]:
    """Return whether each strip is kept, as the filter says."""
    name = "the strip filter"
    given = await call_function(run, strip_filter, EvaluatorFailed, name, question, texts)
    with wrap_errors(EvaluatorFailed, name):
        kept = [bool(keeps) for keeps in given]
    if len(kept) != len(texts):
        raise EvaluatorFailed(
            f"{name} gave {len(kept)} values for {len(texts)} strips", "give one for each"
        )
    return kept
