"""Results are known for those of their graph, in all the odd ways in which a run may go."""

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.evaluation.plain_rag import create_plain_rag
from selfcorrect_rag.render.reading import graph_of, why_uncited
from tests.crag_runs import PagesWebSearch, WordEvaluator, document
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedReflectionLLM, echo, segment

ASKED: Any = {"question": "Who wrote Emma?"}
PAUSES = {"approve_search": True}
ENDS = {"max_model_calls": 1}
FOUND = {"something": [document("Emma is by Jane Austen.")], "nothing": []}


def graphs(retriever: Any) -> Iterator[tuple[str, Any, list[dict[str, Any]]]]:
    """The name of each graph, the graph with a checkpointer, and contexts of odd runs."""
    model = ScriptedReflectionLLM(write=lambda _: segment("Austen.", RELEVANT, FULL, USEFUL))
    corrected = (retriever, WordEvaluator(), PagesWebSearch())
    modes = [{"mode": "never"}, {"mode": "always"}, {"options": ("a", "b")}]
    saver: dict[str, Any] = {"checkpointer": InMemorySaver()}
    yield "self_rag", create_self_rag(model, retriever, **saver), [*modes, ENDS]
    yield "crag", create_crag(echo(), *corrected, **saver), [PAUSES, ENDS]
    yield "self_crag", create_self_crag(model, *corrected, **saver), [*modes, PAUSES, ENDS]
    prompted = [{"mode": "no_retrieval"}, {"mode": "ralm"}]
    yield "instruct_rag", create_instruct_rag(echo(), retriever, **saver), prompted
    yield "", create_plain_rag(echo(), retriever), []
    yield "", create_plain_rag(echo(), None), []


@pytest.mark.parametrize("found", FOUND)
def test_the_graph_of_a_result_and_of_every_state_before_it(found: str) -> None:
    for i, (name, graph, contexts) in enumerate(graphs(lambda query: FOUND[found])):
        for context in [{}, *contexts]:
            config = {"configurable": {"thread_id": f"{i} {context}"}}
            given, *states = graph.stream(ASKED, config, context=context, stream_mode="values")
            assert graph_of(given) == ""
            assert {graph_of(state) for state in states} == {name}
            result = graph.invoke(ASKED, config, context=context)
            assert graph_of(result) == name, "a second turn of the thread"


def test_of_plain_rag_no_judgement_is_said() -> None:
    graph = create_plain_rag(
        RunnableLambda(lambda _: "Jane Austen"), lambda query: FOUND["something"]
    )
    result = graph.invoke(ASKED)
    assert not result["citations"]
    assert why_uncited(result) == ""
