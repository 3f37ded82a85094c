"""Which demonstrations a question is shown."""

from typing import Any

import pytest

from selfcorrect_rag import create_instruct_rag
from selfcorrect_rag.errors import BadDemonstrations, ModelFailed
from selfcorrect_rag.state import Demonstration
from tests.instruct_runs import DEMONSTRATIONS, QUESTION, Words, documents, run
from tests.scripted import echo, timeless


def shown(**context: Any) -> list[str]:
    return [d["question"].split()[-1].rstrip("?") for d in run(**context)["demonstrations"]]


def test_fixed_demonstrations_are_the_first() -> None:
    assert shown(selection="fixed", demonstrations=3) == ["Emma", "Ulysses", "Walden"]


def test_random_demonstrations_depend_on_seed_and_question_alone() -> None:
    draws = {tuple(shown(seed=seed)) for seed in range(12)}
    assert len(draws) > 3
    assert shown(seed=7) == shown(seed=7)
    assert len({tuple(shown(question=f"Who is {n}?")) for n in range(12)}) > 3
    assert shown(demonstrations=9) == ["Emma", "Ulysses", "Walden", "Dracula", "Persuasion"]


def test_the_nearest_demonstration_stands_last() -> None:
    near = shown(selection="nearest", question="Is Dracula, Dracula like Emma?", demonstrations=2)
    assert set(near) == {"Emma", "Dracula"}
    (nearest,) = shown(selection="nearest", question="Who is Walden?", demonstrations=1)
    assert nearest == "Walden"
    assert shown(selection="nearest", question="Who is Walden?")[-1] == "Walden"


def test_nearness_is_the_angle_not_the_length() -> None:
    class Long(Words):
        """A demonstration's vector is longer, the further it points away."""

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [[1.0, 0.0] if "Emma" in text else [50.0, 90.0] for text in texts]

        def embed_query(self, text: str) -> list[float]:
            return [1.0, 0.0]

    graph = create_instruct_rag(
        echo(), lambda query: documents(), DEMONSTRATIONS[:2], embeddings=Long()
    )
    context: Any = {"selection": "nearest", "demonstrations": 1}
    result = graph.invoke({"question": QUESTION}, context=context)
    assert [d["question"] for d in result["demonstrations"]] == ["Who wrote Emma?"]


class Counted(Words):
    """Counts embeddings of demonstrations; the first few fail."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__()
        self.embedded, self.failures = 0, failures

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.embedded += 1
        if self.embedded <= self.failures:
            raise ConnectionError("no embeddings")
        return super().embed_documents(texts)


NEAREST: Any = {"selection": "nearest"}


def nearest(embeddings: Words) -> Any:
    return create_instruct_rag(
        echo(), lambda query: documents(), DEMONSTRATIONS, embeddings=embeddings
    )


async def test_demonstrations_are_embedded_once_and_again_after_a_failure() -> None:
    embeddings = Counted(failures=1)
    graph = nearest(embeddings)
    with pytest.raises(ModelFailed, match="no embeddings"):
        graph.invoke({"question": QUESTION}, context=NEAREST)
    first = graph.invoke({"question": QUESTION}, context=NEAREST)
    second = await graph.ainvoke({"question": QUESTION}, context=NEAREST)
    assert embeddings.embedded == 2
    assert timeless(first) == timeless(second)


@pytest.mark.parametrize("selection", ["fixed", "random", "nearest"])
def test_the_question_asked_is_no_demonstration(selection: str) -> None:
    found = shown(selection=selection, question="who  wrote EMMA", demonstrations=9)
    assert sorted(found) == ["Dracula", "Persuasion", "Ulysses", "Walden"]


@pytest.mark.parametrize(
    ("demonstrations", "context", "says"),
    [
        ([], {"mode": "icl"}, "give create_instruct_rag some"),
        ([{"question": "Who?", "answers": ["A"]}], {}, "with a question and rationale"),
        (
            [{"question": "Who?", "rationale": "R"}],
            {"mode": "few_shot"},
            "with a question and answers",
        ),
        ([{"question": "", "rationale": "R"}], {}, "demonstration 1 has no question"),
        ([{"rationale": "R"}], {"selection": "nearest"}, "demonstration 1 has no question"),
        ("demos.jsonl", {"mode": "icl"}, "demonstration 1 is not a dict but a str"),
        (DEMONSTRATIONS, {"selection": "nearest"}, "needs embeddings"),
    ],
)
async def test_demonstrations_that_will_not_do_are_refused(
    demonstrations: list[Demonstration], context: Any, says: str
) -> None:
    graph = create_instruct_rag(echo(), lambda query: documents(), demonstrations)
    with pytest.raises(BadDemonstrations, match=says):
        graph.invoke({"question": QUESTION}, context=context)
    with pytest.raises(BadDemonstrations, match=says):
        await graph.ainvoke({"question": QUESTION}, context=context)
