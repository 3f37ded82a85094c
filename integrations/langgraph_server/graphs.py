"""The graphs as a LangGraph server loads them: nano models and the demo corpus, no key, no GPU.

The server keeps threads by itself and refuses a graph that has a checkpointer.
"""

from typing import Any

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.instruct_settings import InstructRAGSettings
from selfcorrect_rag.nano import (
    demo_index,
    demo_web,
    load_evaluator,
    load_generator,
    load_rationale_model,
)


def graphs(**kept: Any) -> dict[str, Any]:
    """All graphs by name; ``kept`` are a checkpointer and a cache, where this is no server."""
    retriever, web = demo_index().as_retriever(20), demo_web()
    llm, evaluator = load_generator(), load_evaluator()
    fine_tuned = InstructRAGSettings(mode="ft")
    return {
        "self_rag": create_self_rag(llm, retriever, **kept),
        "crag": create_crag(llm, retriever, evaluator, web, **kept),
        "self_crag": create_self_crag(llm, retriever, evaluator, web, **kept),
        "instruct_rag": create_instruct_rag(
            load_rationale_model(), retriever, settings=fine_tuned, **kept
        ),
    }


def __getattr__(name: str) -> Any:
    """A graph by its name, which is how the server asks for it."""
    if name not in ("self_rag", "crag", "self_crag", "instruct_rag"):
        raise AttributeError(name)
    globals().update(graphs())
    return globals()[name]
