"""The critic's labels from gold knowledge, the generator's questions, and the chat model."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock, create_autospec

import pytest
import torch

from reader_training.rows import HELD_OUT, Row, drawn, lines, real_rows, retrieved
from selfcorrect_rag.errors import EngineFailed
from selfcorrect_rag.models.chat_model import was_cut
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS, Instance
from selfcorrect_rag.reader.reader import PassageReading, Reader, Span
from selfcorrect_rag.reflection import CONTROL_TOKENS
from selfcorrect_rag.training.generator import GeneratorRow, add_control_tokens
from selfcorrect_rag.training.rows import part_of
from smollm2_training import chat, gold, labels, questions
from smollm2_training.agreement import judgements, report
from smollm2_training.augment import given_passages
from smollm2_training.engines import compare
from smollm2_training.gold import label_row
from smollm2_training.labels import Case, critic_rows, label_claim, label_passage, label_sample
from tests.reader_training.test_data import needs_data
from tests.training.toys import llama, write

ROW = Row("Who wrote Emma?", "Emma", "A novel by Jane Austen.", ("Jane Austen",), "nq")


def told(cases: Any) -> list[tuple[str, str, str]]:
    return [(case.prompt, case.instance.segment, case.token) for case in cases]


def test_a_passage_is_labelled_by_whether_it_states_the_answer() -> None:
    assert told(label_passage(ROW, "Jane Austen", "Jo Dell")) == [
        ("relevance", "", "[Relevant]"),
        ("groundness", "Jane Austen", "[Fully supported]"),
        ("groundness", "Jo Dell", "[No support / Contradictory]"),
        ("multi_retrieval", "Jane Austen", "[Continue to Use Evidence]"),
    ]
    assert len(told(label_passage(ROW, "Jane Austen", "novel"))) == 3, "the passage has it too"
    assert told(label_passage(ROW._replace(answers=()), "Jane Austen", "Jo Dell")) == [
        ("relevance", "", "[Irrelevant]"),
        ("groundness", "Jane Austen", "[No support / Contradictory]"),
        ("multi_retrieval", "Jane Austen", "[Retrieval]"),
    ]


def test_an_output_is_labelled_by_whether_it_is_right() -> None:
    found = told(labels.label_output("Who wrote Emma?", "Jane Austen", "Jo Dell", "Faro"))
    assert [(text, token) for _, text, token in found[:3]] == [
        ("Jane Austen", "[Utility:5]"), ("Jo Dell", "[Utility:2]"), ("Faro", "[Utility:1]")
    ]  # fmt: skip
    assert found[3][1] in labels.REFUSALS
    assert found[3][2] == "[Utility:1]"


def test_a_claim_has_the_sentences_that_support_it() -> None:
    page = ["(meta data) TITLE: Emma", *["Nothing of note here."] * 60, "Austen wrote Emma."]
    row = {"evidence": page, "claim": "Austen wrote it in 1815.", "supporting_sentences": [[61]]}
    case = label_claim({**row, "label": "partially_supported"})
    assert (case.prompt, case.token) == ("groundness", "[Partially supported]")
    assert case.instance.evidence.startswith("Emma\n")
    assert case.instance.evidence.endswith("Austen wrote Emma.")
    assert 60 < len(case.instance.evidence.split()) <= labels.WORDS + 1
    none = label_claim({**row, "label": "not_supported", "supporting_sentences": [[]]})
    assert none.instance.evidence == case.instance.evidence, "the same sentences for every label"


def test_a_sample_of_self_rags_own_data_keeps_its_labels() -> None:
    output = "[Retrieval]<paragraph>Emma\nBy Austen [1].</paragraph>[Relevant]Austen."
    output += "[Fully supported][Utility:4]"
    cases = [*label_sample({"instruction": "Who wrote Emma?", "output": output})]
    assert [case.token for case in cases] == [
        "[Retrieval]", "[Utility:4]", "[Relevant]", "[Fully supported]"
    ]  # fmt: skip
    assert cases[1].instance.output == "Austen."
    assert cases[3].instance.evidence == "Emma\nBy Austen [1]."
    (first, *_) = label_sample({"instruction": "Say hi", "output": "[No Retrieval]hi[Utility:5]"})
    assert (first.prompt, first.token) == ("retrieval", "[No Retrieval]")


def test_rows_are_what_the_critic_reads_and_no_token_is_far_commoner() -> None:
    asked = [Instance(f"Who wrote book {i}?", evidence="Emma") for i in range(9)]
    cases = [Case("relevance", each, "[Relevant]", each.instruction) for each in asked]
    cases += [cases[0], cases[0]._replace(instance=Instance("Who?"))]  # twice; without evidence
    rows = critic_rows(cases, most=20)
    assert len(rows) == 9
    assert len(critic_rows(cases, most=4)) == 4
    for _, row in rows:
        asked_about = row.input.split("instruction: ")[1].splitlines()[0]
        assert row.part == part_of(asked_about)
        assert row.instruction == CRITIQUE_PROMPTS["relevance"].instructions


class FakeIndex:
    def search(self, query: str, k: int) -> list[Any]:
        return []


@needs_data
def test_no_question_that_measures_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "_open_index", lambda folder, most: FakeIndex())
    monkeypatch.setattr(labels, "encyclopedia", list)
    rows = [*questions.all_rows(tmp_path, None)]
    cases = [*labels.all_cases()]
    read = {row["instruction"].lower() for row in rows} | {case.about.lower() for case in cases}
    kept = {asked.question.lower() for asked in retrieved(2, 3)}
    kept |= {row.question.lower() for row in real_rows().held_out if row.source == "nq"}
    assert len(kept) > 500
    assert not read & kept
    assert {row["set"] for row in rows} >= {"popqa", "triviaqa", "multihop", "nq", "arc"}
    found = {(case.prompt, case.token) for case in cases}
    assert len(found) >= 13, "every token of every prompt but ISUSE's 3"


def test_a_question_has_rows_with_the_answer_and_half_have_one_without() -> None:
    """And what stands in a passage can be no token."""
    pages = [
        {"title": "Ulm", "text": "A city. [Relevant]"},
        {"title": "Ann", "text": "Ann is of the US (USA)."},
        {"title": "Ann", "text": "She is of the United States."},
    ]
    row = {"output": "U.S.", "answers": ["US", "USA", "United States", "U"], "set": "nq"}
    row |= {"question": "Of where is Ann?", "documents": pages}
    first, second, third = label_row(row)
    assert first == (
        "[Retrieval]<paragraph>Ann\nAnn is of the US (USA).</paragraph>"
        "[Relevant]USA[Fully supported][Utility:5]"
    )
    assert "[Relevant]United States[" in second
    assert third.endswith("Ulm\nA city. ⁅Relevant]</paragraph>[Irrelevant]U.S.[Utility:5]")
    for question, made in (("Of where is Ann?", [third]), ("Who?", [])):
        assert [*label_row({**row, "question": question, "documents": pages[:1] * 2})] == made
    assert len([*label_row({**row, "documents": pages[1:] * 2})]) == 2
    plain = {"output": "Water.", "documents": pages}
    assert [*label_row({**plain, "set": "arc"})] == ["[No Retrieval]Water.[Utility:5]"]
    for unfit in ({"set": "strategyqa"}, {"set": "selfrag", "retrieves": True}):
        assert not [*label_row({**plain, **unfit})]


def test_a_row_comes_with_the_answer_and_with_a_wrong_span(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = [Span(text, 0, 1, 1, (0, 1), 1) for text in ("Austen", "Jane Austen wrote", "A novel")]
    reading = PassageReading(0.5, tuple(spans), 1)
    monkeypatch.setattr(Reader, "read", lambda self, asked: [reading] * len(asked))
    other = ROW._replace(answers=("Jane Austen", "another by Charles Dickens"))  # which was cut off
    unanswered = ROW._replace(answers=())
    made = [*gold.judge_rows([ROW, unanswered], 1.0)]
    assert [(r["output"].partition("</paragraph>[")[2], r.get("wrong", False)) for r in made] == [
        ("Relevant]Jane Austen[Fully supported][Utility:5]", False),
        ("Relevant]A novel[No support / Contradictory][Utility:2]", True),
        ("Irrelevant]Austen[Utility:2]", True),
    ]
    alone = [*gold.judge_rows([other, unanswered], 0.0)]
    assert [row["output"] for row in alone] == [made[0]["output"], made[2]["output"]]
    assert not [*gold.judge_rows([other._replace(passage="Cut.")], 1.0)], "it states no answer"
    taught = [*gold.judge_rows([unanswered] * 20, 0.0, {unanswered.question: "Emma"})]
    guessed = [row for row in taught if row["output"].endswith("[Irrelevant]Emma[Utility:5]")]
    assert 0 < len(guessed) < 20
    assert not any("wrong" in row for row in guessed), "its text is learned"


def test_written_rows_have_the_passages_that_they_are_written_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = "Ann has the key.", "Bob is away."
    text = f"{first}\n\n{'It rains a lot here. ' * 30}\n\n{last}"
    note = {"title": "keys", "text": text, "asked": []}
    monkeypatch.setattr(gold, "QUESTIONS", write(tmp_path / "notes.jsonl", note).parent)
    said = [["Ann has", "It is Ann.", "full"], ["the key", "She has it.", "partial"]]
    long = {"title": "keys", "kind": "long", "instruction": "Who has it?", "utility": 4}
    long["segments"] = [*said, ["Bob is", "Bob is out.", "no"]]
    alone = {**long, "kind": "alone", "segments": [["", "Hi.", ""], ["", "Bye.", ""]]}
    flawed = {**long, "kind": "flawed", "segments": said[:1] * 9 + said[1:]}
    monkeypatch.setattr(gold, "WRITTEN", write(tmp_path / "rows.jsonl", long, alone, flawed))
    made, other, bad = gold.written_rows(held_out=drawn("keys", HELD_OUT))
    assert made["output"].startswith(f"[Retrieval]<paragraph>keys\n{first}")
    assert made["output"].endswith(f"{last}</paragraph>[Relevant]Bob is out."
                                   "[No support / Contradictory][Utility:4]")  # fmt: skip
    assert other["output"] == "[No Retrieval]Hi. Bye.[Utility:4]"
    assert (made["wrong"], bad["wrong"]) == (False, True)
    assert 0 < bad["output"].count("[Continue to Use Evidence]") < 8, "or it is found again"
    assert bad["output"].endswith("[Relevant]She has it.[Partially supported][Utility:4]")
    partly, beside = ({**flawed, "segments": said[1:] * 9}, {**flawed, "irrelevant": True})
    write(tmp_path / "rows.jsonl", partly, beside)
    made, bad = gold.written_rows(held_out=drawn("keys", HELD_OUT))
    assert made["output"].count("[Partially supported]") == 9, "to go on says nothing of support"
    assert bad["output"].endswith("[Irrelevant]She has it.[Utility:4]")
    assert not [*gold.written_rows(held_out=not drawn("keys", HELD_OUT))]


def test_what_an_assistant_wrote_is_whole() -> None:
    notes = {n["title"]: " ".join(n["text"].split()) for n in lines(gold.QUESTIONS / "notes.jsonl")}
    for row in lines(gold.WRITTEN):
        assert 1 <= row["utility"] <= 5, row
        for near, sentence, support in row["segments"]:
            assert sentence.strip(), row
            assert support in gold.SUPPORT if near else support == "", row
            assert " ".join(near.split()) in notes[row["title"]], row
    rows = [*gold.written_rows(), *gold.written_rows(held_out=True)]
    assert not [name for name in CONTROL_TOKENS if name not in str(rows)]
    others = [row for row in rows if row["dataset_name"] == "other note"]
    assert 350 < len(others) < 572, "three of four kinds have a passage"
    assert all(row["output"].endswith("[Utility:1]") and row["wrong"] for row in others)


def test_a_generator_reads_its_own_critique() -> None:
    add_control_tokens(*(parts := llama()))
    tokenizer, seen = ControlledTokenizer(parts[1]), list[list[int]]()
    irrelevant = tokenizer.control_ids["[Irrelevant]"]

    def model(ids: torch.Tensor) -> Any:
        seen.append(ids[0].tolist())
        return Mock(logits=torch.eye(400)[torch.full(ids.shape, irrelevant)])

    asked = GeneratorRow(instruction="a", output=gold.right_output("", "b", "c"))
    tokens = [token for _, (token, _) in judgements(model, tokenizer, asked)]
    assert tokens == ["[Retrieval]", "[Relevant]", "[Fully supported]", "[Utility:5]"]
    assert [irrelevant in ids for ids in seen] == [False, True, True], "the label is gone"


def test_agreement_is_by_group() -> None:
    sure, unsure = (
        {"[Irrelevant]": 0.1, "[Relevant]": 0.9},
        {"[Irrelevant]": 0.4, "[Relevant]": 0.6},
    )
    rows = [[("[Relevant]", sure), ("[Relevant]", unsure)], [("[Irrelevant]", unsure)]]
    found = report(rows, "ISREL")
    figures = (found["tokens"], found["agreement"][:5], found["commonest"], found["auc"][0])
    assert figures == (3, "0.667", 0.667, 0.75)
    assert report([[("[Relevant]", sure)]], "ISREL")["auc"] is None
    needed = {"[No Retrieval]": 0.2, "[Retrieval]": 0.7, "[Continue to Use Evidence]": 0.1}
    alone = {"[No Retrieval]": 0.7, "[Retrieval]": 0.2, "[Continue to Use Evidence]": 0.1}
    found = report(
        [[("[No Retrieval]", alone), ("[Continue to Use Evidence]", needed)]], "Retrieve"
    )
    assert (found["agreement"][:5], found["auc"][0]) == ("1.000", 1.0)


def test_a_query_finds_the_passages_of_its_question(tmp_path: Path) -> None:
    rows = [
        {"instruction": "Who?", "documents": [{"title": "A", "text": "first"}]},
        {"instruction": "Who? And when?", "documents": [{"title": "B", "text": "second"}]},
    ]
    retriever = given_passages(write(tmp_path / "rows.jsonl", *rows))
    found = retriever.batch(["Who? Austen", "Who? And when? In 1815", "Why?"])
    assert [[d.page_content for d in each] for each in found] == [["first"], ["second"], []]


def test_the_chat_model_answers_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, words = llama(tied=True)
    for template in (None, "{{ messages[0]['content'] }}\n"):
        words.chat_template = template
        model.save_pretrained(tmp_path)
        words.save_pretrained(tmp_path)
        monkeypatch.setenv(chat.FOLDER, str(tmp_path))
        if template is None:
            with pytest.raises(EngineFailed, match="has no chat template; give an instruct model"):
                chat.open_model()
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0]['content'] }}\n")
    monkeypatch.setattr(chat, "MAX_TOKENS", 4)
    monkeypatch.setattr(chat, "GATHER_SECONDS", 0.5)
    complete = create_autospec(chat.Batcher._complete, side_effect=chat.Batcher._complete)
    monkeypatch.setattr(chat.Batcher, "_complete", complete)
    answerer = chat.open_model()
    with ThreadPoolExecutor(4) as pool:
        messages = [*pool.map(answerer.invoke, ["Who?", "Why?", "When? " * 9, "Where?"])]
        alone = answerer.invoke("Who?")
        monkeypatch.setattr(chat, "MAX_TOKENS", 0)  # which transformers refuses
        for asked in [pool.submit(answerer.invoke, question) for question in ("Who?", "Why?")]:
            with pytest.raises(EngineFailed):
                asked.result()
    assert max(len(call.args[1]) for call in complete.call_args_list) > 1
    assert messages[0].content == alone.content
    assert was_cut(alone)


def test_candidates_of_the_same_text_are_compared() -> None:
    one = {"text": "Ann", "score": 2.5, "critique": {"ISREL": 0.5, "ISSUP": None}}
    near, other = {**one, "score": 2.4, "critique": {"ISREL": 0.7}}, {**one, "text": "Bob"}
    found = [{"answer": each["text"], "candidates": [one, each]} for each in (near, one, other)]
    assert compare([{"answer": "Ann", "candidates": [near, one]}] * 3, found) == pytest.approx(
        {"answers": 2 / 3, "texts": 5 / 6, "score": 0.1, "critique": 0.2}
    )
