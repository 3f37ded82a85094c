"""The nano rationale model: what it is trained on, and that it names documents and answers.
Bounds are far below what `selfcorrect_rag.nano.evaluate_rationales` measures."""

from functools import cache

import pytest

from selfcorrect_rag import create_instruct_rag
from selfcorrect_rag.conclusions import final_answer
from selfcorrect_rag.instruct_settings import InstructRAGSettings
from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.nano import demo_index, load_rationale_model, rationale_model_path
from selfcorrect_rag.nano.evaluate_rationales import on_the_made_up_world
from selfcorrect_rag.nano.rationales import BRIEFLY, Reading, new_reading, rationale, training_texts
from selfcorrect_rag.nano.tokenizer import load_tokenizer
from selfcorrect_rag.nano.train_rationales import NUMBER_WEIGHT, encode
from selfcorrect_rag.nano.world import World
from selfcorrect_rag.rationales import read_documents
from selfcorrect_rag.training.consistency import contains_answer


@cache
def llm() -> TransformersReflectionLLM:
    return load_rationale_model()


def titles(reading: Reading) -> list[str]:
    return [document.metadata["title"] for document in reading.documents]


def test_it_ships_small_and_with_its_card() -> None:
    files = list(rationale_model_path().iterdir())
    assert "README.md" in [file.name for file in files]
    assert sum(file.stat().st_size for file in files) < 20 * 2**20


def test_the_teacher_is_consistent_and_read_as_it_means() -> None:
    world = World("teacher")
    for _ in range(100):
        reading = new_reading(world)
        for asked in reading.asked:
            written = rationale(world, asked)
            read = read_documents(written, titles(reading))
            if asked.gold is None:
                assert not read.useful
                continue
            assert contains_answer(written, [asked.case.target])
            assert asked.gold + 1 in read.useful
            assert not read.missing
            if "." not in asked.case.target:
                # A single letter keeps its full stop: it may be an initial.
                assert final_answer(written).rstrip(".") == asked.case.target


def test_questions_on_shared_documents_are_branches_that_learn_completions_alone() -> None:
    tokenizer = load_tokenizer(rationale_model_path())
    texts = training_texts(World("branches"), new_reading(World("branches")))
    row = encode(tokenizer, texts)
    for branch, (asked, completion) in enumerate(texts, start=1):
        ids = [i for i, of in zip(row.ids, row.branch, strict=True) if of in (0, branch)]
        prompt = tokenizer(asked)["input_ids"]
        assert ids[: len(prompt)] == prompt
        learned = [
            (i, weight)
            for i, of, weight in zip(row.ids, row.branch, row.weights, strict=True)
            if of == branch and weight
        ]
        assert tokenizer.decode([i for i, _ in learned]) == f"{completion}</s>"
        numbered = tokenizer.decode([i for i, weight in learned if weight == NUMBER_WEIGHT])
        assert ("[" in numbered) == ("[" in completion)
        positions = [
            p for p, of in zip(row.positions, row.branch, strict=True) if of in (0, branch)
        ]
        assert positions == list(range(len(ids)))


def test_names_and_wordings_that_it_never_saw() -> None:
    figures = on_the_made_up_world(cases=40)
    assert figures["instruct_rag"]["contained"] > 0.15
    assert figures["instruct_rag"]["document"] > 0.5


@pytest.mark.parametrize("mode", ["ft", "ralm"])
def test_through_the_graph(mode: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    index = demo_index(tmp_path_factory.getbasetemp() / "demo")
    settings = InstructRAGSettings(rationale_tokens=100, instruction=BRIEFLY)
    graph = create_instruct_rag(llm(), index.as_retriever(), settings=settings)
    asked: dict[str, str] = {"question": "Who wrote Don Quixote?"}
    result = graph.invoke(asked, context={"mode": mode})  # type: ignore[arg-type]
    assert "Miguel de Cervantes" in result["answer"]
    if mode == "ft":
        (useful,) = result["useful_documents"]
        assert result["passages"][useful].metadata["title"] == "Don Quixote"
        assert f"[{result['citations'][0]['number']}]" in result["rationale"]
