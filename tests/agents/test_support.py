"""Support of an answer by the result of a graph, and of any text by a model, sync and async."""

import asyncio
import re
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag import SupportJudge
from selfcorrect_rag.agents import missing_support, unsupported
from selfcorrect_rag.errors import ModelFailed
from selfcorrect_rag.reader import ReaderLLM
from tests.agents.scripted import PARTLY as PARTLY_LIKELY
from tests.agents.scripted import crag, instruct_rag, self_crag, self_rag
from tests.providers import Provider
from tests.scripted import document, nearly
from tests.test_prompted_llm import last_case

FULLY, PARTLY, NONE = "[Fully supported]", "[Partially supported]", "[No support / Contradictory]"
DECLINED = "the answer declines to answer: 'The documents do not say.'"
UNJUDGED, NOTHING = "support was not judged: ", "no knowledge was judged relevant, the action was "


@pytest.mark.parametrize(
    ("graph", "context", "partly", "fully"),
    [
        (self_rag(), {}, "", ""),
        (self_rag(PARTLY_LIKELY), {}, "", f"{PARTLY}: 'Emma for Who?'"),
        (self_rag(None), {}, *[f"{UNJUDGED}'Emma for Who?'"] * 2),
        (self_rag(retrieval=0.0), {}, *["written without evidence: 'Unread: Who?'"] * 2),
        (self_crag(), {}, "", ""),
        (self_crag(PARTLY_LIKELY), {}, "", f"{PARTLY}: 'Doc for Who?'"),
        (self_crag(None), {}, *[f"{UNJUDGED}'Doc for Who?'"] * 2),
        (crag("Gold."), {}, "", ""),
        (crag("Vague."), {}, "", "the action was ambiguous"),
        (crag("Noise."), {}, "", "the action was incorrect"),
        (crag("Gold."), {"strip_threshold": 1}, *[f"{NOTHING}correct"] * 2),
        (crag("Noise."), {"select": False}, *[f"{NOTHING}incorrect"] * 2),
        (instruct_rag(), {}, "", ""),
        (instruct_rag("The answer is Jane Austen."), {}, *["the rationale uses no document"] * 2),
        (instruct_rag("Document [1] is it. The documents do not say."), {}, *[DECLINED] * 2),
    ],
)
def test_support_of_a_graphs_answer(graph: Any, context: Any, partly: str, fully: str) -> None:
    result = graph.invoke({"question": "Who?"}, context=context)
    assert (missing_support(result), missing_support(result, "fully")) == (partly, fully)


def test_one_unsupported_segment_is_enough() -> None:
    result = self_rag().invoke({"question": "Who?"})
    (good, *_) = [c for c in result["candidates"] if c["chosen"]]
    bad = {**good, "depth": 1, "judgements": {"ISSUP": {NONE: 1.0}}}
    for chosen, reason in ((True, f"{NONE}: 'Emma for Who?'"), (False, "")):
        candidates = [*result["candidates"], {**bad, "chosen": chosen}]
        assert missing_support({**result, "candidates": candidates}) == reason


BOOK = document("Middlemarch", "Middlemarch is a novel by George Eliot. It was published in 1871.")
QUESTION = "Who wrote Middlemarch?"


def judged(llm: Any, text: str, *documents: Document) -> list[Any]:
    """Text and token of each claim, sync and async alike."""
    judge, given = SupportJudge(llm), (text, documents or (BOOK,), QUESTION)
    claims = judge.judge(*given)
    assert nearly(asyncio.run(judge.ajudge(*given)), claims)
    return [(claim["text"], claim["issup"]) for claim in claims]


def critic(prompt: str) -> str:
    """One that finds words: all of them, some or none."""
    said, evidence = re.split(r"\nEvidence: ", last_case(prompt).split("\nOutput: ")[1])
    words = re.findall(r"\w+", said.lower())
    found = sum(word in evidence.lower() for word in words) / len(words)
    return FULLY if found == 1 else PARTLY if found > 0.5 else NONE


def test_a_chat_model_is_asked_with_the_papers_prompt() -> None:
    llm = Provider(answer=critic)
    text = "Middlemarch is by George Eliot [1]. Danes own it. It was published late."
    assert judged(llm, text) == [
        ("Middlemarch is by George Eliot.", FULLY),
        ("Danes own it.", NONE),
        ("It was published late.", PARTLY),
    ]
    first, second, third = map(last_case, sorted(set(llm.prompts), key=len))
    assert f"Instruction: {QUESTION}\n" in first
    assert "Preceding sentences" not in first
    assert "Preceding sentences: Middlemarch is by George Eliot.\nOutput: Danes own it." in second
    assert "George Eliot. Danes own it.\nOutput: It was published late.\nEvidence: " in third


def test_one_call_for_each_claim() -> None:
    llm = Provider(answer=lambda prompt: FULLY, takes=frozenset({"logprobs"}))
    text = "Eliot. Do you want more? The documents do not say. I hope this helps."
    claims = SupportJudge(llm).judge(text, [BOOK])
    assert [c["text"] for c in claims] == ["Eliot.", "I hope this helps."]
    assert len(llm.calls) == 2
    assert claims[0]["probabilities"][FULLY] == pytest.approx(1.0)
    assert SupportJudge(llm).judge("", [BOOK]) == []


def test_a_sentence_may_rest_on_several_documents() -> None:
    other = Document("Eliot was born in Nuneaton.", metadata={"title": "George Eliot"})
    text = "Eliot born in Nuneaton published Middlemarch."
    assert judged(Provider(answer=critic), text, BOOK) == [(text, PARTLY)]
    assert judged(Provider(answer=critic), text, BOOK, other) == [(text, FULLY)]


def test_without_evidence_nothing_is_asked_or_supported() -> None:
    llm = Provider(answer=lambda prompt: FULLY)
    for documents in ([], [Document(" ")]):
        claims = SupportJudge(llm).judge("It was Eliot. The documents do not say.", documents)
        place = {"text": "It was Eliot.", "start": 0, "end": 13}
        assert claims == [{**place, "issup": NONE, "probabilities": {}}]
    assert llm.calls == []


def test_what_is_not_said_is_none() -> None:
    for llm in (Provider(answer=lambda prompt: "Hm."), ReaderLLM.load()):
        assert judged(llm, "It was Eliot.") == [("It was Eliot.", None)]


def test_why_a_text_is_not_supported() -> None:
    def claim(text: str, issup: str | None) -> Any:
        return {"text": text, "issup": issup, "probabilities": {}}

    claims = [claim("One.", FULLY), claim("Two.", PARTLY)]
    assert unsupported(claims) == unsupported([]) == ""
    assert unsupported(claims, "fully") == "[Partially supported]: 'Two.'"
    assert unsupported([*claims, claim("Three.", None)]) == "support was not judged: 'Three.'"
    assert unsupported([claim("No.", NONE)]) == "[No support / Contradictory]: 'No.'"


def test_a_judge_that_cannot() -> None:
    class Broken(ReaderLLM):
        def _segments(self, *args: Any, **options: Any) -> Any:
            raise OSError("gone")

    with pytest.raises(ModelFailed, match="gone"):
        SupportJudge(Broken(ReaderLLM.load().reader)).judge("It was Eliot.", [BOOK])
