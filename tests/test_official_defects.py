"""Which test would catch each known defect of the official inference code, were it ours.

Numbers are those of the list of 33 that this project keeps of that code. A test is named as
``file::test``; where a defect cannot occur, the reason stands in its place.
"""

import ast
from pathlib import Path

import pytest

from selfcorrect_rag import create_self_rag
from tests.scripted import FULL, RELEVANT, ScriptedReflectionLLM, document, segment
from tests.test_self_rag import A, build

TESTS = Path(__file__).parent
CANNOT = "cannot occur: "

GUARDS = {
    1: (
        "ratio of log-probabilities",
        "test_reflection::test_retrieval_is_a_ratio_of_probabilities",
    ),
    2: (
        "KeyError where a retrieval token is unlikely",
        "test_transformers_llm::test_a_choice_is_of_the_group_whatever_else_is_likelier",
    ),
    3: ("no threshold, no answer", "test_self_rag::test_adaptive_retrieval"),
    4: ("short form does not start", "test_beam::test_depth_is_the_number_of_segments"),
    5: (
        "one passage, or none, crashes",
        "test_self_rag::test_zero_documents_is_a_route",
    ),
    6: ("three defaults for one weight", "test_reflection::test_segment_score_by_hand"),
    7: (
        "absence scored as a judgement",
        "test_reflection::test_a_judgement_not_given_is_none_and_no_number",
    ),
    8: (
        "tokens outside the top k get made-up values",
        "test_transformers_llm::test_logprobs_are_those_of_a_plain_forward_pass",
    ),
    9: (
        "special tokens skipped, so that tests on the text never fire",
        "test_transformers_llm::test_a_segment_ends_at_the_next_retrieval_token",
    ),
    10: ("an empty prediction crashes", "test_beam::test_a_candidate_without_text_is_not_chosen"),
    11: (
        "accuracy compares characters",
        CANNOT + "there is no accuracy function yet; benchmarks count whole words",
    ),
    12: (
        "retrieval frequency over the wrong total",
        CANNOT + "each run reports its own decision and nothing is averaged",
    ),
    13: (
        "options relabelled but not the key",
        CANNOT + "options are answered by the caller's own strings",
    ),
    14: ("matching is case-sensitive", "test_closed_set::test_what_a_text_answers_with"),
    15: (
        "a missing log-probability used as a probability",
        "test_reflection::test_a_token_without_a_probability_has_none_and_all_without_is_an_error",
    ),
    16: ("utility never counts in long form", "test_reflection::test_path_rules_by_hand"),
    17: (
        "sequence probability never counts in long form",
        "test_reflection::test_path_rules_by_hand",
    ),
    18: (
        "weights of the command line ignored",
        "test_self_rag::test_weights_change_at_run_time_with_nothing_reloaded",
    ),
    19: (
        "siblings share text",
        "test_beam::test_each_beam_carries_its_own_text_and_its_own_passages",
    ),
    20: (
        "earlier passages are not in the prompt",
        "test_beam::test_each_beam_carries_its_own_text_and_its_own_passages",
    ),
    21: (
        "path scores are products whatever their sign",
        "test_beam::test_paths_are_compared_by_the_rule_that_is_chosen",
    ),
    22: (
        "finished paths are dropped, depth is off by one",
        "test_beam::test_a_finished_beam_competes_to_the_end",
    ),
    23: (
        "segments run past the next retrieval token",
        "test_transformers_llm::test_a_segment_ends_at_the_next_retrieval_token",
    ),
    24: (
        "threshold compared with a boolean",
        "test_beam::test_going_on_without_evidence_is_not_cited",
    ),
    25: (
        "a retrieval token too many in the text",
        "test_beam::test_continue_keeps_the_passage_and_retrieves_nothing",
    ),
    26: (
        "mode no_retrieval crashes in long form",
        "test_self_rag::test_always_and_never_do_not_ask_the_model",
    ),
    27: ("adaptive without threshold never retrieves", "test_self_rag::test_adaptive_retrieval"),
    28: (
        "results of two shapes",
        "test_official_defects::test_a_result_has_one_shape_with_and_without_retrieval",
    ),
    29: (
        "citations drift after a skipped segment",
        "test_official_defects::test_citations_follow_the_passage_that_was_read",
    ),
    30: ("an unknown mode passes", "test_bad_input::test_knobs_out_of_bounds_are_refused_by_name"),
    31: (
        "options of the retrieval command are ignored",
        CANNOT + "retrieval is a LangChain retriever, with no command of its own",
    ),
    32: ("baselines sample", CANNOT + "decoding is greedy unless a temperature is given"),
    33: (
        "log-probabilities capped by the engine",
        "test_transformers_llm::test_logprobs_are_those_of_a_plain_forward_pass",
    ),
}


def test_every_defect_has_its_guard() -> None:
    assert sorted(GUARDS) == list(range(1, 34))


@pytest.mark.parametrize("number", GUARDS)
def test_the_guard_exists(number: int) -> None:
    guard = GUARDS[number][1]
    if guard.startswith(CANNOT):
        return
    file, name = guard.split("::")
    tree = ast.parse((TESTS / f"{file}.py").read_text(encoding="utf-8"))
    assert name in {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_a_result_has_one_shape_with_and_without_retrieval() -> None:
    graph, _ = build(A)
    keys = {
        mode: set(graph.invoke({"question": "Who?"}, context={"mode": mode}))
        for mode in ("always", "never", "adaptive")
    }
    assert keys["always"] == keys["never"] == keys["adaptive"]


def test_citations_follow_the_passage_that_was_read() -> None:
    """A segment without evidence in between does not shift the numbers of those after it."""
    again = {"[Retrieval]": 0.9, "[No Retrieval]": 0.1}
    enough = {"[Retrieval]": 0.01, "[No Retrieval]": 0.99}

    def write(prompt: str):
        if prompt.endswith("[No Retrieval]"):
            return segment("An aside.", next=again)
        if "An aside." in prompt:
            return segment("Second fact.", RELEVANT, FULL)
        return segment("First fact.", RELEVANT, FULL, next=enough)

    def retrieve(query: str):
        return [document("Later" if "aside" in query else "Early")]

    graph = create_self_rag(ScriptedReflectionLLM(write=write), retrieve)
    result = graph.invoke({"question": "What?"})
    assert result["cited_answer"] == "First fact. [1] An aside. Second fact. [2]"
    assert [c["title"] for c in result["citations"]] == ["Early", "Later"]
