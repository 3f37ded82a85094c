"""Runs, methods and metrics in the shapes of LangSmith, openevals and RAGAS.

All are plain values and functions. openevals and RAGAS are not imported; of LangSmith only the
tracing context, which is installed with langchain-core.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from langchain_core.runnables import Runnable
from langsmith.run_helpers import get_tracing_context, tracing_context

from selfcorrect_rag.errors import BadArgument, BadRun
from selfcorrect_rag.evaluation.citations import Entails
from selfcorrect_rag.evaluation.facts import FactJudge
from selfcorrect_rag.evaluation.judges import Case
from selfcorrect_rag.evaluation.judges import judge as ask
from selfcorrect_rag.evaluation.judging import JUDGES, score_of
from selfcorrect_rag.evaluation.methods import Method
from selfcorrect_rag.evaluation.metrics import METRICS, score
from selfcorrect_rag.evaluation.outcomes import outcome_from, question_from, question_row
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.evaluation.run import JUDGED, Finished
from selfcorrect_rag.evaluation.tasks import asked
from selfcorrect_rag.evaluation.texts import text_of

Evaluator = Callable[..., dict[str, Any]]
"""Takes ``inputs``, ``outputs`` and ``reference_outputs`` by name, as openevals and LangSmith call
evaluators, and returns ``key``, ``score`` (0 to 1, or None) and ``comment``."""


def ragas_row(question: Question, outcome: Outcome) -> dict[str, Any]:
    """A row of RAGAS' ``EvaluationDataset.from_list``: the fields of a ``SingleTurnSample``.

    The reference is the first accepted answer, since a sample has one. RAGAS passes over ``id`` and
    ``method``.
    """
    return {
        "user_input": asked(question),
        "response": outcome.answer,
        "retrieved_contexts": [text_of(passage) for passage in outcome.passages],
        "reference": next(iter(question.answers), None),
        "id": question.id,
        "method": outcome.method,
    }


def openevals_row(question: Question, outcome: Outcome) -> dict[str, Any]:
    """The arguments of an evaluator of openevals: ``evaluator(**row)``.

    All are texts; the reference is the first accepted answer, and ``context`` has the passages that
    the answer could cite.
    """
    return {
        "inputs": asked(question),
        "outputs": outcome.answer,
        "reference_outputs": next(iter(question.answers), None),
        "context": "\n\n".join(text_of(passage) for passage in outcome.passages),
        "id": question.id,
        "method": outcome.method,
    }


def langsmith_example(question: Question) -> dict[str, Any]:
    """An example of LangSmith, as ``Client.create_examples`` and ``schemas.Example`` take it.

    Fixed passages are left out: give the questions to :func:`target`.
    """
    row = question_row(question)
    return {
        "id": str(uuid5(NAMESPACE_OID, question.id)),
        "inputs": {name: row[name] for name in ("id", "question", "task", "choices")},
        "outputs": {"answers": list(question.answers), "extra": row["extra"]},
    }


ROWS: Mapping[str, Callable[[Question, Outcome], dict[str, Any]]] = {
    "ragas": ragas_row,
    "openevals": openevals_row,
}
TARGETS = ("langsmith", *ROWS)


def export(finished: Finished, to: str, methods: Iterable[str] = ()) -> Iterator[dict[str, Any]]:
    """A run as rows of another tool.

    Args:
        finished: the run.
        to: ``ragas`` or ``openevals``, with a row for each outcome; or ``langsmith``, with an
            example for each question.
        methods: whose outcomes; none: all.

    Raises:
        BadRun: no such target, or the run has no such method.
    """
    if to not in TARGETS:
        raise BadRun(f"there is no export to {to!r}: there are {', '.join(TARGETS)}")
    wanted = list(methods) or finished.methods
    if unknown := [name for name in wanted if name not in finished.methods]:
        raise BadRun(f"the run has no method {unknown[0]!r}: it has {', '.join(finished.methods)}")
    if to == "langsmith":
        return map(langsmith_example, finished.questions)
    questions = {question.id: question for question in finished.questions}
    return (
        ROWS[to](questions[outcome.id], outcome) for name in wanted for outcome in finished.of(name)
    )


def target(
    method: Method, questions: Iterable[Question] = ()
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A method as the target of LangSmith's ``evaluate``: it is asked, each time in a new loop.

    It takes the inputs of :func:`langsmith_example`, or any with ``question``, and gives an
    Outcome's fields; where the method fails, with an ``error`` and no answer. Nothing that it does
    is uploaded where ``upload_results=False``.

    Args:
        method: what is asked.
        questions: where given, an input's ``id`` names one of them, with its fixed passages.
    """
    known = {question.id: question for question in questions}

    def answer(inputs: dict[str, Any]) -> dict[str, Any]:
        question = known.get(str(inputs.get("id"))) or _question(inputs, {})
        with _untraced_locally():
            return asyncio.run(method.answer(question))._asdict()

    return answer


def replay(finished: Finished, method: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A finished run's method as such a target, which asks nothing and gives its outcomes again."""
    outcomes = {outcome.id: outcome for outcome in finished.of(method)}

    def answered(inputs: dict[str, Any]) -> dict[str, Any]:
        return outcomes[inputs["id"]]._asdict()

    return answered


def evaluator(
    metric: str, *, entails: Entails | None = None, judge: FactJudge | None = None
) -> Evaluator:
    """A metric in its strict form; arguments as of :func:`~.metrics.score`, but for MAUVE, which
    scores no single row.

    Outputs are an Outcome's fields, of which ``answer`` is needed, or the answer as text;
    references have ``answers``, or are one answer as text.

    Raises:
        BadArgument: no such metric, or one of all rows at once.
    """
    if metric in METRICS and METRICS[metric].of_rows:
        raise BadArgument(f"{metric} scores all rows at once")
    score((), metric, entails=entails, judge=judge)  # refuses what is unknown or lacks a model

    def evaluate(
        *, inputs: Any, outputs: Any, reference_outputs: Any = None, **others: Any
    ) -> dict[str, Any]:
        row = (_question(inputs, reference_outputs), _outcome(outputs))
        value = score([row], metric, entails=entails, judge=judge).value
        return {"key": metric, "score": value, "comment": None}

    return evaluate


def judge_evaluator(name: str, chat_model: Runnable[Any, Any]) -> Evaluator:
    """A judge of :data:`~selfcorrect_rag.evaluation.judging.JUDGES` as an evaluator.

    The comment is the judge's explanation; without a verdict the score is None.
    """
    case_of = JUDGES[name]

    def evaluate(
        *, inputs: Any, outputs: Any, reference_outputs: Any = None, **others: Any
    ) -> dict[str, Any]:
        case = case_of(_question(inputs, reference_outputs), _outcome(outputs))
        if not isinstance(case, Case):
            return {"key": JUDGED + name, "score": case, "comment": None}
        with _untraced_locally():
            found = ask(chat_model, case)
        return {"key": JUDGED + name, "score": score_of(case, found), "comment": found.explanation}

    return evaluate


def _untraced_locally() -> AbstractContextManager[object]:
    """No tracing where ``upload_results=False``: LangChain would send its runs all the same."""
    is_local = get_tracing_context()["enabled"] == "local"
    return tracing_context(enabled=False) if is_local else nullcontext()


def _question(inputs: Any, reference: Any) -> Question:
    given = {"question": inputs} if isinstance(inputs, str) else inputs
    known = {"answers": [reference]} if isinstance(reference, str) else reference or {}
    return question_from({"id": "", "answers": (), **given, **known})


def _outcome(outputs: Any) -> Outcome:
    given = {"answer": outputs} if isinstance(outputs, str) else outputs
    return outcome_from({"id": "", "method": "", **given})
