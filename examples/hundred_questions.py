"""Correction on your own questions: plain RAG against CRAG, on a hundred of them.

python examples/hundred_questions.py questions.jsonl runs/first
"""

import sys
from pathlib import Path

from selfcorrect_rag.evaluation.methods import open_method, read_specs
from selfcorrect_rag.evaluation.report import summary
from selfcorrect_rag.evaluation.runner import run_methods
from selfcorrect_rag.evaluation.tasks import read_task
from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.parts import Parts


def main(questions: str, folder: str) -> None:
    task = read_task(questions, limit=100)
    with Parts(ServingConfig()) as parts:
        methods = [open_method(spec, parts) for spec in read_specs(["rag", "crag"])]
        run = run_methods(task.questions, methods, Path(folder), max_calls=1_000)
    made = summary(run, ["match"], {})
    for name, method in made["methods"].items():
        match = method["metrics"]["match"]
        low, high = match["interval"]
        print(f"{name}: {match['value']:.2f} right (95 %: {low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main(*sys.argv[1:3])
