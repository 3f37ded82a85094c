"""CRAG asks a model that reads apart about each piece of its knowledge, and cites the best one."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag import create_crag
from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.nodes.base.reply import NO_ANSWER, SILENT
from selfcorrect_rag.nodes.generate import generate
from selfcorrect_rag.prompts.refusals import REFUSAL
from selfcorrect_rag.reader.reader_llm import NO_DOCUMENTS
from selfcorrect_rag.state import Segment
from tests.crag_runs import WordEvaluator
from tests.reader.scripted_reader import reader_llm
from tests.scripted import (
    FULL,
    IRRELEVANT,
    NONE,
    RELEVANT,
    USEFUL,
    ScriptedReflectionLLM,
    passage_of,
    segment,
    timeless,
)

QUESTION = "Who wrote Emma?"
TITLES = ("Pieces", "Novel", "Town")
KNOWLEDGE = [
    Document(f"Text of {title}.", metadata={"title": title, "source": f"{title}.txt"}, id=title)
    for title in TITLES
]
ALL_RELEVANT = ["relevant"] * 3


class Apart(ScriptedReflectionLLM):
    @property
    def reads_apart(self) -> bool:
        return True


def apart(says: dict[str, Segment], other: Segment | None = None) -> Apart:
    """A model that gives these segments for passages of these titles."""
    rest = other or segment("Nobody.", IRRELEVANT, NONE)
    return Apart(write=lambda prompt: says.get(passage_of(prompt), rest))


def run(
    llm: ReflectionLLM,
    judged: Sequence[str | None] = ALL_RELEVANT,
    knowledge: Sequence[Document] = KNOWLEDGE,
) -> dict[str, Any]:
    """The update of ``generate`` alone, whose sync and async form must agree."""
    node = generate(llm)
    state = {"question": QUESTION, "knowledge": list(knowledge), "judged": list(judged)}
    update = node.invoke(state)
    assert timeless(asyncio.run(node.ainvoke(state))) == timeless(update)
    return update


GOOD = segment("Jane Austen.", RELEVANT, FULL, USEFUL)
FAIR = segment("A lady.", RELEVANT, NONE, USEFUL)


def test_each_piece_is_asked_about_by_itself_in_one_batch() -> None:
    llm = apart({"Novel": GOOD})
    update = run(llm)
    prompts = llm.calls[0]
    assert [passage_of(prompt) for prompt in prompts] == list(TITLES)
    for title, prompt in zip(TITLES, prompts, strict=True):
        assert f"Text of {title}." in prompt
        assert sum(f"Text of {other}." in prompt for other in TITLES) == 1
    assert llm._options[0]["stop_at_retrieval"] is False, "an answer is whole"
    assert update["answer"] == "Jane Austen."


def test_the_best_answer_cites_exactly_its_piece() -> None:
    update = run(apart({"Town": FAIR, "Novel": GOOD}))
    (citation,) = update["citations"]
    assert (citation["number"], citation["passage"], citation["title"]) == (2, 1, "Novel")
    assert (citation["source"], citation["text"]) == ("Novel.txt", "Text of Novel.")
    assert update["cited_answer"] == "Jane Austen. [2]"
    assert update["answer"] == "Jane Austen."
    assert update["notes"] == []


def test_the_score_is_eq_4_with_the_default_weights() -> None:
    """A sure but unsupported answer loses to a supported one; of equal ones the first wins."""
    sure = segment("Sure.", RELEVANT, NONE, USEFUL, mean_logprob=0.0)
    shy = segment("Shy.", RELEVANT, FULL, USEFUL, mean_logprob=-1.0)
    assert run(apart({"Pieces": sure, "Town": shy}))["answer"] == "Shy."
    first = run(apart(dict.fromkeys(TITLES, GOOD)))
    assert [c["passage"] for c in first["citations"]] == [0]


def test_an_answer_without_text_loses_to_any_text() -> None:
    empty = segment("", RELEVANT, FULL, USEFUL, mean_logprob=0.0)
    assert run(apart({"Pieces": empty, "Novel": empty}))["answer"] == "Nobody."
    silent = run(apart({}, empty))
    assert (silent["answer"], silent["citations"], silent["notes"]) == (NO_ANSWER, [], [SILENT])


@pytest.mark.parametrize(
    ("judged", "isrel", "cited"),
    [
        ("relevant", RELEVANT, True),
        ("relevant", IRRELEVANT, True),
        ("irrelevant", RELEVANT, False),
        (None, RELEVANT, True),
        (None, IRRELEVANT, False),
        (None, None, False),
    ],
)
def test_the_evaluator_judges_and_where_it_is_silent_the_model(
    judged: str | None, isrel: dict[str, float] | None, cited: bool
) -> None:
    said = segment("Austen.", *([] if isrel is None else [isrel]), FULL, USEFUL)
    update = run(apart({"Novel": said}), ["relevant", judged, "relevant"])
    assert update["answer"] == "Austen."
    assert [c["passage"] for c in update["citations"]] == ([1] if cited else [])
    assert bool(update["notes"]) is not cited
    assert all("[2]" in note and "not cited" in note for note in update["notes"])


def test_a_refusal_cites_nothing() -> None:
    update = run(apart({"Novel": segment("The documents do not say.", RELEVANT, FULL, USEFUL)}))
    assert update["answer"] == update["cited_answer"] == "The documents do not say."
    assert (update["citations"], update["notes"]) == ([], [])


def test_marks_in_a_pieces_own_text_are_no_citations() -> None:
    update = run(apart({"Town": segment("Austen wrote it [1].", RELEVANT, FULL, USEFUL)}))
    assert update["answer"] == "Austen wrote it [1]."
    assert update["cited_answer"] == "Austen wrote it [1?]. [3]"


def test_without_knowledge_it_is_asked_once_without_a_passage() -> None:
    llm = apart({}, segment("By heart."))
    update = run(llm, [], [])
    assert [len(call) for call in llm.calls] == [1, 1]
    assert "<paragraph>" not in llm.calls[0][0]
    assert (update["answer"], update["citations"]) == ("By heart.", [])


def test_a_batch_is_one_call_and_its_tokens_count_once() -> None:
    (cost,) = run(apart({"Novel": GOOD}))["costs"].values()
    assert (cost["model_calls"], cost["prompt_tokens"], cost["generated_tokens"]) == (1, 21, 30)
    requested = segment("Austen.", RELEVANT, FULL, requests=2)
    (cost,) = run(apart({}, requested))["costs"].values()
    assert cost["model_calls"] == 6


def test_other_reflection_models_still_read_all_as_one_passage() -> None:
    llm = ScriptedReflectionLLM(write=lambda _: GOOD)
    assert (llm.reads_apart, reader_llm({})[0].reads_apart) == (False, True)
    update = run(llm)
    (prompt,) = llm.calls[0]
    assert prompt.count("<paragraph>") == 1
    assert all(f"Text of {title}." in prompt for title in TITLES)
    assert update["citations"] == []


# The reader in the whole graph

NOVEL = "Gold: Emma is a novel. Jane Austen wrote it in 1815. It is set in Highbury."
TOWN = "Gold: Emma is a town. Walter Scott founded it. It lies in Utah."


def graph(llm: ReflectionLLM, **context: Any) -> Any:
    texts = {"Emma (town)": TOWN, "Emma (novel)": NOVEL, "Persuasion": "Noise is here."}
    return create_crag(
        llm,
        lambda query: [
            Document(text, metadata={"title": title, "source": f"{title[:4]}.md"}, id=title)
            for title, text in texts.items()
        ],
        WordEvaluator(),
        settings=context,  # type: ignore[arg-type]
    )


def ask(llm: ReflectionLLM, **context: Any) -> dict[str, Any]:
    made = graph(llm, **context)
    result = made.invoke({"question": QUESTION})
    assert timeless(asyncio.run(made.ainvoke({"question": QUESTION}))) == timeless(result)
    return result  # type: ignore[no-any-return]


def test_the_reader_gets_the_kept_strips_of_each_document_with_its_title() -> None:
    llm, reader = reader_llm({"Jane Austen": 0.9, "Walter Scott": 0.5})
    result = ask(llm)
    asked = reader.calls[0]
    assert [passage.title for _, passage in asked] == ["Emma (town)", "Emma (novel)"]
    assert [passage.text for _, passage in asked] == [TOWN, NOVEL]
    assert {question for question, _ in asked} == {QUESTION}
    assert result["answer"] == "Jane Austen"
    assert result["cited_answer"] == "Jane Austen [2]"
    (citation,) = result["citations"]
    assert (citation["title"], citation["source"]) == ("Emma (novel)", "Emma.md")
    assert result["knowledge"][citation["passage"]].id == "Emma (novel)"
    assert result["costs"]["generate"]["model_calls"] == 1


def test_the_reader_refuses_where_no_piece_answers_and_without_knowledge() -> None:
    refused = ask(reader_llm({"Jane Austen": 0.1})[0])
    assert (refused["answer"], refused["citations"]) == (REFUSAL, [])
    empty = create_crag(reader_llm({})[0], lambda query: [], WordEvaluator())
    result: Any = empty.invoke({"question": QUESTION})
    assert (result["answer"], result["citations"]) == (NO_DOCUMENTS, [])


def test_the_answer_is_streamed_once_with_its_citation() -> None:
    llm, _ = reader_llm({"Jane Austen": 0.9})
    streamed = [
        message.text
        for message, about in graph(llm).stream({"question": QUESTION}, stream_mode="messages")
        if about["langgraph_node"] == "generate"
    ]
    assert "".join(streamed) == "Jane Austen [2]"
    events = list(graph(llm).stream({"question": QUESTION}, stream_mode="custom"))
    assert events[-1] == {"event": "answered", "answer": "Jane Austen", "citations": 1}
    said = graph(llm).invoke({"messages": [("human", QUESTION)]})["messages"]
    assert [message.text for message in said] == [QUESTION, "Jane Austen [2]"]


def test_a_task_instruction_is_no_part_of_what_the_reader_is_asked() -> None:
    llm, reader = reader_llm({"Jane Austen": 0.9})
    ask(llm, instruction="Answer the following question in one word.")
    assert {question for question, _ in reader.calls[0]} == {QUESTION}
