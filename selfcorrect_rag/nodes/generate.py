"""generate: the answer from CRAG's knowledge, by any LLM or chat model."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag.models.from_name import Model, as_writer
from selfcorrect_rag.models.reflection_llm import ReflectionLLM
from selfcorrect_rag.nodes.node import Node, Run, Update, ask
from selfcorrect_rag.nodes.write_answer import NO_ANSWER, RELEVANT, SILENT, answered, citation
from selfcorrect_rag.prompts.crag import knowledge_prompt
from selfcorrect_rag.prompts.parts import Prompt, in_one_text
from selfcorrect_rag.prompts.reading import is_refusal, read_marks, without_marks
from selfcorrect_rag.prompts.self_rag import question_text, segment_prompt
from selfcorrect_rag.reflection import Group, Weights, critique, segment_score, sequence_probability
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state import Citation


def generate(llm: Model, settings: CRAGSettings | None = None, *, apart: bool = True) -> Node[Any]:
    """Write an answer to the question from the knowledge (Algorithm 1, line 14), and cite it.

    A ReflectionLLM gets it as one passage, in Self-RAG's prompt, like the paper's own generator.
    One that :attr:`~selfcorrect_rag.models.ReflectionLLM.reads_apart` gets each piece by itself,
    and the answer with the best score (Eq. 3-4) is taken. Any other model gets numbered pieces.

    Marks ``[n]`` of numbered pieces are cited, or the pieces that a ReflectionLLM wrote from: those
    that the evaluator judged relevant, or without its judgement those that the model calls relevant
    (ISREL of at least 0.5). A refusal cites nothing. Without ``apart``, a model that reads apart
    gets one passage too.
    """
    model = as_writer(llm)
    is_numbered = not isinstance(model, ReflectionLLM)

    async def step(state: Mapping[str, Any], run: Run[CRAGSettings]) -> Update:
        question = question_text(state["question"], run.settings.instruction)
        knowledge, source, isrel = state["knowledge"], list[int](), None
        score: float | None
        if isinstance(model, ReflectionLLM):
            answer, source, isrel, score = await _read_by(run, model, question, knowledge, apart)
        else:
            prompt = knowledge_prompt(question, knowledge)
            answer = await ask(run, model, prompt, stream=run.settings.score_above is None)
            score = _score_unjudged(state, run.probability)
        citations, notes = list[Citation](), list[str]()
        if not answer.strip():
            answer = cited = NO_ANSWER
            notes.append(SILENT)
        elif is_numbered:
            relevant = [n for n, found in enumerate(state["judged"], 1) if found == "relevant"]
            marked = read_marks(answer, len(knowledge), relevant)
            answer, cited = marked.answer, marked.cited
            citations = [_cite(state, n - 1, answer) for n in marked.numbers]
            points = "the answer points at"
            notes = [f"{points} [{n}], which no document has" for n in marked.unknown]
            why = "which was not judged relevant: it is not cited"
            notes += [f"{points} [{n}], {why}" for n in marked.refused]
            if knowledge and not (citations or notes or is_refusal(answer)):
                notes.append(f"{points} no document: nothing is cited")
        else:
            if source and not is_refusal(answer):
                citations, notes = _cite_sources(state, answer, source, isrel)
            cited = without_marks(answer) + "".join(f" [{c['number']}]" for c in citations)
        return answered(state, run, answer, cited, citations, model, score=score, notes=notes)

    return Node("generate", step, CRAGSettings.of(settings))


async def _read_by(
    run: Run[CRAGSettings],
    llm: ReflectionLLM,
    question: str,
    knowledge: Sequence[Document],
    apart: bool,
) -> tuple[str, list[int], float | None, float]:
    """Return the best answer, or the earliest of equal ones, with its pieces, their relevance, and
    its score."""
    sources = [list(range(len(knowledge)))]
    reads_apart = llm.reads_apart and (apart or len(knowledge) < 2)
    if reads_apart and knowledge:
        sources = [[i] for i in sources[0]]
        prompts = [segment_prompt(question, [], knowledge, "retrieve", i) for (i,) in sources]
    else:
        prompts = [_as_one_passage(question, knowledge, titled=llm.reads_apart)]
    write, awrite = llm.generate_segments, llm.agenerate_segments
    segments = await run.segments(write, awrite, prompts, whole=True, critique=reads_apart)
    readings = []
    for source, segment in zip(sources, segments, strict=True):
        scores = critique(segment["reflections"])
        sequence = sequence_probability(segment["logprob"], segment["tokens"])
        score = segment_score(scores, sequence, Weights())
        readings.append((bool(segment["text"].strip()), score, segment["text"], source, scores))
    _, score, text, source, scores = max(readings, key=lambda reading: reading[:2])
    return text, source, scores.get(Group.ISREL), score


def _score_unjudged(state: Mapping[str, Any], probability: float | None) -> float | None:
    """Return the score of an answer that its model does not judge: the evaluator's best score plus
    the text's probability, as in Eq. 3; None if neither is known."""
    graded = (each["score"] for key in ("grades", "strips", "web_strips") for each in state[key])
    best = max((score for score in graded if score is not None), default=None)
    known = [term for term in (best, probability) if term is not None]
    return math.fsum(known) if known else None


def _as_one_passage(
    question: str, knowledge: Sequence[Document], *, titled: bool = False
) -> Prompt:
    """Self-RAG's prompt with all knowledge as one passage: behind the title of its first piece, or
    with ``titled`` each piece behind its own."""
    if not knowledge:
        return segment_prompt(question, [], [], "none", None)
    titles = [str(document.metadata.get("title") or "") for document in knowledge]
    texts = [document.page_content for document in knowledge]
    joined = Document(" ".join(texts), metadata={"title": titles[0]})
    if titled:
        joined = Document(in_one_text(zip(titles, texts, strict=True)))
    return segment_prompt(question, [], [joined], "retrieve", 0)


def _cite(state: Mapping[str, Any], index: int, answer: str) -> Citation:
    piece = state["knowledge"][index]
    return citation(index + 1, index, piece, [0], [answer], state["question"])


def _cite_sources(
    state: Mapping[str, Any], answer: str, read: Sequence[int], isrel: float | None
) -> tuple[list[Citation], list[str]]:
    """Cite the pieces that a ReflectionLLM wrote from, if they are relevant, and note the others.

    Of several pieces that were read as one passage, those that hold the answer word for word.
    """
    judged, is_relevant = state["judged"], isrel is not None and isrel >= RELEVANT
    if len(read) > 1 and not is_relevant:
        return [], ["the model did not call what it read relevant: nothing is cited"]
    fit = [i for i in read if judged[i] == "relevant" or (judged[i] is None and is_relevant)]
    cited = [_cite(state, i, answer) for i in fit]
    note = f"the answer is from [{read[0] + 1}], which was not judged relevant: it is not cited"
    if len(read) > 1:
        cited = [each for each in cited if each["quote"]]
        note = f"written from {len(read)} documents read as one: which of them says it is not known"
    return cited, [] if cited else [note]
