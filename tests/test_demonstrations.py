"""Which demonstrations a question is shown."""

from typing import Any

import pytest

from selfcorrect_rag import create_instruct_rag
from selfcorrect_rag.errors import BadDemonstrations
from selfcorrect_rag.state import Demonstration
from tests.instruct_runs import DEMONSTRATIONS, QUESTION, documents, run
from tests.scripted import echo


def shown(**context: Any) -> list[str]:
    return [d["question"].split()[-1].rstrip("?") for d in run(**context)["demonstrations"]]


def test_fixed_demonstrations_are_the_first() -> None:
    assert shown(selection="fixed", demonstrations=3) == ["Emma", "Ulysses", "Walden"]


def test_random_demonstrations_depend_on_seed_and_question_alone() -> None:
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
        ([{"rationale": "R"}], {}, "demonstration 1 lacks one"),
        ("demos.jsonl", {"mode": "icl"}, "demonstration 1 lacks one"),
    ],
)
def test_demonstrations_that_will_not_do_are_refused(
    demonstrations: list[Demonstration], context: Any, says: str
) -> None:
    graph = create_instruct_rag(echo(), lambda query: documents(), demonstrations)
    with pytest.raises(BadDemonstrations, match=says):
        graph.invoke({"question": QUESTION}, context=context)
