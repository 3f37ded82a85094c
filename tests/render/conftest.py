"""Real runs of the four graphs on the nano models, with the nodes that they went through."""

from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag import (
    create_crag,
    create_instruct_rag,
    create_self_crag,
    create_self_rag,
)
from selfcorrect_rag.demo import (
    demo_passages,
    demo_web,
    load_generator,
    load_rationale_model,
)
from selfcorrect_rag.reader import Reader, ReaderEvaluator
from selfcorrect_rag.search import BM25Index

Run = tuple[dict[str, Any], list[str]]


def streamed(graph: Any, given: Any, **options: Any) -> Run:
    """The result of a run, and its nodes in the order in which they finished."""
    nodes: list[str] = []
    result: dict[str, Any] = {}
    for mode, chunk in graph.stream(given, stream_mode=["updates", "values"], **options):
        if mode == "values":
            result = chunk
        else:
            nodes += [name for name in chunk if name != "__interrupt__"]
    return result, nodes


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("rendered")
    with BM25Index(folder / "index") as index:
        index.add(list(demo_passages()))
        found = index.as_retriever(5)
        return _runs(found, folder)


def _runs(retriever: Any, folder: Path) -> dict[str, Run]:
    generator, web = load_generator(), demo_web(folder / "web")
    evaluator = ReaderEvaluator(Reader.load())
    graphs = {
        "self_rag": create_self_rag(generator, retriever),
        "crag": create_crag(generator, retriever, evaluator, web),
        "self_crag": create_self_crag(generator, retriever, evaluator, web),
        "instruct_rag": create_instruct_rag(load_rationale_model(), retriever),
    }
    knobs: dict[str, dict[str, Any]] = {
        "self_rag": {"depth": 3, "mode": "always"},
        "instruct_rag": {"mode": "ft"},
    }
    return {
        name: streamed(
            graph,
            {"question": "Who wrote Don Quixote?"},
            context={"passages": 5, **knobs.get(name, {})},
        )
        for name, graph in graphs.items()
    }
