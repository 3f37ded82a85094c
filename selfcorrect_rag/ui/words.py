"""What a run is doing, in words: its steps as they begin, and its events."""

from collections.abc import Mapping
from typing import Any

from selfcorrect_rag.render.markup import Html, element, excerpt, joined
from selfcorrect_rag.render.reading import counted
from selfcorrect_rag.render.reasons import written
from selfcorrect_rag.render.route import in_words

DOING = {
    "read_question": "Reading the question",
    "rewrite_follow_up": "Relating the question to those before",
    "decide_retrieval": "Deciding whether to retrieve",
    "retrieve": "Retrieving",
    "grade_documents": "Grading the documents",
    "rewrite_query": "Writing a search query",
    "web_search": "Searching the web",
    "refine_strips": "Keeping the best strips of the documents",
    "select_web_strips": "Keeping the best strips of the pages",
    "recompose_knowledge": "Putting the knowledge together",
    "judge_sufficiency": "Judging whether that is enough",
    "read_knowledge": "Reading the knowledge",
    "generate": "Writing the answer",
    "generate_and_critique": "Writing and criticising candidates",
    "beam_select": "Choosing the best",
    "write_answer": "Putting the answer together",
    "choose_demonstrations": "Choosing demonstrations",
    "write_rationale": "Writing a rationale",
    "read_rationale": "Reading the answer off the rationale",
}
"""Each step while it goes on."""


def doing(step: str) -> str:
    """A step while it goes on; one of one's own by its name."""
    return DOING.get(step) or in_words(step)


def said(event: Mapping[str, Any]) -> Html | None:
    """An event on a line; None for those that the page shows otherwise."""
    of = event.get
    match of("event"):
        case "follow_up_rewritten":
            return _line("Asked as: ", of("question"))
        case "retrieval_decided":
            verb = "It wants evidence" if of("retrieve") else "It wants no evidence"
            if of("probability") is None:
                return _line(f"{verb} (mode {excerpt(of('mode'), 20)})")
            return _line(f"{verb}: P(retrieve) {written(of('probability'), 3)}")
        case "retrieved":
            titles = [excerpt(title, 60) for title in of("passages", [])[:3]]
            more = " \u2026" if len(of("passages", [])) > 3 else ""
            found = counted(len(of("passages", [])), "passage")
            return _line(f"{found}: ", ", ".join(titles) + more) if titles else _line("Nothing")
        case "retrieval_failed" | "web_search_failed":
            return _line("Failed: ", of("reason"))
        case "candidate_scored":
            passage = of("passage")
            source = "without a passage" if passage is None else f"from {passage + 1}"
            return _line(f"{written(of('score'))} {source}: ", of("text") or "no text")
        case "segment_chosen":
            return _line(f"Best so far, {written(of('score'))}: ", of("answer"))
        case "graded":
            best = max((grade["score"] for grade in of("grades", [])), default=None)
            name = str(of("action")).capitalize()
            return joined(
                [
                    element("strong", name, class_=f"action {of('action')}"),
                    f", best score {written(best)} (Correct above {of('upper'):.3g}, Incorrect "
                    f"below {of('lower'):.3g})",
                ]
            )
        case "strips" | "web_strips":
            return _line(f"Kept {of('kept')} of {counted(of('strips', 0), 'strip')}")
        case "query_rewritten":
            return _line("Query: ", of("query"))
        case "web_searched":
            return _line(f"{counted(len(of('results', [])), 'page')} from ", of("source"))
        case "knowledge":
            return _line(f"{of('internal')} from the index, {of('external')} from the web")
        case "demonstrations_chosen":
            return _line(counted(len(of("questions", [])), "demonstration"))
        case "dropped":
            return _line(f"Dropped {of('number')} {of('what')}: more than the context holds")
        case "rationale_written":
            return _line("", of("text"))
        case "cached":
            return _line("From the cache")
        case "stopped":
            return _line("Cut short: ", of("note"))
    return None


def _line(words: str, text: object = "") -> Html:
    return joined([words, element("bdi", excerpt(text, 200)) if text else None])
