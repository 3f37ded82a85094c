"""A critic and an evaluator as decision models."""

import asyncio
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from nano_training.models import critic_path
from selfcorrect_rag.errors import EvaluatorFailed, MissingExtra
from selfcorrect_rag.models import ChatEvaluator, PromptedReflectionLLM
from selfcorrect_rag.models.critic import (
    Answer,
    Critic,
    CriticInput,
    TransformersCritic,
    critic_input,
)
from selfcorrect_rag.models.decision_model import (
    critique_questions,
    decision_model,
    relevance_questions,
)
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS, ISREL
from selfcorrect_rag.prompts.critique import Instance
from selfcorrect_rag.reflection import critique_score
from tests import decision_models
from tests.crag_runs import WordEvaluator
from tests.decision_models import DECISIONS
from tests.prompted_runs import NOVEL, QUESTION, TOWN, generate, reader
from tests.providers import Provider

pytestmark = pytest.mark.usefixtures("decisions")
decisions = decision_models.decisions
STATE = {
    "instruction": QUESTION,
    "preceding_sentences": "It is a novel.",
    "output": "Jane Austen wrote it.",
    "evidence": "Emma\nEmma is a novel by Jane Austen.",
}
INSTANCE = Instance(
    QUESTION,
    output="It is a novel. Jane Austen wrote it.",
    preceding_sentences="It is a novel.",
    segment="Jane Austen wrote it.",
    evidence=STATE["evidence"],
)
GRADED = {
    "question": QUESTION,
    "documents": {"1": "Gold.", "2": "Vague.", "the last": "Noise."},
}


@pytest.fixture(scope="module")
def critic() -> TransformersCritic:
    return TransformersCritic.from_pretrained(critic_path(), device="cpu")


def test_a_critic_gives_all_probabilities(critic: TransformersCritic) -> None:
    model, questions = decision_model(critic), critique_questions(STATE)
    assert list(questions) == list(CRITIQUE_PROMPTS)
    response = model.invoke({"state": STATE, "questions": questions})
    asked = [critic_input(prompt, INSTANCE) for prompt in CRITIQUE_PROMPTS.values()]
    answers = {i: one for batch in critic.answers(asked) for i, one in batch.items()}
    for i, (name, prompt) in enumerate(CRITIQUE_PROMPTS.items()):
        given, tokens = response.choices[name], prompt.tokens_by_label
        assert tokens[given.choice] == answers[i].token
        shares = {tokens[label]: p for label, p in given.probabilities.items()}
        assert shares == pytest.approx(answers[i].probabilities, abs=1e-5)
        assert given.confidence == given.probabilities[given.choice] == max(shares.values())
    assert response.model == "TransformersCritic"
    again = asyncio.run(model.ainvoke({"state": STATE, "questions": questions}))
    assert again.choices.keys() == response.choices.keys()
    two = DECISIONS.Choice(
        instructions=questions["utility"].instructions, criteria={"1": 0, "5": 0}
    )
    few = model.invoke({"state": STATE, "questions": {"of mine": two}}).choices["of mine"]
    assert few.probabilities.keys() == {"1", "5"}
    assert sum(few.probabilities.values()) == pytest.approx(1)


def test_only_what_a_state_allows_is_asked() -> None:
    assert list(critique_questions({"instruction": QUESTION})) == ["retrieval"]
    answered = critique_questions({"instruction": QUESTION, "output": "She did."})
    assert list(answered) == ["retrieval", "utility"]
    several = critique_questions({**STATE, "evidence": {"1": "Emma", "2": "Persuasion"}})
    assert list(several) == ["1", "2"]
    assert {*several["1"].criteria} == {*ISREL.tokens_by_label}


def test_a_critic_criticises_for_a_chat_model(critic: TransformersCritic) -> None:
    llm = PromptedReflectionLLM(
        Provider(answer=reader), critic=decision_model(critic), candidates=1
    )
    segments = generate(llm, TOWN, NOVEL, prune_below=0)
    assert llm.counts.failed == llm.counts.absent == 0
    (written,) = (one for one in segments if one["text"])
    assert [r["group"] for r in written["reflections"]] == ["ISREL", "ISSUP", "ISUSE"]
    for passage, segment in zip((TOWN, NOVEL), segments, strict=True):
        evidence = f"{passage.metadata['title']}\n{passage.page_content}"
        (batch,) = critic.answers([critic_input(ISREL, Instance(QUESTION, evidence=evidence))])
        relevant = batch[0].probabilities["[Relevant]"]
        assert critique_score(segment["reflections"][0]) == pytest.approx(relevant, abs=1e-4)


def test_what_a_critic_does_not_answer(critic: TransformersCritic) -> None:
    model = decision_model(critic)
    own = DECISIONS.Choice(instructions="Is it urgent?", criteria={"[Yes]": None})
    with pytest.raises(ValueError, match=r"no choice question .* 'Is it urgent\?'"):
        model.invoke({"state": STATE, "questions": {"retrieval": own}})
    support = critique_questions(STATE)["groundness"]
    with pytest.raises(ValueError, match="no choice question"):
        model.invoke({"state": {"instruction": QUESTION}, "questions": {"groundness": support}})
    other = DECISIONS.Choice(instructions=support.instructions, criteria={"[Maybe]": None})
    with pytest.raises(ValueError, match=r"\[Maybe\] is not among \['\[Fully supported\]'"):
        model.invoke({"state": STATE, "questions": {"groundness": other}})
    noul = DECISIONS.Noul(instructions=support.instructions)
    with pytest.raises(ValueError, match="no noul question"):
        model.invoke({"state": STATE, "questions": {"groundness": noul}})
    with pytest.raises(ValueError, match="the state is a str"):
        model.invoke({"state": QUESTION, "questions": {"groundness": support}})


class Alone(Critic):
    """Answers one caller at a time, or fails."""

    def __init__(self) -> None:
        self._busy = threading.Lock()

    def answers(self, inputs: Sequence[CriticInput]) -> Iterator[dict[int, Answer]]:
        assert self._busy.acquire(blocking=False), "two at once"
        time.sleep(0.02)
        self._busy.release()
        shares = [dict.fromkeys(one.tokens, 1 / len(one.tokens)) for one in inputs]
        yield {i: Answer(next(iter(each)), each) for i, each in enumerate(shares)}


def test_a_critic_is_asked_by_one_thread_at_a_time() -> None:
    request = {"state": STATE, "questions": critique_questions(STATE)}
    responses = decision_model(Alone()).batch([request] * 8)
    assert len(responses) == 8


def test_an_evaluator_gives_the_probability_of_relevance() -> None:
    model, questions = decision_model(WordEvaluator()), relevance_questions(GRADED)
    request = {"state": GRADED, "questions": questions}
    for response in (model.invoke(request), asyncio.run(model.ainvoke(request))):
        given = {name: each.noul for name, each in response.nouls.items()}
        assert given == pytest.approx({"1": 0.95, "2": 0.5, "the last": 0.05})
    mine = {"mine": questions["the last"]}
    assert model.invoke({"state": GRADED, "questions": mine}).nouls["mine"].noul < 0.1
    strange = {"1": DECISIONS.Noul(instructions="Is it urgent?")}
    with pytest.raises(ValueError, match="no noul question"):
        model.invoke({"state": GRADED, "questions": strange})
    with pytest.raises(ValueError, match="no choice question"):
        model.invoke({"state": GRADED, "questions": critique_questions(STATE)})
    with pytest.raises(ValueError, match="the state is a str"):
        model.invoke({"state": "Gold.", "questions": questions})


def test_an_evaluator_grades_as_by_itself() -> None:
    evaluator = WordEvaluator()
    passages = ["Gold.", "Vague.", " ", "Noise.", *["Vague gold."] * 9]
    through = ChatEvaluator(decision_model(evaluator))
    assert through.score(QUESTION, passages) == pytest.approx(evaluator.score(QUESTION, passages))


def test_an_evaluator_that_fails() -> None:
    evaluator: Any = WordEvaluator()
    evaluator.score = lambda question, passages: [57.0] * len(passages)
    request = {"state": GRADED, "questions": relevance_questions(GRADED)}
    with pytest.raises(EvaluatorFailed, match=r"57\.0 as score 0"):
        decision_model(evaluator).invoke(request)


def test_an_older_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_core.decisions", None)
    for ask in (
        lambda: decision_model(WordEvaluator()),
        lambda: critique_questions(STATE),
        lambda: relevance_questions(GRADED),
    ):
        with pytest.raises(MissingExtra, match=r"need langchain-core 1\.8: pip install"):
            ask()
