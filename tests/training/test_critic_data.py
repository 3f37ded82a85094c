"""Critic data: what is asked about which row, and what rows come out."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.errors import BadRun, BadTrainingData
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS
from selfcorrect_rag.prompts.critique import Instance
from selfcorrect_rag.reflection import GROUP_OF
from selfcorrect_rag.training.critic_data import (
    CriticDataSettings,
    CriticRow,
    critic_labelling,
    read_critic_rows,
    read_instances,
    token_counts,
)
from tests.training.critic_runs import SETTINGS, instances, write
from tests.training.scripted import lines
from tests.training.teacher import quick

# What is asked


def test_rows_of_a_file(tmp_path: Path) -> None:
    file = write(
        tmp_path / "rows.jsonl",
        {"instruction": "Who?", "output": "She did."},
        "",
        {"instruction": "Who?", "output": "She did.", "evidence": None, "input": ""},
        {
            "instruction": "Who?",
            "input": "Emma",
            "output": "It is old. She did.",
            "target_output": "She did.",
            "preceding_sentences": "It is old.",
            "evidence": "Emma\u2028is hers.",
            "q_id": "a_1",
            "sent_idx": 1,
        },
        {"instruction": "Who?", "output": "She did.", "preceding_sentences": "It is old."},
        '{"instruction": "Wo?\u2028", "output": ""}',
    )
    assert read_instances(file) == [
        Instance("Who?", output="She did.", segment="She did."),
        Instance("Who?", output="She did.", segment="She did."),
        Instance(
            "Who?", "Emma", "It is old. She did.", "It is old.", "She did.", "Emma\u2028is hers."
        ),
        Instance("Who?", preceding_sentences="It is old.", segment="She did."),
        Instance("Wo?\u2028"),
    ]


@pytest.mark.parametrize(
    "row",
    ["{", "[]", "3", {"output": "a"}, {"instruction": " "}, {"instruction": "a", "evidence": [1]}],
)
def test_a_row_that_is_none_is_named(tmp_path: Path, row: object) -> None:
    file = write(tmp_path / "rows.jsonl", {"instruction": "a", "output": "b"}, row)
    with pytest.raises(BadTrainingData, match=r"rows\.jsonl:2: not"):
        read_instances(file)
    with pytest.raises(BadTrainingData, match="cannot read"):
        read_instances(tmp_path / "missing.jsonl")


def asked(tmp_path: Path, *given: Instance, **options: Any) -> Counter[str]:
    labelling = critic_labelling(given, tmp_path / "out.jsonl", SETTINGS, **options)
    return Counter(request.fields["task"] for request in labelling.pending)


def test_each_row_is_asked_about_what_it_has(tmp_path: Path) -> None:
    plain = Instance("Who?", output="She did.", segment="She did.")
    passage = Instance("Who?", evidence="Emma is hers.")
    assert asked(tmp_path, plain) == {"retrieval": 1, "utility": 1}
    assert asked(tmp_path, passage) == {"retrieval": 1, "relevance": 1}
    whole = plain._replace(evidence="Emma is hers.")
    each = {"retrieval", "multi_retrieval", "relevance", "groudness", "utility"}
    assert asked(tmp_path, whole) == dict.fromkeys(each, 1)
    assert asked(tmp_path, whole, prompts=["groundness"]) == {"groudness": 1}


def test_sentences_of_one_output_share_what_is_the_same(tmp_path: Path) -> None:
    whole = Instance("Who?", output="It is old. She did.", evidence="Emma is hers.")
    first = whole._replace(segment="It is old.")
    second = whole._replace(segment="She did.", preceding_sentences="It is old.")
    assert asked(tmp_path, first, second, first) == {
        "retrieval": 1,
        "multi_retrieval": 2,
        "relevance": 2,
        "groudness": 2,
        "utility": 1,
    }


def test_a_sample_is_the_same_each_time_and_grows(tmp_path: Path) -> None:
    def sampled(number: int) -> list[str]:
        labelling = critic_labelling(
            instances(40), tmp_path / "out.jsonl", SETTINGS, prompts=["utility"], max_samples=number
        )
        return [request.key for request in labelling.pending]

    few, more = sampled(5), sampled(20)
    assert (len(few), len(more)) == (5, 20)
    assert set(few) < set(more)
    assert [key for key in more if key in few] == few == sampled(5)
    first = critic_labelling(instances(40), tmp_path / "o.jsonl", SETTINGS, prompts=["utility"])
    assert few != [request.key for request in first.pending][:5], "it is drawn from all"


# What comes out


def test_rows_are_the_official_ones(tmp_path: Path) -> None:
    """Official defects: an input that is no string, preceding sentences printed where the row has
    none, an explanation that is a score, the last rows never written."""
    out = tmp_path / "out.jsonl"
    report = critic_labelling(instances(13), out, SETTINGS).run(quick)
    rows = lines(out)
    asked_for = 13 * 2 + 6 * 3
    counted = Counter[str]()
    for outcomes in report.outcomes.values():
        counted.update(outcomes)
    assert counted["labelled"] == len(rows)
    assert counted["labelled"] + counted["malformed"] == asked_for
    assert counted["malformed"] == len(lines(tmp_path / "out.jsonl.run/failures.jsonl")) > 0
    assert report.calls == counted["labelled"] + 2 * counted["malformed"]
    for row in rows:
        task = "groundness" if row["task"] == "groudness" else row["task"]
        assert row["instruction"] == CRITIQUE_PROMPTS[task].instructions
        assert isinstance(row["input"], str)
        assert "None" not in row["input"]
        assert row["output"] == row["token"] in CRITIQUE_PROMPTS[task].tokens_by_label.values()
        assert row["group"] == GROUP_OF[row["token"]] == CRITIQUE_PROMPTS[task].group
        assert row["explanation"].startswith("It is number ")
        assert row["part"] in ("train", "development", "test")
    by_input = {row["task"]: row["input"] for row in rows if "book 1?" in row["input"]}
    before = "Task instruction: Who wrote book 1?\n"
    evidence = "Evidence: Book 1\n  Book 1 is hers."
    expected = {
        "retrieval": before.strip(),
        "multi_retrieval": f"{before}Preceding sentences: It is old.\n{evidence}\n"
        "Output: She wrote it in 1.",
        "relevance": f"{before}Preceding sentences: It is old.\n{evidence}",
        "groudness": f"{before}Preceding sentences: It is old.\n{evidence}\n"
        "Output: She wrote it in 1.",
        "utility": f"{before}Output: It is old. She wrote it in 1.",
    }
    assert {task: expected[task] for task in by_input} == by_input
    assert len(by_input) >= 4
    without = [row["input"] for row in rows if "book 3?" in row["input"]]
    assert without
    assert not any("Preceding" in text for text in without)


def test_a_question_is_always_in_the_same_part(tmp_path: Path) -> None:
    """Official defect: the first rows of a shuffle are held out, their questions are not."""
    out = tmp_path / "out.jsonl"
    critic_labelling(instances(300), out, SETTINGS).run(quick)
    parts: dict[str, set[str]] = {}
    for row in lines(out):
        parts.setdefault(row["input"].splitlines()[0], set()).add(row["part"])
    assert all(len(given) == 1 for given in parts.values())
    counted = Counter(part for (part,) in parts.values())
    assert 0.6 < counted["train"] / len(parts) < 0.8
    assert counted["development"] > 10 < counted["test"]
    closed = [Instance("Is it so?", f"Book {i} is hers.") for i in range(40)]
    pending = critic_labelling(closed, tmp_path / "closed.jsonl", SETTINGS).pending
    assert len({request.fields["part"] for request in pending}) == 3, "told apart by their input"


async def test_the_async_twin_gives_the_same(tmp_path: Path) -> None:
    now, later = tmp_path / "now.jsonl", tmp_path / "later.jsonl"
    one = critic_labelling(instances(9), now, SETTINGS).run(quick)
    other = await critic_labelling(instances(9), later, SETTINGS).arun(quick)
    assert one == other
    assert now.read_bytes() == later.read_bytes()


def test_labels_are_read_whatever_order_they_came_in(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    critic_labelling(instances(9), out, SETTINGS).run(quick)
    found = read_critic_rows(out)
    out.write_text("".join(f"{line}\n" for line in reversed(out.read_text().splitlines())))
    assert read_critic_rows(out) == found
    counts = token_counts(found)
    assert sum(sum(tokens.values()) for tokens in counts.values()) == len(found)
    assert counts["ISUSE"]["[Utility:5]"] == sum(row.token == "[Utility:5]" for row in found)
    assert CriticRow("i", "x", "[Relevant]", "test").critic_input == ("i", "x", "ISREL", ())


@pytest.mark.parametrize(
    "row",
    [
        {"key": "a"},
        {"key": "a", "instruction": "i", "input": "x", "token": "[Yes]", "part": "train"},
        {"key": "a", "instruction": "i", "input": "x", "token": ["[Yes]"], "part": "train"},
        {"key": "a", "instruction": "i", "input": "x", "token": "[Relevant]", "part": "dev"},
        {"instruction": "i", "input": "x", "token": "[Relevant]", "part": "train"},
        {"instruction": "i", "output": "o"},
    ],
)
def test_files_that_hold_no_labels(tmp_path: Path, row: object) -> None:
    with pytest.raises(BadTrainingData, match=r"out\.jsonl:1: "):
        read_critic_rows(write(tmp_path / "out.jsonl", row))
    with pytest.raises(BadTrainingData, match="cannot read"):
        read_critic_rows(tmp_path / "missing.jsonl")


def test_a_last_row_that_is_whole_counts_and_half_of_one_does_not(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    critic_labelling(instances(9), out, SETTINGS).run(quick)
    found, text = read_critic_rows(out), out.read_text()
    out.write_text(text.rstrip("\n"))
    assert read_critic_rows(out) == found
    out.write_text(f"{text}{text[:57]}")
    assert read_critic_rows(out) == found
    out.write_text(f"{text[:57]}\n{text}")
    with pytest.raises(BadTrainingData, match=r"out\.jsonl:1: not JSON"):
        read_critic_rows(out)


def test_nothing_to_ask_is_said(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").touch()
    with pytest.raises(BadTrainingData, match="holds no rows"):
        read_instances(tmp_path / "rows.jsonl")
    bare = Instance("Who?", segment="She.", output="She.")
    with pytest.raises(BadTrainingData, match="no row has what is needed to judge relevance"):
        critic_labelling([bare], tmp_path / "out.jsonl", SETTINGS, prompts=["relevance"])


def test_a_file_is_of_one_model(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    critic_labelling(instances(2), out, SETTINGS).run(quick)
    with pytest.raises(BadRun, match="other settings"):
        critic_labelling(instances(2), out, CriticDataSettings("another"))
