"""The support of a text that is already there, by models with and without reflection tokens."""

import asyncio
import re
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag import SupportJudge
from selfcorrect_rag.agents import unsupported
from selfcorrect_rag.errors import ModelFailed
from selfcorrect_rag.reader import ReaderLLM
from tests.prompted_runs import last_case
from tests.providers import Provider
from tests.scripted import nearly

BOOK = Document(
    "Middlemarch is a novel by George Eliot. It was published in 1871.",
    metadata={"title": "Middlemarch"},
)
QUESTION = "Who wrote Middlemarch?"


def judged(llm: Any, text: str, *documents: Document) -> list[Any]:
    """Text and token of each claim, sync and async alike."""
    judge, given = SupportJudge(llm), (text, documents or (BOOK,), QUESTION)
    claims = judge.judge(*given)
    assert nearly(asyncio.run(judge.ajudge(*given)), claims)
    return [(claim["text"], claim["issup"]) for claim in claims]


FULLY, PARTLY, NONE = "[Fully supported]", "[Partially supported]", "[No support / Contradictory]"


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
        assert claims == [{"text": "It was Eliot.", "issup": NONE, "probabilities": {}}]
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
