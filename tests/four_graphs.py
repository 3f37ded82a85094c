"""The four graphs by name, with parts of a test's own or with scripted models."""

from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.models import ChatEvaluator
from selfcorrect_rag.search import RetrieverWebSearch
from tests.providers import chat
from tests.scripted import FULL, RELEVANT, ScriptedLLM, document, passage_of, segment

ALL = ("self_rag", "crag", "self_crag", "instruct_rag")
PLAIN: Any = {"question": "Who wrote Emma, and when?"}
ANSWER = "Jane Austen wrote it."


def create(graph: str, llm: Any, chat: Any, retriever: Any, *corrected: Any, **options: Any) -> Any:
    """A graph with the model that it needs, one that reflects or one that chats; ``corrected`` are
    evaluator and web search, and a rewriter is CRAG's alone."""
    if graph in ("self_rag", "instruct_rag"):
        options.pop("rewriter", None)
    match graph:
        case "self_rag":
            return create_self_rag(llm, retriever, **options)
        case "crag":
            return create_crag(chat, retriever, *corrected, **options)
        case "self_crag":
            return create_self_crag(llm, retriever, *corrected, **options)
    return create_instruct_rag(chat, retriever, **options)


def gossip(query: str) -> list[Document]:
    """A retriever that asks a chat model on the way, as those that rewrite queries do."""
    chat("LEAK of the retriever").invoke(query)
    return [document("Emma"), document("Other")]


def write(prompt: str) -> Any:
    """Three segments from the passage Emma, worse ones from others."""
    done = prompt.count("<paragraph>") - 1
    text = f"Segment {done} from {passage_of(prompt)}."
    certain = RELEVANT if passage_of(prompt) == "Emma" else {"[Relevant]": 0.6, "[Irrelevant]": 0.4}
    if done == 2:
        return segment(text, certain, FULL, {"[Utility:5]": 1.0})
    return segment(text, certain, FULL, next={"[Retrieval]": 0.9})


def build(graph: str) -> Any:
    llm, writer, rewriter = ScriptedLLM(write=write), chat(ANSWER), chat("LEAK, keywords")
    evaluator = ChatEvaluator(chat("LEAK no"), passages_per_call=1)
    web = RetrieverWebSearch(gossip, "pages")
    return create(graph, llm, writer, gossip, evaluator, web, rewriter=rewriter)
