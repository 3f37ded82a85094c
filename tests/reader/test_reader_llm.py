"""The reader as a ReflectionLLM: distributions, refusals, shapes of answers, pruning, graphs."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag import create_crag, create_self_rag
from selfcorrect_rag.prompts import Prompt, decision_prompt, segment_prompt
from selfcorrect_rag.prompts.instruct_rag import inference_prompt
from selfcorrect_rag.prompts.reading import NO_DOCUMENTS, NOT_ENGLISH, REFUSAL, is_refusal
from selfcorrect_rag.prompts.self_rag import TASK_INSTRUCTIONS, question_text
from selfcorrect_rag.reader.reader import Passage
from selfcorrect_rag.reflection import TOKENS, Group, critique
from selfcorrect_rag.state import Segment
from selfcorrect_rag.thresholds import ANSWER_ABOVE
from tests.crag_runs import WordEvaluator
from tests.reader.scripted_reader import Findings, reader_llm, reading

QUESTION = "Which port does the staging server run on?"
NOTE = "Deploys are on Friday. The staging server runs on port 8443. Ask Ann."
PORT = {"8443": 0.9}


def prompt(text: str = NOTE, question: str = QUESTION, title: str = "") -> Prompt:
    document = Document(text, metadata={"title": title} if title else {})
    return segment_prompt(question, [], [document], "retrieve", 0)


def segments(findings: Any, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
    """Segments that the sync and the async form write alike."""
    llm, _ = reader_llm(findings)
    written = llm.generate_segments(prompts, **options)
    assert asyncio.run(llm.agenerate_segments(prompts, **options)) == written
    return written


@pytest.mark.parametrize("sure", [0.0, 1e-9, 0.5, 0.999, 1.0])
def test_every_reflection_is_a_distribution_over_its_whole_group(sure: float) -> None:
    llm, _ = reader_llm({"8443": sure})
    written = llm.generate_segments([prompt(), prompt("")])
    for group in TOKENS:
        written += llm.choose([prompt(), decision_prompt("Hi")], group)
    reflections = [r for segment in written for r in segment["reflections"]]
    groups = {*TOKENS} - ({Group.ISSUP} if sure <= ANSWER_ABOVE else set())
    assert {r["group"] for r in reflections} == groups
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
    (segment,) = segments({"8443": 0.9}, [prompt()])
    assert critique(segment["reflections"]) == {
        "ISREL": pytest.approx(0.9, abs=1e-3),
        "ISSUP": pytest.approx(0.925, abs=1e-3),
        "ISUSE": pytest.approx(0.8, abs=1e-3),
    }
    pieces = [piece["text"] for piece in segment["pieces"]]
    assert pieces == ["[Relevant]", "8443", "[Fully supported]", "[Utility:5]"]
    assert [r["position"] for r in segment["reflections"]] == [0, 2, 3]
    assert segment["logprob"] == pytest.approx(4 * math.log(0.9))
    assert segment["prompt_tokens"] == len(NOTE.split())


def test_a_refusal_claims_no_support_and_no_use() -> None:
    (refused,) = segments({"8443": 0.2}, [prompt()])
    scores = critique(refused["reflections"])
    assert refused["text"] == REFUSAL
    assert scores["ISSUP"] is None
    assert scores["ISUSE"] == pytest.approx(-1, abs=1e-3)
    assert refused["logprob"] == pytest.approx(refused["tokens"] * math.log(0.8))


@pytest.mark.parametrize(
    ("asked", "findings", "text"),
    [
        (prompt(), {}, REFUSAL),
        (prompt("", title="Ports"), PORT, REFUSAL),
        (prompt(" \n "), PORT, NO_DOCUMENTS),
        (segment_prompt(QUESTION, [], [], "none", None), PORT, NO_DOCUMENTS),
        (prompt(), {",": 0.9, ";": 0.8}, REFUSAL),
        (prompt(question="どのポートですか"), PORT, NOT_ENGLISH),
    ],
)
def test_without_an_answer_it_declines(asked: Prompt, findings: Findings, text: str) -> None:
    (segment,) = segments(findings, [asked])
    assert segment["text"] == text


def test_a_tasks_instruction_is_not_part_of_the_question() -> None:
    for question in (QUESTION, question_text(QUESTION, TASK_INSTRUCTIONS["asqa"])):
        llm, reader = reader_llm(PORT)
        (segment,) = llm.generate_segments([prompt(question=question, title="Ports")])
        assert segment["text"] == "8443"
        assert reader.calls == [[(QUESTION, Passage("Ports", NOTE))]]


def test_the_best_passage_is_never_pruned() -> None:
    def found(question: str, passage: Any) -> Any:
        return reading(passage.text, {}, relevant=float(passage.title))

    prompts = [prompt(title=title) for title in ("0.1", "0.3", "0.2")]
    pruned = segments(found, prompts, prune_below=0.5)
    assert [s["finish_reason"] for s in pruned] == ["pruned", "end", "pruned"]
    assert [s["text"] for s in pruned] == ["", REFUSAL, ""]
    assert [s["finish_reason"] for s in segments(found, prompts)] == ["end"] * 3


@pytest.mark.parametrize(
    ("mode", "findings", "answer"),
    [
        ("instruct", PORT, "The question is answered by document [1].\nAnswer: 8443"),
        ("instruct", {"8443": 0.45}, REFUSAL),
        ("ralm", PORT, "8443"),
        ("ralm", {"8443": 0.45}, REFUSAL),
    ],
)
def test_inference_prompts_share_a_batch_with_segments(
    mode: Any, findings: Mapping[str, float], answer: str
) -> None:
    documents = [Document(NOTE, metadata={"title": "Ports"}), Document("Nothing.")]
    llm, reader = reader_llm(findings)
    rationale, segment = llm.batch([inference_prompt(mode, QUESTION, documents), prompt()])
    assert rationale.endswith(answer)
    assert segment == ("8443" if findings == PORT else REFUSAL)
    whole = [Passage("", f"Ports. {NOTE} Nothing.")]
    parts = [Passage("Ports", NOTE), Passage("", "Nothing.")]
    read = [passage for _, passage in reader.calls[0]]
    assert read == [*(parts if mode == "instruct" else whole), Passage("", NOTE)]


@pytest.mark.parametrize(
    ("question", "findings", "answer", "cited"),
    [
        ("Who runs the harbour?", {"Ada Berg": 0.9}, "Ada Berg", ["P1"]),
        ("Who runs the harbour?", {"Ada Berg": 0.5}, REFUSAL, []),
        ("Thank you.", {"Ada Berg": 0.9}, NO_DOCUMENTS, []),
    ],
)
def test_in_self_rag(question: str, findings: Findings, answer: str, cited: list[str]) -> None:
    texts = ("Tom does not.", "Ada Berg does.")
    found = [Document(text, metadata={"title": f"P{i}"}) for i, text in enumerate(texts)]
    graph = create_self_rag(reader_llm(findings)[0], lambda query: found)
    result = graph.invoke({"question": question})
    assert result["answer"] == answer
    assert [citation["title"] for citation in result["citations"]] == cited
    assert asyncio.run(graph.ainvoke({"question": question}))["answer"] == answer
    assert is_refusal(answer) is not bool(cited)


def test_crag_has_each_piece_of_the_knowledge_read_by_itself() -> None:
    texts = {
        "Emma (town)": "Gold: Emma is a town. Walter Scott founded it. It lies in Utah.",
        "Emma (novel)": "Gold: Emma is a novel. Jane Austen wrote it in 1815.",
        "Persuasion": "Noise is here.",
    }
    llm, reader = reader_llm({"Jane Austen": 0.9, "Walter Scott": 0.5})
    found = [Document(text, metadata={"title": name}) for name, text in texts.items()]
    graph = create_crag(llm, lambda query: found, WordEvaluator())
    result = graph.invoke({"question": "Who wrote Emma?"})
    assert [passage.title for _, passage in reader.calls[0]] == ["Emma (town)", "Emma (novel)"]
    assert result["cited_answer"] == "Jane Austen [2]"
    assert [citation["title"] for citation in result["citations"]] == ["Emma (novel)"]
    foreign = graph.invoke({"question": "エマを書いたのは誰ですか"})
    assert (foreign["cited_answer"], foreign["citations"]) == (NOT_ENGLISH, [])
