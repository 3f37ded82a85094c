"""A chat model as evaluator: passages that share calls, answers in any format, scores."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tracers.context import collect_runs

from selfcorrect_rag.models import ChatEvaluator
from selfcorrect_rag.prompts.crag import VerdictParser, grading_prompt
from tests.providers import LOGPROBS, Provider, saying

QUESTION = "Who wrote Emma?"
PASSAGES = ["Emma is by Jane Austen.", "Emma is a town.", "Austen wrote Emma in 1815."]
MANY = [f"{'Austen' if i % 3 else 'No one'} wrote {i}." for i in range(9)]


def judge(prompt: str) -> str:
    """A model that keeps to the format and calls relevant what names Austen."""
    asked = prompt[prompt.rindex("Question:") :]
    slots = [slot.split("</document>")[0] for slot in asked.split("<document")[1:]]
    words = ["yes" if "Austen" in slot else "no" for slot in slots]
    if "number=" not in asked:
        return words[0]
    return "\n".join(f"{i}: {word}" for i, word in enumerate(words, start=1))


def test_passages_share_calls() -> None:
    llm = Provider(answer=judge)
    evaluator = ChatEvaluator(llm)
    assert evaluator.score(QUESTION, PASSAGES) == [1, -1, 1]
    assert llm.prompts == [grading_prompt("few_shot", QUESTION, PASSAGES)]
    assert "hard labels" in evaluator.notes([1, -1, 1])[0]
    assert evaluator.notes([0.5, -1]) == [], "these have probabilities"
    evaluator = ChatEvaluator(llm, passages_per_call=4)
    assert evaluator.score(QUESTION, MANY) == [1 if i % 3 else -1 for i in range(9)]
    assert len(llm.prompts) - 1 == evaluator.model_calls(MANY) == 3
    assert grading_prompt("few_shot", QUESTION, [MANY[8]]) in llm.prompts, "it is alone"


def test_blank_passages_cost_nothing() -> None:
    llm = Provider(answer=judge)
    evaluator = ChatEvaluator(llm)
    assert evaluator.score(QUESTION, ["", " \n"]) == [-1, -1]
    assert llm.prompts == []
    assert evaluator.score(QUESTION, ["", PASSAGES[0], "\t", PASSAGES[1]]) == [-1, 1, -1, -1]


@pytest.mark.parametrize(
    "answer",
    [
        "Document 1: Yes\nDocument 2: No\nDocument 3: Yes\n",
        "| 1 | yes |\n| 2 | no |\n| 3 | yes |",
        "Document 2 names a town.\n2. Yes?\nIt has 1 mention. No.\n\n1: yes\n2: no\n3: yes",
        "<think>\n1: no\n2: no\n3: no\n</think>\n1: yes\n2: no\n3: yes",
        AIMessage([{"type": "text", "text": "1: yes\n2: no\n3: yes"}]),
    ],
)
def test_answers_in_the_format(answer: Any) -> None:
    evaluator = ChatEvaluator(Provider(answer=lambda prompt: answer))
    assert evaluator.score(QUESTION, PASSAGES) == [1, -1, 1]


@pytest.mark.parametrize("answer", ["Yes.", "1: yes\n2: no\n3: yes\n4: no", f"{'9' * 5_000}: yes"])
def test_an_answer_out_of_the_format_is_retried_once_and_then_scores_0(answer: str) -> None:
    llm = Provider(answer=lambda p: judge(p) if "each with one" in p else answer)
    evaluator = ChatEvaluator(llm, prompt="direct")
    assert evaluator.score(QUESTION, PASSAGES) == [1, -1, 1]
    assert len(llm.prompts) == 3, "the first detects what the provider can do"
    assert llm.prompts[-1].endswith(":\n1: yes or no\n2: yes or no\n3: yes or no")
    evaluator = ChatEvaluator(Provider(answer=lambda p: answer))
    assert evaluator.score(QUESTION, PASSAGES) == [0, 0, 0]
    (note,) = evaluator.notes([0, 0, 0])
    assert note == "the evaluator's model gave unreadable verdicts: their scores are 0"


@pytest.mark.parametrize(
    ("answer", "direct", "thought"),
    [
        ("**YES**", True, True),
        ("Answer: No.", False, False),
        ("The answer is yes.", True, True),
        ("No. It names a town; were it the novel, yes.", False, True),
        ("Yes, the title fits. But no author is named, so: no", True, False),
        ("Nobody knows", None, None),
    ],
)
def test_verdicts(answer: str, direct: bool | None, thought: bool | None) -> None:
    for kind, expected in (("direct", direct), ("few_shot", direct), ("chain_of_thought", thought)):
        found = VerdictParser(kind).find(answer)  # type: ignore[arg-type]
        assert (found and found.label == "yes") == expected


def likely(prompt: str) -> list[Any]:
    """One that keeps to the format, with probabilities."""
    if "number=" not in prompt[prompt.rindex("Question:") :]:
        return [(" Yes", 0.5, {" No": 0.125, "Yes": 0.25, " Well": 0.125}), (".", 1.0)]
    first, second = [("1:", 1.0), (" yes", 0.6, {" no": 0.2, " perhaps": 0.2})], ("\n2: no", 1.0)
    return [*first, second, ("\n3: ", 1.0), ("n", 0.75, {"y": 0.25}), ("o", 1.0)]


async def test_scores_from_probabilities() -> None:
    model = Provider(answer=likely, **LOGPROBS)
    evaluator = ChatEvaluator(model)
    scores = evaluator.score(QUESTION, PASSAGES)
    assert scores == pytest.approx([0.5, -1.0, -0.5])
    assert evaluator.score(QUESTION, PASSAGES[:1]) == pytest.approx([0.625 / 0.875])
    assert (evaluator.notes([1.0, -1.0]), len(model.calls)) == ([], 2)
    assert await ChatEvaluator(model).ascore(QUESTION, PASSAGES) == scores
    thought = [("No, but so: ", 1.0), ("yes", 0.75, {"no": 0.25})]
    thinking = Provider(answer=lambda p: thought, **LOGPROBS)
    evaluator = ChatEvaluator(thinking, prompt="chain_of_thought", passages_per_call=1)
    assert evaluator.score(QUESTION, PASSAGES[:1]) == pytest.approx([0.5])
    assert "max_tokens" not in thinking.calls[0][1], "it thinks first"


async def test_calls_are_tagged_to_stay_out_of_token_streams() -> None:
    evaluator = ChatEvaluator(saying("yes"))
    with collect_runs() as collector:
        evaluator.score(QUESTION, PASSAGES[:1])
        await evaluator.ascore(QUESTION, PASSAGES[:1])
    assert [run.tags for run in collector.traced_runs] == [["nostream"]] * 2
