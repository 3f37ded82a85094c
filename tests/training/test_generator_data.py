"""Generator data whole: critics, an index, what rows and report say."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from selfcorrect_rag.demo import demo_index, demo_questions
from selfcorrect_rag.models.critic import Critic, critic_input
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS
from selfcorrect_rag.prompts.critique import Instance
from selfcorrect_rag.search import Index
from selfcorrect_rag.training.generator_data import (
    GeneratorDataCost,
    GeneratorDataReport,
    amake_generator_data,
    generator_data_cost,
)
from selfcorrect_rag.training.generator_rows import GeneratorRow, order_faults, read_generator_rows
from tests.training.generator_runs import ROWS, SETTINGS, Shelf, files, make, opinionated
from tests.training.scripted import Model, lines
from tests.training.teacher import asked_about


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with demo_index(tmp_path_factory.getbasetemp() / "demo") as index:
        yield index


@pytest.fixture(scope="module")
def critic() -> Critic:
    return opinionated()


def test_from_the_demo_corpus_with_a_real_critic(
    tmp_path: Path, critic: Critic, index: Index
) -> None:
    out = tmp_path / "out.jsonl"
    finished: list[int] = []
    report = make(out, critic, index.as_retriever(3), chunk_size=9, on_rows=finished.append)
    rows = read_generator_rows(out)
    assert finished == [9, 9, 5], "official defect: what is left over is lost"
    assert [row._replace(output="") for row in rows] == [r._replace(output="") for r in ROWS]
    assert [fault for row in rows for fault in order_faults(row.output)] == []
    assert report.written == report.rows == 23
    assert report.failed == report.malformed == report.look_alikes == report.unfound == 0
    judged = sum(sum(counts.values()) for counts in report.labels.values())
    assert report.labels["utility"].keys() <= {f"[Utility:{i}]" for i in range(1, 6)}
    assert 0 < report.calls < judged / 4, "eight cases a forward pass, where there are so many"
    decisions = lines(tmp_path / "out.jsonl.run" / "decisions.jsonl")
    assert [one["augmented"] for one in decisions] == lines(out)
    assert all(0 < one["utility"]["probability"] <= 1 for one in decisions)
    titles = {question["title"] for question in demo_questions()[:23]}
    found = {one["passages"][0]["title"] for one in decisions if one["passages"]}
    assert len(found & titles) > len(found) / 2
    assert report.retrieved is not None
    assert report.retrieved > 0.5
    assert report.read == sum(row.output.count("<paragraph>") for row in rows) > 0
    assert files(out) == {"decisions.jsonl", "settings.json", "lock"}


def test_a_critic_gives_only_what_a_table_offers_and_how_sure_it_is(critic: Critic) -> None:
    instance = Instance("Who?", segment="It was her.", evidence="Her.")
    two_way = critic_input(CRITIQUE_PROMPTS["retrieval"], instance)
    assert two_way.tokens == ("[Retrieval]", "[No Retrieval]")
    others = [two_way._replace(input=f"{two_way.input} {i}") for i in range(40)]
    assert {*critic.judge(others)} <= {*two_way.tokens}
    assert "[Continue to Use Evidence]" in critic.judge([a._replace(tokens=()) for a in others])
    asked = critic_input(CRITIQUE_PROMPTS["relevance"], instance)
    [batch] = critic.answers([asked, asked._replace(tokens=("[Relevant]",))])
    ids = critic.tokens.fit(critic.tokens.prompt_ids(asked))
    either = [
        critic.tokenizer(token, add_special_tokens=False)["input_ids"][0]
        for token in ("[Irrelevant]", "[Relevant]")
    ]
    with torch.no_grad():
        logits = critic.model(torch.tensor([ids])).logits[0, -1, either]
    shares = dict(zip(("[Irrelevant]", "[Relevant]"), logits.softmax(0).tolist(), strict=True))
    assert batch[0].probabilities == pytest.approx(shares, rel=1e-4)
    assert batch[0].probability == max(batch[0].probabilities.values())
    assert batch[0].token == ("[Irrelevant]", "[Relevant]")[logits.argmax().item()]
    assert batch[1] == ("[Relevant]", {"[Relevant]": 1.0})


def test_the_twins_are_alike(tmp_path: Path, critic: Critic, index: Index) -> None:
    for name, either in (("critic", critic), ("model", Model().runnable)):
        now, later = tmp_path / f"{name}-now", tmp_path / f"{name}-later"
        report = make(now, either, index.as_retriever(3), ROWS[:6])
        assert report == asyncio.run(
            amake_generator_data(either, index.as_retriever(3), ROWS[:6], later, SETTINGS)
        )
        assert now.read_bytes() == later.read_bytes()
        assert report.written == 6


def test_rows_do_not_depend_on_what_is_decided_beside_them(tmp_path: Path, critic: Critic) -> None:
    for together in (1, 5, 64):
        make(tmp_path / str(together), critic, Shelf().runnable, chunk_size=together)
    assert len({(tmp_path / str(together)).read_bytes() for together in (1, 5, 64)}) == 1


def by_hand(prompt: str) -> str:
    """Retrieval for a question, not for a request; of three passages the second supports it."""
    asked = asked_about(prompt)
    verdict = prompt.splitlines()[-1]
    if verdict == "Need retrieval?":
        return "[Yes]" if "?" in asked.replace(verdict, "") else "[No]"
    if verdict == "Perceived utility:":
        return "4"
    if verdict == "Score:":
        return (
            "[Partially supported]" if "Evidence: T1" in asked else "[No support / Contradictory]"
        )
    if "[Continue to Use Evidence]" in prompt:
        return "[No Retrieval]" if "Output: I think" in asked else "[Retrieval]"
    return "[Irrelevant]" if "Evidence: T0" in asked else "[Relevant]"


def test_a_report_by_hand(tmp_path: Path) -> None:
    model, shelf = Model(by_hand), Shelf()
    rows = [
        GeneratorRow("Who?", "It was her. I think so."),
        GeneratorRow("Sing!", "La [Relevant] la."),
        GeneratorRow("Who?", "It was her. I think so."),
    ]
    cost = generator_data_cost(rows, tmp_path / "out", SETTINGS)
    assert cost == GeneratorDataCost(rows=2, fewest=4, most=4 + 3 * 7)
    report = make(tmp_path / "out", model.runnable, shelf.runnable, rows)
    passage = "<paragraph>T1\nOn Who? It was her., part 1.</paragraph>"
    read = (
        f"[Retrieval]{passage}[Relevant]It was her.[Partially supported]"
        "[No Retrieval]I think so.[Utility:4]"
    )
    sung = "[No Retrieval]La \u2045Relevant] la.[Utility:4]"
    assert [row["output"] for row in lines(tmp_path / "out")] == [read, sung, read]
    assert report == GeneratorDataReport(
        rows=3,
        written=3,
        failed=0,
        malformed=0,
        labels={
            "retrieval": {"[No Retrieval]": 1, "[Retrieval]": 2},
            "multi_retrieval": {"[No Retrieval]": 2, "[Retrieval]": 2},
            "relevance": {"[Irrelevant]": 2, "[Relevant]": 4},
            "groundness": {"[No support / Contradictory]": 2, "[Partially supported]": 2},
            "utility": {"[Utility:4]": 3},
        },
        retrieved=2 / 3,
        segments=4,
        read=2,
        relevant=1.0,
        supported=1.0,
        unfound=0,
        look_alikes=1,
        calls=4 + 2 + 3 + 2,
        queries=2,
    )
    assert len(model.asked) == 11, "equal rows are judged once"
    assert len(shelf.asked) == 2
    assert generator_data_cost(rows, tmp_path / "out", SETTINGS) == (0, 0, 0)


def test_text_that_is_no_unicode_is_carried_through(tmp_path: Path) -> None:
    row = GeneratorRow("Who \ud83d?", "It was \ud83d her. It was so.")
    report = make(tmp_path / "out", opinionated(), Shelf().runnable, [row])
    model = make(tmp_path / "model", Model(by_hand).runnable, Shelf().runnable, [row])
    assert report.written == model.written == 1
    [made] = lines(tmp_path / "model")
    assert made["instruction"] == row.instruction
    assert "It was \ud83d her." in made["output"]


def test_blank_passages_are_none(tmp_path: Path) -> None:
    blank = RunnableLambda(lambda query: [Document(" "), Document("")])
    report = make(tmp_path / "out", Model().runnable, blank)
    assert report.read == 0
    assert report.unfound == report.segments > 0
