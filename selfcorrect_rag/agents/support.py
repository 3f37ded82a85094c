"""Whether evidence supports an answer: by a graph's result, or judged sentence by sentence."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypedDict

from langchain_core.documents import Document

from selfcorrect_rag.models.from_name import Model, as_reflection_llm
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.prompts.parts import Part, Prompt, in_one_text, passage_title
from selfcorrect_rag.prompts.reading import is_refusal, marks_in, sentence_spans
from selfcorrect_rag.prompts.self_rag import evidence_parts, instruction_parts
from selfcorrect_rag.reflection import (
    FULLY_SUPPORTED,
    NO_RETRIEVAL,
    NO_SUPPORT,
    PARTIALLY_SUPPORTED,
    RELEVANT,
    Group,
    is_readable,
    probabilities,
)
from selfcorrect_rag.state import Candidate, Segment

Support = Literal["fully", "partly"]
"""The degree of support that an answer needs."""
ENOUGH: Mapping[Support, frozenset[str]] = {
    "fully": frozenset({FULLY_SUPPORTED}),
    "partly": frozenset({FULLY_SUPPORTED, PARTIALLY_SUPPORTED}),
}
SENTENCES_BEFORE = 3
"""Sentences before the judged one that the model reads too, for pronouns."""
NO_QUESTION = "Say what the evidence says."
"""The instruction if no question is known."""


def missing_support(result: Mapping[str, Any], support: Support = "partly") -> str:
    """Return why a graph's answer is not supported; empty if it is.

    Self-RAG and Self-CRAG: each segment has a passage, and its ISSUP is at least ``support``. CRAG:
    some knowledge was judged relevant, and for ``fully`` the action was Correct. InstructRAG: the
    rationale names a document, for either degree. A refusal has no support.
    """
    if is_refusal(result["answer"]):
        return f"the answer declines to answer: {result['answer']!r}"
    if "candidates" in result:
        path = [c for c in result["candidates"] if c["chosen"]]
        reasons = (_reason(segment, support) for segment in path)
        return next(filter(None, reasons), "") if path else "nothing was written"
    if "action" not in result:
        return "" if result["citations"] else "the rationale uses no document"
    if "relevant" not in result["judged"]:
        return f"no knowledge was judged relevant, the action was {result['action']}"
    enough = support == "partly" or result["action"] == "correct"
    return "" if enough else f"the action was {result['action']}"


def _reason(segment: Candidate, support: Support) -> str:
    if segment["passage"] is None:
        return f"written without evidence: {segment['text']!r}"
    judged = segment["judgements"].get(Group.ISSUP) or {}
    return _lacking(segment["text"], max(judged, key=lambda t: judged[t], default=None), support)


def _lacking(text: str, token: str | None, support: Support) -> str:
    return "" if token in ENOUGH[support] else f"{token or 'support was not judged'}: {text!r}"


class SentenceSupport(TypedDict):
    """How far documents support a sentence."""

    text: str
    start: int
    """Its first character in the judged text."""
    end: int
    issup: str | None
    """The likeliest ISSUP token, such as ``[Fully supported]``; None if the model gave none."""
    probabilities: dict[str, float]
    """Probability of each ISSUP token; empty if the model was not asked or gave none."""


def unsupported(claims: Sequence[SentenceSupport], support: Support = "partly") -> str:
    """Return why a judged text is not supported; empty if each of its claims is."""
    return next(filter(None, (_lacking(c["text"], c["issup"], support) for c in claims)), "")


class SupportJudge:
    """Judges a text against documents, sentence by sentence, by ISSUP (Self-RAG, Table 1).

    A model with reflection tokens gives the token after the sentence; any other is asked with the
    paper's prompt (Table 11). All documents are read as one passage, all sentences in one batch.
    """

    def __init__(self, llm: ReflectionLLM | Model) -> None:
        """Judge with a ReflectionLLM, any LangChain LLM or chat model, or its name."""
        self.llm = as_reflection_llm(llm)

    def judge(
        self, text: str, documents: Sequence[Document], question: str = ""
    ) -> list[SentenceSupport]:
        """Return the support of each sentence of ``text`` that claims something, in order.

        Questions and refusals claim nothing, and citation marks are not read. Without documents no
        sentence is supported, and the model is not asked.
        """
        claims, prompts = support_prompts(text, documents, question)
        return read_support(claims, self.llm.choose(prompts, Group.ISSUP) if prompts else [])

    async def ajudge(
        self, text: str, documents: Sequence[Document], question: str = ""
    ) -> list[SentenceSupport]:
        """The async twin of :meth:`judge`."""
        claims, prompts = support_prompts(text, documents, question)
        return read_support(claims, await self.llm.achoose(prompts, Group.ISSUP) if prompts else [])


class Sentence(NamedTuple):
    """A sentence that claims something, which may have citation marks in ``[start, end)``."""

    text: str
    """Without the marks."""
    start: int
    end: int
    before: str
    """The sentences before it, without marks."""


def claims_in(text: str) -> list[Sentence]:
    """Return the sentences of ``text`` that claim something: not questions and refusals."""
    places = list(sentence_spans(text))
    said = [remove_marks(text[start:end]) for start, end in places]
    return [
        Sentence(said[i], start, end, " ".join(said[max(0, i - SENTENCES_BEFORE) : i]))
        for i, (start, end) in enumerate(places)
        if said[i] and not (is_refusal(said[i]) or said[i].endswith("?"))
    ]


def support_prompts(
    text: str, documents: Sequence[Document], question: str
) -> tuple[list[Sentence], list[Prompt]]:
    """Return the sentences that claim something, and a prompt for each; none without evidence."""
    claims = claims_in(text)
    joined = in_one_text((passage_title(each), each.page_content) for each in documents)
    prompts = [
        Prompt(
            parts=(
                *instruction_parts(question or NO_QUESTION),
                Part(NO_RETRIEVAL, "control"),
                Part(claim.before, "untrusted", shorten=1),
                *evidence_parts(Document(joined), shorten=2),
                Part(RELEVANT, "control"),
                Part(claim.text, "untrusted", shorten=3),
            )
        )
        for claim in claims
    ]
    return claims, prompts if joined.strip() else []


def remove_marks(sentence: str) -> str:
    """Return a sentence on one line, without its citation marks."""
    for mark in reversed([*marks_in(sentence, 0)]):
        sentence = sentence[: mark.start] + sentence[mark.end :]
    return " ".join(sentence.split())


def read_support(claims: Sequence[Sentence], segments: Sequence[Segment]) -> list[SentenceSupport]:
    """Return the support that segments give the claims; none was asked for without evidence."""
    if not segments:
        return [_support(claim, NO_SUPPORT, {}) for claim in claims]
    found = []
    for claim, segment in zip(claims, segments, strict=True):
        issup = (r for r in segment["reflections"] if r["group"] == Group.ISSUP)
        given = next(filter(is_readable, issup), None)
        shares = probabilities(given["logprobs"]) if given else {}
        found.append(_support(claim, max(shares, key=lambda t: shares[t], default=None), shares))
    return found


def _support(claim: Sentence, issup: str | None, shares: dict[str, float]) -> SentenceSupport:
    return SentenceSupport(
        text=claim.text, start=claim.start, end=claim.end, issup=issup, probabilities=shares
    )
