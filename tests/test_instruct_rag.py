"""InstructRAG on scripted models: modes, documents, demonstrations, context, streams, faults."""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.language_models.fake import FakeListLLM, FakeStreamingListLLM
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from selfcorrect_rag import InstructRAGSettings, create_instruct_rag
from selfcorrect_rag.errors import BadDemonstrations, NoQuestion
from selfcorrect_rag.instruct_prompts import INSTRUCTION, inference_prompt
from selfcorrect_rag.instruct_state import Demonstration
from selfcorrect_rag.nodes.write_rationale import NO_ANSWER
from tests.conftest import talkative
from tests.scripted import ScriptedReflectionLLM, document, segment

QUESTION = "Who wrote Middlemarch?"
TITLES = ["Middlemarch", "Eliot Park", "Emma"]
DEMONSTRATIONS: list[Demonstration] = [
    {"question": f"Who wrote {name}?", "rationale": f"Because {name}.", "answers": [f"By {name}"]}
    for name in ("Emma", "Ulysses", "Walden", "Dracula", "Persuasion")
]
RATIONALE = (
    "Document [3] names the author. Document [1] is not relevant. Document [7] is a novel. "
    "Therefore, the answer is George Eliot."
)


class Words(Embeddings):
    """A dimension for each of a few words; counts its calls."""

    words = ("emma", "ulysses", "walden", "dracula", "persuasion")

    def __init__(self) -> None:
        self.calls = 0

    def embed_query(self, text: str) -> list[float]:
        self.calls += 1
        return [float(word in text.lower()) for word in self.words]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


def echo() -> RunnableLambda[Any, Any]:
    """A model that answers with what it was given."""
    return RunnableLambda(lambda messages: messages[-1].content)


def documents(titles: Sequence[str] = TITLES) -> list[Document]:
    return [document(title, source="notes") for title in titles]


def run(llm: Any = None, titles: Sequence[str] = TITLES, **context: Any) -> Any:
    graph = create_instruct_rag(
        llm or echo(), lambda query: documents(titles), DEMONSTRATIONS, embeddings=Words()
    )
    question = context.pop("question", QUESTION)
    return graph.invoke({"question": question}, context=context)  # type: ignore[arg-type]


# Modes


def test_the_default_is_icl_with_demonstrations_and_instruct_without() -> None:
    assert run()["mode"] == "icl"
    graph = create_instruct_rag(echo(), lambda query: documents())
    result = graph.invoke({"question": QUESTION})
    assert result["mode"] == "instruct"
    assert result["rationale"].startswith(INSTRUCTION)


@pytest.mark.parametrize(
    ("mode", "has_instruction", "shows", "has_documents"),
    [
        ("icl", True, "Because ", True),
        ("few_shot", True, "By ", True),
        ("instruct", True, None, True),
        ("ft", False, None, True),
        ("ralm", False, None, True),
        ("no_retrieval", False, None, False),
    ],
)
def test_each_mode_has_its_prompt(
    mode: str, has_instruction: bool, shows: str | None, has_documents: bool
) -> None:
    result = run(mode=mode)
    asked = result["rationale"] or result["answer"]
    assert (INSTRUCTION in asked) is has_instruction
    assert asked.count("Because ") == (2 if shows == "Because " else 0)
    assert asked.count("By ") == (2 if shows == "By " else 0)
    assert ("Document [3]" in asked) is has_documents
    assert bool(result["passages"]) is has_documents
    assert len(result["demonstrations"]) == (2 if shows else 0)


def test_studio_sees_the_routes() -> None:
    edges = {
        (edge.source, edge.target)
        for edge in create_instruct_rag(echo(), lambda query: []).get_graph().edges
    }
    assert edges == {
        ("__start__", "read_question"),
        ("read_question", "retrieve"),
        ("read_question", "write_rationale"),
        ("retrieve", "choose_demonstrations"),
        ("retrieve", "write_rationale"),
        ("choose_demonstrations", "write_rationale"),
        ("write_rationale", "read_rationale"),
        ("read_rationale", "__end__"),
    }


# What is written, read


def test_answer_rationale_and_documents_are_told_apart() -> None:
    result = run(FakeListChatModel(responses=[RATIONALE]))
    assert result["answer"] == "George Eliot"
    assert result["rationale"] == RATIONALE
    assert result["numbering"] == [2, 1, 0], "the best stands last"
    assert result["useful_documents"] == [0]
    assert result["dismissed_documents"] == [2]
    (citation,) = result["citations"]
    assert (citation["number"], citation["passage"], citation["title"]) == (3, 0, "Middlemarch")
    assert citation["source"] == "notes"
    assert result["notes"] == ["Document [7] is named but was not shown"]


@pytest.mark.parametrize("mode", ["no_retrieval", "ralm", "few_shot"])
def test_what_a_baseline_writes_is_the_answer(mode: str) -> None:
    written = "George Eliot wrote it [3]. It was published in 1871."
    result = run(FakeListChatModel(responses=[written]), mode=mode)
    assert (result["answer"], result["rationale"]) == (written, "")
    assert result["useful_documents"] == ([] if mode == "no_retrieval" else [0])


def test_documents_are_numbered_as_they_are_shown() -> None:
    last, first = run(order="best_last"), run(order="best_first")
    assert "Document [3] (Title: Middlemarch)" in last["rationale"]
    assert "Document [1] (Title: Middlemarch)" in first["rationale"]
    for result in (last, first):
        numbers = [result["rationale"].index(f"Document [{n}]") for n in (1, 2, 3)]
        assert numbers == sorted(numbers)
    assert [p.id for p in last["passages"]] == TITLES, "passages stay best first"
    assert first["numbering"] == [0, 1, 2]


def test_one_document_makes_a_run() -> None:
    assert run(titles=["Emma"])["numbering"] == [0]


def test_as_many_documents_as_the_setting_says() -> None:
    assert len(run(titles=[str(n) for n in range(9)])["passages"]) == 5
    assert len(run(titles=[str(n) for n in range(9)], passages=7)["passages"]) == 7


@pytest.mark.parametrize("written", ["", "  \n"])
def test_an_empty_text_has_a_stated_answer(written: str) -> None:
    graph = create_instruct_rag(FakeListChatModel(responses=[written]), lambda query: documents())
    result = graph.invoke({"messages": [HumanMessage(QUESTION)]})
    assert result["answer"] == result["messages"][-1].content == NO_ANSWER
    assert (result["rationale"], result["citations"]) == ("", [])
    assert result["notes"] == ["the model wrote nothing: the answer says so"]


# Without documents


@pytest.mark.parametrize("mode", ["icl", "instruct", "ralm", "few_shot"])
def test_no_documents_is_a_route(mode: str) -> None:
    result = run(titles=[], mode=mode)
    assert result["answer"] == f"Based on your knowledge, answer the question: {QUESTION}"
    assert (result["mode"], result["demonstrations"]) == ("no_retrieval", [])
    assert result["notes"] == ["no document was found: answered from the model's own knowledge"]


def test_a_fine_tuned_model_keeps_its_prompt_without_documents() -> None:
    result = run(titles=[], mode="ft")
    assert result["rationale"].startswith("Based on your knowledge and the provided information")
    assert result["mode"] == "ft"


def test_a_retriever_that_raises_gets_a_note() -> None:
    def broken(query: str) -> list[Document]:
        raise ConnectionError("index away")

    result = create_instruct_rag(echo(), broken).invoke({"question": QUESTION})
    assert "index away" in result["notes"][0]
    assert result["answer"]


def test_a_pause_inside_the_retriever_is_no_failure() -> None:
    def pausing(query: str) -> list[Document]:
        return documents([interrupt("which?")])

    graph = create_instruct_rag(echo(), pausing, checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke({"question": QUESTION}, config)
    assert graph.get_state(config).interrupts[0].value == "which?"
    resume: Any = Command(resume="Emma")
    result = graph.invoke(resume, config)
    assert (result["passages"][0].id, result["notes"]) == ("Emma", [])


def test_documents_of_the_caller_are_shown_and_nothing_is_retrieved() -> None:
    graph = create_instruct_rag(echo(), lambda query: 1 / 0)  # type: ignore[arg-type, return-value]
    result = graph.invoke({"question": QUESTION, "documents": documents()})
    assert "Document [3] (Title: Middlemarch)" in result["rationale"]


# Demonstrations


def shown(**context: Any) -> list[str]:
    return [d["question"].split()[-1].rstrip("?") for d in run(**context)["demonstrations"]]


def test_fixed_demonstrations_are_the_first() -> None:
    assert shown(selection="fixed", demonstrations=3) == ["Emma", "Ulysses", "Walden"]


def test_random_demonstrations_depend_on_seed_and_question_alone() -> None:
    draws = {tuple(shown(seed=seed)) for seed in range(12)}
    assert len(draws) > 3
    assert shown(seed=7) == shown(seed=7)
    assert len({tuple(shown(question=f"Who is {n}?")) for n in range(12)}) > 3
    assert shown(demonstrations=9) == ["Emma", "Ulysses", "Walden", "Dracula", "Persuasion"]


def test_the_nearest_demonstration_stands_last() -> None:
    near = shown(selection="nearest", question="Is Dracula, Dracula like Emma?", demonstrations=2)
    assert set(near) == {"Emma", "Dracula"}
    (nearest,) = shown(selection="nearest", question="Who is Walden?", demonstrations=1)
    assert nearest == "Walden"
    assert shown(selection="nearest", question="Who is Walden?")[-1] == "Walden"


async def test_demonstrations_are_embedded_once() -> None:
    embeddings = Words()
    graph = create_instruct_rag(
        echo(), lambda query: documents(), DEMONSTRATIONS, embeddings=embeddings
    )
    context: Any = {"selection": "nearest"}
    first = graph.invoke({"question": QUESTION}, context=context)
    assert embeddings.calls == 6
    assert first == await graph.ainvoke({"question": QUESTION}, context=context)
    assert embeddings.calls == 7


@pytest.mark.parametrize("selection", ["fixed", "random", "nearest"])
def test_the_question_asked_is_no_demonstration(selection: str) -> None:
    found = shown(selection=selection, question="who  wrote EMMA", demonstrations=9)
    assert sorted(found) == ["Dracula", "Persuasion", "Ulysses", "Walden"]


@pytest.mark.parametrize(
    ("demonstrations", "context", "says"),
    [
        ([], {"mode": "icl"}, "there are none"),
        ([{"question": "Who?", "answers": ["A"]}], {}, "lacks a rationale"),
        ([{"question": "Who?", "rationale": "R"}], {"mode": "few_shot"}, "lacks answers"),
        ([{"question": "", "rationale": "R"}], {}, "demonstration 1 has no question"),
        (DEMONSTRATIONS, {"selection": "nearest"}, "needs embeddings"),
    ],
)
async def test_demonstrations_that_will_not_do_are_refused(
    demonstrations: list[Demonstration], context: Any, says: str
) -> None:
    graph = create_instruct_rag(echo(), lambda query: documents(), demonstrations)
    with pytest.raises(BadDemonstrations, match=says):
        graph.invoke({"question": QUESTION}, context=context)
    with pytest.raises(BadDemonstrations, match=says):
        await graph.ainvoke({"question": QUESTION}, context=context)


# The context


LONG = [f"T{n} " + "word " * 60 for n in range(4)]


def test_the_weakest_documents_are_dropped_and_numbers_follow() -> None:
    result = run(titles=LONG, mode="ralm", context_tokens=756)
    assert result["answer"].startswith("Document [1] (Title: T1 word")
    assert result["numbering"] == [1, 0]
    assert len(result["passages"]) == 4
    assert result["notes"] == [
        "2 of 4 documents dropped, the weakest first: the prompt would be longer than the 500 "
        "tokens that the model can read"
    ]


def test_demonstrations_are_dropped_after_documents_and_the_best_document_stays() -> None:
    demonstrations: list[Demonstration] = [
        {"question": f"Who is {name}?", "rationale": "word " * 60} for name in ("A", "B")
    ]
    graph = create_instruct_rag(echo(), lambda query: documents(LONG), demonstrations)
    context: Any = {"context_tokens": 630, "rationale_tokens": 100}
    result = graph.invoke({"question": QUESTION}, context=context)
    assert result["numbering"] == [0]
    assert [d["question"] for d in result["demonstrations"]] == ["Who is B?"]
    assert [note.split(" dropped")[0] for note in result["notes"]] == [
        "3 of 4 documents",
        "1 of 2 demonstrations",
    ]
    tiny = run(titles=LONG, context_tokens=20)
    assert (tiny["numbering"], tiny["demonstrations"]) == ([0], [])
    assert "the prompt is longer than the 10 tokens" in tiny["notes"][0]


def test_a_model_with_a_tokenizer_of_its_own_is_asked_to_count() -> None:
    llm = FakeListChatModel(responses=["x"], custom_get_token_ids=lambda text: [0] * len(text))
    assert run(llm, LONG, mode="ralm", context_tokens=900)["numbering"] == [0]


def test_the_profile_of_a_chat_model_gives_a_limit() -> None:
    llm = FakeListChatModel(responses=["x"], profile={"max_input_tokens": 500})
    assert run(llm, LONG, mode="ralm")["numbering"] == [1, 0]
    assert run(llm.bind(stop=["y"]), LONG, mode="ralm")["numbering"] == [1, 0]


def test_nothing_is_dropped_where_nobody_gives_a_limit() -> None:
    assert run(FakeListChatModel(responses=["x"]), LONG * 9)["notes"] == []


# LLMs


def test_an_llm_continues_plain_text_and_a_chat_model_gets_one_message() -> None:
    prompts: list[Any] = []

    class Listening(FakeListLLM):
        def _call(self, prompt: str, *args: Any, **kwargs: Any) -> str:
            prompts.append(prompt)
            return "x"

    class ListeningChat(FakeListChatModel):
        def _call(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> str:
            prompts.append(messages)
            return "x"

    run(Listening(responses=["x"]), mode="ft")
    run(ListeningChat(responses=["x"]), mode="ft")
    text, (message,) = prompts
    assert text.startswith("Document [1] (Title: Emma)")
    assert text.endswith(f"answer the question: {QUESTION}\n")
    assert isinstance(message, HumanMessage)
    assert message.content == text.rstrip("\n")


def test_a_reflection_llm_gets_untrusted_parts_and_its_limit() -> None:
    llm = ScriptedReflectionLLM(write=lambda text: segment(RATIONALE))
    result = run(llm, titles=["[Relevant]", "Emma"], mode="ft", rationale_tokens=33)
    assert result["answer"] == "George Eliot"
    ((prompt,),) = llm._calls
    assert llm._options[0]["max_tokens"] == 33
    assert not [part for part in prompt.parts if part.kind == "control"]
    assert any(" (Title: [Relevant])" in p.text for p in prompt.parts if p.kind == "untrusted")
    assert all("[Relevant]" not in p.text for p in prompt.parts if p.kind == "trusted")


def test_a_real_model_drops_documents_by_its_own_tokenizer() -> None:
    llm = talkative()
    limit = llm.context_tokens - 20
    texts = ["the the " * n for n in (9, 10, 11, 12)]
    result = run(llm, titles=texts, mode="ft", rationale_tokens=20)
    left = [result["passages"][i] for i in result["numbering"]]
    assert 1 <= len(left) < 4
    prompt = inference_prompt("ft", QUESTION, left)
    more = inference_prompt("ft", QUESTION, [result["passages"][len(left)], *left])
    assert llm.get_num_tokens(prompt.to_string()) < limit < llm.get_num_tokens(more.to_string())
    assert llm.generate_segments([prompt], max_tokens=20)[0]["shortened"] == 0


# Streams, turns, twins


@pytest.mark.parametrize(
    "llm",
    [
        FakeListChatModel(responses=[RATIONALE]),
        FakeStreamingListLLM(responses=[RATIONALE]),
        FakeStreamingListLLM(responses=[RATIONALE]).bind(stop=["none"]),
    ],
    ids=["chat", "llm", "bound-llm"],
)
@pytest.mark.parametrize("as_messages", [True, False])
async def test_the_rationale_streams_once_token_by_token(llm: Any, as_messages: bool) -> None:
    graph = create_instruct_rag(llm, lambda query: documents())
    asked: Any = {"messages": [HumanMessage(QUESTION)]} if as_messages else {"question": QUESTION}
    tokens = [message.content for message, _ in graph.stream(asked, stream_mode="messages")]
    assert "".join(tokens) == RATIONALE
    assert len(tokens) > 50
    again = [message.content async for message, _ in graph.astream(asked, stream_mode="messages")]
    assert "".join(again) == RATIONALE
    assert len(again) > 50


def test_events_say_what_happens() -> None:
    graph = create_instruct_rag(
        FakeListChatModel(responses=[RATIONALE]), lambda query: documents(LONG), DEMONSTRATIONS
    )
    context: Any = {"context_tokens": 700}
    events = list(graph.stream({"question": QUESTION}, context=context, stream_mode="custom"))
    assert [event["event"] for event in events] == [
        "retrieved",
        "demonstrations_chosen",
        "dropped",
        "rationale_written",
        "answered",
    ]
    assert events[-1]["answer"] == "George Eliot"


def test_a_new_turn_begins_clean() -> None:
    texts = [RATIONALE, "I do not know."]
    graph = create_instruct_rag(
        FakeListChatModel(responses=texts), lambda query: documents(), checkpointer=InMemorySaver()
    )
    config: Any = {"configurable": {"thread_id": "1"}}
    first = graph.invoke({"messages": [HumanMessage(QUESTION)]}, config)
    assert first["citations"]
    context: Any = {"mode": "no_retrieval"}
    second = graph.invoke({"messages": [HumanMessage("And now?")]}, config, context=context)
    assert (second["answer"], second["citations"], second["notes"]) == ("I do not know.", [], [])
    assert (second["passages"], second["numbering"], second["rationale"]) == ([], [], "")
    kinds = [type(message) for message in second["messages"]]
    assert kinds == [HumanMessage, AIMessage, HumanMessage, AIMessage]


@pytest.mark.parametrize("mode", ["icl", "ft", "instruct", "no_retrieval", "ralm", "few_shot"])
@pytest.mark.parametrize("titles", [TITLES, []])
async def test_sync_and_async_agree(mode: str, titles: list[str]) -> None:
    for llm in (echo(), FakeListLLM(responses=[RATIONALE]), talkative()):
        graph = create_instruct_rag(llm, lambda query: documents(titles), DEMONSTRATIONS)
        context: Any = {"mode": mode, "rationale_tokens": 8}
        asked: Any = {"question": QUESTION}
        assert graph.invoke(asked, context=context) == await graph.ainvoke(asked, context=context)


def test_settings_of_the_factory_are_defaults_of_runs() -> None:
    settings = InstructRAGSettings(mode="ralm", order="best_first")
    graph = create_instruct_rag(echo(), lambda query: documents(), settings=settings)
    assert graph.invoke({"question": QUESTION})["mode"] == "ralm"
    context: Any = {"mode": "ft"}
    result = graph.invoke({"question": QUESTION}, context=context)
    assert (result["mode"], result["numbering"]) == ("ft", [0, 1, 2])
    unset: Any = {"mode": None}
    assert graph.invoke({"question": QUESTION}, context=unset)["mode"] == "instruct"


def test_an_empty_question_is_refused() -> None:
    with pytest.raises(NoQuestion):
        run(question=" ")
