"""Search-R1 (arXiv 2503.09516): a model that was trained to search, as a bounded graph.

read_question -> reason; as long as the model asks: search -> reason.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from langchain_core.documents import BaseDocumentCompressor
from langchain_core.language_models import BaseLanguageModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import Runnable
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import RetryPolicy

from selfcorrect_rag.errors import Fault, ModelFailed, wrap_errors
from selfcorrect_rag.intake import name_of
from selfcorrect_rag.models.chat_model import LONGEST_ANSWER, is_llm, model_behind, split_reasoning
from selfcorrect_rag.models.from_name import Model, as_language_model
from selfcorrect_rag.nodes import node as nodes
from selfcorrect_rag.nodes.limits import FOR_THE_ANSWER, limit_met, stopped
from selfcorrect_rag.nodes.node import Node, Run, Update, add_node
from selfcorrect_rag.nodes.read_question import read_question, rewrite_follow_up
from selfcorrect_rag.nodes.retrieve import finder, merge
from selfcorrect_rag.nodes.write_answer import NO_ANSWER, SILENT, answered, citation
from selfcorrect_rag.prompts import search_r1 as prompts
from selfcorrect_rag.prompts.parts import as_text
from selfcorrect_rag.prompts.reading import is_refusal, sentence_stating, without_marks
from selfcorrect_rag.search.retriever import Retriever
from selfcorrect_rag.settings import Settings, knob
from selfcorrect_rag.state import Citation, Input, Output, Stop, TurnState

Template = Callable[[str], str] | None
"""Puts a prompt into a model's chat template, with the opening of its reply; None for none."""


class SearchR1Settings(Settings):
    """Search-R1's settings; defaults are those of its training."""

    graph = "Search-R1"

    max_searches: int = knob(4, "reason", ge=0, le=50)
    """Maximum turns before the last one: searches, and turns without a valid action."""
    passages: int = knob(3, "search", ge=1, le=100)
    """Passages shown for a search."""
    passage_characters: int = knob(1_000, "search", ge=100, le=20_000)
    """Maximum characters shown of a passage (training: 500 tokens for the three)."""


class SearchR1Output(Output, total=False):
    """The answer, and what led to it."""

    queries: list[str]
    """The model's searches in order."""
    trajectory: list[str]
    """In turn what the model wrote, thoughts and tags included, and what it was given."""


class SearchR1State(TurnState, SearchR1Output, total=False):
    next_query: str
    """The search that the model asks for; empty if it asks for none."""


SearchR1 = CompiledStateGraph[SearchR1State, Any, Input, SearchR1Output]


def create_search_r1(
    llm: Model,
    retriever: Retriever | None,
    chat_template: Template = None,
    **options: Unpack[nodes.GraphOptions],
) -> SearchR1:
    """Build the Search-R1 graph.

    Args:
        llm: the trained model as an LLM, which continues plain text; or a chat model, which gets
            what it is given as messages. It sets its own limit of tokens (training: 500 a turn).
        retriever: as for :func:`~selfcorrect_rag.crag.create_crag`.
        chat_template: puts the first prompt of an LLM into the model's chat template, with the
            opening of the reply; None for a model without a template. Chat models bring their own.
        options: :class:`~selfcorrect_rag.nodes.node.GraphOptions`, by name.
    """
    building, compiling = nodes.split_options({"name": "search_r1", **options})
    return search_r1_builder(llm, retriever, chat_template, **building).compile(**compiling)


def search_r1_builder(
    llm: Model,
    retriever: Retriever | None,
    chat_template: Template = None,
    *,
    reranker: BaseDocumentCompressor | None = None,
    follow_up: Model | None = None,
    settings: SearchR1Settings | Mapping[str, Any] | None = None,
    retry_policy: RetryPolicy | None = None,
    cached: bool = False,
) -> StateGraph[SearchR1State, SearchR1Settings, Input, SearchR1Output]:
    """Return the graph of :func:`create_search_r1` before it is compiled; nothing is ``cached``."""
    chosen, first = SearchR1Settings.of(settings), "read_question"
    graph = StateGraph(
        SearchR1State, SearchR1Settings, input_schema=Input, output_schema=SearchR1Output
    )
    add_node(graph, read_question(chosen, lambda _: {"queries": [], "trajectory": []}))
    graph.add_edge(START, first)
    if follow_up is not None:
        first = "rewrite_follow_up"
        add_node(graph, rewrite_follow_up(follow_up), retry_policy)
        graph.add_edge("read_question", first)
    add_node(graph, reason(as_language_model(llm, "llm"), chat_template, chosen), retry_policy)
    graph.add_edge(first, "reason")
    graph.add_conditional_edges(
        "reason",
        lambda state: "query" if state["next_query"] else "answer" if state["answer"] else "again",
        {"query": "search", "answer": END, "again": "reason"},
    )
    add_node(graph, search(retriever, chosen, reranker), retry_policy)
    graph.add_edge("search", "reason")
    return graph


def reason(
    model: Runnable[Any, Any], chat_template: Template, settings: SearchR1Settings
) -> Node[SearchR1Settings]:
    """Let the model write one turn: thoughts, then a search or the answer.

    A last turn, after which only an answer is read, begins when the model asks for a search more
    than ``max_searches``, or a limit of costs leaves one call.
    """

    async def step(state: Mapping[str, Any], run: Run[SearchR1Settings]) -> Update:
        prompt, is_text = prompts.first_prompt(state["question"]), is_llm(model)
        texts = [chat_template(prompt) if chat_template and is_text else prompt]
        texts += state.get("trajectory", ())
        turns, most = len(texts) // 2, run.settings.max_searches
        bound: Stop | None = limit_met(state, run.settings, 1 + FOR_THE_ANSWER)
        bound = "max_searches" if turns > most else bound
        update: Update = {"next_query": ""}
        opening = "<answer>" if bound and is_text else ""  # no other can be written after it
        if bound:
            texts[-1] += prompts.LAST + opening
            update |= stopped(run, bound, "the model had to answer without another search")
        action, said, text = prompts.read_turn(opening + await _write(run, model, texts))
        run.emit("turn_written", action=action, text=text)
        update["trajectory"] = [*texts[1:], text.removeprefix(opening)]
        if action != "answer" and not bound:
            if action and said and turns < most:
                return {**update, "next_query": said}
            update["trajectory"].append("" if action and said else prompts.INVALID)
            return update
        answer = said if action == "answer" else "" if action else split_reasoning(text)[0]
        if not answer.strip():
            answer, update["notes"] = NO_ANSWER, [*update.get("notes", ()), SILENT]
        citations = await run.compute(_cite, answer, state, texts=state["passages"])
        cited = without_marks(answer) + "".join(f" [{each['number']}]" for each in citations)
        notes = update.get("notes", ())
        return {**update, **answered(state, run, answer, cited, citations, model, notes=notes)}

    return Node("reason", step, settings)


async def _write(run: Run[Any], model: Runnable[Any, Any], texts: Sequence[str]) -> str:
    """Return what the model writes after ``texts``, the user's and the model's in turn, with its
    thoughts, which its next turn reads."""
    first = model_behind(model)
    given: Any = "".join(texts)
    options = {"stop": prompts.STOP} if isinstance(first, BaseLanguageModel) else {}
    if not is_llm(model):
        given = [(HumanMessage, AIMessage)[i % 2](text) for i, text in enumerate(texts)]
    with wrap_errors(ModelFailed, f"the model ({type(first).__name__})"):
        written = await run.call(model.invoke, model.ainvoke, given, **options)
    text = written if isinstance(written, str) else as_text(getattr(written, "content", ""))
    return text[:LONGEST_ANSWER]


def _cite(answer: str, state: Mapping[str, Any]) -> list[Citation]:
    """Cite the passages that state the answer word for word, since the model names none."""
    asked, passages = state["question"], state["passages"]
    found = [bool(sentence_stating(each.page_content, answer, asked)) for each in passages]
    places = [] if is_refusal(answer) else [i for i, is_found in enumerate(found) if is_found]
    return [citation(n, i, passages[i], [0], [answer], asked) for n, i in enumerate(places, 1)]


def search(
    retriever: Retriever | None, settings: SearchR1Settings, reranker: Any = None
) -> Node[SearchR1Settings]:
    """Retrieve for the model's query, unless the caller has given the documents, and show the
    passages to the model; if the retriever fails, it is shown none."""
    find = finder(retriever, reranker)

    def shown(state: Mapping[str, Any], text: str) -> Update:
        queries = [*state.get("queries", ()), state["next_query"]]
        return {"queries": queries, "trajectory": [*state["trajectory"], text]}

    async def step(state: Mapping[str, Any], run: Run[SearchR1Settings]) -> Update:
        query, passages = state["next_query"], list(state["passages"])
        found, notes = await find(state, run, [query])
        best = found[query][: run.settings.passages]
        merge(best, passages)
        run.emit("retrieved", query=query, passages=[name_of(each) for each in best])
        text = prompts.information(best, run.settings.passage_characters)
        return {"passages": passages, "notes": notes, **shown(state, text)}

    def failed(state: Mapping[str, Any], run: Run[Any], fault: Fault) -> Update:
        run.emit("retrieval_failed", reason=fault.reason)
        return {"notes": [fault.reason], **shown(state, prompts.information([], 0))}

    return Node("search", step, settings, failed)
