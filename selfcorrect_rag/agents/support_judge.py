"""Whether documents support each sentence of a text that was written elsewhere."""

from collections.abc import Sequence
from typing import TypedDict

from langchain_core.documents import Document

from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.models.from_name import Model, as_reflection_llm
from selfcorrect_rag.prompts.marks import marks_in
from selfcorrect_rag.prompts.parts import Part, Prompt, in_one_text, passage_title
from selfcorrect_rag.prompts.refusals import refuses
from selfcorrect_rag.prompts.self_rag import evidence_parts, instruction_parts
from selfcorrect_rag.prompts.sentences import sentences
from selfcorrect_rag.reflection import (
    NO_RETRIEVAL,
    NO_SUPPORT,
    RELEVANT,
    Group,
    is_readable,
    probabilities,
)
from selfcorrect_rag.state.self_rag import Segment

CONTEXT = 3
"""Sentences before the judged one that the model reads too, for pronouns."""
NO_QUESTION = "Say what the evidence says."
"""The instruction where no question is known."""


class SentenceSupport(TypedDict):
    """How far documents support a sentence."""

    text: str
    issup: str | None
    """The likeliest ISSUP token, such as ``[Fully supported]``; None where the model gave none."""
    probabilities: dict[str, float]
    """Of each ISSUP token; empty where the model was not asked or gave none."""


class SupportJudge:
    """Judges a text against documents, sentence by sentence, by ISSUP (Self-RAG, Table 1).

    A model with reflection tokens gives the token behind the sentence; any other is asked with the
    paper's prompt (table 11). All documents are read as one passage: a sentence may rest on
    several. That is one prompt for each sentence, all in one batch. The embedded reader gives no
    token, since it judges only what it has found itself.
    """

    def __init__(self, llm: ReflectionLLM | Model) -> None:
        """Judge with ``llm``: a ReflectionLLM, any LangChain LLM or chat model, or its name.

        Raises:
            BadArgument: it is something else.
        """
        self._llm = as_reflection_llm(llm)

    def judge(
        self, text: str, documents: Sequence[Document], question: str = ""
    ) -> list[SentenceSupport]:
        """The support of each sentence that claims something, in order.

        Sentences that ask or decline to answer claim nothing. Without documents no sentence is
        supported, and the model is not asked.

        Args:
            text: such as an agent's answer; its citation marks are not read.
            documents: the evidence.
            question: what the text answers, if known.

        Raises:
            ModelFailed: the model raised.
        """
        claims, prompts = _prompts(text, documents, question)
        return _read(claims, self._llm.choose(prompts, Group.ISSUP) if prompts else [])

    async def ajudge(
        self, text: str, documents: Sequence[Document], question: str = ""
    ) -> list[SentenceSupport]:
        """The async twin of :meth:`judge`."""
        claims, prompts = _prompts(text, documents, question)
        return _read(claims, await self._llm.achoose(prompts, Group.ISSUP) if prompts else [])


def _prompts(
    text: str, documents: Sequence[Document], question: str
) -> tuple[list[str], list[Prompt]]:
    """The sentences that claim something, and a prompt for each; none without evidence."""
    said = [_unmarked(sentence) for sentence in sentences(text)]
    claims = [i for i, s in enumerate(said) if s and not (refuses(s) or s.endswith("?"))]
    joined = in_one_text((passage_title(each), each.page_content) for each in documents)
    prompts = [
        Prompt(
            parts=(
                *instruction_parts(question or NO_QUESTION),
                Part(NO_RETRIEVAL, "control"),
                Part(" ".join(said[max(0, i - CONTEXT) : i]), "untrusted", shorten=1),
                *evidence_parts(Document(joined), shorten=2),
                Part(RELEVANT, "control"),
                Part(said[i], "untrusted", shorten=3),
            )
        )
        for i in claims
    ]
    return [said[i] for i in claims], prompts if joined.strip() else []


def _unmarked(sentence: str) -> str:
    """A sentence without its citation marks."""
    for mark in reversed([*marks_in(sentence, 0)]):
        sentence = sentence[: mark.start] + sentence[mark.end :]
    return " ".join(sentence.split())


def _read(claims: Sequence[str], segments: Sequence[Segment]) -> list[SentenceSupport]:
    if not segments:
        return [SentenceSupport(text=c, issup=NO_SUPPORT, probabilities={}) for c in claims]
    found = []
    for claim, segment in zip(claims, segments, strict=True):
        issup = (r for r in segment["reflections"] if r["group"] == Group.ISSUP)
        given = next(filter(is_readable, issup), None)
        shares = probabilities(given["logprobs"]) if given else {}
        token = max(shares, key=lambda t: shares[t], default=None)
        found.append(SentenceSupport(text=claim, issup=token, probabilities=shares))
    return found
