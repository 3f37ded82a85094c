"""Asks LangChain's decision models: typed questions about one state, answered with probabilities.

A decision model is a ``BaseDecisionModel`` (langchain-core 1.8), or ``OpenAIDecisions``
(langchain-openai 1.7), whose requests have other names for the same things.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.runnables import Runnable

from selfcorrect_rag.models.chat.llm_chat import model_behind


class _Dialect(NamedTuple):
    """The names of one library."""

    module: str
    model: str
    state: str
    labels: str
    yes_no: str


_DIALECTS = (
    _Dialect("langchain_core.decisions", "BaseDecisionModel", "state", "criteria", "Noul"),
    _Dialect("langchain_openai.decisions", "OpenAIDecisions", "input", "choices", "Predicate"),
)


class DecisionQuestion(NamedTuple):
    """A question to a decision model."""

    instructions: str
    """The whole question; a model does not see its name."""
    labels: tuple[str, ...] = ()
    """The labels to choose from; a question without any is answered by yes or no."""


def is_decision_model(model: Runnable[Any, Any]) -> bool:
    """Whether ``model`` is a decision model, perhaps with retries."""
    return _dialect(model) is not None


def decision_request(
    model: Runnable[Any, Any], state: object, questions: Mapping[str, DecisionQuestion]
) -> dict[str, Any]:
    """The input of a decision model, which answers all questions in one call.

    Args:
        model: the decision model.
        state: a text, or a JSON object, that the questions are about.
        questions: by name.
    """
    dialect = _dialect(model)
    assert dialect is not None, "it is a decision model"
    types: Any = sys.modules[dialect.module]

    def typed(question: DecisionQuestion) -> object:
        if not question.labels:
            return getattr(types, dialect.yes_no)(instructions=question.instructions)
        labels = {dialect.labels: dict.fromkeys(question.labels)}
        return types.Choice(instructions=question.instructions, **labels)

    typed_questions = {name: typed(question) for name, question in questions.items()}
    return {dialect.state: state, "questions": typed_questions}


def chosen_label(
    response: object, name: str, labels: Sequence[str]
) -> tuple[str, dict[str, float]] | None:
    """The label of an answer, and the probability of each of ``labels``.

    None if there is no such answer, such as after a refusal, if it gives another label, or if a
    probability is not in [0, 1]. A label without a probability has 0.
    """
    answer = _answer(response, name)
    label: Any = getattr(answer, "choice", None)
    given = getattr(answer, "probabilities", None)
    if label not in labels or not isinstance(given, Mapping) or not given.keys() <= set(labels):
        return None
    shares = {each: given.get(each, 0.0) for each in labels}
    if not all(map(_is_probability, shares.values())) or not shares[label]:
        return None
    return label, shares


def probabilities_of_yes(response: object, count: int) -> list[float] | None:
    """The probability of yes, in [0, 1], to each of the questions ``"1"`` to ``count``.

    None if an answer is missing, or has no such probability.
    """
    answers = [_answer(response, str(number)) for number in range(1, count + 1)]
    given: list[Any] = [getattr(one, "noul", getattr(one, "probability", None)) for one in answers]
    return given if all(map(_is_probability, given)) else None


def decision_usage(response: object) -> tuple[int | None, int | None]:
    """The tokens that were read and written; None where the model does not tell."""
    usage: dict[str, Any] = dict(getattr(response, "usage", None) or {})
    return usage.get("input_tokens"), usage.get("output_tokens")


def _dialect(model: Runnable[Any, Any]) -> _Dialect | None:
    behind = model_behind(model)
    for dialect in _DIALECTS:
        # Nothing is imported: a library that is not yet has made no model.
        module = sys.modules.get(dialect.module)
        if module and isinstance(behind, getattr(module, dialect.model)):
            return dialect
    return None


def _answer(response: object, name: str) -> object:
    answers = getattr(response, "answers", None)
    return answers.get(name) if isinstance(answers, Mapping) else None


def _is_probability(given: object) -> bool:
    return isinstance(given, float | int) and 0.0 <= given <= 1.0
