"""A critic or an evaluator as a decision model of LangChain (langchain-core 1.8)."""

import importlib
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from selfcorrect_rag.errors import MissingExtra
from selfcorrect_rag.models.critic import Critic, critic_input
from selfcorrect_rag.models.retrieval_evaluator import RetrievalEvaluator, grade
from selfcorrect_rag.prompts.chat import numbered_instructions
from selfcorrect_rag.prompts.critic import ISREL, critique_prompts
from selfcorrect_rag.prompts.critique import CritiquePrompt, Instance
from selfcorrect_rag.prompts.evaluator import document_question

if TYPE_CHECKING:
    from langchain_core.decisions import BaseDecisionModel

Judged = TypeVar("Judged")


def decision_model(judge: Critic | RetrievalEvaluator) -> "BaseDecisionModel":
    """``judge`` as a decision model, for whatever takes one.

    A critic answers the questions of :func:`critique_questions`, an evaluator those of
    :func:`relevance_questions`. It knows them by their instructions and raises a ValueError at any
    other. A critic's confidence is the probability of its choice; an evaluator's probability of yes
    is (1 + score) / 2.

    Raises:
        MissingExtra: langchain-core is older than 1.8.
    """
    types: Any = _decisions()
    alone = threading.Lock() if isinstance(judge, Critic) else nullcontext()

    class JudgeDecisionModel(types.BaseDecisionModel):  # type: ignore[misc]
        model: str = type(judge).__name__

        @property
        def _provider(self) -> str:
            return "selfcorrect_rag"

        def _classify(self, state: Any, questions: dict[str, Any]) -> Any:
            if not isinstance(state, Mapping):
                raise ValueError(f"the state is a {type(state).__name__}, not a JSON object")
            with alone:  # a critic is not thread-safe
                if isinstance(judge, Critic):
                    answers = _choices(types, judge, state, questions)
                else:
                    answers = _nouls(types, judge, state, questions)
            return types.ClassifierResponse(model=self.model, answers=answers)

    return JudgeDecisionModel()


def critique_questions(state: Mapping[str, Any]) -> dict[str, Any]:
    """A ``Choice`` for each critique that ``state`` allows, by the names of the critic's data.

    Args:
        state: texts by ``instruction``, ``input``, ``preceding_sentences``, ``output`` (the judged
            sentence) and ``evidence``, as far as there are any. Several pieces of evidence are an
            object, by number; they are judged for relevance alone, and the names are the numbers.

    Raises:
        MissingExtra: langchain-core is older than 1.8.
    """
    choice = _decisions().Choice
    return {
        critique.name: choice(
            instructions=instructions, criteria=dict.fromkeys(critique.prompt.tokens_by_label)
        )
        for instructions, critique in _critiques(state).items()
    }


def relevance_questions(state: Mapping[str, Any]) -> dict[str, Any]:
    """A ``Noul`` for each of the ``documents``, by number.

    Args:
        state: the ``question``, a text, and ``documents``, an object of texts by number.

    Raises:
        MissingExtra: langchain-core is older than 1.8.
    """
    noul = _decisions().Noul
    return {number: noul(instructions=document_question(number)) for number in state["documents"]}


def _decisions() -> Any:
    try:
        return importlib.import_module("langchain_core.decisions")
    except ModuleNotFoundError as error:
        raise MissingExtra(
            'decision models need langchain-core 1.8: pip install "langchain-core>=1.8"'
        ) from error


class _Critique(NamedTuple):
    name: str
    prompt: CritiquePrompt
    instance: Instance


def _critiques(state: Mapping[str, Any]) -> dict[str, _Critique]:
    """The critiques that a state allows, by the instructions of their questions."""

    def instance(evidence: str) -> Instance:
        before, sentence = state.get("preceding_sentences", ""), state.get("output", "")
        whole = f"{before} {sentence}".strip()
        texts = state.get("instruction", ""), state.get("input", "")
        return Instance(*texts, whole, before, sentence, evidence)

    evidence = state.get("evidence", "")
    if isinstance(evidence, Mapping):
        return {
            numbered_instructions(ISREL, number): _Critique(number, ISREL, instance(text))
            for number, text in evidence.items()
        }
    judged = instance(evidence)
    return {
        prompt.instructions: _Critique(name, prompt, judged)
        for name, prompt in critique_prompts().items()
        if not prompt.lacks(judged)
    }


def _choices(
    types: Any, critic: Critic, state: Mapping[str, Any], questions: Mapping[str, Any]
) -> dict[str, Any]:
    critiques, inputs, tokens = _critiques(state), [], []
    for question in questions.values():
        _, prompt, instance = _judged(question, "choice", critiques)
        if unknown := question.criteria.keys() - prompt.tokens_by_label.keys():
            raise ValueError(f"{min(unknown)} is not among {list(prompt.tokens_by_label)}")
        tokens.append({label: prompt.tokens_by_label[label] for label in question.criteria})
        allowed = tuple(tokens[-1].values())
        inputs.append(critic_input(prompt, instance)._replace(tokens=allowed))
    given = {i: answer for batch in critic.answers(inputs) for i, answer in batch.items()}
    answers = {}
    for i, name in enumerate(questions):
        shares = {label: given[i].probabilities[token] for label, token in tokens[i].items()}
        (label,) = (label for label, token in tokens[i].items() if token == given[i].token)
        answers[name] = types.ChoiceAnswer(
            type="choice", choice=label, probabilities=shares, confidence=min(shares[label], 1.0)
        )
    return answers


def _nouls(
    types: Any, evaluator: RetrievalEvaluator, state: Mapping[str, Any], questions: dict[str, Any]
) -> dict[str, Any]:
    documents = {document_question(n): text for n, text in state.get("documents", {}).items()}
    passages = [_judged(question, "noul", documents) for question in questions.values()]
    scores = grade(evaluator, state["question"], passages)
    return {
        name: types.NoulAnswer(type="noul", noul=(1 + score) / 2)
        for name, score in zip(questions, scores, strict=True)
    }


def _judged(question: Any, kind: str, known: Mapping[str, Judged]) -> Judged:
    """What a question is about, found by its instructions."""
    if question.type == kind and question.instructions in list(known):
        return known[question.instructions]
    raise ValueError(
        f"no {question.type} question that it answers about this state: "
        f"{question.instructions!r:.80}"
    )
