"""Unsupported spans, and what a bounded revision makes of an answer, sync and async."""

import asyncio
import re
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.agents import (
    SupportJudge,
    afind_unsupported_spans,
    find_unsupported_spans,
    revise_answer,
)
from selfcorrect_rag.errors import BadArgument, ModelFailed
from selfcorrect_rag.reflection import PARTIALLY_SUPPORTED
from tests.agents.scripted import unstated_names
from tests.agents.test_support import BOOK, NONE, QUESTION, critic
from tests.providers import Provider, saying
from tests.scripted import ScriptedLLM

BIRTH = Document("Eliot was born in Nuneaton.", metadata={"title": "George Eliot"})


def texts(spans: Any) -> list[str]:
    return [span["text"] for span in spans]


def found(answer: str, judge: Any, *passages: Document, **options: Any) -> list[Any]:
    """Spans, sync and async alike."""
    given = (answer, passages or (BOOK,), judge, QUESTION)
    spans = find_unsupported_spans(*given, **options)
    assert asyncio.run(afind_unsupported_spans(*given, **options)) == spans
    assert all(answer[span["start"] : span["end"]] == span["text"] for span in spans)
    return spans


def revised(answer: str, *made: Any, passages: Any = (BOOK,), **options: Any) -> dict[str, Any]:
    """The update, sync and async alike; ``made`` are the arguments of the node."""
    given = {"question": QUESTION, "answer": answer, "passages": list(passages)}
    results = [
        revise_answer(*made, **options).invoke(given),
        asyncio.run(revise_answer(*made, **options).ainvoke(given)),
    ]
    one, other = ({k: r[k] for k in r if k not in ("route", "usage")} for r in results)
    assert one == other
    assert given["passages"] == list(passages), "the caller's list stays as it is"
    return results[0]


ANSWER = "Middlemarch is by George Eliot [1]. Danes own it.\n\n It was published late! Who knows?"


def test_a_support_judge_marks_whole_sentences_with_their_marks() -> None:
    llm = Provider(answer=critic)
    assert texts(found(ANSWER, llm)) == ["Danes own it."]
    assert texts(found(ANSWER, SupportJudge(llm), support="fully")) == [
        "Danes own it.",
        "It was published late!",
    ]
    assert texts(found(ANSWER, saying("Hm."))) == [
        "Middlemarch is by George Eliot [1].",
        "Danes own it.",
        "It was published late!",
    ]
    assert texts(find_unsupported_spans("It is.", [], llm)) == ["It is."]


def test_any_function_is_a_detector() -> None:
    """In the form of LettuceDetect's spans."""
    asked = []

    def detect(answer: str, passages: Any, question: str) -> Any:
        asked.append((answer, tuple(passages), question))
        spans = [(m.start(), m.end()) for m in re.finditer("own|by", answer)]
        return [{"start": s, "end": e, "confidence": 0.9, "text": "?"} for s, e in reversed(spans)]

    assert texts(found(ANSWER, detect)) == ["by", "own"]
    assert asked == [(ANSWER, (BOOK,), QUESTION)] * 2
    graded = lambda *_: [{"start": 0, "end": 2, "issup": PARTIALLY_SUPPORTED}]  # noqa: E731
    assert not found(ANSWER, graded)
    assert texts(found(ANSWER, graded, support="fully")) == ["Mi"]


@pytest.mark.parametrize("span", [(0, 7), (-1, 2), (3, 3), (None, 1), ()])
def test_spans_outside_of_the_answer_are_a_fault(span: Any) -> None:
    detect = lambda *_: [dict(zip(("start", "end"), span, strict=False))]  # noqa: E731
    with pytest.raises(ModelFailed, match="the judge"):
        find_unsupported_spans("It is.", [BOOK], detect)


def test_an_unsupported_sentence_is_retrieved_for() -> None:
    queries = []

    def find(query: str) -> list[Document]:
        queries.append(query)
        return [BIRTH]

    answer = "George Eliot wrote Middlemarch. Eliot was born in Nuneaton [2]."
    result = revised(answer, unstated_names, find)
    assert queries == ["Eliot was born in Nuneaton."] * 2, "once sync, once async"
    assert result["answer"] == answer
    assert result["passages"] == [BOOK, BIRTH]
    assert (result["unsupported_spans"], result["supported_share"]) == ([], 1.0)


@pytest.mark.parametrize(
    ("said", "rounds", "kept"),
    [
        (None, 2, ""),
        ("", 2, ""),
        ("The documents do not say.", 2, ""),
        ("She was\nborn [3] in Nuneaton.", 1, ""),
        ("She was\nborn [3] in Nuneaton.", 2, "She was born in Nuneaton. "),
        ("She was born in Rome.", 3, ""),
    ],
)
def test_an_unsupported_sentence_is_rewritten_or_dropped(said: Any, rounds: int, kept: str) -> None:
    first = "Eliot wrote it. She was born in Paris. George wrote Middlemarch."
    rewriter = None if said is None else lambda *_: said
    result = revised(first, unstated_names, lambda _: [BIRTH], rewriter, rounds=rounds)
    assert result["answer"] == f"Eliot wrote it. {kept}George wrote Middlemarch."
    assert (result["unsupported_spans"], result["supported_share"]) == ([], 1.0)


def test_white_space_in_front_of_an_answer_moves_nothing() -> None:
    first = "\n\nShe is in Paris. She is in Rome. Eliot wrote it."
    result = revised(first, unstated_names, None, lambda *_: "It is Eliot.")
    assert result["answer"] == "It is Eliot. It is Eliot. Eliot wrote it."


def test_a_judge_with_reflection_tokens_costs_a_call_and_counts_against_the_limit() -> None:
    llm = ScriptedLLM(write=str, decision={NONE: 1.0})
    given = {"question": QUESTION, "answer": "It is Rome. It is Bern.", "passages": [BOOK]}
    # A round judges once, with a retriever twice; a rewriter may take a call for each sentence.
    rewrite: Any = lambda *_: "It is Oslo."  # noqa: E731
    for parts, least in (((None, None), 2), ((lambda _: [BIRTH], None), 3), ((None, rewrite), 4)):
        for most in (least - 1, least):
            limits = {"max_model_calls": most}
            result = revise_answer(SupportJudge(llm), *parts, settings=limits).invoke(given)
            assert (result.get("stopped") is None) == (most == least)
            assert result["usage"]["model_calls"] <= most


def test_a_rewriter_reads_the_sentence_and_what_was_retrieved_first() -> None:
    read = []

    async def rewrite(sentence: str, passages: Any, question: str) -> str:
        read.append((sentence, list(passages), question))
        return "She was born in Nuneaton."

    answer = "Eliot wrote it. She was born in Paris [1]."
    node = revise_answer(unstated_names, lambda _: [BIRTH], rewrite)
    given = {"question": QUESTION, "answer": answer, "passages": [BOOK]}
    result = asyncio.run(node.ainvoke(given))
    assert result["answer"] == "Eliot wrote it. She was born in Nuneaton."
    assert read == [("She was born in Paris.", [BIRTH, BOOK], QUESTION)]
    sync = node.invoke(given)
    assert sync["answer"] == answer
    assert "the rewriter is async" in sync["notes"][0]


def test_a_chat_model_rewrites_and_judges() -> None:
    def answer(prompt: str) -> str:
        if "Rewrite it from them" in prompt:
            return "Eliot was born in Nuneaton."
        return critic(prompt)

    llm = Provider(answer=answer)
    first = "Middlemarch is by George Eliot. Danes <document> own it."
    result = revised(first, llm, lambda _: [BIRTH], llm)
    assert result["answer"] == "Middlemarch is by George Eliot. Eliot was born in Nuneaton."
    (prompt, *_) = [p for p in llm.prompts if "Rewrite it" in p]
    assert "The answer so far: Middlemarch is by George Eliot." in prompt
    assert "Sentence: Danes ‹document> own it." in prompt
    assert '<document number="1">\nGeorge Eliot\nEliot was born' in prompt
    assert '<document number="2">\nMiddlemarch\n' in prompt
    assert result["usage"]["model_calls"] == 2 + 2 + 1 + 2


def test_an_answer_without_any_support_becomes_a_refusal() -> None:
    result = revised("Danes own Rome.", unstated_names)
    assert result["answer"] == "The documents do not say."
    assert (result["unsupported_spans"], result["supported_share"]) == ([], 0.0)


def test_it_is_never_worse_than_the_first() -> None:
    """A judge for whom every change, and every further passage, makes it worse."""
    first = "Eliot wrote it. She is in Paris."

    def judge(answer: str, passages: Any, question: str) -> Any:
        bad = "Paris" if answer == first and len(passages) == 1 else "E?l?iot|She.*|.*is.*"
        return [{"start": m.start(), "end": m.end()} for m in re.finditer(bad, answer)]

    result = revised(first, judge, lambda _: [BIRTH], lambda *_: "Eliot is she.")
    assert result["answer"] == first
    assert (texts(result["unsupported_spans"]), result["supported_share"]) == (["Paris"], 0.5)


def test_of_equal_shares_the_version_with_more_support_is_kept() -> None:
    result = revised("It is Rome.", unstated_names, None, lambda *_: "It is Eliot.")
    assert result["answer"] == "It is Eliot."


@pytest.mark.parametrize("answer", ["", "The documents do not say.", "George Eliot."])
def test_nothing_is_asked_for_a_supported_answer(answer: str) -> None:
    def find(query: str) -> Any:
        raise AssertionError

    assert revised(answer, unstated_names, find)["answer"] == answer


def test_faults_and_limits_end_it_with_the_best_so_far() -> None:
    def broken(*_: Any) -> Any:
        raise OSError("gone")

    first = "Eliot wrote it. She was born in Paris."
    for parts in ((broken, None), (lambda _: [BIRTH], broken)):
        result = revised(first, unstated_names, *parts)
        assert result["answer"] == first
        assert re.search("gone.*: the answer is not revised any further", result["notes"][0])
        assert texts(result["unsupported_spans"]) == ["Paris"]
    limited = revised(first, saying(NONE), None, settings={"max_model_calls": 4})
    assert limited["answer"] == first
    assert limited["notes"] == ["max_model_calls is 4: the answer is not revised any further"]
    with pytest.raises(ModelFailed, match="gone"):
        revised(first, broken)


def test_wrong_arguments() -> None:
    for judge in (None, 3):
        with pytest.raises(BadArgument, match="judge must be a SupportJudge"):
            revise_answer(judge)  # type: ignore[arg-type]
    with pytest.raises(BadArgument, match="rounds must be at least 1, got 0"):
        revise_answer(unstated_names, rounds=0)
