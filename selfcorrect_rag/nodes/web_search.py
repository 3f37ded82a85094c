"""web_search: complementary knowledge from outside, where what was retrieved does not do."""

from typing import Any

from langchain_core.documents import Document
from langgraph.errors import GraphBubbleUp
from langgraph.types import interrupt

from selfcorrect_rag.crag_state import CRAGState
from selfcorrect_rag.events import WebSearched, WebSearchFailed
from selfcorrect_rag.nodes.base import Node, Update, current, emit
from selfcorrect_rag.search.web_search import WebSearch
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.sources import source_of, title_of

REFUSED = "the search was not approved"


def web_search(web: WebSearch, settings: CRAGSettings) -> Node[CRAGState]:
    """Search with the rewritten query (section 4.5). A search that fails loses nothing else.

    With ``approve_search`` the run pauses before anything leaves the machine. Resume with true or
    "yes", with false or "no", or with another query.
    """

    def run(state: CRAGState) -> Update:
        chosen = current(settings)
        query = _approved(state, web, chosen)
        if query is None:
            return _failed(web, REFUSED, state["web_query"])
        try:
            return _update(web, query, web.search(query, chosen.web_results))
        except Exception as error:
            return _raised(web, error, query)

    async def arun(state: CRAGState) -> Update:
        chosen = current(settings)
        query = _approved(state, web, chosen)
        if query is None:
            return _failed(web, REFUSED, state["web_query"])
        try:
            return _update(web, query, await web.asearch(query, chosen.web_results))
        except Exception as error:
            return _raised(web, error, query)

    return Node(run, arun)


def _approved(state: CRAGState, web: WebSearch, settings: CRAGSettings) -> str | None:
    """The query to search for; None where a person said no."""
    if not settings.approve_search:
        return state["web_query"]
    answer: Any = interrupt(
        {"ask": "search the web?", "query": state["web_query"], "source": web.name}
    )
    said = answer.strip() if isinstance(answer, str) else answer
    if said is True or (isinstance(said, str) and said.lower() in ("yes", "y", "true", "ok")):
        return state["web_query"]
    if isinstance(said, str) and said and said.lower() not in ("no", "n", "false"):
        return said
    return None


def _update(web: WebSearch, query: str, results: list[Document]) -> Update:
    if not results:
        return _failed(web, "the search found nothing", query)
    titles = [title_of(result) or source_of(result) for result in results]
    emit(WebSearched(event="web_searched", query=query, source=web.name, results=titles))
    return {"web_query": query, "web_source": web.name, "web_results": results}


def _failed(web: WebSearch, reason: str, query: str) -> Update:
    emit(WebSearchFailed(event="web_search_failed", query=query, source=web.name, reason=reason))
    return {"web_query": query, "web_source": web.name, "web_failure": reason}


def _raised(web: WebSearch, error: Exception, query: str) -> Update:
    if isinstance(error, GraphBubbleUp):
        raise error
    return _failed(web, f"{type(error).__name__}: {error}", query)
