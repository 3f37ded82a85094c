"""A run that is killed: twenty questions, a twentieth of a second each, one at a time.

python -m tests.evaluation.slow_run FOLDER
"""

import sys
from pathlib import Path

from selfcorrect_rag.evaluation.methods import Method, find_graph, read_spec
from selfcorrect_rag.evaluation.rows import Question
from selfcorrect_rag.evaluation.run import Finished, Limits, run_methods

QUESTIONS = [Question(f"q{n}", f"question {n}") for n in range(20)]


def slow_run(out: Path, limits: Limits = Limits(concurrency=1)) -> Finished:  # noqa: B008
    """The run, or the rest of it."""
    spec = read_spec("slow=tests.evaluation.own_graphs:slow")
    return run_methods(QUESTIONS, [Method(spec, find_graph(spec.kind))], out, limits=limits)


if __name__ == "__main__":
    slow_run(Path(sys.argv[1]))
