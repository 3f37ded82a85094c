"""Labelling by a model: bounded, retried, counted, and never done twice."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableLambda

from selfcorrect_rag.errors import BadRun, EngineFailed
from selfcorrect_rag.training import labelling as module
from selfcorrect_rag.training.labelling import Labelling, LabellingCost, LabelRequest, Report
from tests.providers import Slow
from tests.training.scripted import Model, lines

REQUESTS = [LabelRequest(f"{i}?", "even" if i % 2 == 0 else "odd", {"i": i}) for i in range(12)]


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def patient(model: Runnable[Any, Any]) -> Runnable[Any, Any]:
        return model.with_retry(stop_after_attempt=module.MAX_TRIES, wait_exponential_jitter=False)

    monkeypatch.setattr(module, "_with_retry", patient)


def read(request: LabelRequest, answer: str) -> Mapping[str, Any] | None:
    return {"label": int(answer)} if answer.isdigit() else None


def make(out: Path, requests: list[LabelRequest] = REQUESTS, **options: Any) -> Labelling:
    return Labelling(requests, read, out, {"model": "m"}, **options)


def square(prompt: str) -> AIMessage:
    tokens = {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4}
    return AIMessage(str(int(prompt[:-1]) ** 2), usage_metadata=tokens)  # type: ignore[arg-type]


def run(labelling: Labelling, model: Model, way: str, **options: Any) -> Report:
    if way == "sync":
        return labelling.run(model.runnable, **options)
    return asyncio.run(labelling.arun(model.runnable, **options))


both = pytest.mark.parametrize("way", ["sync", "async"])


@both
def test_each_is_asked_once_and_rows_stand_in_order(tmp_path: Path, way: str) -> None:
    model, done = Model(square), []
    report = run(make(tmp_path / "a.jsonl"), model, way, on_done=lambda: done.append(1))
    assert sorted(model.asked) == sorted(request.prompt for request in REQUESTS)
    rows = lines(tmp_path / "a.jsonl")
    assert [(row["i"], row["label"]) for row in rows] == [(i, i * i) for i in range(12)]
    assert [row["key"] for row in rows] == [request.key for request in REQUESTS]
    assert rows[1]["group"] == "odd"
    each = {"labelled": 6, "malformed": 0, "failed": 0}
    assert report == Report({"even": each, "odd": each}, 12, 36, 12)
    assert len(done) == 12


@both
def test_nothing_missing_is_no_call(tmp_path: Path, way: str) -> None:
    run(make(tmp_path / "a.jsonl"), Model(square), way)
    before, model = (tmp_path / "a.jsonl").read_bytes(), Model(square)
    again = make(tmp_path / "a.jsonl")
    assert again.cost() == LabellingCost(0, 0)
    report = run(again, model, way)
    assert model.asked == []
    assert report.calls == 0
    assert report.outcomes["even"]["labelled"] == 6
    assert (tmp_path / "a.jsonl").read_bytes() == before


def test_more_requests_are_added_and_fewer_lose_nothing(tmp_path: Path) -> None:
    out, model = tmp_path / "a.jsonl", Model(square)
    make(out, REQUESTS[4:6]).run(model.runnable)
    make(out, [*REQUESTS[:3], *REQUESTS[5:6]]).run(model.runnable)
    assert sorted(model.asked) == ["0?", "1?", "2?", "4?", "5?"]
    assert [row["i"] for row in lines(out)] == [0, 1, 2, 5], "the rows given, and no other"
    report = make(out, REQUESTS[5:3:-1]).run(model.runnable)
    assert report.calls == 0, "what was paid for is kept"
    assert [row["i"] for row in lines(out)] == [5, 4]


def test_equal_requests_are_one(tmp_path: Path) -> None:
    model = Model(square)
    labelling = make(tmp_path / "a.jsonl", [REQUESTS[1], LabelRequest("1?", "odd", {"i": 99})])
    assert labelling.cost().calls == 1
    labelling.run(model.runnable)
    assert model.asked == ["1?"]
    assert [row["i"] for row in lines(tmp_path / "a.jsonl")] == [1]
    assert LabelRequest("1?", "odd").key != LabelRequest("1?", "even").key


@both
def test_malformed_answers_are_asked_for_again_then_discarded(tmp_path: Path, way: str) -> None:
    """Official defect: no count of what was discarded, by group."""
    seen: list[str] = []

    def answer(prompt: str) -> AIMessage:
        seen.append(prompt)
        if prompt == "3?" or (prompt == "4?" and seen.count("4?") == 1):
            return AIMessage(f"Hm, {len(seen)}.")
        return square(prompt)

    out = tmp_path / "a.jsonl"
    report = run(make(out, max_attempts=3), Model(answer), way)
    assert (seen.count("3?"), seen.count("4?"), seen.count("5?")) == (3, 2, 1)
    assert report.outcomes["odd"] == {"labelled": 5, "malformed": 1, "failed": 0}
    assert report.outcomes["even"] == {"labelled": 6, "malformed": 0, "failed": 0}
    assert report.calls == 15
    assert [row["i"] for row in lines(out)] == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11]
    (failure,) = lines(tmp_path / "a.jsonl.run/failures.jsonl")
    assert failure["reason"] == "malformed"
    assert failure["key"] == REQUESTS[3].key
    assert len(failure["answers"]) == 3
    again = make(out)
    assert again.pending == [], "it is settled"
    assert run(again, Model(square), way).outcomes == report.outcomes


@both
def test_what_raises_is_tried_again_now_and_by_the_next_run(tmp_path: Path, way: str) -> None:
    seen: list[str] = []

    def answer(prompt: str) -> AIMessage:
        seen.append(prompt)
        if prompt == "3?" or (prompt == "4?" and seen.count("4?") < 4):
            raise TimeoutError("slow model")
        return square(prompt)

    out = tmp_path / "a.jsonl"
    report = run(make(out), Model(answer), way)
    assert (seen.count("3?"), seen.count("4?")) == (4, 4)
    assert report.outcomes["odd"] == {"labelled": 5, "malformed": 0, "failed": 1}
    assert report.calls == 11
    (failure,) = lines(tmp_path / "a.jsonl.run/failures.jsonl")
    assert (failure["reason"], failure["answers"]) == ("TimeoutError: slow model", [])
    model = Model(square)
    report = run(make(out), model, way)
    assert model.asked == ["3?"]
    assert report.outcomes["odd"] == {"labelled": 6, "malformed": 0, "failed": 0}
    assert [row["i"] for row in lines(out)] == list(range(12))


def test_a_call_that_raises_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    waits: list[float] = []
    monkeypatch.setattr("tenacity.nap.time.sleep", waits.append)

    def answer(prompt: str) -> AIMessage:
        if len(waits) < 3:
            raise TimeoutError
        return square(prompt)

    make(tmp_path / "a.jsonl", REQUESTS[:1]).run(Model(answer).runnable)
    assert [int(seconds) for seconds in waits] == [1, 2, 4], "and up to a second more"
    assert lines(tmp_path / "a.jsonl")[0]["label"] == 0


@both
def test_a_model_that_is_gone_stops_the_run(tmp_path: Path, way: str) -> None:
    def answer(prompt: str) -> AIMessage:
        if int(prompt[:-1]) >= 5:
            raise ConnectionError("no\nroute")
        return square(prompt)

    requests = [LabelRequest(f"{i}?", "all") for i in range(500)]
    model = Model(answer)
    with pytest.raises(EngineFailed, match=r"20 requests .* with ConnectionError: no route;"):
        run(make(tmp_path / "a.jsonl", requests), model, way, max_concurrency=4)
    assert len(set(model.asked)) <= 5 + 20 + 4
    again = Model(square)
    run(make(tmp_path / "a.jsonl", requests), again, way)
    assert len(again.asked) == 495
    assert [row["label"] for row in lines(tmp_path / "a.jsonl")] == [i * i for i in range(500)]


@both
def test_concurrency_is_bounded_and_used(tmp_path: Path, way: str) -> None:
    slow, model = Slow(answer=lambda prompt: "1", seconds=0.01), Model()
    model.runnable = slow
    run(make(tmp_path / "a.jsonl"), model, way, max_concurrency=3)
    assert slow.busiest == 3


@both
def test_an_interruption_keeps_what_was_answered(tmp_path: Path, way: str) -> None:
    def stop() -> None:
        done.append(1)
        if len(done) == 5:
            raise KeyboardInterrupt

    done: list[int] = []
    model, out = Model(square), tmp_path / "a.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run(make(out), model, way, max_concurrency=1, on_done=stop)
    assert len(model.asked) == 5
    assert len(lines(tmp_path / "a.jsonl.run/labels.jsonl")) == 5
    assert not out.exists()
    run(make(out), model, way)
    assert len(model.asked) == 12
    assert [row["i"] for row in lines(out)] == list(range(12))


@both
def test_one_row_that_cannot_be_kept_ends_all_calls(tmp_path: Path, way: str) -> None:
    def fail() -> None:
        done.append(1)
        if len(done) == 5:
            raise RuntimeError("not kept")

    done: list[int] = []
    slow, model = Slow(answer=lambda prompt: "1", seconds=0.005), Model()
    model.runnable = slow
    requests = [LabelRequest(f"{i}?", "all") for i in range(200)]
    labelling = make(tmp_path / "a.jsonl", requests)
    with pytest.raises(RuntimeError, match="not kept"):
        run(labelling, model, way, max_concurrency=4, on_done=fail)
    assert len(done) <= 5 + 2 * 4


async def test_a_cancelled_run_asks_no_more(tmp_path: Path) -> None:
    asked: list[str] = []

    async def later(prompt: str) -> str:
        asked.append(prompt)
        await asyncio.sleep(0.01)
        return "1"

    slow = RunnableLambda(lambda prompt: "1", later)
    task = asyncio.create_task(make(tmp_path / "a.jsonl").arun(slow, max_concurrency=2))
    await asyncio.sleep(0.015)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    so_far = len(asked)
    await asyncio.sleep(0.03)
    assert 2 <= len(asked) == so_far < 12


def test_half_a_last_row_is_done_again_and_no_other(tmp_path: Path) -> None:
    out, journal = tmp_path / "a.jsonl", tmp_path / "a.jsonl.run/labels.jsonl"
    make(out).run(Model(square).runnable, max_concurrency=1)
    written, whole = out.read_bytes(), journal.read_bytes()
    for cut in range(1, len(whole.splitlines()[-1]) + 1):
        journal.write_bytes(whole[:-cut])
        model = Model(square)
        make(out).run(model.runnable)
        assert model.asked == ["11?"]
        assert (out.read_bytes(), journal.read_bytes()) == (written, whole)


def test_other_settings_do_not_go_on(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    Labelling(REQUESTS, read, out, {"model": "another"}).cost()
    make(out).run(Model(square).runnable)
    with pytest.raises(BadRun, match="other settings"):
        Labelling(REQUESTS, read, out, {"model": "another"})
    assert len(lines(out)) == 12


def test_two_runs_never_write_to_one_file(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    early = make(out, REQUESTS[:3])

    def meddle(prompt: str) -> AIMessage:
        with pytest.raises(BadRun, match="another run"):
            make(out).run(Model(square).runnable)
        return square(prompt)

    make(out, REQUESTS[:1]).run(Model(meddle).runnable)
    model = Model(square)
    early.run(model.runnable)
    assert sorted(model.asked) == ["1?", "2?"], "what another run has asked since is known"
    assert [row["i"] for row in lines(out)] == [0, 1, 2]


def test_what_was_labelled_since_has_not_failed(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"

    def answer(prompt: str) -> str:
        if prompt == "3?":
            raise TimeoutError
        return "?" if prompt == "4?" else "1"

    def failed() -> set[str]:
        return {row["key"] for row in lines(tmp_path / "a.jsonl.run/failures.jsonl")}

    make(out).run(Model(answer).runnable)
    assert failed() == {REQUESTS[3].key, REQUESTS[4].key}
    make(out).run(Model(square).runnable)
    assert failed() == {REQUESTS[4].key}


def test_where_all_fails_the_file_is_empty(tmp_path: Path) -> None:
    for _ in range(2):
        make(tmp_path / "a.jsonl").run(Model(lambda prompt: "?").runnable)
        assert (tmp_path / "a.jsonl").read_bytes() == b""


@pytest.mark.parametrize("text", ['{"a": 1}\n', "words", '{"key": "a"}\n'])
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, text: str) -> None:
    out = tmp_path / "a.jsonl"
    out.write_text(text)
    with pytest.raises(BadRun, match="not of this command's making"):
        make(out)
    assert out.read_text() == text
    with pytest.raises(BadRun, match="is a folder"):
        make(tmp_path)


def test_half_a_surrogate_pair_is_kept(tmp_path: Path) -> None:
    request = LabelRequest("\ud83d?", "all", {"text": "\ud83d \u2028 é"})
    for _ in range(2):
        Labelling([request], lambda r, a: {"a": a}, tmp_path / "a.jsonl", {}).run(
            RunnableLambda(lambda prompt: "\udc00")
        )
        (row,) = lines(tmp_path / "a.jsonl")
        assert (row["text"], row["a"]) == ("\ud83d \u2028 é", "\ufffd")


def test_the_cost_is_near_the_prompts_length(tmp_path: Path) -> None:
    labelling = make(
        tmp_path / "a.jsonl", [LabelRequest("word " * 400, "all"), LabelRequest("x", "all")]
    )
    calls, tokens = labelling.cost()
    assert calls == 2
    assert 480 < tokens < 530
    assert list(tmp_path.iterdir()) == []


def test_a_plain_llm_does_too(tmp_path: Path) -> None:
    report = make(tmp_path / "a.jsonl").run(FakeListLLM(responses=["7"]), max_concurrency=1)
    assert report.outcomes["odd"]["labelled"] == 6
    assert lines(tmp_path / "a.jsonl")[3]["label"] == 7


def test_bounds(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_attempts is 0"):
        make(tmp_path / "a.jsonl", max_attempts=0)
    for way in ("sync", "async"):
        with pytest.raises(ValueError, match="max_concurrency is 0"):
            run(make(tmp_path / "a.jsonl"), Model(square), way, max_concurrency=0)
