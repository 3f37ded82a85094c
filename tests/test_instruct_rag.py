"""InstructRAG on scripted models: modes, answers, documents and demonstrations."""

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from selfcorrect_rag import create_instruct_rag
from selfcorrect_rag.errors import BadDemonstrations
from selfcorrect_rag.nodes.write_answer import NO_ANSWER
from selfcorrect_rag.prompts.instruct_rag import INSTRUCTION
from selfcorrect_rag.prompts.reading import REFUSAL
from selfcorrect_rag.state import Demonstration
from tests.instruct_runs import DEMONSTRATIONS, QUESTION, RATIONALE, TITLES, documents, run
from tests.providers import chat
from tests.scripted import THREAD, echo


def test_the_default_is_icl_with_demonstrations_and_instruct_without() -> None:
    assert run()["mode"] == "icl"
    for given in ((), (None,)):
        graph = create_instruct_rag(echo(), lambda query: documents(), *given)
        result = graph.invoke({"question": QUESTION})
        assert (result["mode"], result["demonstrations"]) == ("instruct", [])
    graph = create_instruct_rag(echo(), lambda query: documents(), settings={"mode": "ralm"})
    for context, mode in (({}, "ralm"), ({"mode": "ft"}, "ft"), ({"mode": None}, "instruct")):
        assert graph.invoke({"question": QUESTION}, context=context)["mode"] == mode


@pytest.mark.parametrize(
    ("mode", "instructed", "because", "by", "has_documents"),
    [
        ("icl", True, 2, 0, True),
        ("few_shot", True, 0, 2, True),
        ("instruct", True, 0, 0, True),
        ("ft", False, 0, 0, True),
        ("ralm", False, 0, 0, True),
        ("no_retrieval", False, 0, 0, False),
    ],
)
def test_each_mode_has_its_prompt(
    mode: str, instructed: bool, because: int, by: int, has_documents: bool
) -> None:
    result = run(mode=mode)
    asked = result["rationale"] or result["answer"]
    assert (INSTRUCTION in asked) is instructed
    assert (asked.count("Because "), asked.count("By ")) == (because, by)
    assert ("Document [3]" in asked) is bool(result["passages"]) is has_documents
    assert len(result["demonstrations"]) == because + by


def test_a_mark_that_the_answer_has_is_not_set_again() -> None:
    result = run(chat("Document [1] says it.\n\nAnswer: George Eliot [1]"))
    assert result["cited_answer"] == "George Eliot [1]"
    assert [cited["number"] for cited in result["citations"]] == [1]


def test_answer_rationale_and_documents_are_read_from_the_last_paragraph() -> None:
    result = run(chat(RATIONALE))
    assert result["answer"] == "Therefore, the answer is George Eliot."
    assert result["rationale"] == RATIONALE
    assert result["numbering"] == [2, 1, 0], "the best stands last"
    assert result["useful_documents"] == [0, 2]
    assert [(c["number"], c["passage"], c["title"]) for c in result["citations"]] == [
        (3, 0, "Middlemarch"),
        (1, 2, "Emma"),
    ]
    assert result["cited_answer"] == "Therefore, the answer is George Eliot. [3] [1]"
    assert result["notes"] == ["Document [7] is named but was not shown"]


@pytest.mark.parametrize(
    ("written", "answer", "useful", "cited"),
    [
        ("Document [1] is dull.\n\nDocument 3 says so.\nAnswer: Jane", "Jane", [0], "Jane [3]"),
        ("<think>Document [2]?</think>Document [3] says so. Jane.", "Jane.", [0], "Jane. [3]"),
        ("It was [2].\n\nThe documents do not say.", REFUSAL, [], REFUSAL),
        ("I looked at Document [3]. The documents do not say.", REFUSAL, [0], REFUSAL),
    ],
)
def test_nothing_else_is_read_out_of_the_prose_and_a_refusal_cites_nothing(
    written: str, answer: str, useful: list[int], cited: str
) -> None:
    result = run(chat(written))
    assert (result["answer"], result["useful_documents"]) == (answer, useful)
    assert result["cited_answer"] == cited
    assert len(result["citations"]) == cited.count("[")


@pytest.mark.parametrize("mode", ["no_retrieval", "ralm", "few_shot"])
def test_what_a_baseline_writes_is_the_answer(mode: str) -> None:
    written = "George Eliot wrote it [3]. It was published in 1871."
    result = run(chat(written), mode=mode)
    assert (result["answer"], result["rationale"]) == (written, "")
    assert result["useful_documents"] == ([] if mode == "no_retrieval" else [0])


def test_documents_are_numbered_as_they_are_shown() -> None:
    last, first = run(order="best_last"), run(order="best_first")
    assert "Document [3] (Title: Middlemarch)" in last["rationale"]
    assert "Document [1] (Title: Middlemarch)" in first["rationale"]
    assert [p.id for p in last["passages"]] == TITLES, "passages stay best first"
    assert first["numbering"] == [0, 1, 2]


def test_a_task_instruction_is_put_behind_the_question() -> None:
    asked = run(instruction="Name the author only.")["rationale"]
    assert asked.endswith(f"{QUESTION}\nName the author only.")


def test_an_empty_text_has_a_stated_answer() -> None:
    graph = create_instruct_rag(chat("  \n"), lambda query: documents())
    result = graph.invoke({"messages": [HumanMessage(QUESTION)]})
    assert result["answer"] == result["messages"][-1].text == NO_ANSWER
    assert (result["rationale"], result["citations"]) == ("", [])
    assert result["notes"] == ["the model wrote nothing: the answer says so"]


@pytest.mark.parametrize("mode", ["icl", "ralm"])
def test_no_documents_is_a_route(mode: str) -> None:
    result = run(titles=[], mode=mode)
    assert result["answer"] == f"Based on your knowledge, answer the question: {QUESTION}"
    assert (result["mode"], result["demonstrations"]) == ("no_retrieval", [])
    assert result["notes"] == ["no document was found: the model was asked without documents"]
    graph: Any = create_instruct_rag(echo(), None)
    for given in ({}, {"documents": documents()}):
        closed = graph.invoke({"question": QUESTION, **given}, context={"mode": "no_retrieval"})
        shown = closed["answer"], closed["numbering"], closed["notes"]
        assert shown == (result["answer"], [], [])


def test_a_fine_tuned_model_keeps_its_prompt_without_documents() -> None:
    result = run(titles=[], mode="ft")
    assert result["rationale"].startswith("Based on your knowledge and the provided information")
    assert result["mode"] == "ft"


def test_a_pause_inside_the_retriever_is_no_failure() -> None:
    def pausing(query: str) -> list[Document]:
        return documents([interrupt("which?")])

    graph: Any = create_instruct_rag(echo(), pausing, checkpointer=InMemorySaver())
    (pause,) = graph.invoke({"question": QUESTION}, THREAD)["__interrupt__"]
    assert pause.value == "which?"
    result = graph.invoke(Command(resume="Emma"), THREAD)
    assert (result["passages"][0].id, result["notes"]) == ("Emma", [])


def shown(**context: Any) -> list[str]:
    return [d["question"].split()[-1].rstrip("?") for d in run(**context)["demonstrations"]]


def test_fixed_demonstrations_are_the_first_and_random_ones_depend_on_seed_and_question() -> None:
    assert shown(selection="fixed", demonstrations=3) == ["Emma", "Ulysses", "Walden"]
    assert len({tuple(shown(seed=seed)) for seed in range(5)}) > 1
    assert shown(seed=7) == shown(seed=7)
    assert len({tuple(shown(question=f"Who is {n}?")) for n in range(5)}) > 1
    assert shown(demonstrations=9) == ["Emma", "Ulysses", "Walden", "Dracula", "Persuasion"]


@pytest.mark.parametrize("selection", ["fixed", "random"])
def test_the_question_asked_is_no_demonstration(selection: str) -> None:
    found = shown(selection=selection, question="who  wrote EMMA", demonstrations=9)
    assert sorted(found) == ["Dracula", "Persuasion", "Ulysses", "Walden"]


@pytest.mark.parametrize(
    ("demonstrations", "context", "says"),
    [
        ([], {"mode": "icl"}, "give create_instruct_rag some"),
        ([{"question": "Who?", "answers": ["A"]}], {}, "with a question and rationale"),
        ([DEMONSTRATIONS[0] | {"answers": []}], {"mode": "few_shot"}, "a question and answers"),
        ([{"rationale": "R"}], {}, "demonstration 1 has no question or no rationale"),
        ("demos.jsonl", {"mode": "icl"}, "demonstration 1 has no question or no rationale"),
    ],
)
def test_demonstrations_that_will_not_do_are_refused(
    demonstrations: list[Demonstration], context: Any, says: str
) -> None:
    graph = create_instruct_rag(echo(), lambda query: documents(), demonstrations)
    with pytest.raises(BadDemonstrations, match=says):
        graph.invoke({"question": QUESTION}, context=context)
