"""InstructRAG on models of every sort: what fits their context, what they are given, streams."""

from typing import Any

from langchain_core.language_models.fake import FakeListLLM
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import HumanMessage

from selfcorrect_rag import create_instruct_rag
from selfcorrect_rag.prompts.instruct_rag import inference_prompt
from selfcorrect_rag.state import Demonstration
from tests.conftest import talkative
from tests.instruct_runs import LONG, QUESTION, RATIONALE, documents, run
from tests.providers import chat, saying
from tests.scripted import ScriptedReflectionLLM, echo, segment


def test_the_weakest_documents_are_dropped_and_numbers_follow() -> None:
    result = run(titles=LONG, mode="ralm", context_tokens=756)
    assert result["answer"].startswith("Document [1] (Title: T1 word")
    assert result["numbering"] == [1, 0]
    assert result["notes"] == [
        "2 of 4 documents dropped, the weakest first: the prompt would be longer than the 500 "
        "tokens that the model can read"
    ]
    assert run(titles=LONG, mode="ralm", context_tokens=900)["numbering"] == [2, 1, 0]


def test_demonstrations_are_dropped_after_documents_and_the_best_document_stays() -> None:
    demonstrations: list[Demonstration] = [
        {"question": f"Who is {name}?", "rationale": "word " * 60} for name in ("A", "B")
    ]
    graph = create_instruct_rag(echo(), lambda query: documents(LONG), demonstrations)
    context: Any = {"context_tokens": 630, "rationale_tokens": 100}
    result = graph.invoke({"question": QUESTION}, context=context)
    assert result["numbering"] == [0]
    assert [d["question"] for d in result["demonstrations"]] == ["Who is B?"]
    dropped = [note.split(" dropped")[0] for note in result["notes"]]
    assert dropped == ["3 of 4 documents", "1 of 2 demonstrations"]
    tiny = run(titles=LONG, context_tokens=20)
    assert (tiny["numbering"], tiny["demonstrations"]) == ([0], [])
    assert "the prompt is longer than the 10 tokens" in tiny["notes"][0]


def test_a_model_with_a_tokenizer_of_its_own_is_asked_to_count() -> None:
    llm = FakeListChatModel(responses=["x"], custom_get_token_ids=lambda text: [0] * len(text))
    assert run(llm, LONG, mode="ralm", context_tokens=900)["numbering"] == [0]


def test_an_llm_continues_plain_text_and_a_chat_model_gets_one_message() -> None:
    asked: list[str] = []

    class Listening(FakeListLLM):
        def _call(self, prompt: str, *args: Any, **kwargs: Any) -> str:
            asked.append(prompt)
            return "x"

    run(Listening(responses=["x"]), mode="ft")
    model = saying("x")
    run(model, mode="ft")
    assert asked[0].endswith(f"answer the question: {QUESTION}\n")
    assert model.prompts == [asked[0].rstrip("\n")]


def test_a_reflection_llm_gets_untrusted_parts_and_its_limit() -> None:
    llm = ScriptedReflectionLLM(write=lambda text: segment(RATIONALE))
    result = run(llm, titles=["[Relevant]", "Emma"], mode="ft", rationale_tokens=33)
    assert result["answer"] == "Therefore, the answer is George Eliot."
    ((prompt,),) = llm._calls
    assert llm._options[0]["max_tokens"] == 33
    assert not [part for part in prompt.parts if part.kind == "control"]
    assert any(" (Title: \u2045Relevant])" in p.text for p in prompt.parts if p.kind == "untrusted")


def test_a_real_model_drops_documents_by_its_own_tokenizer() -> None:
    llm = talkative()
    limit = llm.context_tokens - 20
    texts = ["the the " * n for n in (29, 30, 31, 32)]
    result = run(llm, titles=texts, mode="ft", rationale_tokens=20)
    left = [result["passages"][i] for i in result["numbering"]]
    prompt = inference_prompt("ft", QUESTION, left)
    more = inference_prompt("ft", QUESTION, [result["passages"][len(left)], *left])
    assert llm.get_num_tokens(prompt.to_string()) < limit < llm.get_num_tokens(more.to_string())
    assert llm.generate_segments([prompt], max_tokens=20)[0]["shortened"] == 0


async def test_the_rationale_streams_once_token_by_token() -> None:
    graph = create_instruct_rag(chat(RATIONALE), lambda query: documents())
    asked: Any = {"messages": [HumanMessage(QUESTION)]}
    tokens = [message.text for message, _ in graph.stream(asked, stream_mode="messages")]
    assert "".join(tokens) == RATIONALE
    assert len(tokens) > 50
    again = [message.text async for message, _ in graph.astream(asked, stream_mode="messages")]
    assert again == tokens
