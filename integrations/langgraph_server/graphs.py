"""The graphs on the nano models and the demo corpus: no key, no GPU."""

import functools
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


@functools.cache
def served() -> dict[str, Any]:
    """All graphs, made once: the server runs the file that it loads them from for each of them."""
    return graphs()
