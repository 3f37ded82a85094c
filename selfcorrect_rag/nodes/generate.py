"""generate: the answer from what CRAG found to be knowledge, by any LLM or chat model."""

import re
from collections.abc import Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable

from selfcorrect_rag.crag_state import CRAGState
from selfcorrect_rag.events import Answered
from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.models.llm_chat import LLMChat, is_llm, model_behind
from selfcorrect_rag.nodes.base import Node, Update, current, emit
from selfcorrect_rag.nodes.reply import reply
from selfcorrect_rag.nodes.tally import counted_config
from selfcorrect_rag.prompts import Prompt, as_text, knowledge_prompt, question_text, segment_prompt
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state import Citation

MARK = re.compile(r"\s*\[(\d{1,3})\]")
"""How a model points at knowledge."""


def generate(llm: Runnable[Any, Any], settings: CRAGSettings) -> Node[CRAGState]:
    """Answer the question from the knowledge (Algorithm 1, line 14).

    A ReflectionLLM reads it as one passage, in Self-RAG's prompt, as the paper's own generator
    did; any other model reads numbered pieces and may point at them.
    """

    def run(state: CRAGState) -> Update:
        model, prompt = _asked(llm, state, current(settings))
        return _update(state, model.invoke(prompt, counted_config()))

    async def arun(state: CRAGState) -> Update:
        model, prompt = _asked(llm, state, current(settings))
        return _update(state, await model.ainvoke(prompt, counted_config()))

    return Node(run, arun)


def _asked(
    llm: Runnable[Any, Any], state: CRAGState, settings: CRAGSettings
) -> tuple[Runnable[Any, Any], Any]:
    """The model, and its input."""
    question = question_text(state["question"], settings.instruction)
    reflects = isinstance(model_behind(llm), ReflectionLLM)
    prompt = (reflection_prompt if reflects else knowledge_prompt)(question, state["knowledge"])
    return (LLMChat(llm=llm, prompt=prompt) if is_llm(llm) else llm), prompt


def reflection_prompt(question: str, knowledge: Sequence[Document]) -> Prompt:
    """Self-RAG's prompt with all knowledge as one passage, under the title of its first piece."""
    if not knowledge:
        return segment_prompt(question, [], [], "none", None)
    text = " ".join(document.page_content for document in knowledge)
    joined = Document(text, metadata={"title": knowledge[0].metadata.get("title") or ""})
    return segment_prompt(question, [], [joined], "retrieve", 0)


def _update(state: CRAGState, written: object) -> Update:
    text = written if isinstance(written, str) else as_text(getattr(written, "content", ""))
    cited = text.strip()
    citations = _citations(cited, state["knowledge"])
    answer = MARK.sub("", cited).strip()
    emit(Answered(event="answered", answer=answer, citations=len(citations)))
    return {
        "answer": answer,
        "cited_answer": cited,
        "citations": citations,
        **reply(state, cited),
    }


def _citations(answer: str, knowledge: Sequence[Document]) -> list[Citation]:
    """The pieces that the answer points at; all of them where it points at none."""
    marked = [int(number) for number in MARK.findall(answer)]
    numbers = [n for n in dict.fromkeys(marked) if 1 <= n <= len(knowledge)]
    return [
        Citation(
            number=number,
            passage=number - 1,
            title=str(knowledge[number - 1].metadata.get("title") or ""),
            source=str(knowledge[number - 1].metadata.get("source") or ""),
            text=knowledge[number - 1].page_content,
            segments=[0],
        )
        for number in numbers or range(1, len(knowledge) + 1)
    ]
