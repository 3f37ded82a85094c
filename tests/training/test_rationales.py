"""Synthesis of rationales: by any model, resumable, and a report of what came out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.messages import AIMessage

from selfcorrect_rag.errors import BadRun, BadTrainingData, SynthesisFailed
from selfcorrect_rag.old_journal import run_folder
from selfcorrect_rag.prompts.instruct_rag import training_prompt
from selfcorrect_rag.training.rationales import (
    RationaleSettings,
    TokenUsage,
    asynthesize_rationales,
    estimate_usage,
    prompt_for,
    synthesize_rationales,
    write_template_rationales,
)
from selfcorrect_rag.training.samples import Sample
from tests.providers import Slow
from tests.training.scripted import lines


def sample(i: int) -> Sample:
    """Every third has no relevant document."""
    answer = f"the city of C{i}"
    texts = [f"P{i} grew up.", "A mayor." if i % 3 == 0 else f"P{i} was born in {answer}."]
    documents = [Document(text, metadata={"title": f"P{i}"}) for text in texts]
    return Sample(f"Where was P{i} born?", (answer,), tuple(documents))


ROWS = [sample(i) for i in range(12)]


def explain(prompt: str) -> str:
    """Keeps to the answer where a document has it, else to nothing."""
    answer = prompt.split("lead to the answer: ")[1].split(".\n")[0]
    relevant = f"born in {answer}." in prompt
    return f"Document [1] says so: {answer}." if relevant else "No document says so."


def uncounted(prompt: str) -> AIMessage:
    return AIMessage(explain(prompt))


def chat(answer: Callable[[str], Any] = explain) -> Slow:
    return Slow(answer=answer, seconds=0.01)


# What is written


def test_a_row_has_all_that_training_needs(tmp_path: Path) -> None:
    llm, out = chat(), tmp_path / "out.jsonl"
    report = synthesize_rationales(llm, ROWS, out)
    rows = lines(out)
    assert [row["question"] for row in rows] == [sample.question for sample in ROWS]
    assert sorted(llm.prompts) == sorted(prompt_for(row, RationaleSettings()) for row in ROWS)
    shown = ROWS[1].documents[::-1]
    assert rows[1] == {
        "question": "Where was P1 born?",
        "answers": ["the city of C1"],
        "documents": [
            {"title": "P1", "text": "P1 was born in the city of C1."},
            {"title": "P1", "text": "P1 grew up."},
        ],
        "rationale": "Document [1] says so: the city of C1.",
        "consistent": True,
        "prompt": [{"role": "user", "content": training_prompt(ROWS[1].question, shown)}],
        "completion": [{"role": "assistant", "content": "Document [1] says so: the city of C1."}],
    }
    assert rows[0]["consistent"] is False
    assert (report.rows, report.written, report.failed, report.dropped) == (12, 12, 0, 0)
    assert report.consistent == pytest.approx(8 / 12)
    assert (report.relevant, report.consistent_of_relevant) == (8, 1.0)


def test_inconsistent_rationales_can_be_left_out(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    everything = synthesize_rationales(chat(), ROWS, out)
    llm = chat()
    report = synthesize_rationales(llm, ROWS, out, consistent_only=True)
    assert llm.prompts == [], "the filter asks for nothing again"
    assert [row["consistent"] for row in lines(out)] == [True] * 8
    assert (report.written, report.dropped) == (8, 4)
    assert report.consistent == everything.consistent


def test_the_template(tmp_path: Path) -> None:
    report = write_template_rationales(ROWS, tmp_path / "out.jsonl")
    rows = lines(tmp_path / "out.jsonl")
    assert "none of them contain" in rows[0]["rationale"]
    assert "only documents [1] contain" in rows[1]["rationale"], "the best document stands last"
    assert all(row["consistent"] for row in rows)
    assert report.usage.calls == 0


def test_without_answers_rows_need_none(tmp_path: Path) -> None:
    rows = [Sample("Who?", (), ROWS[0].documents), ROWS[1]]
    with pytest.raises(BadTrainingData, match="no answers: Who"):
        synthesize_rationales(chat(), rows, tmp_path / "a")
    llm = chat(lambda prompt: "The city of C1.")
    settings = RationaleSettings(with_answers=False)
    report = synthesize_rationales(llm, rows, tmp_path / "b", settings)
    assert not any("the city of C1; " in prompt for prompt in llm.prompts)
    assert [row["consistent"] for row in lines(tmp_path / "b")] == [None, True]
    assert report.consistent == 1.0


def test_without_documents_training_still_reads_them(tmp_path: Path) -> None:
    llm = chat(lambda prompt: "I know.")
    synthesize_rationales(llm, ROWS[:1], tmp_path / "o", RationaleSettings(with_documents=False))
    assert "Document [" not in llm.prompts[0]
    assert "Document [2]" in lines(tmp_path / "o")[0]["prompt"][0]["content"]


# Any model, sync and async


async def test_async_writes_the_same(tmp_path: Path) -> None:
    for concurrency in (1, 4):
        now, later = chat(), chat()
        one, other = tmp_path / f"{concurrency}.now", tmp_path / f"{concurrency}.later"
        report = synthesize_rationales(now, ROWS, one, max_concurrency=concurrency)
        assert report == await asynthesize_rationales(
            later, ROWS, other, max_concurrency=concurrency
        )
        assert one.read_bytes() == other.read_bytes()
        assert sorted(now.prompts) == sorted(later.prompts)
        assert now.busiest == later.busiest == concurrency


def test_plain_llms_and_lists_of_blocks(tmp_path: Path) -> None:
    llm = FakeListLLM(responses=[" C0 \n"])
    synthesize_rationales(llm, ROWS[:1], tmp_path / "a")
    assert lines(tmp_path / "a")[0]["rationale"] == "C0"
    blocks = AIMessage([{"type": "text", "text": "C0"}])
    synthesize_rationales(chat(lambda prompt: blocks), ROWS[:1], tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# Costs


def test_tokens_that_the_model_counts(tmp_path: Path) -> None:
    report = synthesize_rationales(chat(), ROWS, tmp_path / "out")
    assert report.usage == TokenUsage(12, 12 * 10, 12 * 1, estimated=False)


def test_costs_are_estimated_before(tmp_path: Path) -> None:
    out = tmp_path / "out"
    before = estimate_usage(ROWS + ROWS[:3], out)
    assert not list(tmp_path.iterdir()), "an estimate leaves nothing behind"
    usage = synthesize_rationales(chat(uncounted), ROWS, out).usage
    assert usage.calls == before.calls == 12, "a row that comes twice is asked about once"
    assert usage.prompt_tokens == before.prompt_tokens
    assert usage.estimated
    assert estimate_usage(ROWS, out).calls == 0


# Going on


def test_nothing_is_done_twice(tmp_path: Path) -> None:
    out = tmp_path / "out"
    synthesize_rationales(chat(), ROWS[:5], out)
    llm = chat()
    report = synthesize_rationales(llm, [*ROWS, ROWS[7]], out)
    assert len(llm.prompts) == 7
    assert report.written == 13
    assert report.usage.calls == 12
    assert lines(out)[7] == lines(out)[12]
    whole = tmp_path / "whole"
    synthesize_rationales(chat(), [*ROWS, ROWS[7]], whole)
    assert whole.read_bytes() == out.read_bytes()


def test_other_settings_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    synthesize_rationales(chat(), ROWS[:2], out)
    for settings in (RationaleSettings(dataset="asqa"), RationaleSettings(model="other")):
        with pytest.raises(BadRun, match=r"other settings \((dataset|model)\)"):
            synthesize_rationales(chat(), ROWS, out, settings)


async def test_a_place_that_cannot_be_written_is_refused_before_the_first_call(
    tmp_path: Path,
) -> None:
    folder, file, llm = tmp_path / "folder", tmp_path / "file", chat()
    folder.mkdir()
    file.write_text("mine")
    before = set(tmp_path.iterdir())
    for out, reason in ((folder, "is a folder"), (file, "not of this command's making")):
        with pytest.raises(BadRun, match=reason):
            estimate_usage(ROWS, out)
        with pytest.raises(BadRun, match=reason):
            synthesize_rationales(llm, ROWS, out)
        with pytest.raises(BadRun, match=reason):
            await asynthesize_rationales(llm, ROWS, out)
    assert llm.prompts == []
    assert file.read_text() == "mine"
    assert set(tmp_path.iterdir()) == before


def test_two_runs_never_write_to_one_file(tmp_path: Path) -> None:
    def meddle(prompt: str) -> str:
        with pytest.raises(BadRun, match="another run"):
            synthesize_rationales(chat(), ROWS, tmp_path / "out")
        return explain(prompt)

    report = synthesize_rationales(chat(meddle), ROWS[:1], tmp_path / "out")
    assert report.written == 1
    assert synthesize_rationales(chat(), ROWS, tmp_path / "out").written == 12


def test_failures_are_kept_and_tried_again(tmp_path: Path) -> None:
    out, failures = tmp_path / "out", run_folder(tmp_path / "out") / "failures.jsonl"

    def flaky(prompt: str) -> Any:
        if "P2 " in prompt:
            raise TimeoutError("slow model")
        if "P4 " in prompt:
            return " \n"
        if "P5 " in prompt:
            return AIMessage("Document [", response_metadata={"finish_reason": "length"})
        return explain(prompt)

    report = synthesize_rationales(chat(flaky), ROWS, out)
    assert (report.written, report.failed, report.usage.calls) == (9, 3, 12)
    assert len(lines(out)) == 9
    reasons = {row["question"]: row["reason"] for row in lines(failures)}
    assert reasons == {
        "Where was P2 born?": "TimeoutError: slow model",
        "Where was P4 born?": "ValueError: the model wrote nothing",
        "Where was P5 born?": "ValueError: the rationale was cut at the model's limit of tokens",
    }
    llm = chat()
    report = synthesize_rationales(llm, ROWS, out)
    assert len(llm.prompts) == 3
    assert (report.written, report.failed, report.usage.calls) == (12, 0, 15)
    assert not failures.exists()


@pytest.mark.parametrize(
    "said",
    [
        {"finish_reason": "length"},
        {"finish_reason": "MAX_TOKENS"},
        {"finish_reason": None, "stop_reason": "max_tokens"},
        {"done": True, "done_reason": "length"},
        {"stopReason": "max_tokens"},
        {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
    ],
)
def test_a_cut_rationale_is_a_failure_whoever_says_so(tmp_path: Path, said: dict[str, Any]) -> None:
    cut = chat(lambda prompt: AIMessage("Document [", response_metadata=said))
    report = synthesize_rationales(cut, ROWS[:1], tmp_path / "out")
    assert (report.written, report.failed) == (0, 1)
    (failure,) = lines(run_folder(tmp_path / "out") / "failures.jsonl")
    assert "was cut at the model's limit" in failure["reason"]


def test_a_whole_rationale_is_kept_whatever_else_is_said(tmp_path: Path) -> None:
    said = {"finish_reason": "STOP", "stop_reason": None, "incomplete_details": None}
    whole = chat(lambda prompt: AIMessage(explain(prompt), response_metadata=said))
    assert synthesize_rationales(whole, ROWS[:1], tmp_path / "out").written == 1


async def test_a_model_that_always_fails_is_given_up(tmp_path: Path) -> None:
    def broken(prompt: str) -> str:
        raise PermissionError("wrong\n  key")

    rows = [sample(i) for i in range(400)]
    llm, other = chat(broken), chat(broken)
    with pytest.raises(SynthesisFailed, match=r"50 questions in a row .* wrong key"):
        synthesize_rationales(llm, rows, tmp_path / "now", max_concurrency=4)
    with pytest.raises(SynthesisFailed, match=r"50 questions in a row .* wrong key"):
        await asynthesize_rationales(other, rows, tmp_path / "later", max_concurrency=4)
    for name, asked in (("now", llm.prompts), ("later", other.prompts)):
        assert 50 <= len(asked) < 60
        assert len(lines(run_folder(tmp_path / name) / "failures.jsonl")) == len(asked)


def test_failures_between_successes_are_borne(tmp_path: Path) -> None:
    rows = [sample(i) for i in range(120)]
    odd = {f"P{i} " for i in range(1, 120, 2)}

    def flaky(prompt: str) -> str:
        if any(name in prompt for name in odd):
            raise TimeoutError
        return explain(prompt)

    report = synthesize_rationales(chat(flaky), rows, tmp_path / "out", max_concurrency=2)
    assert (report.written, report.failed) == (60, 60)


def test_a_torn_line_is_as_if_it_had_never_been(tmp_path: Path) -> None:
    out = tmp_path / "out"
    synthesize_rationales(chat(), ROWS, out)
    whole = out.read_bytes()
    journal = run_folder(out) / "rationales.jsonl"
    kept = journal.read_bytes().split(b"\n")[:6]
    journal.write_bytes(b"\n".join(kept) + b'\n{"key": "abc\xc3')
    out.unlink()
    llm = chat()
    synthesize_rationales(llm, ROWS, out)
    assert len(llm.prompts) == 6
    assert out.read_bytes() == whole
    assert len(lines(journal)) == 12, "the torn line is gone"
