"""Judges for a run of `selfcorrect-rag eval`: openevals here, ragas and LangSmith by their rows.

python examples/judge_a_run.py questions.jsonl runs/first openai:gpt-4o-mini

Needs openevals. Answers that our string match calls wrong and the judge right (or the other way
round) are printed: read these before you believe either. For ragas, `ragas_rows` are the rows of
`EvaluationDataset.from_list`; for LangSmith, the rows of `Client().create_examples`.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openevals.llm import create_llm_as_judge
from openevals.prompts import CORRECTNESS_PROMPT

from selfcorrect_rag.evaluation.metrics import METRICS
from selfcorrect_rag.evaluation.tasks import Run, outcome_from, read_task
from selfcorrect_rag.journal import Journal
from selfcorrect_rag.models.from_name import find_language_model


def openevals_rows(run: Run) -> Iterator[dict[str, Any]]:
    """The arguments of an openevals evaluator, one for each answer."""
    questions = {question.id: question for question in run.questions}
    for outcome in run.outcomes:
        question = questions[outcome.id]
        expected = " or ".join(question.answers) or "that the documents do not say"
        yield {
            "inputs": question.question,
            "outputs": outcome.answer,
            "reference_outputs": expected,
        }


def ragas_rows(run: Run) -> Iterator[dict[str, Any]]:
    """Samples of ragas: `EvaluationDataset.from_list(list(ragas_rows(run)))`."""
    for row, outcome in zip(openevals_rows(run), run.outcomes, strict=True):
        yield {
            "user_input": row["inputs"],
            "response": row["outputs"],
            "reference": row["reference_outputs"],
            "retrieved_contexts": [passage["text"] for passage in outcome.passages],
        }


def main(data: str, folder: str, model: Any) -> None:
    rows = Journal(Path(folder) / "rows.jsonl").rows.values()
    run = Run(list(read_task(data).questions), [outcome_from(row) for row in rows])
    questions = {question.id: question for question in run.questions}
    judge = create_llm_as_judge(prompt=CORRECTNESS_PROMPT, judge=model, feedback_key="correct")
    for row, outcome in zip(openevals_rows(run), run.outcomes, strict=True):
        verdict: Any = judge(**row)
        match = METRICS["match"].strict(questions[outcome.id], outcome)
        if bool(verdict["score"]) != bool(match):
            print(f"{outcome.method}: {row['inputs']} -> {outcome.answer}: {verdict['comment']}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], find_language_model(sys.argv[3]))
