"""web_search: external knowledge, if the retrieved documents do not suffice."""

from collections.abc import Mapping
from typing import Any

from langchain_core.documents import Document
from langgraph.types import interrupt

from selfcorrect_rag.errors import BadSettings, Fault, WebSearchFailed, one_line, wrap_errors
from selfcorrect_rag.intake import aas_documents, as_documents, source_of, title_of
from selfcorrect_rag.nodes.node import Node, Run, Update
from selfcorrect_rag.search.web_search import Web, WebSearch, as_web_search
from selfcorrect_rag.settings import CRAGSettings

LONGEST = 400
"""Maximum characters of a query, as search engines take."""
REPLY_SCHEMA: dict[str, Any] = {
    "title": "Web search",
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "description": "Search for this query"},
        "query": {"type": "string", "description": "Search for another query instead"},
    },
    "additionalProperties": False,
}
"""JSON schema of a reply, from which Studio and other clients make a form."""
WORDS = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}
"""Texts that are an answer; any other text is another query."""


def web_search(web_search: Web, settings: CRAGSettings | None = None) -> Node[Any]:
    """Search with the rewritten query (section 4.5). After a failed search the run goes on.

    With ``approve_search`` the run pauses before anything leaves the machine, until it is resumed
    with True, False, or another query (:func:`approved`). A search that returns something other
    than documents fails the run.
    """
    web = as_web_search(web_search)

    async def step(state: Mapping[str, Any], run: Run[CRAGSettings]) -> Update:
        chosen = run.settings
        query = one_line(state["web_query"] or state["question"])[:LONGEST].strip()
        check_approval(run)
        if chosen.approve_search:
            asked = {"ask": "search the web?", "query": query, "source": web.name}
            consent = approved(interrupt(asked, response_schema=REPLY_SCHEMA), query)
            if consent is None:
                return _failed(run, web, "the search was not approved", state["web_query"])
            query = one_line(consent)[:LONGEST].strip()
        most = chosen.web_results
        try:
            with wrap_errors(WebSearchFailed, "the search"):
                found = (await run.call(_search, _asearch, web, query, most))[:most]
        except Fault as fault:
            return _failed(run, web, fault.reason, query)
        pages, notes = await run.admit(found, "web pages")
        if not pages:
            return _failed(run, web, "the search found nothing", query)
        titles = [title_of(page) or source_of(page) for page in pages]
        run.emit("web_searched", query=query, source=web.name, results=titles)
        return {"web_query": query, "web_source": web.name, "web_results": pages, "notes": notes}

    return Node("web_search", step, CRAGSettings.of(settings))


def approved(reply: object, query: str) -> str | None:
    """Return the query that a reply approves; None for a refusal.

    True, "yes" and ``{"approve": true}`` consent to ``query``; ``{"query": "..."}``, alone or with
    ``"approve": true``, and any other text is another query. Everything else is a refusal: "no", a
    number, an empty query without ``approve``, an unknown key.
    """
    if isinstance(reply, str):
        reply = WORDS.get(reply.strip().casefold(), {"query": reply})
    if reply is True:
        return query
    if not isinstance(reply, Mapping) or not reply.keys() <= {"approve", "query"}:
        return None
    edited = reply.get("query") or ""
    if not isinstance(edited, str) or reply.get("approve", True) is not True:
        return None
    return edited.strip() or (query if "approve" in reply else None)


def check_approval(run: Run[CRAGSettings]) -> None:
    """Refuse to search if no thread could keep the paused run, or if the context asks for approval
    in a turn that began without: a resumed run would not ask again."""
    thread = run.config.get("configurable", {}).get("thread_id")
    if run.settings.merged(run.context).approve_search and not run.settings.approve_search:
        raise BadSettings(
            "a turn's settings are fixed when it begins: fork it by "
            'graph.update_state(config, {"settings": {"approve_search": True}})',
            "approve_search",
        )
    if run.settings.approve_search and thread is None:
        raise BadSettings(
            "pausing for a person needs a checkpointer and a thread_id: give them to the agent "
            "that calls the graph, or to a graph called alone",
            "approve_search",
        )


def _search(web: WebSearch, query: str, k: int) -> list[Document]:
    return as_documents(web.search(query, k), web.name)


async def _asearch(web: WebSearch, query: str, k: int) -> list[Document]:
    return await aas_documents(web.asearch(query, k), web.name)


def _failed(run: Run[CRAGSettings], web: WebSearch, reason: str, query: str) -> Update:
    run.emit("web_search_failed", query=query, source=web.name, reason=reason)
    return {"web_query": query, "web_source": web.name, "web_failure": reason}
