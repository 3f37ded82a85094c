"""The four graphs with scripted models, for tests of what they report."""

from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.models import ChatEvaluator
from selfcorrect_rag.search import RetrieverWebSearch
from tests.scripted import (
    FULL,
    RELEVANT,
    USEFUL,
    ScriptedReflectionLLM,
    document,
    passage_of,
    segment,
)

PLAIN: Any = {"question": "Who wrote Emma, and when?"}
ANSWER = "Jane Austen wrote it."
GOING = {"[Retrieval]": 0.9, "[No Retrieval]": 0.1}


def chat(text: str) -> FakeListChatModel:
    """A chat model that streams by the character."""
    return FakeListChatModel(responses=[text])


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
        return segment(text, certain, FULL, USEFUL)
    return segment(text, certain, FULL, next=GOING)


def build(graph: str) -> Any:
    evaluator = ChatEvaluator(chat("LEAK no"), passages_per_call=1)
    web = RetrieverWebSearch(gossip, "pages")
    rewriter = chat("LEAK, keywords")
    match graph:
        case "self_rag":
            return create_self_rag(ScriptedReflectionLLM(write=write), gossip)
        case "crag":
            return create_crag(chat(ANSWER), gossip, evaluator, web, rewriter=rewriter)
        case "self_crag":
            llm = ScriptedReflectionLLM(write=write)
            return create_self_crag(llm, gossip, evaluator, web, rewriter=rewriter)
        case _:
            return create_instruct_rag(chat(ANSWER), gossip)
