"""A chat model's grading instruction, chosen on your own labels by a plain loop."""

from collections.abc import Callable, Sequence

from selfcorrect_rag.models import RetrievalEvaluator

LABELLED = [
    ("Who wrote Emma?", "Emma is a novel by Jane Austen.", True),
    ("Who wrote Emma?", "Emma is a name that many novels have.", False),
    ("Where was Kafka born?", "Kafka was born in Prague.", True),
    ("Where was Kafka born?", "Kafka was born to a merchant.", False),
]
"""Take a hundred, and keep a hundred others to measure the choice."""


class Grader(RetrievalEvaluator):
    """Grades by yes or no, for the ``evaluator`` of ``create_crag``."""

    def __init__(self, ask: Callable[[str], str], instruction: str) -> None:
        self.ask, self.instruction = ask, instruction

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        asked = [f"{self.instruction}\nQuestion: {question}\nPassage: {p}" for p in passages]
        return [1.0 if "yes" in self.ask(prompt).lower() else -1.0 for prompt in asked]

    def errors(self) -> list[tuple[str, str, bool]]:
        return [row for row in LABELLED if (self.score(row[0], [row[1]]) == [1.0]) != row[2]]


def main(ask: Callable[[str], str], rounds: int = 3) -> Grader:
    """Return the best grader; ``ask`` is ``lambda text: chat_model.invoke(text).text``."""
    best = Grader(ask, "Is the passage about the question? Answer yes or no.")
    for _ in range(rounds):
        better = f"Improve this instruction.\n{best.instruction}\nWrong on: {best.errors()}"
        best = min(best, Grader(ask, ask(better)), key=lambda grader: len(grader.errors()))
        print(f"{len(best.errors())} of {len(LABELLED)} wrong: {best.instruction}")
    return best
