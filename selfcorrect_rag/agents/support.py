"""Whether an answer is supported by evidence: by each graph's result, or as it was judged."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from selfcorrect_rag.agents.support_judge import SentenceSupport
from selfcorrect_rag.prompts.refusals import is_refusal
from selfcorrect_rag.reflection import FULLY_SUPPORTED, PARTIALLY_SUPPORTED, Group
from selfcorrect_rag.state.self_rag import Candidate

Support = Literal["fully", "partly"]
"""The degree of support that an answer needs."""

ENOUGH: Mapping[Support, frozenset[str]] = {
    "fully": frozenset({FULLY_SUPPORTED}),
    "partly": frozenset({FULLY_SUPPORTED, PARTIALLY_SUPPORTED}),
}


def missing_support(result: Mapping[str, Any], support: Support = "partly") -> str:
    """Why the answer of a graph is not supported; empty where it is.

    Args:
        result: the output of any of the graphs.
        support: the degree required.

            - Self-RAG and Self-CRAG: each segment of the answer was written from a passage and its
              ISSUP is ``[Fully supported]``, or for ``partly`` at least ``[Partially supported]``,
              by the probabilities that the model gave. It is the hard constraint of section 3.3
              over the answer as a whole; a segment without evidence or without ISSUP breaks it.
            - CRAG: a piece of knowledge, of a document or of a page, was judged relevant, and for
              ``fully`` the action was Correct.
            - InstructRAG: the rationale uses at least one document that was shown. There are no
              degrees: ``fully`` means the same.

            A refusal has no support in any of them.
    """
    if is_refusal(result["answer"]):
        return f"the answer declines to answer: {result['answer']!r}"
    if "candidates" in result:
        path = [c for c in result["candidates"] if c["chosen"]]
        return _of_segments(path, ENOUGH[support])
    if "action" in result:
        return _of_knowledge(result, support)
    return "" if result["citations"] else "the rationale uses no document"


def _of_segments(path: Sequence[Candidate], enough: frozenset[str]) -> str:
    for segment in path:
        if segment["passage"] is None:
            return f"written without evidence: {segment['text']!r}"
        judged = segment["judgements"].get(Group.ISSUP) or {}
        token = max(judged, key=lambda t: judged[t], default=None)
        if token not in enough:
            return _lacking(segment["text"], token)
    return "" if path else "nothing was written"


def unsupported(claims: Sequence[SentenceSupport], support: Support = "partly") -> str:
    """Why a text that was judged is not supported; empty where each of its claims is.

    Args:
        claims: from :class:`~selfcorrect_rag.agents.SupportJudge`.
        support: the degree required of each.
    """
    lacking = (c for c in claims if c["issup"] not in ENOUGH[support])
    return next((_lacking(c["text"], c["issup"]) for c in lacking), "")


def _lacking(text: str, token: str | None) -> str:
    return f"{token or 'support was not judged'}: {text!r}"


def _of_knowledge(result: Mapping[str, Any], support: Support) -> str:
    if "relevant" not in result["judged"]:
        return f"no knowledge was judged relevant, the action was {result['action']}"
    if support == "fully" and result["action"] != "correct":
        return f"the action was {result['action']}"
    return ""
