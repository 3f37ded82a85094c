"""generate: the answer from what CRAG found to be knowledge, by any LLM or chat model."""

from collections.abc import Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable

from selfcorrect_rag.events import Answered
from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.models.chat.llm_chat import LLMChat, is_llm, model_behind
from selfcorrect_rag.models.off_loop import off_loop
from selfcorrect_rag.nodes.base.asking import aask, ask
from selfcorrect_rag.nodes.base.citations import citation
from selfcorrect_rag.nodes.base.node import Node, Update, current, emit, is_long
from selfcorrect_rag.nodes.base.reply import NO_ANSWER, SILENT, reply
from selfcorrect_rag.nodes.base.tally import counted_config
from selfcorrect_rag.prompts.marks import Marked, read_marks
from selfcorrect_rag.prompts.parts import (
    Prompt,
    knowledge_prompt,
    question_text,
    segment_prompt,
)
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state.crag import CRAGState


def generate(llm: Runnable[Any, Any], settings: CRAGSettings) -> Node[CRAGState]:
    """Answer the question from the knowledge (Algorithm 1, line 14).

    A ReflectionLLM reads it as one passage, in Self-RAG's prompt, as the paper's own generator
    did; any other model reads numbered pieces and may point at them. What it points at is cited
    where the evaluator has judged it relevant. Notes say what is not, and which marks point at no
    piece.
    """
    is_numbered = not _reflects(llm)

    def run(state: CRAGState) -> Update:
        model, prompt = _asked(llm, state, current(settings))
        return _update(state, ask(model, prompt, counted_config()), is_numbered)

    async def arun(state: CRAGState) -> Update:
        chosen, long = current(settings), is_long(state)
        model, prompt = await off_loop(_asked, llm, state, chosen, long=long)
        written = await aask(model, prompt, counted_config())
        long = is_long(state, written)
        return await off_loop(_update, state, written, is_numbered, long=long)

    return Node(run, arun, settings)


def _reflects(llm: Runnable[Any, Any]) -> bool:
    return isinstance(model_behind(llm), ReflectionLLM)


def _asked(
    llm: Runnable[Any, Any], state: CRAGState, settings: CRAGSettings
) -> tuple[Runnable[Any, Any], Any]:
    """The model, and its input."""
    question = question_text(state["question"], settings.instruction)
    prompt = (reflection_prompt if _reflects(llm) else knowledge_prompt)(
        question, state["knowledge"]
    )
    return (LLMChat(llm=llm, prompt=prompt) if is_llm(llm) else llm), prompt


def reflection_prompt(question: str, knowledge: Sequence[Document]) -> Prompt:
    """Self-RAG's prompt with all knowledge as one passage, under the title of its first piece."""
    if not knowledge:
        return segment_prompt(question, [], [], "none", None)
    text = " ".join(document.page_content for document in knowledge)
    joined = Document(text, metadata={"title": knowledge[0].metadata.get("title") or ""})
    return segment_prompt(question, [], [joined], "retrieve", 0)


def _update(state: CRAGState, text: str, is_numbered: bool) -> Update:
    knowledge = state["knowledge"]
    relevant = [n for n, found in enumerate(state["judged"], start=1) if found == "relevant"]
    silent = [] if text.strip() else [SILENT]
    written = NO_ANSWER if silent else text
    marked = read_marks(written, len(knowledge) if is_numbered else 0, relevant)
    citations = [citation(n, n - 1, knowledge[n - 1], [0]) for n in marked.numbers]
    emit(Answered(event="answered", answer=marked.answer, citations=len(citations)))
    return {
        "answer": marked.answer,
        "cited_answer": marked.cited,
        "citations": citations,
        "notes": [*state["notes"], *silent, *_uncited(marked)],
        **reply(state, marked.cited),
    }


def _uncited(marked: Marked) -> list[str]:
    """What the answer points at and does not cite."""
    unknown = [f"the answer points at [{n}], which no document has" for n in marked.unknown]
    refused = [
        f"the answer points at [{n}], which was not judged relevant: it is not cited"
        for n in marked.refused
    ]
    return [*unknown, *refused]
