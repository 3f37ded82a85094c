"""A critic by rule and a retriever by table, for Algorithm 3 worked by hand."""

from collections.abc import Callable, Sequence
from typing import Any

from selfcorrect_rag.training.augmentation import (
    CritiqueRequest,
    Decisions,
    Judge,
    Label,
    Passage,
    Retrieve,
    augment,
)
from selfcorrect_rag.training.generator_rows import GeneratorRow

FULL, PART, NO = "[Fully supported]", "[Partially supported]", "[No support / Contradictory]"
REL, IRR = "[Relevant]", "[Irrelevant]"
YES, NONE, GO_ON = "[Retrieval]", "[No Retrieval]", "[Continue to Use Evidence]"


def passage(name: str) -> Passage:
    return Passage(f"id {name}", name, f"text {name}", 0.5)


class World:
    """A critic by rule and a retriever by table; both write down what they are asked."""

    def __init__(
        self,
        label: Callable[[CritiqueRequest], str | Label],
        found: Callable[[str], Sequence[str]] = lambda query: (),
    ) -> None:
        self._label, self._found = label, found
        self.batches: list[Judge | Retrieve] = []

    def decide(self, *rows: GeneratorRow, passages: int = 10, seed: int = 0) -> list[Decisions]:
        steps = augment(rows, passages=passages, language="en", seed=seed)
        answers: list[Any] | None = None
        try:
            while True:
                wanted = steps.send(answers) if answers is not None else next(steps)
                self.batches.append(wanted)
                if isinstance(wanted, Judge):
                    answers = [self._as_label(self._label(case)) for case in wanted.requests]
                else:
                    answers = [[passage(n) for n in self._found(q)] for q in wanted.queries]
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    @staticmethod
    def _as_label(given: str | Label) -> Label:
        return Label(given) if isinstance(given, str) else given

    def cases(self, aspect: str) -> list[CritiqueRequest]:
        judged = [
            case for step in self.batches if isinstance(step, Judge) for case in step.requests
        ]
        return [case for case in judged if case.prompt == aspect]

    @property
    def queries(self) -> list[str]:
        return [q for step in self.batches if isinstance(step, Retrieve) for q in step.queries]


def rule(
    retrieval: str = YES,
    more: dict[str, str] | str = YES,
    passages: dict[str, tuple[str, str]] | None = None,
    utility: str = "[Utility:5]",
) -> Callable[[CritiqueRequest], str]:
    """Labels by the first word of the sentence, and by the title of the passage."""

    def label(case: CritiqueRequest) -> str:
        sentence = case.instance.segment.split()[0]
        title = case.instance.evidence.split("\n")[0]
        match case.prompt:
            case "retrieval":
                return retrieval
            case "utility":
                return utility
            case "multi_retrieval":
                return more if isinstance(more, str) else more[sentence]
            case "relevance":
                return (passages or {})[title][0]
        return (passages or {})[title][1]

    return label


def output(one: Decisions) -> str:
    assert one.augmented is not None, one.failure
    return one.augmented.output


def shown(name: str) -> str:
    return f"[Retrieval]<paragraph>{name}\ntext {name}</paragraph>"


ONE = GeneratorRow("Who?", "It was her.", id="1", dataset_name="nq")
