"""The nano rationale model: what it is trained on, and that it names documents and answers.
Bounds are far below what `nano_training.evaluate_rationales` measures."""

from functools import cache

import pytest

from nano_training.completions import encode
from nano_training.evaluate_rationales import on_the_made_up_world
from nano_training.rationales import (
    ABOUT_DOCUMENT,
    BRIEFLY,
    COPIED,
    JUDGED,
    Asked,
    Reading,
    completions,
    new_reading,
    rationale,
)
from nano_training.tokenizer import load_tokenizer
from nano_training.world import World
from selfcorrect_rag import create_instruct_rag
from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.nano import demo_index, load_rationale_model, rationale_model_path
from selfcorrect_rag.prompts.rationale.conclusions import final_answer
from selfcorrect_rag.prompts.rationale.documents import read_documents
from selfcorrect_rag.settings import InstructRAGSettings
from selfcorrect_rag.training.consistency import contains_answer


@cache
def llm() -> TransformersReflectionLLM:
    return load_rationale_model()


def titles(reading: Reading) -> list[str]:
    return [page.title for page in reading.pages]


def written(world: World, reading: Reading, asked: Asked) -> str:
    return " ".join(piece.text for piece in rationale(world, reading, asked))


def test_it_ships_small_and_with_its_card() -> None:
    files = list(rationale_model_path().iterdir())
    assert "README.md" in [file.name for file in files]
    assert sum(file.stat().st_size for file in files) < 20 * 2**20


def test_the_teacher_is_consistent_and_read_as_it_means() -> None:
    world = World("teacher")
    misread = 0
    for _ in range(100):
        reading = new_reading(world)
        for asked in reading.asked:
            text = written(world, reading, asked)
            read = read_documents(text, titles(reading))
            if asked.gold is None:
                assert not read.useful
                continue
            assert contains_answer(text, [asked.case.target])
            misread += read.useful != [asked.gold + 1]
            assert not read.missing
            if "." not in asked.case.target:
                # A single letter keeps its full stop: it may be an initial.
                assert final_answer(text).rstrip(".") == asked.case.target
    assert misread <= 3  # words of a verdict that stand in the document that is read out


def test_the_teacher_reads_up_to_the_sentence_that_answers_and_dismisses_what_lacks_it() -> None:
    world = World("reads")
    dismissed = 0
    for _ in range(60):
        reading = new_reading(world)
        for asked in reading.asked:
            if asked.gold is None:
                continue
            gold = reading.pages[asked.gold]
            text = written(world, reading, asked)
            read = text.split(f"Document [{asked.gold + 1}]")[1]
            last = next(i for i, said in enumerate(gold.sentences) if asked.case.value in said)
            assert gold.sentences[last] in read
            assert not any(said in read for said in gold.sentences[last + 1 :])
            if asked.close is not None and asked.close < asked.gold:
                assert asked.close + 1 in read_documents(text, titles(reading)).dismissed
                dismissed += 1
    assert dismissed > 5


def test_questions_on_shared_documents_are_branches_that_learn_completions_alone() -> None:
    tokenizer = load_tokenizer(rationale_model_path())
    made = completions(World("branches"), new_reading(World("branches")))
    row = encode(tokenizer, made)
    columns = list(zip(row.ids, row.branch, row.weights, row.positions, row.hints, strict=True))
    for branch, (asked, pieces) in enumerate(made, start=1):
        seen = [column for column in columns if column[1] in (0, branch)]
        prompt = tokenizer("".join(piece.text for piece in asked))["input_ids"]
        assert [column[0] for column in seen][: len(prompt)] == prompt
        assert [column[3] for column in seen] == list(range(len(seen)))
        learned = [(i, weight) for i, _, weight, _, _ in seen if weight]
        completion = " ".join(piece.text for piece in pieces)
        assert tokenizer.decode([i for i, _ in learned]) == f"{completion}</s>"
        for weight in (COPIED, JUDGED):
            counted = tokenizer.decode([i for i, of in learned if of == weight])
            assert counted == " ".join(piece.text for piece in pieces if piece.weight == weight)


def test_tokens_are_told_which_document_they_are_of_or_about() -> None:
    tokenizer = load_tokenizer(rationale_model_path())
    world = World("told")
    reading = new_reading(world)
    made = completions(world, reading)
    row = encode(tokenizer, made)
    for n, page in enumerate(reading.pages, start=1):
        of = [i for i, hint in zip(row.ids, row.hints, strict=True) if hint == n]
        assert f"Document [{n}] (Title: {page.title})" in tokenizer.decode(of)
    about = {hint - ABOUT_DOCUMENT for hint in row.hints if hint >= ABOUT_DOCUMENT}
    gold = {asked.gold + 1 for asked in reading.asked if asked.gold is not None}
    close = {asked.close + 1 for asked in reading.asked if asked.close is not None}
    assert gold | {0} <= about <= gold | close | {0}


def test_names_and_wordings_that_it_never_saw() -> None:
    figures = on_the_made_up_world(llm(), cases=40)
    assert figures["instruct_rag"]["contained"] > 0.65
    assert figures["instruct_rag"]["document"] > 0.7
    assert figures["instruct_rag"]["concluded"] > figures["ralm"]["concluded"] + 0.2


@pytest.mark.parametrize("mode", ["ft", "ralm"])
def test_through_the_graph(mode: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    index = demo_index(tmp_path_factory.getbasetemp() / "demo")
    settings = InstructRAGSettings(rationale_tokens=400, instruction=BRIEFLY)
    graph = create_instruct_rag(llm(), index.as_retriever(), settings=settings)
    asked: dict[str, str] = {"question": "Who wrote Don Quixote?"}
    result = graph.invoke(asked, context={"mode": mode})  # type: ignore[arg-type]
    assert result["answer"]
    if mode == "ft":
        assert "Miguel de Cervantes" in result["answer"]
        (useful,) = result["useful_documents"]
        assert result["passages"][useful].metadata["title"] == "Don Quixote"
        assert f"[{result['citations'][0]['number']}]" in result["rationale"]
