"""generate: the answer from CRAG's knowledge, by any LLM or chat model."""

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage

from selfcorrect_rag.events import Answered
from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.models.chat_model import LLMChat, is_llm, model_behind
from selfcorrect_rag.models.from_name import Model, as_language_model
from selfcorrect_rag.nodes.base.asking import ask
from selfcorrect_rag.nodes.base.citations import RELEVANT, citation
from selfcorrect_rag.nodes.base.node import (
    Call,
    Node,
    Update,
    Work,
    call,
    callbacks,
    current,
    emit,
)
from selfcorrect_rag.nodes.base.reply import NO_ANSWER, SILENT, reply
from selfcorrect_rag.nodes.base.usage import attempted, count_batch, counted_config
from selfcorrect_rag.prompts.crag import knowledge_prompt
from selfcorrect_rag.prompts.marks import Marked, read_marks, without_marks
from selfcorrect_rag.prompts.parts import Prompt, in_one_text
from selfcorrect_rag.prompts.refusals import is_refusal
from selfcorrect_rag.prompts.self_rag import question_text, segment_prompt
from selfcorrect_rag.reflection import (
    Critique,
    Group,
    Weights,
    critique,
    segment_score,
    sequence_probability,
)
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state.crag import CRAGState


def generate(llm: Model, settings: CRAGSettings | None = None, *, apart: bool = True) -> Node:
    """Answer the question from the knowledge (Algorithm 1, line 14).

    A ReflectionLLM gets it as one passage, in Self-RAG's prompt, like the paper's own generator.
    One that :attr:`~selfcorrect_rag.models.ReflectionLLM.reads_apart` gets each piece by itself,
    and the answer with the best score (Eq. 3-4) cites its piece. Any other model gets numbered
    pieces and may cite them as ``[n]``. Of those cited, the ones that the evaluator has judged
    relevant become citations. Notes name the others, and marks without a piece.

    Args:
        llm: any LangChain LLM or chat model, or its name.
        settings: CRAG's.
        apart: whether a model that reads apart does so; without, it gets one passage too, each
            piece behind its title.
    """
    settings = CRAGSettings.of_step(settings)
    model = as_language_model(llm, "llm")
    is_numbered = not isinstance(model_behind(model), ReflectionLLM)

    def run(state: CRAGState) -> Work:
        question = question_text(state["question"], current(settings).instruction)
        prompt: Prompt | list[BaseMessage]
        if isinstance(model, ReflectionLLM) and model.reads_apart:
            if apart or len(state["knowledge"]) < 2:
                best = yield from _best_reading(model, question, state["knowledge"])
                return _cited_update(state, best, model)
            prompt = reflection_prompt(question, state["knowledge"], titled=True)
        else:
            write = knowledge_prompt if is_numbered else reflection_prompt
            prompt = write(question, state["knowledge"])
        speaker = LLMChat(llm=model, prompt=prompt) if is_llm(model) else model
        text = yield from ask(speaker, prompt, counted_config())
        return _update(state, text, is_numbered, model)

    return Node("generate", run, settings)


def reflection_prompt(
    question: str, knowledge: Sequence[Document], *, titled: bool = False
) -> Prompt:
    """Self-RAG's prompt with all knowledge as one passage: under the title of its first piece, or
    with ``titled`` each piece behind its own."""
    if not knowledge:
        return segment_prompt(question, [], [], "none", None)
    titles = [str(document.metadata.get("title") or "") for document in knowledge]
    texts = [document.page_content for document in knowledge]
    if titled:
        joined = Document(in_one_text(zip(titles, texts, strict=True)))
    else:
        joined = Document(" ".join(texts), metadata={"title": titles[0]})
    return segment_prompt(question, [], [joined], "retrieve", 0)


class _Reading(NamedTuple):
    """An answer from one piece of the knowledge."""

    text: str
    piece: int | None
    """Index of the piece; None where there is no knowledge."""
    critique: Critique
    score: float


def _best_reading(
    llm: ReflectionLLM, question: str, knowledge: Sequence[Document]
) -> Generator[Call, Any, _Reading]:
    """The best of the answers from each piece, all of one batch; the earliest of equal ones."""
    pieces: list[int | None] = [*range(len(knowledge))] or [None]
    segments = yield from call(
        llm.generate_segments,
        llm.agenerate_segments,
        [
            segment_prompt(question, [], knowledge, "none" if i is None else "retrieve", i)
            for i in pieces
        ],
        whole=True,
        callbacks=callbacks(),
        within=attempted(),
    )
    count_batch(segments)
    readings = []
    for piece, segment in zip(pieces, segments, strict=True):
        scores = critique(segment["reflections"], llm.groups)
        sequence = sequence_probability(segment["logprob"], segment["tokens"])
        score = segment_score(scores, sequence, Weights())
        readings.append(_Reading(segment["text"], piece, scores, score))
    return max(readings, key=lambda reading: (bool(reading.text.strip()), reading.score))


def _cited_update(state: CRAGState, best: _Reading, llm: object) -> Update:
    """The update with an answer that cites the piece it is from, unless it declines, or the piece
    was not judged relevant: by the evaluator, or by the model where the evaluator is silent."""
    text, notes, citations = best.text, list(state["notes"]), []
    if not text.strip():
        text = NO_ANSWER
        notes.append(SILENT)
    elif best.piece is not None and not is_refusal(text):
        judged, isrel = state["judged"][best.piece], best.critique.get(Group.ISREL)
        number = best.piece + 1
        if judged == "relevant" or (judged is None and isrel is not None and isrel >= RELEVANT):
            piece = state["knowledge"][best.piece]
            citations = [citation(number, best.piece, piece, [0], [text], state["question"])]
        else:
            notes.append(
                f"the answer is from [{number}], which was not judged relevant: it is not cited"
            )
    cited = without_marks(text) + "".join(f" [{c['number']}]" for c in citations)
    emit(Answered(event="answered", answer=text, citations=len(citations)))
    return {
        "answer": text,
        "cited_answer": cited,
        "citations": citations,
        "notes": notes,
        **reply(state, cited, citations, llm),
    }


def _update(state: CRAGState, text: str, is_numbered: bool, llm: object) -> Update:
    knowledge = state["knowledge"]
    relevant = [n for n, found in enumerate(state["judged"], start=1) if found == "relevant"]
    silent = [] if text.strip() else [SILENT]
    written = NO_ANSWER if silent else text
    marked = read_marks(written, len(knowledge) if is_numbered else 0, relevant)
    citations = [
        citation(n, n - 1, knowledge[n - 1], [0], [marked.answer], state["question"])
        for n in marked.numbers
    ]
    emit(Answered(event="answered", answer=marked.answer, citations=len(citations)))
    return {
        "answer": marked.answer,
        "cited_answer": marked.cited,
        "citations": citations,
        "notes": [*state["notes"], *silent, *_uncited(marked)],
        **reply(state, marked.cited, citations, llm),
    }


def _uncited(marked: Marked) -> list[str]:
    """Notes on marks of the answer that became no citation."""
    unknown = [f"the answer points at [{n}], which no document has" for n in marked.unknown]
    refused = [
        f"the answer points at [{n}], which was not judged relevant: it is not cited"
        for n in marked.refused
    ]
    return [*unknown, *refused]
