"""refine_strips, select_web_strips and recompose_knowledge: documents to strips and back."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

from langchain_core.documents import Document

from selfcorrect_rag.errors import BadArgument, EvaluatorFailed, wrap_errors
from selfcorrect_rag.models.from_name import Evaluator, as_evaluator
from selfcorrect_rag.models.retrieval_evaluator import IRRELEVANT, RELEVANT, titled
from selfcorrect_rag.nodes.grade_documents import score
from selfcorrect_rag.nodes.limits import FOR_THE_ANSWER, best_so_far, is_ended, limit_met, stopped
from selfcorrect_rag.nodes.node import Node, Run, Update
from selfcorrect_rag.nodes.rewrite_query import call_function
from selfcorrect_rag.prompts.reading import sentences
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state import Grade, Judged, Strip

StripFilter = Callable[[str, list[str]], Sequence[bool] | Awaitable[Sequence[bool]]]
"""From the question and strips, as an evaluator gets them, to whether each is kept. An async one
works in async runs only."""
Decomposition = Literal["sentences", "windows", "passage"]
Filter = StripFilter | None
SENTENCES, SHORTEST_SENTENCE = 3, 5
"""Sentences per strip: "a few" (appendix B.2). Those of up to five words join their neighbour: a
heading, an initial, "No."."""
WINDOW_WORDS, SHORTEST_TAIL = 50, 10
"""The official code's fixed windows: words per window, and fewest words of the last one."""


def refine_strips(
    evaluator: Evaluator,
    settings: CRAGSettings | None = None,
    strip_filter: Filter = None,
    rewriter_calls: int = 0,
) -> Node[Any]:
    """Decompose the retrieved documents and keep the relevant strips (section 4.4).

    The evaluator scores all strips in one batch. A ``strip_filter`` replaces scores,
    ``strip_threshold`` and ``strips``: what it keeps scores 1, what it drops -1. In Ambiguous,
    ``rewriter_calls`` are reserved for the rewriter, which runs at the same time.
    """
    return _strips_node("refine_strips", evaluator, settings, strip_filter, rewriter_calls)


def select_web_strips(
    evaluator: Evaluator, settings: CRAGSettings | None = None, strip_filter: Filter = None
) -> Node[Any]:
    """Do the same as :func:`refine_strips` with the pages of the web (section 4.5)."""
    return _strips_node("select_web_strips", evaluator, settings, strip_filter)


def _strips_node(
    name: str,
    evaluator: Evaluator,
    settings: CRAGSettings | None,
    strip_filter: Filter,
    rewriter_calls: int = 0,
) -> Node[Any]:
    judge = as_evaluator(evaluator)
    if strip_filter is not None and not callable(strip_filter):
        raise BadArgument(f"strip_filter must be a function, got {type(strip_filter).__name__}")
    source, switch, place = "passages", "refine", "strips"
    if name == "select_web_strips":
        source, switch, place = "web_results", "select", "web_strips"

    async def step(state: Mapping[str, Any], run: Run[CRAGSettings]) -> Update:
        chosen, documents, marks = run.settings, state[source], Update()
        if not getattr(chosen, switch):
            strips = _cut(documents, "passage")
        else:
            found = await run.compute(_cut, documents, chosen.decomposition, texts=documents)
            strips = _first_of_each(found, chosen.scored_strips)
            texts = [titled(documents[s["document"]], s["text"]) for s in strips]
            calls = 0 if strip_filter else judge.model_calls(texts)
            is_rewriting = chosen.rewrite and "search" in state["branches"]
            left = FOR_THE_ANSWER + (rewriter_calls if is_rewriting else 0)
            limit = limit_met(state, chosen, calls + left) if calls else None
            if limit:
                marks = stopped(run, limit, f"{source} were kept whole")
                strips = _cut(documents, "passage")
            elif len(found) > len(strips):
                which = "the first of each document (scored_strips)"
                note = f"{len(strips)} of {len(found)} strips of {source} were scored, {which}"
                marks = {"notes": [note]}
            if strip_filter and texts:
                kind, name, question = EvaluatorFailed, "the strip filter", state["question"]
                kept = await call_function(run, strip_filter, kind, name, question, texts)
                with wrap_errors(kind, name):
                    if len(kept) != len(texts):
                        problem = f"{name} gave {len(kept)} values for {len(texts)} strips"
                        raise kind(problem, "give one for each")
                    for strip, keeps in zip(strips, map(bool, kept), strict=True):
                        strip |= {"kept": keeps, "score": RELEVANT if keeps else IRRELEVANT}
            elif calls and not limit:
                scores = await score(run, judge, state["question"], texts)
                for strip, value in zip(strips, scores, strict=True):
                    strip["score"] = value
                strips = keep(strips, chosen.strip_threshold, chosen.strips)
        run.emit(place, strips=len(strips), kept=sum(strip["kept"] for strip in strips))
        return {place: strips, **marks}

    return Node(name, step, CRAGSettings.of(settings), on_fault=best_so_far)


def _cut(documents: Sequence[Document], how: Decomposition) -> list[Strip]:
    return [
        Strip(document=i, text=text, score=None, kept=True)
        for i, document in enumerate(documents)
        for text in decompose_text(document.page_content, how)
    ]


def _first_of_each(strips: Sequence[Strip], most: int) -> list[Strip]:
    """Return the first strips of each document, at most ``most`` in total.

    Documents with many strips lose theirs first; among equals the earlier one keeps more.
    """
    of_each: dict[int, list[Strip]] = {}
    for strip in strips:
        of_each.setdefault(strip["document"], []).append(strip)
    for place, document in enumerate(sorted(of_each, key=lambda d: len(of_each[d]))):
        share = -(-most // (len(of_each) - place))
        of_each[document] = of_each[document][:share]
        most -= len(of_each[document])
    return [strip for its in of_each.values() for strip in its]


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
        groups[-2:] = [groups[-2] + groups[-1]]
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
    groups: list[str] = []
    words = 0  # of the last group
    for sentence in found:
        count = len(sentence.split())
        is_opening = len(groups) == 1 and words <= SHORTEST_SENTENCE
        if groups and (count <= SHORTEST_SENTENCE or is_opening):
            groups[-1] += sentence
            words += count
        else:
            groups.append(sentence)
            words = count
    return groups


def keep(strips: Sequence[Strip], above: float, most: int) -> list[Strip]:
    """Return the strips with ``kept`` set on the best ``most`` of those that score above ``above``.

    Ties go to the earlier strip. A text that occurs twice is kept once.
    """
    scores = {i: s["score"] for i, s in enumerate(strips) if s["score"] is not None}
    kept: dict[str, int] = {}
    for i in sorted(scores, key=lambda i: -scores[i]):
        text = re.sub(r"\W+", " ", strips[i]["text"].lower()).strip()
        if len(kept) < most and scores[i] > above:
            kept.setdefault(text, i)
    return [{**strip, "kept": i in kept.values()} for i, strip in enumerate(strips)]


def recompose_knowledge(settings: CRAGSettings | None = None) -> Node[Any]:
    """Combine the results of the branches (Algorithm 1, lines 3-12).

    Internal knowledge stands first. If nothing is left, the best retrieved document is used, and a
    note says so. A piece is irrelevant, and may not be cited, if the best score of its document and
    its kept strips is below the lower threshold; it is not judged if nothing scored it.
    """

    def step(state: Mapping[str, Any], run: Run[CRAGSettings]) -> Update:
        # LangGraph also runs this deferred step for an earlier, abandoned turn of the thread.
        if not state["branches"] or is_ended(state):
            return {}
        notes = []
        if state["web_failure"]:
            notes.append(f"web search ({state['web_source']}): {state['web_failure']}")
        internal = recompose(state["strips"], state["passages"])
        external = recompose(state["web_strips"], state["web_results"])
        run.emit("knowledge", internal=len(internal), external=len(external))
        knowledge = [*internal, *external]
        lower, scores = state["thresholds"].get("lower", IRRELEVANT), strip_scores(state)
        judged: list[Judged | None] = [
            None if score is None else "relevant" if score >= lower else "irrelevant"
            for score in (*scores[0], *scores[1])
        ]
        if not knowledge and state["grades"]:
            best = max(state["grades"], key=lambda grade: grade["score"])
            knowledge, judged = [state["passages"][best["document"]]], ["irrelevant"]
            notes.append("no knowledge was left: written from the best document retrieved")
        elif not knowledge:
            notes.append("no knowledge was found: written without")
        return {"knowledge": knowledge, "judged": judged, "notes": notes}

    return Node("recompose_knowledge", step, CRAGSettings.of(settings))


def recompose(strips: Sequence[Strip], documents: Sequence[Document]) -> list[Document]:
    """Return knowledge: for each document with kept strips, these in the order of its text."""
    knowledge = []
    for index, document in enumerate(documents):
        texts = [s["text"] for s in strips if s["document"] == index and s["kept"]]
        if texts:
            metadata = dict(document.metadata)
            knowledge.append(Document(" ".join(texts), metadata=metadata, id=document.id))
    return knowledge


def strip_scores(state: Mapping[str, Any]) -> tuple[list[float | None], list[float | None]]:
    """Return the best score, in [-1, 1], of each retrieved document and of each page of the web
    with kept strips, its own or one of theirs; None if nothing scored it."""

    def best(documents: Sequence[Document], strips: Sequence[Strip], grades: list[Grade]) -> Any:
        for i in range(len(documents)):
            kept = [strip for strip in strips if strip["document"] == i and strip["kept"]]
            scores = [strip["score"] for strip in kept if strip["score"] is not None]
            scores += [grade["score"] for grade in grades if grade["document"] == i]
            if kept:
                yield max(scores, default=None)

    internal = best(state["passages"], state["strips"], state["grades"])
    return list(internal), list(best(state["web_results"], state["web_strips"], []))
