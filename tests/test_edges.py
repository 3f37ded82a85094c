"""The labels of conditional edges in every graph's drawing, which Studio shows too."""

from typing import Any

import pytest

from tests.test_controls import BUILDS

RETRIEVAL = {"retrieve": "retrieval", "generate_and_critique": "no retrieval"}
WRITTEN = {"beam_select": "continue", "write_answer": "cut short"}
CORRECTION = {
    "rewrite_query": {"refine_strips": "ambiguous", "web_search": "search"},
    "web_search": {"select_web_strips": "searched", "web_search": "not approved"},
}
ACTIONS = {"refine_strips": "correct", "rewrite_query": "ambiguous or incorrect"}
LABELS: dict[str, dict[str, dict[str, str]]] = {
    "SelfRAGSettings": {
        "decide_retrieval": RETRIEVAL,
        "retrieve": {
            "judge_sufficiency": "judge",
            "generate_and_critique": "continue",
            "write_answer": "cut short",
        },
        "judge_sufficiency": {"__end__": "refuse", "generate_and_critique": "continue"},
        "generate_and_critique": WRITTEN,
        "beam_select": {**RETRIEVAL, "write_answer": "done"},
    },
    "CRAGSettings": {
        **CORRECTION,
        "grade_documents": ACTIONS,
        "recompose_knowledge": {"judge_sufficiency": "judge", "generate": "continue"},
        "judge_sufficiency": {"__end__": "refuse", "generate": "continue"},
    },
    "SelfCRAGSettings": {
        **CORRECTION,
        "decide_retrieval": RETRIEVAL,
        "grade_documents": {**ACTIONS, "write_answer": "cut short"},
        "recompose_knowledge": {
            "judge_sufficiency": "judge",
            "read_knowledge": "continue",
            "write_answer": "cut short",
            "__end__": "answered",
        },
        "judge_sufficiency": {"__end__": "refuse", "read_knowledge": "continue"},
        "generate_and_critique": WRITTEN,
        "beam_select": {
            **RETRIEVAL,
            "read_knowledge": "retrieved before",
            "write_answer": "done",
        },
    },
    "InstructRAGSettings": {
        "read_question": {"retrieve": "retrieval", "write_rationale": "no retrieval"},
        "retrieve": {
            "judge_sufficiency": "judge",
            "choose_demonstrations": "demonstrations",
            "write_rationale": "no demonstrations",
        },
        "judge_sufficiency": {
            "__end__": "refuse",
            "choose_demonstrations": "demonstrations",
            "write_rationale": "no demonstrations",
        },
    },
}


@pytest.mark.parametrize("kind", BUILDS, ids=lambda kind: kind.__name__)
def test_every_conditional_edge_has_its_label(kind: type[Any]) -> None:
    drawn: dict[str, dict[str, Any]] = {}
    for edge in BUILDS[kind](kind()).get_graph().edges:
        if edge.conditional:
            drawn.setdefault(edge.source, {})[edge.target] = edge.data
    assert drawn == LABELS[kind.__name__]
