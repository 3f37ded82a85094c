"""Generator data whole: critics, an index, kills in the middle, failures, and the report."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableLambda

from selfcorrect_rag.aspect import Instance
from selfcorrect_rag.critic_prompts import ASPECTS
from selfcorrect_rag.errors import BadTrainingData, EngineFailed, RetrievalFailed
from selfcorrect_rag.models.critic import Critic
from selfcorrect_rag.nano import demo_index, demo_questions
from selfcorrect_rag.search import ChromaIndex
from selfcorrect_rag.training import labelling
from selfcorrect_rag.training.critic_data import critic_asked
from selfcorrect_rag.training.generator_data import (
    GeneratorDataCost,
    GeneratorDataSettings,
    amake_generator_data,
    generator_data_cost,
    make_generator_data,
)
from selfcorrect_rag.training.generator_report import GeneratorDataReport
from selfcorrect_rag.training.generator_rows import (
    GeneratorRow,
    order_faults,
    read_generator_rows,
)
from tests.conftest import byte_level_tokenizer, random_model
from tests.training.teacher import asked_about, label

SETTINGS = GeneratorDataSettings("critic", "index", passages=3)
ROWS = [
    GeneratorRow(
        question["question"],
        f"It is {question['answers'][0]}. That is what the books say. I like it.",
        id=str(number),
        dataset_name="demo",
    )
    for number, question in enumerate(demo_questions()[:23])
]


class Model:
    """A LangChain model by rule that counts what it is asked, and can be made to fail."""

    def __init__(self, answer: Callable[[str], str] | None = None) -> None:
        self.asked: list[str] = []
        self.limit = sys.maxsize
        self._answer = answer or (lambda prompt: label(prompt, essays=False))
        self.runnable: Runnable[Any, Any] = RunnableLambda(self.now, self.later)

    def now(self, prompt: str) -> str:
        if len(self.asked) >= self.limit:
            raise KeyboardInterrupt
        answer = self._answer(prompt)
        self.asked.append(prompt)
        return answer

    async def later(self, prompt: str) -> str:
        await asyncio.sleep(0)
        return self.now(prompt)


class Shelf:
    """A retriever that finds three passages for anything, and counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.runnable: Runnable[str, list[Document]] = RunnableLambda(self.now)

    def now(self, query: str) -> list[Document]:
        self.asked.append(query)
        return [
            Document(f"On {query}, part {i}.", metadata={"title": f"T{i}", "score": 1 - i / 10})
            for i in range(3)
        ]


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labelling, "TRIES", 1)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChromaIndex]:
    with demo_index(tmp_path_factory.getbasetemp() / "demo") as index:
        yield index


@pytest.fixture(scope="module")
def critic() -> Critic:
    return opinionated()


def opinionated(**options: Any) -> Critic:
    """Random weights, and every label somewhere."""
    words = byte_level_tokenizer()
    return Critic(random_model(len(words), 400), words, **options)


def make(
    out: Path, critic: Any, retriever: Any, rows: list[GeneratorRow] = ROWS, **options: Any
) -> GeneratorDataReport:
    return make_generator_data(critic, retriever, rows, out, SETTINGS, **options)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def files(out: Path) -> set[str]:
    return {path.name for path in out.with_name(f"{out.name}.run").iterdir()}


def test_from_the_demo_corpus_with_a_real_critic(
    tmp_path: Path, critic: Critic, index: ChromaIndex
) -> None:
    out = tmp_path / "out.jsonl"
    finished: list[int] = []
    report = make(out, critic, index.as_retriever(3), together=9, on_rows=finished.append)
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
    two_way = critic_asked(ASPECTS["retrieval"], instance)
    assert two_way.tokens == ("[Retrieval]", "[No Retrieval]")
    others = [two_way._replace(input=f"{two_way.input} {i}") for i in range(40)]
    assert {*critic.judge(others)} <= {*two_way.tokens}
    assert "[Continue to Use Evidence]" in critic.judge([a._replace(tokens=()) for a in others])
    asked = critic_asked(ASPECTS["relevance"], instance)
    [batch] = critic.answers([asked, asked._replace(tokens=("[Relevant]",))])
    ids = critic.fitted(critic.prompt_ids(asked))
    either = [
        critic.tokenizer(token, add_special_tokens=False)["input_ids"][0]
        for token in ("[Irrelevant]", "[Relevant]")
    ]
    with torch.no_grad():
        logits = critic.model(torch.tensor([ids])).logits[0, -1, either]
    assert batch[0].probability == pytest.approx(logits.softmax(0).max().item(), rel=1e-4)
    assert batch[0].token == ("[Irrelevant]", "[Relevant]")[logits.argmax().item()]
    assert batch[1] == ("[Relevant]", pytest.approx(1.0))


def test_the_twins_are_alike(tmp_path: Path, critic: Critic, index: ChromaIndex) -> None:
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
        make(tmp_path / str(together), critic, Shelf().runnable, together=together)
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
    sung = "[No Retrieval]La [\u200bRelevant] la.[Utility:4]"
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


def test_what_was_interrupted_goes_on_with_nothing_twice(tmp_path: Path) -> None:
    whole, shelf = Model(), Shelf()
    report = make(tmp_path / "whole", whole.runnable, shelf.runnable, together=7)
    for share in (0.02, 0.4, 0.7, 0.95):
        model, searched = Model(), Shelf()
        model.limit = int(share * len(whole.asked))
        out = tmp_path / f"cut at {share}"
        with pytest.raises(KeyboardInterrupt):
            make(out, model.runnable, searched.runnable, together=7, max_concurrency=1)
        assert not out.exists()
        rest, searched_again = Model(), Shelf()
        again = make(out, rest.runnable, searched_again.runnable, together=7)
        assert out.read_bytes() == (tmp_path / "whole").read_bytes()
        assert Counter(model.asked + rest.asked) == Counter(whole.asked)
        assert Counter(searched.asked + searched_again.asked) == Counter(shelf.asked)
        assert again.labels == report.labels
        assert again.calls == len(rest.asked) < report.calls
        assert files(out) == {"decisions.jsonl", "settings.json", "lock"}


def test_a_critic_that_was_interrupted_judges_nothing_twice(tmp_path: Path) -> None:
    critic = opinionated(batch=4)
    seen: list[str] = []
    decode, limit = critic._decode, 1000

    def counted(prompts: list[list[int]], choices: Any) -> Any:
        if len(seen) > limit:
            raise KeyboardInterrupt
        seen.extend(critic.tokenizer.decode(ids) for ids in prompts)
        return decode(prompts, choices)

    critic._decode = counted  # type: ignore[method-assign]
    make(tmp_path / "whole", critic, Shelf().runnable, ROWS[:6])
    whole = Counter(seen)
    seen.clear()
    limit = 20
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "cut", critic, Shelf().runnable, ROWS[:6])
    limit = 1000
    make(tmp_path / "cut", critic, Shelf().runnable, ROWS[:6])
    assert Counter(seen) == whole
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes()


def test_failures_are_named_and_tried_again_and_the_rest_is_not(tmp_path: Path) -> None:
    def broken(prompt: str) -> str:
        if "Middlemarch" in asked_about(prompt) and prompt.endswith("utility:"):
            raise ConnectionError("no route")
        return label(prompt, essays=False)

    out, shelf = tmp_path / "out", Shelf()
    model = Model(broken)
    report = make(out, model.runnable, shelf.runnable)
    assert (report.rows, report.written, report.failed) == (23, 22, 1)
    [failure] = lines(tmp_path / "out.run" / "failures.jsonl")
    assert failure["reason"] == "ConnectionError: no route"
    assert failure["instruction"] == ROWS[0].instruction
    assert len(lines(out)) == 22
    again = Model()
    report = make(out, again.runnable, shelf.runnable)
    assert (report.written, report.failed) == (23, 0)
    assert sum(prompt.endswith("utility:") for prompt in again.asked) == 1
    assert Counter(again.asked) <= Counter(
        prompt for prompt in again.asked if "Middlemarch" in prompt
    )
    assert not Counter(again.asked) & Counter(model.asked)
    assert lines(out)[0]["instruction"] == ROWS[0].instruction, "rows stand in their order"
    assert files(out) == {"decisions.jsonl", "settings.json", "lock"}


def test_rows_with_malformed_labels_are_discarded_and_settled(tmp_path: Path) -> None:
    def essay(prompt: str) -> str:
        is_one = "Middlemarch" in asked_about(prompt) and prompt.endswith("utility:")
        return "It depends." if is_one else label(prompt, essays=False)

    model = Model(essay)
    report = make(tmp_path / "out", model.runnable, Shelf().runnable)
    assert (report.written, report.failed, report.malformed) == (22, 0, 1)
    assert sum(essay(prompt) == "It depends." for prompt in model.asked) == SETTINGS.attempts
    asked = len(model.asked)
    assert make(tmp_path / "out", model.runnable, Shelf().runnable).malformed == 1
    assert len(model.asked) == asked


def test_a_model_that_fails_for_all_ends_the_run(tmp_path: Path) -> None:
    def broken(prompt: str) -> str:
        raise ConnectionError("no route")

    with pytest.raises(EngineFailed, match="no route"):
        make(tmp_path / "out", Model(broken).runnable, Shelf().runnable)


def test_a_retriever_that_fails_ends_the_run_and_keeps_what_came_before(tmp_path: Path) -> None:
    def broken(query: str) -> list[Document]:
        raise OSError("disk")

    model = Model()
    for run in (
        lambda: make(tmp_path / "out", model.runnable, RunnableLambda(broken)),
        lambda: asyncio.run(
            amake_generator_data(
                model.runnable, RunnableLambda(broken), ROWS, tmp_path / "out", SETTINGS
            )
        ),
    ):
        with pytest.raises(RetrievalFailed, match="disk"):
            run()
    make(tmp_path / "out", model.runnable, Shelf().runnable)
    assert max(Counter(model.asked).values()) == 1


def test_a_file_is_of_one_run_with_one_setting(tmp_path: Path) -> None:
    out = tmp_path / "out"
    make(out, Model().runnable, Shelf().runnable, ROWS[:2])
    others = GeneratorDataSettings("another", "index", passages=3)
    for refused in (
        lambda: generator_data_cost(ROWS, out, others),
        lambda: make_generator_data(Model().runnable, Shelf().runnable, ROWS, out, others),
    ):
        with pytest.raises(BadTrainingData, match=r"other settings \(critic\)"):
            refused()

    def second(prompt: str) -> str:
        with pytest.raises(BadTrainingData, match="another run"):
            make(out, Model().runnable, Shelf().runnable)
        return label(prompt, essays=False)

    make(out, Model(second).runnable, Shelf().runnable, ROWS[:3], max_concurrency=1)


def test_more_rows_are_added_to_a_file(tmp_path: Path) -> None:
    make(tmp_path / "whole", Model().runnable, Shelf().runnable)
    make(tmp_path / "out", Model().runnable, Shelf().runnable, ROWS[:10])
    report = make(tmp_path / "out", (model := Model()).runnable, Shelf().runnable)
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert report.calls == len(model.asked)
    assert sum(prompt.endswith("utility:") for prompt in model.asked) == 13


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
