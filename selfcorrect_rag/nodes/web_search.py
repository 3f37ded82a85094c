"""web_search: external knowledge, where the retrieved documents do not suffice."""

from collections.abc import Callable
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import ensure_config
from langgraph._internal._constants import CONFIG_KEY_CHECKPOINTER
from langgraph.types import interrupt

from selfcorrect_rag.errors import Fault, NoCheckpointer, WebSearchFailed, one_line
from selfcorrect_rag.events import WebSearched, WebSearchFailure
from selfcorrect_rag.nodes.base.node import Node, Update, Work, call, current, emit
from selfcorrect_rag.nodes.base.own_node import check_approval
from selfcorrect_rag.nodes.base.usage import counted_part
from selfcorrect_rag.prompts.approval import REFUSED, approval_request, approved
from selfcorrect_rag.search.retriever import FunctionRetriever
from selfcorrect_rag.search.web_search import (
    NoWebSearch,
    RetrieverWebSearch,
    Web,
    WebSearch,
    as_web_search,
)
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state.crag import CRAGState
from selfcorrect_rag.state.documents import aas_documents, as_documents
from selfcorrect_rag.state.intake import admit
from selfcorrect_rag.state.sources import source_of, title_of

LONGEST = 400
"""Maximum characters of a query, as search engines take."""


def approval(settings: CRAGSettings, is_own_web: bool = False) -> Update:
    """Whether a person is asked before a search, by the settings that a turn begins with.

    Raises:
        NoCheckpointer: approval is set, but no checkpointer could keep the paused run.
        BadSettings: approval is set, but ``is_own_web``: a custom node searches.
    """
    if is_own_web:
        check_approval(settings, {})
    asks = current(settings).approve_search
    if asks:
        _check_checkpointer()
    return {"approval": "wanted" if asks else "none"}


def _check_checkpointer() -> None:
    if ensure_config().get("configurable", {}).get(CONFIG_KEY_CHECKPOINTER) is None:
        raise NoCheckpointer(
            "approve_search pauses the run for a person: create the graph with a checkpointer, or "
            "call it from an agent with a checkpointer"
        )


def web_search(
    web_search: Web, settings: CRAGSettings | None = None, *, loops: bool = False
) -> Node:
    """Search with the rewritten query (section 4.5). After a failed search the run goes on; one
    that returns anything but documents fails the run.

    With ``approval`` the run pauses before anything leaves the machine, and is resumed with a reply
    for :func:`~selfcorrect_rag.prompts.approval.approved`. ``approval`` is stored in the thread:
    the context of a resumed run cannot undo it. Where a later context sets it, as in a fork, it is
    stored first and the node runs once more, if the graph ``loops`` back to it
    (:func:`after_search`); in other graphs the node asks at once.

    Raises:
        BadArgument: ``web_search`` is not a web search.
        NoCheckpointer: at a run with approval, if no checkpointer could keep the paused run.
    """
    web, settings = as_web_search(web_search), CRAGSettings.of_step(settings)

    def run(state: CRAGState) -> Work:
        chosen = current(settings)
        if loops and chosen.approve_search and not _asks(state):
            return {"approval": "late"}
        given = one_line(state["web_query"] or state["question"])[:LONGEST].strip()
        query: str | None = given
        if _asks(state) or chosen.approve_search:
            _check_checkpointer()
            query = approved(interrupt(approval_request(given, web.name)), given)
        if query is None:
            return _failed(state, web, REFUSED, state["web_query"])
        query = one_line(query)[:LONGEST].strip()
        within = counted_part(WebSearchFailed, "the search")
        search, asearch = _searches(web, chosen.web_results)
        try:  # the timeout is for the search, not for the person's approval
            found = yield from call(
                search, asearch, query, within=within, seconds=chosen.step_timeout
            )
        except Fault as fault:
            return _failed(state, web, fault.reason, query)
        return _update(state, chosen, web, query, found)

    def failed(state: CRAGState, fault: Fault) -> Update:  # custom nodes too
        return _failed(state, web, fault.reason, state["web_query"])

    return Node("web_search", run, failed=failed)


def _searches(web: WebSearch, k: int) -> tuple[Callable[[str], Any], Callable[[str], Any]]:
    """The search for ``k`` pages, sync and async, as one run in traces."""

    def search(query: str) -> list[Document]:
        return as_documents(web.search(query, k), web.name)

    async def asearch(query: str) -> list[Document]:
        return await aas_documents(web.asearch(query, k), web.name)

    if isinstance(web, RetrieverWebSearch | NoWebSearch):  # its retriever's run, or no search
        return search, asearch
    run = FunctionRetriever(
        name=web.name,
        function=search,
        afunction=asearch,
        source="the search",
        fault=WebSearchFailed,
    )
    return run.invoke, run.ainvoke


def after_search(state: CRAGState) -> str:
    """Not approved, so back to ``web_search``, if approval was set late and is pending."""
    return "not approved" if state.get("approval") == "late" else "searched"


def _asks(state: CRAGState) -> bool:
    """Whether the turn began with approval; false if an edit of the thread began it."""
    return state.get("approval", "none") != "none"


def _update(
    state: CRAGState, settings: CRAGSettings, web: WebSearch, query: str, found: list[Document]
) -> Update:
    results, notes = admit(found[: settings.web_results], settings.document_characters, "web pages")
    if not results:
        return _failed(state, web, "the search found nothing", query)
    titles = [title_of(result) or source_of(result) for result in results]
    emit(WebSearched(event="web_searched", query=query, source=web.name, results=titles))
    return {"web_results": results, "web_notes": notes, **_done(state, web, query)}


def _failed(state: CRAGState, web: WebSearch, reason: str, query: str) -> Update:
    emit(WebSearchFailure(event="web_search_failed", query=query, source=web.name, reason=reason))
    return {"web_failure": reason, **_done(state, web, query)}


def _done(state: CRAGState, web: WebSearch, query: str) -> Update:
    approval = "wanted" if _asks(state) else "none"
    return {"web_query": query, "web_source": web.name, "approval": approval}
