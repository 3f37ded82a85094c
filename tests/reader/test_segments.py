"""The reader's segments: whole distributions, refusals, pruning, long form, shapes of answers."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.prompts import Prompt, decision_prompt, segment_prompt
from selfcorrect_rag.prompts.refusals import REFUSAL, is_refusal
from selfcorrect_rag.prompts.self_rag import TASK_INSTRUCTIONS, question_text
from selfcorrect_rag.reader.reader_llm import NO_DOCUMENTS, NOT_ENGLISH, SENTENCES
from selfcorrect_rag.reflection import PAPER_GROUPS, TOKENS, Group, critique
from selfcorrect_rag.state import Segment
from selfcorrect_rag.thresholds import ANSWER_ABOVE
from tests.reader.scripted_reader import Findings, reader_llm, reading
from tests.scripted import timeless

QUESTION = "Which port does the staging server run on?"
NOTE = "Deploys are on Friday. The staging server runs on port 8443. Ask Ann."
PORT = {"8443": 0.9}


def prompt(text: str = NOTE, question: str = QUESTION, title: str = "") -> Prompt:
    document = Document(text, metadata={"title": title} if title else {})
    return segment_prompt(question, [], [document], "retrieve", 0)


def segments(
    findings: Findings, prompts: Sequence[Prompt], fields: Any = None, **options: Any
) -> list[Segment]:
    """What is written, by the sync and the async form alike."""
    llm, _ = reader_llm(findings, **(fields or {}))
    written = llm.generate_segments(prompts, **options)
    assert asyncio.run(llm.agenerate_segments(prompts, **options)) == written
    return written


def ask(
    findings: Findings,
    notes: Mapping[str, str],
    question: str = QUESTION,
    fields: Any = None,
    **context: Any,
) -> dict[str, Any]:
    """Self-RAG over these notes, whose sync and async form must agree."""
    documents = [Document(text, metadata={"title": title}) for title, text in notes.items()]
    graph = create_self_rag(reader_llm(findings, **(fields or {}))[0], lambda query: documents)
    given: Any = {"question": question}
    context = {"mode": "always", **context}
    result = graph.invoke(given, context=context)  # type: ignore[arg-type]
    again = asyncio.run(graph.ainvoke(given, context=context))  # type: ignore[arg-type]
    assert timeless(again) == timeless(result)
    return result


# Distributions


@pytest.mark.parametrize("sure", [0.0, 1e-9, 0.1, 0.5, 0.999, 1.0])
def test_every_reflection_is_a_distribution_over_its_whole_group(sure: float) -> None:
    llm, _ = reader_llm({"8443": sure})
    written = [
        *llm.generate_segments([prompt(), prompt("")]),
        *(
            s
            for group in PAPER_GROUPS
            for s in llm.choose([prompt(), decision_prompt("Hi")], group)
        ),
    ]
    reflections = [r for s in written for r in (*s["reflections"], s["next"]) if r]
    assert {r["group"] for r in reflections} == {*PAPER_GROUPS} - (
        {Group.ISSUP} if sure <= ANSWER_ABOVE else set()
    )
    for found in reflections:
        assert tuple(found["logprobs"]) == TOKENS[found["group"]]
        assert math.fsum(map(math.exp, found["logprobs"].values())) == pytest.approx(1, abs=1e-3)
        assert found["logprobs"][found["token"]] == max(found["logprobs"].values())


@pytest.mark.parametrize("group", [Group.ISSUP, Group.ISUSE])
def test_a_text_from_elsewhere_is_not_judged(group: Group) -> None:
    """A number that looks like a judgement would be taken for one."""
    llm, _ = reader_llm({"8443": 0.9})
    assert [s["reflections"] for s in llm.choose([prompt(), prompt("")], group)] == [[], []]


def test_an_answer_is_judged_by_its_confidence() -> None:
    (sure,) = segments({"8443": 0.9}, [prompt()])
    scores = critique(sure["reflections"])
    assert scores == {
        "ISREL": pytest.approx(0.9, abs=1e-3),
        "ISSUP": pytest.approx(0.925, abs=1e-3),
        "ISUSE": pytest.approx(0.8, abs=1e-3),
    }
    assert [piece["text"] for piece in sure["pieces"]] == [
        "[Relevant]", "8443", "[Fully supported]", "[Utility:5]",
    ]  # fmt: skip
    assert [r["position"] for r in sure["reflections"]] == [0, 2, 3]
    assert (sure["tokens"], sure["next"], sure["finish_reason"]) == (4, None, "end")
    assert sure["logprob"] == pytest.approx(4 * math.log(0.9))
    assert (sure["prompt_tokens"], sure["requests"]) == (len(NOTE.split()), 0)


def test_a_refusal_claims_no_support_and_no_use() -> None:
    (refused,) = segments({"8443": 0.2}, [prompt()])
    scores = critique(refused["reflections"])
    assert scores["ISSUP"] is None
    assert scores["ISUSE"] == pytest.approx(-1, abs=1e-3)
    assert refused["logprob"] == pytest.approx(refused["tokens"] * math.log(0.8))


# Refusals


@pytest.mark.parametrize("text", [REFUSAL, NO_DOCUMENTS, NOT_ENGLISH])
def test_what_it_says_of_itself_is_read_as_a_refusal(text: str) -> None:
    assert is_refusal(text)


@pytest.mark.parametrize(
    ("text", "findings", "said"),
    [
        (NOTE, {"8443": 0.2}, REFUSAL),
        (NOTE, {}, REFUSAL),
        ("", PORT, REFUSAL),
        (" \n ", PORT, NO_DOCUMENTS),
        (NOTE, {",": 0.9, ";": 0.8}, REFUSAL),
    ],
)
def test_without_an_answer_it_declines(text: str, findings: Findings, said: str) -> None:
    title = "Ports" if text == "" else ""
    (written,) = segments(findings, [prompt(text, title=title)])
    assert written["text"] == said


def test_without_a_passage_it_declines() -> None:
    without = segment_prompt(QUESTION, [], [], "none", None)
    (written,) = segments(PORT, [without])
    assert written["text"] == NO_DOCUMENTS
    assert (written["reflections"], written["prompt_tokens"]) == ([], 0)


@pytest.mark.parametrize(
    "question",
    [
        "Auf welchem Port läuft der Server?",
        "Wo läuft der Server in Berlin?",
        "Sur quel port tourne le serveur ?",
        "¿En qué puerto corre?",
        "Qual porta o servidor usa? Quando?",
        "server port jaki numer posiada dzisiaj",
        "どのポートですか",
        "На каком порту работает сервер?",
        "8443",
        "?",
    ],
)
def test_questions_in_other_languages_are_not_guessed_at(question: str) -> None:
    llm, reader = reader_llm(PORT)
    (written,) = llm.generate_segments([prompt(question=question)])
    assert written["text"] == NOT_ENGLISH
    assert reader.calls in ([], [[]]), "the passage is not read"
    result = ask(PORT, {"Notes": NOTE}, question)
    assert (result["answer"], result["citations"]) == (NOT_ENGLISH, [])


@pytest.mark.parametrize(
    "question",
    [
        "Which port?",
        "staging port",
        "Who directed Die Hard?",
        "How deep is Lake Como?",
        "Where is the Café Zürich in São Paulo?",
        "staging server port",
        "WHICH PORT DOES THE STAGING SERVER RUN ON",
        "Tell me the port of the staging server",
        "What does ¿Qué tal? mean?",
    ],
)
def test_english_questions_are_read_whatever_names_they_hold(question: str) -> None:
    (written,) = segments(PORT, [prompt(question=question)])
    assert written["text"] in ("8443", "The staging server runs on port 8443.")


# Shapes


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (QUESTION, "8443"),
        ("How do I reach the staging server?", "The staging server runs on port 8443."),
        ("What is the command to reach it?", "The staging server runs on port 8443."),
        ("Is the staging server on port 8443?", "The staging server runs on port 8443."),
        ("Is it on port 8443 or 9000?", "8443"),
        (question_text(QUESTION, TASK_INSTRUCTIONS["asqa"]), "8443"),
        (question_text("Is it 8443?", TASK_INSTRUCTIONS["eli5"]),
         "The staging server runs on port 8443."),
    ],
)  # fmt: skip
def test_the_question_shapes_the_answer(question: str, answer: str) -> None:
    """A span in its own words; a sentence for how-to and for yes or no."""
    llm, reader = reader_llm(PORT)
    (written,) = llm.generate_segments([prompt(question=question)])
    assert written["text"] == answer
    ((asked, passage),) = reader.calls[0]
    assert asked == question.rpartition("\n\n")[2]
    assert passage.text == NOTE


def test_title_and_text_are_told_apart_by_the_prompt_alone() -> None:
    llm, reader = reader_llm(PORT)
    for title, text in [("Ports", "8443"), ("", "port 8443\nhost a.org"), ("A.\tB", "\n8443")]:
        llm.generate_segments([prompt(text, title=title)])
        assert reader.calls[-1] == [(QUESTION, (title, text))]


def test_an_answer_is_one_line_without_punctuation_around_it() -> None:
    findings = {" Jane\n  Austen,;": 0.9}
    (written,) = segments(findings, [prompt("It was  Jane\n  Austen,; of course.")])
    assert written["text"] == "Jane Austen"
    listed = "Steps:\n\n- Run `make all`\n- Wait"
    (step,) = segments({"make": 0.9}, [prompt(listed, "How do I build it?")])
    assert step["text"] == "Run `make all`"


# Pruning


def test_the_best_passage_is_never_pruned() -> None:
    def found(question: str, passage: Any) -> Any:
        return reading(passage.text, {}, relevant=float(passage.title))

    prompts = [prompt(title=title) for title in ("0.1", "0.3", "0.2")]
    pruned = segments(found, prompts, prune_below=0.5)
    assert [s["finish_reason"] for s in pruned] == ["pruned", "end", "pruned"]
    assert [s["text"] for s in pruned] == ["", REFUSAL, ""]
    assert [r["group"] for r in pruned[0]["reflections"]] == ["ISREL"]
    assert [s["finish_reason"] for s in segments(found, prompts, prune_below=0.15)] == [
        "pruned", "end", "end",
    ]  # fmt: skip
    assert [s["finish_reason"] for s in segments(found, prompts)] == ["end"] * 3
    equal = segments(found, [prompt(title="0.1")] * 2, prune_below=0.5)
    assert [s["finish_reason"] for s in equal] == ["end", "end"]


# Long form

STORY = {
    "One": "Ann founded the harbour in 1900. It burnt in 1910. It rains.",
    "Two": "Bob rebuilt it in 1920. It closed in 1930. It snows.",
}
YEARS = {"1900": 0.9, "1910": 0.8, "1920": 0.75, "1930": 0.6}


def test_a_long_answer_is_a_few_sentences_each_from_its_passage() -> None:
    question = "What is the history of the harbour?"
    result = ask(YEARS, STORY, question, {"sentences": True}, form="long", depth=6)
    assert result["cited_answer"] == (
        "Ann founded the harbour in 1900. [1] It burnt in 1910. [1] Bob rebuilt it in 1920. [2]"
    )
    assert [c["segments"] for c in result["citations"]] == [[0, 1], [2]]
    assert result["notes"] == []
    written = [c["text"] for c in result["candidates"] if c["chosen"]]
    assert len(written) == len(set(written)) == SENTENCES


def test_a_long_answer_ends_where_nothing_more_is_found() -> None:
    result = ask({"1900": 0.9}, STORY, "What is its history?", {"sentences": True}, form="long")
    assert result["answer"] == "Ann founded the harbour in 1900."
    refused = ask({}, STORY, "What is its history?", {"sentences": True}, form="long")
    assert (refused["answer"], refused["citations"]) == (REFUSAL, [])


def test_by_default_an_answer_is_one_segment() -> None:
    result = ask(YEARS, STORY, "What is the history of the harbour?", form="long", depth=6)
    assert result["answer"] == "1900"
    assert {candidate["depth"] for candidate in result["candidates"]} == {0}


# Closed sets


@pytest.mark.parametrize(
    ("findings", "question", "options", "answer", "noted"),
    [
        ({"a gas": 0.9}, "Is helium a metal or a gas?", ("metal", "gas"), "gas", False),
        ({"No": 0.9}, "Is helium heavy?", ("yes", "no"), "no", False),
        # a sentence that gives none of the options stays what it is, and a note says so
        ({"light": 0.9}, "Is helium light?", ("yes", "no"), "It is light.", True),
        ({}, "Is helium heavy?", ("yes", "no"), REFUSAL, True),
        ({}, "Is helium heavy?", ("true", "false", "unknown"), REFUSAL, True),
    ],
)
def test_closed_sets_take_the_option_that_a_passage_states_or_none(
    findings: Findings, question: str, options: tuple[str, ...], answer: str, noted: bool
) -> None:
    notes = {"Helium": "Helium is a gas. It is light. No, it is not heavy.", "Iron": "A metal."}
    result = ask(findings, notes, question, options=options)
    assert result["answer"] == answer
    assert any("no candidate gave one of the options" in n for n in result["notes"]) is noted
    assert bool(result["options"]) is not noted
    assert all(c["quote"] == "" or answer in c["quote"] for c in result["citations"])
